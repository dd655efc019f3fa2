// All neighbourhoods that right answers of any size can hold, found by a search of this page's own, and what leads in them.
//
// For each token that a machine writes, the columns that it sees are filled in every way: from every state that can come in
// from below, with all digits, and so that the end can be reached. What is seen relative to the borders, the states that can
// come in and those from which an end can be reached make up the situation. The states that can come in before column k + 1
// follow from those before column k, and likewise from the other end. So when a size brings no new situation, none follows:
// the situations are finitely many, and the list is complete for every size.

import { DIGITS, SIGN, UNKNOWN } from "./sheets.js";
import { Finder, nameOf, placeOf, symbolsOf } from "./solve.js";

const MOST_SIZES = 12;
const sorted = (set) => [...set].sort((left, right) => left - right);

// Calls `use(values, symbols, next)` for each way to fill in a column from a state; cells that are known already stay.
function fillColumn(machine, column, state, known, use) {
  const inputs = machine.inputs(column), values = Array(inputs.length);
  const choose = (place) => {
    if (place === inputs.length) {
      const taken = machine.step(state, values, column);
      if (taken) use(values, taken[0], taken[1]);
      return;
    }
    const [row, own, domain] = inputs[place], cell = row * 1024 + own, given = known.get(cell);
    if (given !== undefined) {
      values[place] = given;
      if (domain.includes(given)) choose(place + 1);
      return;
    }
    for (const value of domain) {
      if (machine.unordered && place && value < values[place - 1]) continue;
      values[place] = value;
      known.set(cell, value);
      choose(place + 1);
    }
    known.delete(cell);
  };
  choose(0);
}

// For each column, the states that can come in, and those from which an end fits `accepts`.
function reachable(machine, accepts) {
  const into = [new Set(machine.starts)], edges = [];
  for (let column = 0; column < machine.columns; column++) {
    const following = new Set(), own = [];
    for (const state of into[column]) {
      const known = new Map((machine.fixed?.(state) ?? []).map(([row, place, value]) => [row * 1024 + place, value]));
      const nexts = new Set();
      fillColumn(machine, column, state, known, (_, __, next) => nexts.add(next));
      own.push([state, nexts]);
      for (const next of nexts) following.add(next);
    }
    edges.push(own);
    into.push(following);
  }
  const outOf = [new Set([...into.at(-1)].filter(accepts))];
  for (const own of edges.toReversed()) outOf.unshift(new Set(own.filter(([, nexts]) => [...nexts].some((next) => outOf[0].has(next))).map(([state]) => state)));
  return { into, outOf };
}

// What decides whether a situation is new: columns are named relative to the token's own.
function situationOf(machine, column, columns, seen, into, outOf, fixedText) {
  const cells = new Map(), cell = (row, own) => cells.get(row * 1024 + own) ?? (cells.set(row * 1024 + own, cells.size), cells.size - 1);
  for (const [row, own] of machine.fixed?.(machine.starts[0]) ?? []) cell(row, own);
  const inputs = columns.map((own) => machine.inputs(own).map(([row, place, domain]) => [cell(row, place), domain]));
  const first = columns.map((own) => own === 0), keys = seen.map(({ kind, row, own, relation, value, domain }) =>
    kind === "written" ? [kind, row, own - column, relation] : kind === "text" ? [kind, value, relation] : [kind, cell(row, own), relation, domain]);
  return JSON.stringify([inputs, first, keys, sorted(into), outOf === null ? 0 : sorted(outOf), fixedText]);
}

// All neighbourhoods of a task: name -> { own, keys, right }, found size by size. `tell` hears of progress.
export function search(task, network, tell = () => {}) {
  const found = new Map(), situations = new Set();
  for (let size = 1, quiet = 0; quiet < 1; size++) {
    if (size > MOST_SIZES) throw new Error(`the search has not ended at size ${MOST_SIZES}`);
    const before = situations.size, all = task.sizes(size);
    for (const sizes of all) {
      const words = task.blank(sizes), paper = task.sheet(words), finder = new Finder(paper, task);
      for (const machine of task.machines(words)) listMachine({ task, network, words, paper, finder, machine, found, situations });
    }
    quiet = all.length && situations.size === before ? quiet + 1 : 0;
    tell(size, found.size);
  }
  return found;
}

function listMachine(context) {
  const { task, machine } = context, last = machine.columns - 1;
  machine.rows.forEach((row, place) => {
    const { into, outOf } = reachable(machine, (state) => machine.ends(state) && machine.ends(state)[place] !== null);
    if (!outOf[0].size) return;
    for (let column = task.encoder ? 0 : -1; column <= last; column++) listToken({ ...context, row, place, column, into, outOf });
  });
}

