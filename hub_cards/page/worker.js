// The worker: answers what the page asks, one message at a time, and tells how far it is.

import { Network, readTensors, unfitArithmetic } from "./network.js";
import { ALPHABET, SIGN, tasksOf } from "./sheets.js";
import { BATCH, decode, fillIn, Finder, Memory, readAnswer, settle, symbolsOf } from "./solve.js";
import { leadsOf, search } from "./search.js";

const MOST_DRAWN = 500, TRIES = 4000, LABELS = [..."0123456789_?"];
const models = new Map();
let tell = () => {};

// The bytes of a text of 7 bits a character, inflated; the tensors' bytes lie in planes, first bytes of all values first.
export async function unpack(text) {
  const packed = new Uint8Array(Math.floor((text.length * 7) / 8));
  let bits = 0, count = 0;
  for (let place = 0, to = 0; place < text.length; place++) {
    bits = ((bits << 7) | (text.charCodeAt(place) & 127)) & 0x3fff;
    if ((count += 7) >= 8 && to < packed.length) packed[to++] = bits >> (count -= 8);
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const start = 8 + Number(new DataView(bytes.buffer).getBigUint64(0, true)), size = (bytes.length - start) / 4, whole = bytes.slice();
  for (let value = 0; value < size; value++) for (let plane = 0; plane < 4; plane++) whole[start + 4 * value + plane] = bytes[start + plane * size + value];
  return whole;
}

const hash = async (bytes) => [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// What the certificate beside a checkpoint says; `fault` if it is not of these files or is none.
async function readCertificate(text, files) {
  if (text === null) return { fault: "it comes without a certificate" };
  const stated = JSON.parse(text);
  if (stated.certified !== true) return { fault: "its certificate says that it is not certified" };
  for (const [name, content] of Object.entries(files)) {
    if (stated.files?.[name] !== (await hash(content))) return { fault: `its certificate is of another ${name}` };
  }
  const right = { neighbourhoods: "number", margin: "number", bound: "number", ratio: "number", statement: "string" };
  const wrong = Object.keys(right).find((name) => typeof stated[name] !== right[name]);
  return wrong ? { fault: `its certificate.json has no legal field ${wrong}` } : stated;
}

async function load({ name, config: text, certificate: stated, weights }) {
  const arithmetic = unfitArithmetic();
  if (arithmetic) throw new Error(arithmetic);
  const bytes = await unpack(weights), config = JSON.parse(text), tasks = tasksOf(config), tensors = readTensors(bytes);
  const network = new Network(config, tensors);
  const files = { "config.json": new TextEncoder().encode(text), "model.safetensors": bytes };
  const certificate = await readCertificate(stated, files).catch((error) => ({ fault: `its certificate cannot be read: ${error.message}` }));
  models.set(name, { network, tasks, memory: new Memory(network) });
  const parameters = Object.values(tensors).reduce((sum, { values }) => sum + values.length, 0);
  return { certificate, parameters, heads: network.heads, encoder: network.encoder, tasks: tasks.map(describe) };
}

// What the page shows of a task: its window, and its machine's table if a column holds two symbols at most.
function describe({ name, legal, window, machines, sizes, blank, square, draw, tokens, encoder }) {
  const machine = machines(blank(sizes(4).at(-1))).at(name === "addition_scratchpad" ? 2 : 0), example = draw(3);
  const described = { name, legal, window, example, square: Boolean(square), table: null }, text = (symbol) => (encoder && symbol < 12 ? LABELS : tokens)[symbol];
  const inputs = machine.inputs(1).map(([, , domain]) => domain), states = new Set(machine.starts), rows = [];
  if (inputs.length > 2) return described;
  for (const state of states) {
    if (states.size > 100) break;
    for (const first of inputs[0]) {
      for (const second of inputs[1] ?? [null]) {
        const taken = machine.step(state, second === null ? [first] : [first, second], 1);
        if (taken) states.add(taken[1]);
        rows.push([state, text(first), second === null ? null : text(second), taken && taken[0].map(text), taken && taken[1]]);
      }
    }
  }
  return { ...described, table: { states: [...states], inputs: inputs.map((domain) => domain.map(text)), rows } };
}

function readQuestion(tasks, question) {
  const asked = question.replace(/\s+/g, "");
  for (const task of tasks) {
    const words = task.read(asked);
    if (words) return { task, words, asked: asked.replace(/=$/, "") };
  }
  throw new Error(`this is not ${tasks.map((task) => task.legal).join(", nor ")}`);
}

// The answer to a question, how it was found, and whether the machines write the same.
function answer(model, question, { memory = model.memory, drawn = true } = {}) {
  const { task, words, asked } = readQuestion(model.tasks, question), began = performance.now(), paper = task.sheet(words);
  const right = fillIn(task, words, paper), { states, passes } = task.encoder ? settle(memory, task, paper, MOST_DRAWN, tell) : {};
  const tokens = states ?? decode(memory, task, paper, right, tell), seconds = (performance.now() - began) / 1000;
  const first = paper.query, count = tokens.length - first;
  let wrong = -1;
  for (let place = first; place < Math.max(tokens.length, right.length) && wrong < 0; place++) if (tokens[place] !== right[place]) wrong = place;
  const result = { question: asked, answer: readAnswer(task, paper, tokens), part: task.name, count, seconds, wrong: wrong >= 0, right: wrong >= 0 ? readAnswer(task, paper, right) : null };
  if (tokens.length > MOST_DRAWN || !drawn) return result;
  return { ...result, drawing: task.encoder ? drawPasses(paper, passes) : drawTokens(memory.network, task, paper, tokens, wrong) };
}

const drawPasses = (paper, passes) => ({ tokens: paper.text.map((token) => ALPHABET[token]), passes: passes.map((pass) => [...Array(paper.query).fill(""), ...[...pass].map((label) => LABELS[label])]) });

// Where tokens stand, their ids, and what each token of the response was written from.
function drawTokens(network, task, paper, tokens, wrong) {
  const finder = new Finder(paper, task), symbol = (place) => network.symbol(tokens[place]), sights = [];
  for (let place = paper.query - 1; place < tokens.length - 1; place++) {
    const found = finder.keys(place, true).sort((left, right) => left[0] - right[0]), keys = symbolsOf(network, found, symbol);
    const weights = network.attention(symbol(place), keys), size = keys.length;
    // `$`, which stands first, is listed first.
    const percent = Array.from({ length: network.heads }, (_, head) => [size - 1, ...found.keys()].map((key) => Math.round(100 * weights[head * size + key])));
    sights.push({ query: place, keys: [0, ...found.map(([key]) => key)], weights: percent });
  }
  const columns = paper.column.map((column, place) => (column === SIGN ? null : (task.forward && paper.row[place] >= paper.row[paper.query - 1] ? -1 : 1) * column + (paper.shift?.(paper.row[place]) ?? 0)));
  return {
    tokens: tokens.map((token) => task.tokens[token]), rows: paper.row, columns, forward: Boolean(task.forward), query: paper.query, blocks: paper.blocks, wrong, sights,
    ids: paper.ids.filter((level) => level.some(Boolean)), heads: network.heads,
  };
}

// All neighbourhoods of a task, listed once.
function list(model, task) {
  const said = (size, count) => tell(0, count, `searching, problems of size ${size}: ${count.toLocaleString("en")} neighbourhoods`);
  return (task.found ??= [...search(task, model.network, said).values()]);
}

// Every neighbourhood of each part and its lead; how many are wrong, and the closest one.
function check(model, network = model.network, stop = Infinity) {
  const began = performance.now(), parts = [];
  for (const task of model.tasks) {
    list(model, task);
    const part = { name: task.name, count: task.found.length, checked: 0, wrong: 0, lead: Infinity };
    for (let place = 0; place < task.found.length && part.wrong < stop; place += BATCH) {
      const cases = task.found.slice(place, place + BATCH);
      for (const [offset, lead] of leadsOf(network, cases).entries()) {
        if (!(lead > 0)) part.wrong++;
        if (!(lead >= part.lead)) [part.lead, part.closest] = [lead, cases[offset]];
      }
      part.checked += cases.length;
      tell(part.checked, task.found.length, `${task.name}: ${part.checked.toLocaleString("en")} of ${task.found.length.toLocaleString("en")} neighbourhoods`);
    }
    if (part.closest) part.closest = describeCase(network, part.closest, task.tokens);
    parts.push(part);
  }
  return { parts, seconds: (performance.now() - began) / 1000 };
}

// For each relation of a window, whether the search fails without it.
function needed(network, task) {
  return task.window.map((_, place) => {
    tell(place, task.window.length, `relation ${place + 1} of ${task.window.length}`);
    try {
      search({ ...task, window: task.window.with(place, ["absent"]) }, network);
      return false;
    } catch {
      return true;
    }
  });
}

function describeCase(network, { own, keys, right }, tokens) {
  const texts = new Map([...network.symbols].map(([code, symbol]) => [symbol, tokens[Math.floor(code / 64)] ? `${tokens[Math.floor(code / 64)]}${code % 64 ? ` (${LABELS[(code % 64) - 1]})` : ""}` : "the sink"]));
  return { own: texts.get(own), keys: keys.map(([key]) => texts.get(key)), right: network.encoder ? LABELS[right] : tokens[right] };
}

// A model with noise on its weights: what becomes wrong, and a problem that shows it.
function breakIt(model, amount) {
  for (const task of model.tasks) list(model, task);
  const network = model.network.noisy(amount), memory = new Memory(network), found = check(model, network), wrong = found.parts.some((part) => part.wrong);
  let example = null;
  for (let attempt = 0; wrong && !example && attempt < TRIES; attempt++) {
    const broken = model.tasks.filter((_, part) => found.parts[part].wrong), task = broken[attempt % broken.length];
    const read = answer(model, task.draw(1 + (attempt % (task.square ? 4 : 9))), { memory });
    if (read.wrong) example = read;
  }
  return { ...found, example };
}

const ACTIONS = {
  load,
  ask: ({ name, question, drawn }) => answer(models.get(name), question, { drawn }),
  draw: ({ name, part, size }) => {
    const model = models.get(name);
    return answer(model, model.tasks.find((task) => task.name === part).draw(size));
  },
  check: ({ name, stop }) => check(models.get(name), undefined, stop ?? Infinity),
  needed: ({ name }) => models.get(name).tasks.map((task) => needed(models.get(name).network, task)),
  break: ({ name, amount }) => breakIt(models.get(name), amount),
  logits: ({ name, question }) => logitsOf(models.get(name), question),
};

// The logits of each token of the right response, for a comparison with other programs.
function logitsOf(model, question) {
  const { task, words } = readQuestion(model.tasks, question), paper = task.sheet(words), tokens = fillIn(task, words, paper), { network } = model;
  const finder = new Finder(paper, task), cases = [], labels = task.encoder ? tokens : null;
  for (let place = task.encoder ? paper.query : paper.query - 1; place < tokens.length - (task.encoder ? 0 : 1); place++) {
    const symbol = (key) => (labels ? network.symbol(paper.text[key], key >= paper.query ? labels[key] : -1) : network.symbol(tokens[key]));
    cases.push({ own: symbol(place), keys: symbolsOf(network, finder.keys(place, !task.encoder), symbol) });
  }
  return network.logits(cases).map((row) => [...row]);
}

export function listen(scope) {
  scope.onmessage = async ({ data: { id, action, ...options } }) => {
    let last = 0;
    tell = (done, all, said = "") => {
      const now = performance.now();
      if (now - last > 80) scope.postMessage({ id, progress: [done, all, said] });
      last = now - last > 80 ? now : last;
    };
    try {
      scope.postMessage({ id, result: await ACTIONS[action](options) });
    } catch (error) {
      scope.postMessage({ id, error: error.message });
    }
  };
}
