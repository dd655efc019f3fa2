// What each task writes and which ids its tokens have: a sheet of paper, and the machines that fill it in.
//
// A sheet holds the tokens of a problem in the order in which they are written. A token stands in a row and a column. Column
// 0 is the ones, or the first symbol where writing begins at the top. A sign begins a row, in column SIGN. Each token has an
// id for each level, 0 for none, as the coupling rule of modeling/coupling_rules.py of the same name gives it.
//
// A machine fills in rows of the sheet, column by column: from a state and the digits of a column it writes a symbol into
// each of its rows and goes to the next state. Right answers follow from its columns (here), and so do all neighbourhoods
// (search.js).

import { ENCODINGS } from "./dense.js";

export const ALPHABET = [..."0123456789+-*=>M_$", "<eos>", "<pad>", "<unk>", "/"];
export const SIGN = -1;
export const DIGITS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
export const LABELS = [..."0123456789_?"], UNKNOWN = 11; // of encoders
export const START = 17; // `$`
const BLANK = 16, MINE = 15, NO_LABEL = 10, MOST_ZEROS = 6;
export const KEY = "key", QUERY = "query", NEITHER = "neither"; // who has an id at a level

class Sheet {
  constructor(levels) {
    const ids = range(levels).map(() => []), signs = new Map();
    Object.assign(this, { levels, ids, signs, text: [], row: [], column: [], blocks: [], places: null, query: 0 });
  }

  // Adds a token; a response's text is null until it is written.
  put(text, row, column, ...ids) {
    this.text.push(text);
    this.row.push(row);
    this.column.push(column);
    for (let level = 0; level < this.levels; level++) this.ids[level].push(ids[level] ?? 0);
    return this;
  }

  // Adds a token for each symbol of a word, the last of which stands in column 0; `ids` gives the ids of a column.
  word(text, row, ids, tokens = ALPHABET) {
    [...text].forEach((symbol, place) => {
      const column = text.length - 1 - place;
      this.put(tokens.indexOf(symbol), row, column, ...ids(column));
    });
    return this;
  }

  // Adds what is to be written into a row: its sign, which ends the query in the first of these rows, and `size` columns.
  response(text, row, size, signIds, ids) {
    this.put(this.query ? null : sign(text), row, SIGN, ...signIds);
    this.signs.set(this.text.length - 1, sign(text));
    this.query ||= this.text.length;
    for (let column = 0; column < size; column++) this.put(null, row, column, ...ids(column));
    return this;
  }

  // Adds tokens behind the last one, in its row, up to so many: a model may write more than is right.
  extend(count) {
    const end = this.text.length - 1, steps = this.ids.map((level) => level[end] - level[end - 1]);
    const ids = this.ids.map((level) => level[end]), { row, column } = this;
    for (let more = 1; this.text.length < count; more++) {
      this.put(null, row[end], column[end] + more, ...ids.map((id, level) => id + more * steps[level]));
    }
  }

  // The place of the token in a row and a column.
  find(row, column) {
    this.places ??= new Map(this.row.map((own, place) => [own * 2 ** 26 + this.column[place] + 1, place]));
    return this.places.get(row * 2 ** 26 + column + 1);
  }
}

const sheet = (levels) => new Sheet(levels).put(START, 0, SIGN);
const sign = (text) => ALPHABET.indexOf(text);
const range = (size) => Array.from({ length: size }, (_, place) => place);
const longest = (words) => words.reduce((most, word) => Math.max(most, word.length), 0);
// A digit on top is not 0, unless it is the only one.
const proper = (size, column, radix = 10) => (column === size - 1 && size > 1 ? range(radix).slice(1) : range(radix));
const plain = (text) => text.replace(/^0+(?=.)/, "");
// A number that is written with the ones first.
const number = (text) => plain(reversed(text));
const reversed = (text) => [...text].reverse().join("");
const machine = (options) => ({ starts: [0], ends: () => [START], ...options });

// Pairs of sizes of which the larger one is `size`.
const pairs = (size) => range(2 * size - 1).map((place) => (place < size ? [size, place + 1] : [place - size + 1, size]));

