// All neighbourhoods that right answers of any size can hold, found by a search of this page's own, and what leads in them.
//
// For each token that a machine writes, the columns that it sees are filled in every way: from every state that can come in
// from below, with all digits, and so that the end can be reached. What is seen relative to the borders, the states that can
// come in and those from which an end can be reached make up the situation. The states that can come in before column k + 1
// follow from those before column k, and likewise from the other end. So when a size brings no new situation, none follows:
// the situations are finitely many, and the list is complete for every size.

import { DIGITS, SIGN, UNKNOWN } from "./sheets.js";
import { Finder, nameOf, placeOf, symbolsOf } from "./solve.js";

const MOST_FOUND = 2_000_000, MOST_SECONDS = 300, MOST_SIZE = 1000;
const sorted = (set) => [...set].sort((left, right) => left - right);

const cellOf = (row, column) => row * 2 ** 20 + column;

// Calls `use(values)` for each way to fill in cells [row, column, domain]; cells that are known already stay.
function fillCells(cells, known, unordered, use) {
  const values = Array(cells.length);
  const choose = (place) => {
    if (place === cells.length) return use(values);
    const [row, column, domain] = cells[place], cell = cellOf(row, column), given = known.get(cell);
    for (const value of given === undefined ? domain : domain.filter((other) => other === given)) {
      if (unordered && place && value < values[place - 1]) continue;
      values[place] = value;
      known.set(cell, value);
      choose(place + 1);
    }
    if (given === undefined) known.delete(cell);
  };
  choose(0);
}

// Calls `use(symbols, next)` for each way to fill in a column from a state.
function fillColumn(machine, column, state, known, use) {
  fillCells(machine.inputs(column), known, machine.unordered, (values) => {
    const taken = machine.step(state, values, column);
    if (taken) use(...taken);
  });
}

const knownFrom = (machine, state) =>
  new Map((machine.fixed?.(state) ?? []).map(([row, column, value]) => [cellOf(row, column), value]));

// For each column, the states that can come in, and those from which an end fits `accepts`.
function reachable(machine, accepts) {
  const into = [new Set(machine.starts)], edges = [];
  for (let column = 0; column < machine.columns; column++) {
    const following = new Set(), own = [];
    for (const state of into[column]) {
      const nexts = new Set();
      fillColumn(machine, column, state, knownFrom(machine, state), (_, next) => nexts.add(next));
      own.push([state, nexts]);
      for (const next of nexts) following.add(next);
    }
    edges.push(own);
    into.push(following);
  }
  const outOf = [new Set([...into.at(-1)].filter(accepts))];
  for (const own of edges.toReversed()) {
    const open = own.filter(([, nexts]) => [...nexts].some((next) => outOf[0].has(next)));
    outOf.unshift(new Set(open.map(([state]) => state)));
  }
  return { into, outOf };
}

// What decides whether a situation is new: columns are named relative to the token's own.
function situationOf(machine, column, columns, seen, into, outOf, fixedText) {
  const cells = [...knownFrom(machine, machine.starts[0]).keys()];
  const cell = (row, own) => {
    if (!cells.includes(cellOf(row, own))) cells.push(cellOf(row, own));
    return cells.indexOf(cellOf(row, own));
  };
  const inputs = columns.map((own) => machine.inputs(own).map(([row, place, domain]) => [cell(row, place), domain]));
  const first = columns.map((own) => own === 0), keys = seen.map(({ kind, row, own, relation, value, domain }) => {
    if (kind === "written") return [kind, row, own - column, relation];
    return kind === "text" ? [kind, value, relation] : [kind, cell(row, own), relation, domain];
  });
  return JSON.stringify([inputs, first, keys, sorted(into), outOf === null ? 0 : sorted(outOf), fixedText]);
}

// All neighbourhoods of a task: name -> { own, keys, right }, found size by size until a size brings no new situation.
// `tell` hears of progress. Refuses a task whose search takes too long or finds too much for a browser.
export function search(task, network, { tell = () => {}, mostSeconds = MOST_SECONDS } = {}) {
  const found = new Map(), situations = new Set(), began = performance.now();
  if (task.unlisted) throw new Error(`This page cannot list the neighbourhoods of this task: ${task.unlisted}.`);
  for (let size = 1, before = -1; situations.size > before; size++) {
    const all = task.sizes(size), limit = () => {
      const seconds = (performance.now() - began) / 1000;
      if (seconds < mostSeconds && found.size < MOST_FOUND && size < MOST_SIZE) return;
      const listed = `${found.size.toLocaleString("en")} neighbourhoods after ${Math.round(seconds)} seconds`;
      throw new Error(`This page cannot finish: it listed ${listed}, and problems of size ${size} may bring more.`);
    };
    if (all.length) before = situations.size;
    for (const sizes of all) {
      const words = task.blank(sizes), paper = task.sheet(words), finder = new Finder(paper, task);
      const context = { task, network, words, paper, finder, found, situations, limit };
      for (const machine of task.machines(words)) listMachine({ ...context, machine });
    }
    tell(size, found.size);
  }
  if (!found.size) throw new Error("This page finds no neighbourhood at all, so it can say nothing.");
  return found;
}

