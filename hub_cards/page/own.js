// A folder of one's own: which of its files are read, and why the page cannot run its model, if it cannot.

const RULES = JSON.parse(document.getElementById("rules").textContent);
const FILES = ["config.json", "model.safetensors", "certificate.json"], MOST_BYTES = 2 ** 28;

function told(value) {
  if (value === null || typeof value === "boolean") return value ? "yes" : "no";
  return String(value).replaceAll("_", " ");
}

// As `unfit` of build.py, from the same tables.
export function unfit(config) {
  const { runs, couplings, format, words, sentences } = RULES, task = config.task ?? {}, name = String(task.task);
  if (/[\u{10000}-\u{10ffff}]/u.test(JSON.stringify(config.transducer ?? null))) return sentences.symbols;
  if (!task.task) return sentences.task;
  if (name.includes("grid")) return sentences.grid;
  if (config.model_type === "pairwise_bert" && config.transducer) return sentences.encoder;
  const kind = runs.dense.position_encoding.includes(config.position_encoding) ? "dense" : config.model_type;
  if (!runs[kind]) return sentences.kind;
  const legal = Object.entries(runs[kind]).map(([field, values]) => [field, config[field] ?? null, values]);
  for (const [field, value] of Object.entries(format)) {
    if (field in task) legal.push([`task.${field}`, task[field], [value]]);
  }
  if (kind !== "pairwise_bert") {
    const rule = config.transducer ? "columns" : couplings[name] ?? name;
    const rules = kind === "dense" ? [rule, "sequential", `${rule}_marked_top`] : [rule];
    legal.push(["coupling", config.coupling ?? null, rules]);
  }
  const [field, value, values] = legal.find(([, value, values]) => !values.includes(value)) ?? [];
  if (!field) return "";
  const wanted = values.map(told).join(" or ");
  return `it has a setting that this page does not run, ${words[field]}: ${told(value)} instead of ${wanted}`;
}

// The model in the files of a folder, as the page holds its own models. A run's folder has others in folders of its own.
export async function readFolder(files) {
  const parts = (file) => (file.webkitRelativePath || file.name).split("/"), folder = parts(files[0])[0], found = {};
  for (const file of files) if (parts(file).length <= 2 && FILES.includes(file.name)) found[file.name] = file;
  const missing = FILES.slice(0, 2).find((name) => !found[name]);
  const advice = "choose the folder of a model, such as outputs/addition";
  if (missing) throw new Error(`the folder ${folder} has no ${missing}: ${advice}`);
  const [configFile, weights, certificate] = FILES.map((name) => found[name]), config = await configFile.text();
  if (weights.size > MOST_BYTES) throw new Error(`the weights in ${folder} have ${weights.size} bytes, too many for a page`);
  const fields = readObject(config);
  if (!fields) throw new Error(`the file config.json in ${folder} is no JSON object`);
  const task = String(fields.task?.task ?? "of no known task").replaceAll("_", " ");
  return {
    name: folder, config, certificate: certificate ? await certificate.text() : null, bytes: await weights.arrayBuffer(),
    unfit: unfit(fields), about: `Of a folder of yours: ${task}.`, group: "Your folders", state: "state", lesson: "",
    examples: [], code: "",
  };
}

function readObject(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