// Rows of a question below each other, with ids by column: A at row 0, B at row 1, ...
function operands(paper, words, between, ids, signIds) {
  words.forEach((word, row) => {
    if (row) paper.put(sign(between), row, SIGN, ...signIds(row - 1));
    paper.word(word, row, (column) => ids(column, row));
  });
  return paper;
}

// Adds the digits of a column; the state is the carry.
const adding = (radix) => (carry, values) => {
  const total = values.reduce((sum, value) => sum + value, carry);
  return [[total % radix], Math.floor(total / radix)];
};
const sayCarry = (carry) => `carry ${carry}`;

// A number in row 0 times the digit of row 1 in column `place`. State: `radix` times that digit, and the carry.
const times = (row, place, columns, size, factors, radix, ends) => ({
  rows: [row], columns, ends,
  named: (state) => `times ${Math.floor(state / radix)}, carry ${state % radix}`,
  starts: factors.map((factor) => radix * factor), fixed: (state) => [[1, place, Math.floor(state / radix)]],
  inputs: (column) => (column < size ? [[0, column, proper(size, column, radix)]] : []),
  step: (state, [digit = 0]) => {
    const factor = Math.floor(state / radix), total = factor * digit + (state % radix);
    return [[total % radix], radix * factor + Math.floor(total / radix)];
  },
});

// Sums of `count` numbers in one pass. The sum has `room` columns more than the words, which begin with `zeros` zeros.
const sums = (count, room, zeros) => ({
  window: [[0], [1]],
  sheet(words) {
    const width = longest(words) + room, ids = (column) => [width - column];
    return operands(sheet(1), words, "+", ids, () => ids(-1)).response("=", words.length, width, ids(-1), ids);
  },
  machines: (words) => [machine({
    rows: [words.length], columns: longest(words) + room, step: adding(10), named: sayCarry,
    inputs: (column) => words.flatMap(({ length }, row) =>
      column < length ? [[row, column, column >= length - zeros ? [0] : DIGITS]] : []),
    unordered: true, // the order of the digits of a column is not seen
  })],
  sizes: (size) => (size > zeros ? [Array(count).fill(size)] : []),
});

// A string, read or answered symbol by symbol; `next` gives the symbol to write and the next state.
const strings = (alphabet, backwards, next, named) => ({
  window: [[backwards ? 1 : -1]],
  sheet([word]) {
    const size = word.length, ids = (column) => [backwards ? size - column : column + 2];
    const paper = sheet(1).word(word, 0, (column) => [backwards ? size - column : size - column + 1]);
    return paper.response("=", 1, size, ids(-1), ids);
  },
  machines: ([word]) => [machine({
    rows: [1], columns: word.length, step: (state, [value]) => next(state, value), named,
    inputs: (column) => [[0, backwards ? column : word.length - 1 - column, alphabet]],
  })],
  sizes: (size) => [[size]],
  answer: (text) => text,
  forward: true,
});
const copied = (state, value) => [[value], 0];

// Differences; with `signed` of any two numbers, by a second row, 10^L less the first, if the first borrows at the top.
const differences = (signed) => ({
  window: [[0, 2], [0, 1], [1, 2], [1, 1]],
  sheet(words) {
    const size = longest(words), ids = (row) => (column) => [size - column, row];
    const paper = operands(sheet(2), words, "-", (column, row) => ids(row + 1)(column), (row) => [size + 1, row + 1]);
    paper.response("=", 2, size, [size + 1, 3], ids(3));
    return signed ? paper.response("-", 3, size, [size + 1, 5], ids(5)) : paper;
  },
  machines: (words) => [machine({
    rows: signed ? [2, 3] : [2], columns: longest(words),
    inputs(column) {
      const atTop = signed && column && column === longest(words) - 1;
      return [[0, column, DIGITS], [1, column, DIGITS], ...(atTop ? [[0, column, DIGITS]] : [])];
    },
    named: (state) => `${state & 1 ? "a borrow" : "no borrow"}, ${state & 2 ? "not all 0" : "all 0"} so far`,
    // State: whether 1 was borrowed, and 2 if a digit of the first row was not 0.
    step(state, [first, second, atTop]) {
      if (atTop === 0 && !second) return null;
      const digit = first - second - (state & 1), written = (digit + 10) % 10;
      const complement = (20 - written - (state & 2 ? 1 : 0)) % 10;
      return [[written, complement], (digit < 0 ? 1 : 0) | (state & 2 || written ? 2 : 0)];
    },
    ends: (state) => (signed ? (state & 1 ? [sign("-"), START] : [START, null]) : state & 1 ? null : [START]),
  })],
  sizes: (size) => [[size, size]],
  answer(text) {
    const parts = signed ? text.split("-") : [text], last = number(parts.at(-1));
    return parts.length > 1 && last ? `-${last}` : last;
  },
});