// Lists the neighbourhoods of the token that a machine writes into a column of a row; column -1 is the sign before them.
function listToken({ task, network, words, paper, finder, machine, found, situations, row, place, column, into, outOf }) {
  const own = column < 0 ? paper.find(row, SIGN) : placeOf(paper, machine, row, column), last = machine.columns - 1;
  const written = new Map(), inputs = new Map();
  for (let other = 0; other <= last; other++) {
    for (const [index, line] of machine.rows.entries()) written.set(placeOf(paper, machine, line, other), { kind: "written", row: index, own: other });
    for (const [line, at] of machine.inputs(other)) inputs.set(paper.find(line, at), [...(inputs.get(paper.find(line, at)) ?? []), other]);
  }
  const fixed = new Set((machine.fixed?.(machine.starts[0]) ?? []).map(([line, at]) => paper.find(line, at)));
  let from = Math.max(0, task.encoder ? column - 1 : column), to = Math.min(last, task.encoder ? column : column + 1);
  const reach = (columns) => {
    if (columns.some((other) => other >= from && other <= to)) return;
    from = Math.min(from, ...columns.filter((other) => other < from).slice(-1));
    to = Math.max(to, ...columns.filter((other) => other > to).slice(0, 1));
  };
  const seen = finder.keys(own, !task.encoder).map(([key, relation]) => {
    const cell = { kind: "cell", key, relation, row: paper.row[key], own: paper.column[key] };
    if (written.has(key)) {
      const other = written.get(key);
      reach([other.own]);
      return { ...cell, ...other };
    }
    const sign = paper.column[key] === SIGN ? (paper.text[key] ?? paper.signs.get(key)) : undefined;
    if (sign !== undefined) return { ...cell, kind: "text", value: sign };
    // Nothing passes from cell to cell of a board: a far cell says nothing about this one.
    if (inputs.has(key) && !machine.width) reach(inputs.get(key));
    else if (!fixed.has(key)) cell.domain = task.domain?.(words, cell.row, cell.own) ?? DIGITS;
    return cell;
  });
  const columns = Array.from({ length: to - from + 1 }, (_, offset) => from + offset);
  const sign = column < 0 ? (paper.text[own] ?? paper.signs.get(own)) : task.encoder && own === paper.query ? paper.text[own] : null;
  const ends = to === last ? [...outOf[to + 1]].map((state) => [state, machine.ends(state)[place]]) : 0;
  const situation = situationOf(machine, column, columns, seen, into[from], outOf[to + 1], [machine.kind ?? String(machine.step), place, sign, column < 0, ends, column === last]);
  if (situations.has(situation)) return;
  situations.add(situation);

  const record = (known, symbols, states, at) => {
    const symbol = ({ kind, row: line, own: other, value }) => (kind === "written" ? symbols[other - from][line] : kind === "text" ? value : known.get(line * 1024 + other));
    if (task.encoder) return recordLabels(known, symbols, states, at);
    const token = column < 0 ? sign : symbols[column - from][place];
    const right = column === last ? machine.ends(states.at(-1))[place] : symbols[column + 1 - from][place];
    const free = seen.filter((cell) => cell.domain && !known.has(cell.row * 1024 + cell.own));
    const add = () => addTo(found, network, network.symbol(token), seen.map((cell) => [network.symbol(symbol(cell)), cell.relation]), right);
    const choose = (index) => {
      if (index === free.length) return add();
      for (const value of free[index].domain) {
        known.set(free[index].row * 1024 + free[index].own, value);
        choose(index + 1);
      }
      known.delete(free[index].row * 1024 + free[index].own);
    };
    choose(0);
  };

  // A label is right after a pass if the carry from below is decided, by its digits or by its label; else it is not known.
  const recordLabels = (known, symbols, states) => {
    const label = symbols[column - from][0], below = column > from ? symbols[0][0] : null;
    const decided = below === null || new Set(machine.carries(states[0]).map((carry) => {
      const values = machine.inputs(from).map(([line, at]) => known.get(line * 1024 + at));
      return machine.step(states[0] - (states[0] % 10) + carry, values, from)[1] % 10;
    })).size === 1;
    for (const knownBelow of below === null ? [false] : [false, true]) {
      for (const knownOwn of decided || knownBelow ? [false, true] : [false]) {
        const state = (other) => (other === column ? (knownOwn ? label : UNKNOWN) : knownBelow ? below : UNKNOWN);
        const symbol = (cell) => {
          if (cell.kind !== "written") return network.symbol(known.get(cell.row * 1024 + cell.own));
          return network.symbol(cell.own === machine.columns - 1 ? paper.text[paper.query] : known.get(1024 + cell.own), state(cell.own));
        };
        const self = symbol({ kind: "written", own: column });
        addTo(found, network, self, seen.map((cell) => [symbol(cell), cell.relation]), decided || knownBelow ? label : UNKNOWN);
      }
    }
  };

  const run = (state, offset, known, symbols, states) => {
    if (!(offset === columns.length ? outOf[to + 1] : outOf[from + offset]).has(state)) return;
    if (offset === columns.length) return record(known, symbols, [...states, state]);
    fillColumn(machine, columns[offset], state, known, (_, wrote, next) => run(next, offset + 1, known, [...symbols, wrote], [...states, state]));
  };
  for (const state of into[from]) run(state, 0, new Map((machine.fixed?.(state) ?? []).map(([line, at, value]) => [line * 1024 + at, value])), [], []);
}

function addTo(found, network, own, keys, right) {
  const all = symbolsOf(network, keys, (symbol) => symbol), name = nameOf(own, all), before = found.get(name);
  if (!before) found.set(name, { own, keys: all, right });
  else if (before.right !== right) throw new Error("one neighbourhood is followed by two different tokens: no model with this window can be right");
}

// The lead of the right token in each neighbourhood: below 0 if another token leads.
export function leadsOf(network, cases) {
  return network.logits(cases).map((logits, place) => {
    const right = logits[cases[place].right];
    logits[cases[place].right] = -Infinity;
    return right - Math.max(...logits);
  });
}
