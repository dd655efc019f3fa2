// What a token sees, by its ids; right answers, by the machines of a sheet; and what a network answers.

import { KEY, LABELS, QUERY, SIGN, START, UNKNOWN } from "./sheets.js";

const ROOM = 2 ** 22, LONG = 4096;
const SPECIAL = new Set([START, 18, 19, 20]); // `$`, and <eos>, <pad>, <unk>: no part of an answer
export const BATCH = 128; // neighbourhoods that the network is asked at once

// Finds the keys that a token sees under a window, a list of relations: place, relation, in the order of their places.
export class Finder {
  constructor(paper, { window, before = 0 }) {
    const { levels, ids, text } = paper;
    Object.assign(this, { levels, ids, tables: new Map() });
    this.relations = window.map((entries, place) => ({ entries, number: before + place, key: 0, query: 0, shared: [] }));
    for (const relation of this.relations) {
      relation.entries.forEach((entry, level) => {
        if (typeof entry === "number") relation.shared.push(level);
        relation.key |= (typeof entry === "number" || entry === KEY) << level;
        relation.query |= (typeof entry === "number" || entry === QUERY) << level;
      });
      relation.name = `${relation.key}:${relation.shared}`;
      const { name } = relation, next = new Int32Array(text.length);
      if (!this.tables.has(name)) this.tables.set(name, { relation, first: new Map(), next });
    }
    for (let place = text.length - 1; place >= 0; place--) {
      const kind = this.kind(place);
      for (const { relation, first, next } of this.tables.values()) {
        if (relation.key !== kind) continue;
        const code = this.code(place, relation.shared);
        next[place] = first.get(code) ?? -1;
        first.set(code, place);
      }
    }
  }

  // The levels at which a token has an id, as bits.
  kind(place) {
    let bits = 0;
    for (let level = 0; level < this.levels; level++) bits |= (this.ids[level][place] > 0) << level;
    return bits;
  }

  code(place, shared, entries) {
    let code = 0;
    for (const level of shared) code = code * ROOM + this.ids[level][place] - (entries ? entries[level] : 0) + 8;
    return code;
  }

  // Pairs [place, relation] of a query; with `causal` no key after it. Tokens without ids, `$` or the sink, are left out.
  keys(place, causal) {
    const kind = this.kind(place), found = [];
    for (const { entries, query, shared, name, number } of this.relations) {
      if (query !== kind) continue;
      const { first, next } = this.tables.get(name), start = first.get(this.code(place, shared, entries)) ?? -1;
      for (let key = start; key >= 0 && (!causal || key <= place); key = next[key]) found.push([key, number]);
    }
    return found;
  }
}

// A neighbourhood as one short text, whatever the order of its keys [symbol, relation]. Sorts them.
export function nameOf(own, keys) {
  keys.sort((left, right) => left[1] - right[1] || left[0] - right[0]);
  let name = String.fromCharCode(own);
  for (const [key, relation] of keys) name += String.fromCharCode(key, relation);
  return name;
}

// Fills in a sheet by its machines: the right tokens, the end token last; for encoders the right labels by place.
export function fillIn(task, words, paper) {
  const values = [...paper.text], find = (row, column) => paper.find(row, column);
  let last = paper.text.length;
  for (const machine of task.machines(words)) {
    const isRight = ([row, column, value]) => values[find(row, column)] === value;
    let state = machine.starts.find((start) => (machine.fixed?.(start) ?? []).every(isRight));
    for (let column = 0; column < machine.columns; column++) {
      const read = machine.inputs(column).map(([row, own]) => values[find(row, own)]);
      const taken = machine.step(state, read, column);
      if (!taken) throw new Error("this is no problem of the task");
      machine.rows.forEach((row, place) => (values[placeOf(paper, machine, row, column)] = taken[0][place]));
      state = taken[1];
    }
    const ends = machine.ends(state);
    if (!ends) throw new Error("this is no problem of the task");
    // A row that this problem lacks.
    if (ends.includes(null)) last = find(machine.rows[ends.indexOf(null)], SIGN);
  }
  if (task.encoder) return values;
  for (const [place, sign] of paper.signs) values[place] = sign;
  return [...values.slice(0, last), START];
}

// The place of what a machine writes into one of its rows; a board's rows follow each other.
export function placeOf(paper, machine, row, column) {
  const { width = Infinity } = machine;
  return paper.find(row + Math.floor(column / width), column % width);
}