const multiplication = {
  window: [[1, QUERY], [0, QUERY], [-1, QUERY], [-2, QUERY], [QUERY, 1], [QUERY, 2]],
  sheet([first, second]) {
    const count = second.length, width = first.length + count, ids = (column) => [width - column, count + 1];
    const paper = sheet(2).word(first, 0, (column) => [width - column, 0]).put(sign("*"), 1, SIGN, 0, count + 2);
    return paper.word(second, 1, (column) => [0, count - column]).response("=", 2, width, ids(-1), ids);
  },
  machines: ([first, second]) => [times(2, 0, first.length + second.length, first.length, DIGITS, 10, () => [START])],
  sizes: (size) => [[size, 1]],
};

const additionScratchpad = {
  window: [[0, 1], [1, 1], [1, QUERY]],
  sheet(words) {
    const count = words.length, width = longest(words), ids = (row) => (column) => [width + 1 - column, row + 1];
    const paper = operands(sheet(2), words, "+", (column, row) => ids(row)(column), (row) => [1, row + 1]);
    for (let row = 0; row <= count; row++) {
      paper.response(row ? ">" : "=", count + row, width, row ? ids(row)(-1) : [1, 0], ids(row));
    }
    paper.blocks = [[count, "running sums"]];
    return paper;
  },
  machines(words) {
    const count = words.length, width = longest(words), zeros = String(count - 1).length;
    return range(count + 1).map((row) => machine({
      rows: [count + row], columns: width, step: adding(10), named: sayCarry,
      inputs: (column) => (row ? [
        [count + row - 1, column, row > 1 ? DIGITS : [0]],
        [row - 1, column, column >= width - zeros ? [0] : DIGITS],
      ] : []),
      ends: (carry) => (carry ? null : [row < count ? sign(">") : START]),
    }));
  },
  sizes: (size) => pairs(size).map(([count, digits]) => Array(count + 1).fill(digits + 1)),
  answer: (text) => number(text.split(">").at(-1)),
};

const multiplicationScratchpad = (radix) => ({
  window: [
    [0, QUERY, QUERY], [1, QUERY, QUERY], [QUERY, 0, QUERY], [QUERY, -1, QUERY], [1, QUERY, NEITHER], [QUERY, 0, NEITHER],
    [NEITHER, 1, 0], [NEITHER, 1, 1], [KEY, 0, 0], [KEY, 0, 1], [KEY, -1, QUERY], [NEITHER, QUERY, 1],
  ],
  sheet([first, second]) {
    const size = first.length, count = second.length, width = size + count, paper = sheet(3);
    paper.word(first, 0, (column) => [size + 1 - column]).put(sign("*"), 1, SIGN, 0, 0, 1);
    paper.word(second, 1, (column) => [0, column + 1]);
    for (let row = 0; row < count; row++) {
      const ids = (column) => [size + 1 - column, row + 1, width + 1 - column - row];
      paper.response(row ? "+" : "=", 2 + row, size + 1, ids(-1).slice(0, 2), ids);
    }
    for (let row = 0; row < count; row++) {
      const ids = (column) => [0, row + 1, width + 1 - column];
      paper.response(row ? ">" : "=", 2 + count + row, width, ids(-1), ids);
    }
    paper.blocks = [[2, "partial products"], [2 + count, "running sums"]];
    // A partial product is shifted to its place.
    paper.shift = (row) => (row >= 2 && row < 2 + count ? row - 2 : 0);
    return paper;
  },
  machines([first, second]) {
    const size = first.length, count = second.length, digits = range(radix);
    const partial = (row) =>
      times(2 + row, row, size + 1, size, proper(count, row, radix), radix, () => [sign(row < count - 1 ? "+" : "=")]);
    const sum = (row) => machine({
      rows: [2 + count + row], columns: size + count, step: adding(radix),
      inputs: (column) => [
        ...(row ? [[1 + count + row, column, column < size + row ? digits : [0]]] : []),
        ...(column >= row && column <= size + row
          ? [[2 + row, column - row, column === size + row ? digits.slice(0, -1) : digits]] : []),
      ],
      ends: (carry) => (carry ? null : [row < count - 1 ? sign(">") : START]),
    });
    return [...range(count).map(partial), ...range(count).map(sum)];
  },
  square: true,
  legal: `two numbers${radix === 10 ? "" : ` in base ${radix}`} with * between them`,
  domain: ([first, second], row, column) => (row < 2 ? proper((row ? second : first).length, column, radix) : range(radix)),
  sizes: pairs,
  answer: (text) => number(text.split(/[>=]/).at(-1)),
});