function listMachine(context) {
  const { task, machine } = context, last = machine.columns - 1;
  machine.rows.forEach((row, place) => {
    const { into, outOf } = reachable(machine, (state) => machine.ends(state) && machine.ends(state)[place] !== null);
    if (!outOf[0].size) return;
    const shared = { ...context, row, place, into, outOf };
    for (let column = task.encoder ? 0 : -1; column <= last; column++) listToken({ ...shared, column });
  });
}

// Lists the neighbourhoods of the token that a machine writes into a column of a row; column -1 is the sign before them.
function listToken({ row, place, column, into, outOf, ...context }) {
  const { task, network, words, paper, finder, machine, found, situations, limit } = context;
  limit();
  const own = column < 0 ? paper.find(row, SIGN) : placeOf(paper, machine, row, column), last = machine.columns - 1;
  const written = new Map(), inputs = new Map();
  for (let other = 0; other <= last; other++) {
    machine.rows.forEach((line, index) => {
      written.set(placeOf(paper, machine, line, other), { kind: "written", row: index, own: other });
    });
    for (const [line, at] of machine.inputs(other)) {
      const cell = paper.find(line, at);
      inputs.set(cell, [...(inputs.get(cell) ?? []), other]);
    }
  }
  const signAt = (at) => paper.text[at] ?? paper.signs.get(at);
  const fixed = new Set(machine.fixed?.(machine.starts[0]).map(([line, at]) => paper.find(line, at)));
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
    const sign = paper.column[key] === SIGN ? signAt(key) : undefined;
    if (sign !== undefined) return { ...cell, kind: "text", value: sign };
    // Nothing passes from cell to cell of a board: a far cell says nothing about this one.
    if (inputs.has(key) && !machine.width) reach(inputs.get(key));
    else if (!fixed.has(key)) cell.domain = task.domain?.(words, cell.row, cell.own) ?? DIGITS;
    return cell;
  });
  const columns = Array.from({ length: to - from + 1 }, (_, offset) => from + offset);
  const sign = column < 0 ? signAt(own) : task.encoder && own === paper.query ? paper.text[own] : null;
  const ends = to === last ? [...outOf[to + 1]].map((state) => [state, machine.ends(state)[place]]) : 0;
  const text = [machine.kind ?? String(machine.step), place, sign, column < 0, ends, column === last];
  const situation = situationOf(machine, column, columns, seen, into[from], outOf[to + 1], text);
  if (situations.has(situation)) return;
  situations.add(situation);

  const add = (own, symbol, right) => {
    limit();
    addTo(found, own, symbolsOf(network, seen.map((cell) => [symbol(cell), cell.relation]), (key) => key), right);
  };
  const record = (known, symbols, states) => {
    const symbol = ({ kind, row: line, own: other, value }) => {
      if (kind === "text") return network.symbol(value);
      return network.symbol(kind === "written" ? symbols[other - from][line] : known.get(cellOf(line, other)));
    };
    const token = column < 0 ? sign : symbols[column - from][place];
    const right = column === last ? machine.ends(states.at(-1))[place] : symbols[column + 1 - from][place];
    const free = seen.filter((cell) => cell.domain).map((cell) => [cell.row, cell.own, cell.domain]);
    fillCells(free, known, false, () => add(network.symbol(token), symbol, right));
  };

  // A label is right after a pass if the carry from below is decided, by its digits or by its label; else it is not known.
  const recordLabels = (known, symbols, states) => {
    const label = symbols[column - from][0], below = column > from ? symbols[0][0] : null;
    const decided = below === null || new Set(machine.carries(states[0]).map((carry) => {
      const values = machine.inputs(from).map(([line, at]) => known.get(cellOf(line, at)));
      return machine.step(states[0] - (states[0] % 10) + carry, values, from)[1] % 10;
    })).size === 1;
    for (const knownBelow of below === null ? [false] : [false, true]) {
      for (const knownOwn of decided || knownBelow ? [false, true] : [false]) {
        const state = (other) => (other === column ? (knownOwn ? label : UNKNOWN) : knownBelow ? below : UNKNOWN);
        const symbol = (cell) => {
          if (cell.kind !== "written") return network.symbol(known.get(cellOf(cell.row, cell.own)));
          const token = cell.own === last ? paper.text[paper.query] : known.get(cellOf(1, cell.own));
          return network.symbol(token, state(cell.own));
        };
        add(symbol({ kind: "written", own: column }), symbol, decided || knownBelow ? label : UNKNOWN);
      }
    }
  };

  const run = (state, offset, known, symbols, states) => {
    if (!(offset === columns.length ? outOf[to + 1] : outOf[from + offset]).has(state)) return;
    if (offset === columns.length) return (task.encoder ? recordLabels : record)(known, symbols, [...states, state]);
    fillColumn(machine, columns[offset], state, known, (wrote, next) => {
      run(next, offset + 1, known, [...symbols, wrote], [...states, state]);
    });
  };
  for (const state of into[from]) run(state, 0, knownFrom(machine, state), [], []);
}

function addTo(found, own, keys, right) {
  const name = nameOf(own, keys), before = found.get(name);
  if (!before) found.set(name, { own, keys, right });
  else if (before.right !== right) {
    throw new Error("One neighbourhood is followed by two different tokens: no model with this window can be right.");
  }
}

// The lead of the right token in each neighbourhood: below 0 if another token leads.
export function leadsOf(network, cases) {
  return network.logits(cases).map((logits, place) => {
    const right = logits[cases[place].right];
    logits[cases[place].right] = -Infinity;
    return right - Math.max(...logits);
  });
}
