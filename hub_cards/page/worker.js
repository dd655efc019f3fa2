// The worker: answers what the page asks, one message at a time, and tells how far it is.

import { Network, readTensors, unfitArithmetic } from "./network.js";
import { Dense, ENCODINGS, writeDense } from "./dense.js";
import { ALPHABET, LABELS, SIGN, START, tasksOf } from "./sheets.js";
import { BATCH, decode, fillIn, Finder, Memory, readAnswer, settle, symbolsOf } from "./solve.js";
import { leadsOf, search } from "./search.js";

const MOST_DRAWN = 500, MOST_LISTED = 5, MOST_STATES = 100, MOST_PAIRS = 1000, TRIES = 4000;
const models = new Map();
let tell = () => {};
const written = (number) => number.toLocaleString("en");

// The bytes of a text of 7 bits a character, inflated; the tensors' bytes lie in planes, first bytes of all values first.
async function unpack(text) {
  const packed = new Uint8Array(Math.floor((text.length * 7) / 8));
  let bits = 0, count = 0;
  for (let place = 0, to = 0; place < text.length; place++) {
    bits = ((bits << 7) | (text.charCodeAt(place) & 127)) & 0x3fff;
    if ((count += 7) >= 8 && to < packed.length) packed[to++] = bits >> (count -= 8);
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const damaged = () => Promise.reject(new Error("the weights in this page are damaged"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer().catch(damaged)), whole = bytes.slice();
  const start = 8 + Number(new DataView(bytes.buffer).getBigUint64(0, true)), size = (bytes.length - start) / 4;
  for (let value = 0; value < size; value++) {
    for (let plane = 0; plane < 4; plane++) whole[start + 4 * value + plane] = bytes[start + plane * size + value];
  }
  return whole;
}

async function hash(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// What the certificate beside a checkpoint says; `fault` if it is not of these files or is none.
async function readCertificate(text, files) {
  if (text === null) return { fault: "it comes without a certificate" };
  const stated = JSON.parse(text);
  if (!globalThis.crypto?.subtle) return { fault: "this browser computes no SHA-256 here, so its files cannot be compared" };
  if (stated.certified !== true) return { fault: "its certificate says that it is not certified" };
  for (const [name, content] of Object.entries(files)) {
    if (stated.files?.[name] !== (await hash(content))) return { fault: `its certificate is of another ${name}` };
  }
  const numbers = ["neighbourhoods", "wrong", "margin", "bound", "ratio"], isLegal = (name) => Number.isFinite(stated[name]);
  const wrong = typeof stated.statement === "string" ? numbers.find((name) => !isLegal(name)) : "statement";
  return wrong ? { fault: `its certificate.json has no legal field ${wrong}` } : stated;
}

async function load({ name, config: text, certificate: stated, weights, bytes: own }) {
  const arithmetic = unfitArithmetic();
  if (arithmetic) throw new Error(arithmetic);
  const bytes = own ? new Uint8Array(own) : await unpack(weights), config = JSON.parse(text);
  const tasks = tasksOf(config), tensors = readTensors(bytes);
  const isDense = ENCODINGS.includes(config.position_encoding);
  const network = new (isDense ? Dense : Network)(config, tensors);
  const files = { "config.json": new TextEncoder().encode(text), "model.safetensors": bytes };
  const unread = (error) => ({ fault: `its certificate cannot be read: ${error.message}` });
  const beyond = { fault: "a token sees all tokens before it, and this page checks windows" };
  const certificate = isDense && stated !== null ? beyond : await readCertificate(stated, files).catch(unread);
  models.set(name, { network, tasks, isDense, memory: isDense ? null : new Memory(network) });
  const parameters = Object.values(tensors).reduce((sum, { values }) => sum + values.length, 0);
  const { heads, layers = 1, encoder } = network;
  return { certificate, parameters, heads, layers, isDense, encoder, tasks: tasks.map(describe) };
}

// What the page shows of a task: its window, and its machine's table if a column holds two symbols at most.
function describe({ name, legal, window, machines, sizes, blank, square, draw, tokens, encoder }) {
  const machine = machines(blank(sizes(4).at(-1))).at(name === "addition_scratchpad" ? 2 : 0);
  const described = { name, legal, window, example: draw(3), square: Boolean(square), table: null };
  const text = (symbol) => (encoder && symbol < LABELS.length ? LABELS : tokens)[symbol];
  const inputs = machine.inputs(1).map(([, , domain]) => domain), states = new Set(machine.starts), rows = [];
  if (inputs.length > 2) return described;
  const pairs = inputs[0].flatMap((first) => (inputs[1] ?? [null]).map((second) => [first, second]));
  if (pairs.length > MOST_PAIRS) return described;
  for (const state of states) {
    if (states.size > MOST_STATES) break;
    for (const [first, second] of pairs) {
      const [wrote = null, next = state] = machine.step(state, second === null ? [first] : [first, second], 1) ?? [];
      states.add(next);
      rows.push([state, text(first), second === null ? null : text(second), wrote && wrote.map(text), next]);
    }
  }
  const named = machine.named && [...states].map(machine.named);
  return { ...described, table: { states: [...states], named, inputs: inputs.map((domain) => domain.map(text)), rows } };
}

function readQuestion(tasks, question) {
  for (const task of tasks) {
    const words = task.read(question);
    if (words) return { task, words, asked: question.trim().replace(/\s*=$/, "") };
  }
  throw new Error(`this is not ${tasks.map((task) => task.legal).join(", nor ")}`);
}

// The answer to a question, how it was found, and whether the machines write the same.
function answer(model, question, { memory = model.memory, drawn = true } = {}) {
  const { task, words, asked } = readQuestion(model.tasks, question), began = performance.now(), paper = task.sheet(words);
  const right = fillIn(task, words, paper);
  const labelled = task.encoder ? settle(memory, task, paper, MOST_DRAWN, tell) : null;
  const dense = model.isDense ? writeDense(model.network, paper) : null;
  const tokens = labelled?.states ?? dense?.tokens ?? decode(memory, task, paper, right, tell);
  const seconds = (performance.now() - began) / 1000;
  let wrong = paper.query;
  while (wrong < Math.max(tokens.length, right.length) && tokens[wrong] === right[wrong]) wrong++;
  const isWrong = wrong < Math.max(tokens.length, right.length);
  const result = {
    question: asked, answer: readAnswer(task, words, tokens.slice(paper.query)), part: task.name,
    count: tokens.length - paper.query, seconds, ends: labelled ? labelled.ends : tokens.at(-1) === START,
    wrong: isWrong, right: isWrong ? readAnswer(task, words, right.slice(paper.query)) : null,
  };
  if (tokens.length > MOST_DRAWN || !drawn) return result;
  paper.extend(tokens.length);
  if (dense) return { ...result, drawing: drawDense(model.network, task, paper, dense, isWrong ? wrong : -1) };
  if (!task.encoder) return { ...result, drawing: drawTokens(memory.network, task, paper, tokens, isWrong ? wrong : -1) };
  const rows = labelled.passes.map((pass) => [...Array(paper.query).fill(""), ...[...pass].map((label) => LABELS[label])]);
  return { ...result, drawing: { tokens: paper.text.map((token) => ALPHABET[token]), passes: rows } };
}

// The columns in which tokens are drawn, 0 for the rightmost one of the first word, null for a sign: equal ids stand in one
// column, whichever way a row is written. The end token stands where the next symbol would.
function drawnColumns(paper, count) {
  const [ids] = paper.ids, ahead = paper.ahead ?? 0;
  const first = ids.findIndex((id, place) => id && paper.column[place] !== SIGN), sum = ids[first] + paper.column[first];
  const drawn = paper.column.map((column, place) => {
    const id = place >= paper.query - 1 && ids[place - ahead];
    return (id ? sum - id : column) + (paper.shift?.(paper.row[place]) ?? 0);
  });
  const isSign = (place) => paper.column[place] === SIGN, last = count - 1, step = drawn[last - 1] - drawn[last - 2];
  const columns = drawn.slice(0, count).map((column, place) => (isSign(place) ? null : column));
  if (last >= paper.query) columns[last] = drawn[last - 1] + (Math.abs(step) === 1 ? step : ahead ? -1 : 1);
  return columns;
}

// Where tokens stand, their ids, and what each token of the response was written from.
function drawTokens(network, task, paper, tokens, wrong) {
  const finder = new Finder(paper, task), symbol = (place) => network.symbol(tokens[place]), sights = [];
  for (let place = paper.query - 1; place < tokens.length - 1; place++) {
    const found = finder.keys(place, true).sort((left, right) => left[0] - right[0]);
    const keys = symbolsOf(network, found, symbol), weights = network.attention(symbol(place), keys), size = keys.length;
    // `$`, which stands first, is listed first.
    const shares = (head) => [size - 1, ...found.keys()].map((key) => Math.round(100 * weights[head * size + key]));
    const percent = Array.from({ length: network.heads }, (_, head) => shares(head));
    sights.push({ query: place, keys: [0, ...found.map(([key]) => key)], weights: percent });
  }
  return { ...placed(task, paper, tokens, paper.ids), wrong, sights, heads: network.heads };
}

// Where tokens stand, and their ids.
const placed = (task, paper, tokens, ids) => ({
  tokens: tokens.map((token) => task.tokens[token]), columns: drawnColumns(paper, tokens.length), rows: paper.row,
  query: paper.query, blocks: paper.blocks, ids: ids.filter((level) => level.some(Boolean)), ahead: paper.ahead,
});

// The same of a model whose tokens see all tokens before them: the few that its heads look at most, together, are listed.
function drawDense(network, task, paper, { tokens, sights }, wrong) {
  const percent = (share) => Math.round(100 * share);
  const seen = sights.map((looks, offset) => {
    const shares = looks[0].map((_, key) => looks.reduce((sum, row) => sum + row[key], 0));
    const most = [...shares.keys()].sort((left, right) => shares[right] - shares[left]).slice(0, MOST_LISTED);
    const keys = most.sort((left, right) => left - right);
    return { query: paper.query - 1 + offset, keys, weights: looks.map((row) => keys.map((key) => percent(row[key]))) };
  });
  const ids = network.config.position_encoding === "none" ? [] : network.ids(paper);
  return { ...placed(task, paper, tokens, ids), wrong, sights: seen, heads: network.heads, isDense: true };
}

// All neighbourhoods of a task, listed once.
function list(model, task, options) {
  const said = (size, count) => tell(0, count, `searching, problems of size ${size}: ${written(count)} neighbourhoods`);
  return (task.found ??= [...search(task, model.network, { tell: said, ...options }).values()]);
}

// Every neighbourhood of each part and its lead; how many are wrong, and the closest one.
function check(model, { network = model.network, stop = Infinity, ...options } = {}) {
  if (model.isDense) throw new Error("a token of this model sees all tokens before it: there is no finite list to check");
  const began = performance.now(), parts = [];
  for (const task of model.tasks) {
    const all = list(model, task, options), part = { name: task.name, count: all.length, wrong: 0, lead: Infinity };
    for (let place = 0; place < all.length && part.wrong < stop; place += BATCH) {
      const cases = all.slice(place, place + BATCH);
      for (const [offset, lead] of leadsOf(network, cases).entries()) {
        if (!(lead > 0)) part.wrong++;
        if (!(lead >= part.lead)) [part.lead, part.closest] = [lead, cases[offset]];
      }
      const done = place + cases.length;
      tell(done, all.length, `${task.name}: ${written(done)} of ${written(all.length)} neighbourhoods`);
    }
    if (part.closest) part.closest = describeCase(network, part.closest, task.tokens);
    parts.push(part);
  }
  return { parts, seconds: (performance.now() - began) / 1000 };
}

function describeCase(network, { own, keys, right }, tokens) {
  const textOf = (code) => {
    const token = tokens[Math.floor(code / 64)] ?? "the sink";
    return code % 64 && token !== "the sink" ? `${token} (${LABELS[(code % 64) - 1]})` : token;
  };
  const texts = new Map([...network.symbols].map(([code, symbol]) => [symbol, textOf(code)]));
  const name = (symbol) => texts.get(symbol);
  return { own: name(own), keys: keys.map(([key]) => name(key)), right: (network.encoder ? LABELS : tokens)[right] };
}

// A model with noise on its weights: what becomes wrong, and a problem that shows it.
function breakIt(model, amount) {
  if (model.isDense) throw new Error("this model has no list of neighbourhoods in which noise could be judged");
  for (const task of model.tasks) list(model, task);
  const network = model.network.noisy(amount), memory = new Memory(network), found = check(model, { network });
  const broken = model.tasks.filter((_, part) => found.parts[part].wrong);
  for (let attempt = 0; broken.length && attempt < TRIES; attempt++) {
    const task = broken[attempt % broken.length], size = 1 + (attempt % (task.square ? 4 : 9));
    const example = answer(model, task.draw(size), { memory });
    if (example.wrong) return { ...found, example };
  }
  return { ...found, example: null };
}

const ACTIONS = {
  load,
  ask: ({ name, question, drawn }) => answer(models.get(name), question, { drawn }),
  draw({ name, part, size }) {
    const model = models.get(name);
    return answer(model, model.tasks.find((task) => task.name === part).draw(size));
  },
  check: ({ name, ...options }) => check(models.get(name), options),
  break: ({ name, amount }) => breakIt(models.get(name), amount),
};

export function listen(scope) {
  scope.onmessage = async ({ data: { id, action, ...options } }) => {
    let last = 0;
    tell = (done, all, said = "") => {
      const now = performance.now();
      if (now - last <= 80) return;
      scope.postMessage({ id, progress: [done, all, said] });
      last = now;
    };
    try {
      scope.postMessage({ id, result: await ACTIONS[action](options) });
    } catch (error) {
      scope.postMessage({ id, error: error.message });
    }
  };
}