const division = {
  window: [[-1, QUERY], [QUERY, 1], [QUERY, 2], [0, 1]],
  sheet([first, second]) {
    const size = first.length, paper = sheet(2), ids = (column) => [column + 2, 2], quotient = (column) => [column + 2, 3];
    paper.word(first, 0, (column) => [size - column + 1]).put(sign("/"), 1, SIGN, size + 2).word(second, 1, () => [0, 1]);
    paper.response("=", 2, size, ids(-1), ids).response(">", 3, size, quotient(-1), quotient);
    paper.blocks = [[2, "remainders"], [3, "quotient"]];
    return paper;
  },
  // State: ten times the divisor, and what remains.
  machines: ([{ length }]) => [{
    named: (state) => `by ${Math.floor(state / 10)}, remainder ${state % 10}`,
    rows: [2, 3], columns: length, starts: DIGITS.slice(1).map((divisor) => 10 * divisor),
    fixed: (state) => [[1, 0, Math.floor(state / 10)]],
    inputs: (column) => [[0, length - 1 - column, proper(length, length - 1 - column)]],
    step(state, [digit]) {
      const divisor = Math.floor(state / 10), value = 10 * (state % 10) + digit;
      return [[value % divisor, Math.floor(value / divisor)], 10 * divisor + (value % divisor)];
    },
    ends: () => [sign(">"), START],
  }],
  sizes: (size) => [[size, 1]],
  answer(text) {
    const [rests, quotient, ...more] = text.split(">");
    return rests && quotient && !more.length ? `${plain(quotient)} remainder ${rests.at(-1)}` : "";
  },
  forward: true,
};

// Rows of a board; the model counts the mines around each cell.
const minesweeper = {
  coupling: "minesweeper_next_cell",
  legal: "rows of one width, M for a mine, _ for any other cell, > between two rows",
  window: [-1, 0, 1].flatMap((row) => [-1, 0, 1].map((column) => [column, row, QUERY])),
  sheet(rows) {
    const width = rows[0].length, height = rows.length, paper = sheet(3);
    rows.forEach((row, above) => {
      if (above) paper.put(sign(">"), above, SIGN, 0, 0, 2);
      paper.word(row, above, (column) => [width - column, above + 1, 0]);
    });
    const next = (cell) => [(cell % width) + 1, Math.floor(cell / width) + 1, 1];
    paper.response("=", height, 0, next(0));
    for (let cell = 0; cell < height * width; cell++) {
      paper.put(null, height + Math.floor(cell / width), cell % width, ...next(cell + 1));
    }
    // A token has the ids of the cell that is written after it.
    paper.ahead = 1;
    return paper;
  },
  machines(rows) {
    const width = rows[0].length, height = rows.length, cells = [MINE, BLANK];
    const near = (place, size) => [place - 1, place, place + 1].filter((other) => other >= 0 && other < size);
    return [machine({
      rows: [height], width, columns: height * width,
      inputs(cell) {
        const row = Math.floor(cell / width), column = width - 1 - (cell % width), across = near(column, width);
        const around = near(row, height).flatMap((above) => across.map((left) => [above, left, cells]));
        return [[row, column, cells], ...around];
      },
      step: (state, [own, ...all]) => [[own === MINE ? MINE : all.filter((cell) => cell === MINE).length], 0],
    })];
  },
  sizes: pairs,
  domain: () => [MINE, BLANK],
  blank: ([height, width]) => Array(height).fill("_".repeat(width)),
  draw: (size) => range(size).map(() => range(size).map(() => (below(5) ? "_" : "M")).join("")).join(">"),
  square: true,
  typed: /^[M_]+$/, spaced: true, // spaces and line breaks may stand between rows
  answer: (text, [{ length }]) => text.replace(RegExp(`.{${length}}(?=.)`, "g"), "$&\n"),
  forward: true,
};