// The symbols of keys, with what every token sees besides: `$`, or the sink.
export function symbolsOf(network, keys, symbol) {
  const everywhere = network.symbol(network.encoder ? -1 : START);
  return [...keys.map(([key, relation]) => [symbol(key), relation]), [everywhere, network.besides]];
}

const largest = (values) => values.reduce((best, value, place) => (value > values[best] ? place : best), 0);

// Remembers what the network writes in each neighbourhood: a long answer has few different ones.
export class Memory {
  constructor(network) {
    Object.assign(this, { network, known: new Map() });
  }

  // What is written in each of some neighbourhoods { own, keys }.
  best(cases) {
    const names = cases.map(({ own, keys }) => nameOf(own, keys)), missing = new Map();
    names.forEach((name, place) => this.known.has(name) || missing.set(name, cases[place]));
    const fresh = [...missing];
    for (let from = 0; from < fresh.length; from += BATCH) {
      const batch = fresh.slice(from, from + BATCH), rows = this.network.logits(batch.map(([, own]) => own));
      rows.forEach((row, place) => this.known.set(batch[place][0], largest(row)));
    }
    return names.map((name) => this.known.get(name));
  }
}

// Writes a response greedily, token by token, and returns all tokens; the sheet's ids end where the longest response ends.
// A long response is drafted by the right tokens: the network's outputs in the neighbourhoods of the draft are computed many
// at a time, and remembered. Decoding then finds them, and computes those that it does not find. A draft saves time and
// changes nothing: each token is the one that the network writes.
export function decode(memory, task, paper, draft = [], tell = () => {}) {
  const { network } = memory, finder = new Finder(paper, task), tokens = paper.text.slice(0, paper.query);
  const caseOf = (place, values) => {
    const symbol = (other) => network.symbol(values[other]);
    return { own: symbol(place), keys: symbolsOf(network, finder.keys(place, true), symbol) };
  };
  for (let from = paper.query - 1; draft.length > LONG && from < draft.length - 1; from += LONG) {
    const length = Math.min(LONG, draft.length - 1 - from);
    memory.best(Array.from({ length }, (_, offset) => caseOf(from + offset, draft)));
    tell(from - paper.query, draft.length - paper.query);
  }
  while (tokens.length <= paper.text.length && (tokens.length === paper.query || tokens.at(-1) !== START)) {
    tokens.push(memory.best([caseOf(tokens.length - 1, tokens)])[0]);
  }
  return tokens;
}

// Labels tokens pass after pass until nothing changes. Returns the labels by place, whether nothing changes any more, and
// the labels after each of the first passes.
export function settle(memory, task, paper, keptPasses = 200, tell = () => {}) {
  const { network } = memory, finder = new Finder(paper, task), first = paper.query, count = paper.text.length, seen = [];
  const states = new Int8Array(count).fill(-1).fill(UNKNOWN, first), passes = [], seers = paper.text.map(() => []);
  const symbol = (place) => network.symbol(paper.text[place], states[place]);
  for (let place = first; place < count; place++) {
    seen[place] = finder.keys(place, false);
    for (const [key] of seen[place]) seers[key].push(place);
  }
  const most = count - first + 1;
  let active = Array.from({ length: count - first }, (_, place) => first + place), ends = true;
  for (let pass = 1; active.length && pass <= most; pass++) {
    const caseOf = (place) => ({ own: symbol(place), keys: symbolsOf(network, seen[place], symbol) });
    const labels = memory.best(active.map(caseOf));
    const changed = active.filter((place, index) => labels[index] !== states[place]);
    active.forEach((place, index) => (states[place] = labels[index]));
    if (passes.length < keptPasses) passes.push(states.slice(first));
    active = [...new Set(changed.flatMap((place) => seers[place]))];
    ends = pass < most || !changed.length;
    tell(pass, count - first);
  }
  return { states, passes, ends: ends && !states.includes(UNKNOWN) };
}

// The answer that a person reads in all that was written, tokens of a response or labels, wherever a model wrote them.
export function readAnswer(task, words, written) {
  const textOf = (token) => (task.encoder ? LABELS[token] : SPECIAL.has(token) ? "" : task.tokens[token] ?? "");
  return task.answer([...written].map(textOf).join(""), words);
}