// What an encoder's machine knows of a number.
const PHASES = ["its last digit may be on top", "its last digit is a 0 and not on top", "it has ended"];

// Labels of an encoder, read at the operator and the second number. The column of the operator stands above the others.
const labels = (multiplies) => ({
  encoder: true,
  window: multiplies ? [[-1, NEITHER], [0, NEITHER], [QUERY, KEY]] : [[0], [1]],
  sheet([first, second]) {
    const size = second.length, paper = new Sheet(multiplies ? 2 : 1);
    const own = multiplies ? (column) => [size + 2 - column, 0] : (column) => [column + 1];
    paper.word(first, 0, multiplies ? () => [0, 1] : own).put(sign(multiplies ? "*" : "+"), 1, size, ...own(size));
    paper.query = first.length;
    return paper.word(second, 1, own);
  },
  // State: the carry; per number 0, 100 or 1000 times: its last digit may be on top, may not, or it has ended; the factor.
  machines: ([, { length }]) => [machine({
    rows: [1], columns: length + 1, starts: multiplies ? DIGITS.map((factor) => factor * 1e6) : [1e6],
    fixed: (state) => (multiplies ? [[0, 0, Math.floor(state / 1e6)]] : []),
    inputs: (column) => (multiplies ? [1] : [0, 1]).slice(0, column < length ? 2 : 0)
      .map((row) => [row, column, column ? [...DIGITS, BLANK] : DIGITS]),
    named(state) {
      const numbers = (multiplies ? [100] : [100, 10000]).map((unit) => PHASES[Math.floor(state / unit) % 100]).join("; ");
      return `${multiplies ? `times ${Math.floor(state / 1e6)}, ` : ""}carry ${state % 10} (${numbers})`;
    },
    carries: (state) => range(multiplies ? Math.max(1, Math.floor(state / 1e6)) : 2),
    step(state, values, column) {
      const factor = Math.floor(state / 1e6), carry = state % 10;
      let following = factor * 1e6, total = 0, ended = true;
      for (let place = 0; place < (multiplies ? 1 : 2); place++) {
        const unit = 100 * 100 ** place, phase = Math.floor(state / unit) % 100, digit = values[place] ?? BLANK;
        if (digit === BLANK ? phase === 1 : phase === 2) return null;
        following += unit * (digit === BLANK ? 2 : digit === 0 && column ? 1 : 0);
        total += digit === BLANK ? 0 : digit;
        ended &&= digit === BLANK;
      }
      total = factor * total + carry;
      return [[(ended || !factor) && !total && column ? NO_LABEL : total % 10], following + Math.floor(total / 10)];
    },
    ends: (state) => (state % 10 ? null : [START]),
  })],
  sizes: (size) => [multiplies ? [1, size] : [size, size]],
  answer: (text) => text.replace(/^_+|_+$/g, ""),
});

export const MOST_TOKENS = 1000000;

// Refuses what would take too many tokens, before any work.
function room(task, words) {
  const tokens = words.reduce((sum, word) => sum + word.length, 0), isLong = task.encoder || tokens > MOST_TOKENS;
  const all = (isLong ? [] : task.machines(words)).reduce((sum, { rows, columns }) => sum + rows.length * columns, tokens);
  if (all <= MOST_TOKENS) return words;
  const [found, most] = [all, MOST_TOKENS].map((number) => number.toLocaleString("en"));
  throw new Error(`question and response would take at least ${found} tokens, and this page takes ${most} at most`);
}

const below = (most) => Math.floor(Math.random() * most);

// Spaces, as Python strips them from ASCII text; others are no part of a question.
const stripped = (text) => text.replace(/^[ \t\n\r\f\v]+|[ \t\n\r\f\v]+$/g, "");
const wordsOf = (question, between) => {
  const text = stripped(question).replace(/=$/, "");
  return (between ? text.split(between) : [text]).map(stripped);
};

const sayOnes = (state) => `${state ? "an odd" : "an even"} number of ones so far`;

// How questions such as 653+49 are read, as words of a form that the configuration calls legal (null if this is none), and
// how they are drawn. Zeros that the form asks for are put before a number, and others are taken away.
function questions(task, { pattern, example, equal_widths: equal, larger_first: larger }) {
  const between = example.match(/[-+*/>]/)?.[0] ?? "", end = example.endsWith("=") ? "=" : "";
  const legal = new RegExp(`^(?:${pattern})$`), split = (text) => wordsOf(text, between);
  const read = (question) => {
    if (question.length > MOST_TOKENS) room(task, [question]);
    const typed = task.spaced ? split(stripped(question)).flatMap((row) => row.split(/[ \t\n\r\f\v]+/)) : split(question);
    if (!typed.every((word) => task.typed.test(word))) return null;
    for (const words of [typed, typed.map(plain)]) {
      for (let zeros = 0; zeros <= (equal ? MOST_ZEROS : 0); zeros++) {
        const width = longest(words) + zeros, padded = words.map((word) => (equal ? word.padStart(width, task.pad) : word));
        if (legal.test(padded.join(between) + end) && !(larger && padded[0] < padded[1])) return room(task, padded);
      }
    }
    return null;
  };
  // Words of one symbol stay so; the largest digit stands in the pattern.
  const radix = Number(pattern.match(/-(\d)\]/)?.[1]) + 1, words = split(example);
  const draw = (size) => {
    const drawn = words.map((word) => range(word.length > 1 ? size : 1).map(() => below(radix)).join("")).join(between);
    return longest(read(drawn) ?? []) >= size ? drawn : draw(size);
  };
  const shown = words.map((word) => plain(word.replaceAll("_", task.encoder ? "" : "_"))).join(between);
  return { read, draw, legal: `${task.legal}, such as ${shown}` };
}

// By the name of a task: what it writes, what is legal in words, and its coupling rule if that has another name.
const TASKS = {
  addition: () => ({ ...sums(2, 1, 0), legal: "two numbers with + between them" }),
  multi_operand_addition: ({ operands: count }) => ({ ...sums(count, 0, 1), legal: `${count} numbers with + between them` }),
  copy: () => ({ ...strings(DIGITS, false, copied), legal: "a string of digits" }),
  reverse: () => ({ ...strings(DIGITS, true, copied), legal: "a string of digits" }),
  parity: () => ({
    ...strings([0, 1], false, (state, value) => [[(state + value) % 2], (state + value) % 2], sayOnes),
    coupling: "copy", answer: (text) => text.at(-1) ?? "", legal: "a string of 0 and 1",
  }),
  subtraction: () => ({ ...differences(false), legal: "two numbers with - between them, the larger one first" }),
  signed_subtraction: () => ({ ...differences(true), legal: "two numbers with - between them" }),
  multiplication: () => ({ ...multiplication, coupling: "multiplication_by_digits", legal: "a number, *, and one digit" }),
  multiplication_scratchpad: ({ radix = 10 }) => multiplicationScratchpad(radix),
  addition_scratchpad: () => ({ ...additionScratchpad, legal: "numbers with + between them" }),
  division: () => ({ ...division, legal: "a number, /, and one digit that is not 0" }),
  minesweeper: () => minesweeper,
  encoder_addition: () => ({ ...labels(false), coupling: "coupled", legal: "two numbers with + between them" }),
  encoder_multiplication: () => ({ ...labels(true), coupling: "uniform", legal: "one digit, *, and a number" }),
};

// Which words a person may ask, as `check_question` of the task of this name says, and a random one: the machine reads more.
const ASKED = {
  modular_arithmetic: {
    isAsked: ([word]) => /^-?[0-4]([-+*][0-4])*$/.test(word),
    draw: (size) => range(size).map((place) =>
      ((size - place) % 2 ? String(below(5)) : place ? "+-*"[below(3)] : "-")).join(""),
    legal: "an expression of digits 0 to 4 with + - * between them, such as 2*3-4",
  },
  missing_duplicate: {
    isAsked([first, second]) {
      const different = [...first].filter((symbol, place) => symbol !== second[place]);
      const hidden = first.length + second.length - `${first}${second}`.replaceAll("2", "").length;
      return first.length === second.length && different.length === 1 && hidden === 1;
    },
    draw(size) {
      const word = range(size).map(() => String(below(2))), hidden = word.with(below(size), "2");
      return (below(2) ? [word, hidden] : [hidden, word]).map((symbols) => symbols.join("")).join(",");
    },
    legal: "a word of 0 and 1 twice with a comma between, of which 2 hides one symbol, such as 101,121",
  },
};

// A task of a user's own. Its transducer travels as a table in the configuration, see modeling/transducer.py.
function columns(name, { alphabet, operands: count = 1, sign: between = "", answer = "all", passes }) {
  const { isAsked = () => true, ...asked } = ASKED[name.replace(/^states_of_/, "")] ?? {};
  const written = passes.flatMap(({ writes }) => [...writes]);
  const tokens = [...new Set([...ALPHABET.slice(0, 21), ...alphabet, ...between, ...written])];
  const letters = [alphabet, ...passes.map(({ writes }) => writes)]
    .map((text) => [...text].map((symbol) => tokens.indexOf(symbol)));
  const lettersOf = (source) => letters[Math.max(0, source - count + 1)];
  const isOnes = (pass) => passes[pass].direction === "ones_first";
  const readBy = (pass) => passes[pass].reads ?? range(count), shared = passes.every(({ symmetric }) => symmetric);
  const first = range(count).map((place) => (shared ? 1 : place + 1));
  const rows = [...first, ...passes.map((_, place) => (first.at(-1) + 1) * 2 ** place)];
  const above = Math.max(...passes.map(({ flush }, pass) => (isOnes(pass) ? flush : 1)));
  const window = new Map();
  passes.forEach(({ window: [low, high] }, pass) => {
    for (let column = low; column <= high; column++) {
      for (const source of readBy(pass)) {
        const entries = [isOnes(pass) ? column : -column, rows[count + pass] - rows[source]];
        window.set(String(entries), entries);
      }
    }
  });

  // One machine for passes that go the same way, side by side; a state is the number of all their states.
  const together = (group, width) => {
    const ones = isOnes(group[0]), read = new Set(group.flatMap(readBy));
    const sources = [...read].filter((source) => !group.includes(source - count));
    const reach = (source) => width + (source < count || ones !== isOnes(source - count) ? 0 : passes[source - count].flush);
    const there = (column) => sources.filter((source) => column < reach(source));
    return {
      kind: String(group), rows: group.map((pass) => count + pass), columns: width + passes[group[0]].flush,
      starts: [group.reduceRight((state, pass) => state * passes[pass].write.length + passes[pass].start, 0)],
      inputs: (column) => there(column).map((source) => {
        const straight = ones === (source < count || isOnes(source - count));
        return [source, straight ? column : width - 1 - column, lettersOf(source)];
      }),
      step(state, values, column) {
        const known = new Map(there(column).map((source, place) => [source, lettersOf(source).indexOf(values[place])]));
        let following = 0, radix = 1;
        for (const pass of group) {
          const { write, next } = passes[pass], from = Math.floor(state / radix) % write.length;
          const place = (number, source) => number * lettersOf(source).length + (known.get(source) ?? 0);
          const input = readBy(pass).reduce(place, 0);
          known.set(count + pass, write[from][input]);
          following += next[from][input] * radix;
          radix *= write.length;
        }
        return [group.map((pass) => lettersOf(count + pass)[known.get(count + pass)]), following];
      },
      ends: () => group.map((pass) => (pass < passes.length - 1 ? sign(">") : START)),
    };
  };
  const isAlike = ({ direction, flush }) =>
    direction === passes[0].direction && flush === passes[0].flush && (direction === "ones_first" || !flush);
  const groups = passes.every(isAlike) ? [range(passes.length)] : range(passes.length).map((pass) => [pass]);
  const last = passes.at(-1), onesLast = last.direction === "ones_first";
  return {
    tokens, window: [...window.values()], coupling: "columns", forward: !onesLast,
    answer(text) {
      if (answer === "joined") return text.replace(/[_>]/g, "");
      const row = [...(passes.length > 1 ? text.split(">").at(-1) : text)];
      const isNumber = onesLast && last.writes[0] === alphabet[0];
      if (answer === "last") return row.at(-1) ?? "";
      while (isNumber && row.length > 1 && row.at(-1) === alphabet[0]) row.pop();
      return (onesLast ? row.reverse() : row).join("");
    },
    sheet(words) {
      const width = longest(words), paper = new Sheet(2).put(START, 0, SIGN);
      words.forEach((word, row) => {
        if (row) paper.put(tokens.indexOf(between), row, SIGN, above + 1 + width);
        paper.word(word, row, (column) => [above + width - column, rows[row]], tokens);
      });
      passes.forEach(({ flush }, pass) => {
        const ids = (column) => [isOnes(pass) ? above + width - column : above + 1 + column, rows[count + pass]];
        paper.response(pass ? ">" : "=", count + pass, width + flush, ids(-1), ids);
      });
      return paper;
    },
    machines: (words) => groups.map((group) => together(group, longest(words))),
    // Machines one after the other would list what no problem brings, because each takes what it reads as free.
    unlisted: groups.length > 1 && "its passes go different ways or end apart, and its search takes them side by side",
    sizes: (size) => [Array(count).fill(size)],
    blank: (sizes) => sizes.map((size) => alphabet[0].repeat(size)),
    legal: `${count > 1 ? `${count} words with ${between} between them` : "a word"}, of the symbols ${alphabet}`,
    draw: (size) => range(count).map(() => range(size).map(() => alphabet[below(alphabet.length)]).join("")).join(between),
    read(question) {
      const words = wordsOf(question, between), width = longest(words);
      const fits = (word) => word && [...word].every((symbol) => alphabet.includes(symbol));
      if (words.length !== count || !words.every(fits) || !isAsked(words)) return null;
      return room(this, words.map((word) => word.padStart(width, alphabet[0])));
    },
    ...asked,
  };
}

const CALCULATOR = ["addition_scratchpad", "signed_subtraction", "multiplication_scratchpad"];

// The tasks of a configuration: one, or the parts of a calculator, whose relations are numbered one after the other. Refuses
// what this page does not know, and a window or a format for which its sheets would not be right.
export function tasksOf(config) {
  const options = config.task ?? {}, joined = options.task === "calculator", names = joined ? CALCULATOR : [options.task];
  const formats = config.prompt_format?.formats ?? [config.prompt_format];
  let before = 0;
  const tasks = names.map((name, part) => {
    const isKnown = config.transducer || Object.hasOwn(TASKS, name);
    if (!isKnown) throw new Error(`this page knows no task ${JSON.stringify(name)}`);
    const described = config.transducer ? columns(String(name), config.transducer) : TASKS[name](options);
    const task = {
      name, before, coupling: name, tokens: ALPHABET, pad: described.encoder ? "_" : "0",
      typed: /^[0-9]+$/, blank: (sizes) => sizes.map((size) => "0".repeat(size)), answer: number, ...described,
    };
    before += task.window.length;
    return task.read ? task : { ...task, ...questions(task, formats[part]), ...(task.draw && { draw: task.draw }) };
  });
  const [{ window, coupling }] = tasks, rule = config.coupling ?? config.pair_maps?.[0], bounds = config.relation_range;
  const wanted = joined ? "calculator" : coupling;
  const isDense = ENCODINGS.includes(config.position_encoding), others = ["sequential", `${wanted}_marked_top`];
  if (rule !== wanted && !(isDense && others.includes(rule)))
    throw new Error(`this page draws this task by the ids of ${wanted}, and this model has ${rule}`);
  const differences = window.flat().filter((entry) => typeof entry === "number");
  const [low, high] = [Math.min(...differences), Math.max(...differences)];
  // Under bounds alone, a decoder sees all differences of ids within them.
  const isWhole = config.pair_maps || window.length === (high - low + 1) ** window[0].length;
  if (bounds && !isDense && (String(bounds) !== `${low},${high}` || !isWhole)) {
    throw new Error(`tokens here see ids that differ by ${low} to ${high}, and in this model by ${bounds.join(" to ")}`);
  }
  return tasks;
}
