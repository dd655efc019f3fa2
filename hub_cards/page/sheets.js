// What each task writes and which ids its tokens have: a sheet of paper, and the machines that fill it in.
//
// A sheet holds the tokens of a problem in the order in which they are written. A token stands in a row and a column: column 0
// is the ones, or the first symbol where writing begins at the top. A sign begins a row, in column SIGN. Each token has an id
// for each level, 0 for none, as the coupling rule of modeling/coupling_rules.py of the same name gives it.
//
// A machine fills in rows of the sheet, column by column: from a state and the digits of a column it writes a symbol into each
// of its rows and goes to the next state. From its columns follow right answers (here) and all neighbourhoods (search.js).

export const ALPHABET = [..."0123456789+-*=>M_$", "<eos>", "<pad>", "<unk>", "/"];
export const SIGN = -1;
export const DIGITS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], START = 17, NO_LABEL = 10, UNKNOWN = 11; // `$`, and two labels: `_` and `?`
const BLANK = 16, MINE = 15;
export const KEY = "key", QUERY = "query", NEITHER = "neither"; // who has an id at a level

class Sheet {
  constructor(levels) {
    Object.assign(this, { levels, text: [], row: [], column: [], ids: Array.from({ length: levels }, () => []), places: null, query: 0, signs: new Map(), blocks: [] });
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
  word(text, row, ids) {
    for (let place = 0; place < text.length; place++) this.put(ALPHABET.indexOf(text[place]), row, text.length - 1 - place, ...ids(text.length - 1 - place));
    return this;
  }

  // Adds what is to be written into a row: its sign, which ends the query in the first of these rows, and `size` columns from 0 on.
  response(sign, row, size, signIds, ids) {
    this.put(this.query ? null : ALPHABET.indexOf(sign), row, SIGN, ...signIds);
    this.signs.set(this.text.length - 1, ALPHABET.indexOf(sign));
    this.query ||= this.text.length;
    for (let column = 0; column < size; column++) this.put(null, row, column, ...ids(column));
    return this;
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
const proper = (size, column) => (column === size - 1 && size > 1 ? DIGITS.slice(1) : DIGITS);
const plain = (text) => text.replace(/^0+(?=.)/, "");
const reversed = (text) => [...text].reverse().join("");

// Pairs of sizes of which the larger one is `size`.
const pairs = (size) => range(size).flatMap((other) => [[size, other + 1], ...(other + 1 < size ? [[other + 1, size]] : [])]);

// Rows of a question below each other, with ids by column: A at row 0, B at row 1, ...
function operands(paper, words, signText, ids, signIds) {
  words.forEach((word, row) => {
    paper.word(word, row, (column) => ids(column, row));
    if (row < words.length - 1) paper.put(sign(signText), row + 1, SIGN, ...signIds(row));
  });
  return paper;
}

// Sums of several numbers in one pass: the state is the carry.
function sums(options) {
  return {
    window: [[0], [1]],
    sheet(words) {
      const width = longest(words) + options.room;
      return operands(sheet(1), words, "+", (column) => [width - column], () => [width + 1]).response("=", words.length, width, [width + 1], (column) => [width - column]);
    },
    machines: (words) => [{
      rows: [words.length], columns: longest(words) + options.room, starts: [0],
      inputs: (column) => words.flatMap((word, row) => (column < word.length ? [[row, column, column >= word.length - options.zeros ? [0] : DIGITS]] : [])),
      unordered: true, // the order of the digits of a column is not seen
      step: (carry, values) => {
        const total = values.reduce((sum, value) => sum + value, carry);
        return [[total % 10], Math.floor(total / 10)];
      },
      ends: () => [START],
    }],
    sizes: (size) => (size > options.zeros ? [Array(options.operands).fill(size)] : []),
    answer: (rows) => plain(reversed(rows[0])),
  };
}

// A string, read or answered symbol by symbol; `next` gives the symbol to write and the next state.
function strings(alphabet, backwards, next) {
  return {
    window: [[backwards ? 1 : -1]],
    sheet([word]) {
      const size = word.length, paper = sheet(1).word(word, 0, (column) => [backwards ? size - column : size - column + 1]);
      return paper.response("=", 1, size, [backwards ? size + 1 : 1], (column) => [backwards ? size - column : column + 2]);
    },
    machines: ([word]) => [{
      rows: [1], columns: word.length, starts: [0], inputs: (column) => [[0, backwards ? column : word.length - 1 - column, alphabet]],
      step: (state, [value]) => next(state, value), ends: () => [START],
    }],
    sizes: (size) => [[size]],
    answer: ([row]) => row,
    forward: true,
  };
}

// Differences; with `signed` of any two numbers, by a second row, 10^L less the first, if the first borrows at the top.
function differences(signed) {
  return {
    window: [[0, 2], [0, 1], [1, 2], [1, 1]],
    sheet(words) {
      const size = longest(words), ids = (row) => (column) => [size - column, row];
      const paper = operands(sheet(2), words, "-", (column, row) => ids(row + 1)(column), (row) => [size + 1, row + 1]).response("=", 2, size, [size + 1, 3], ids(3));
      return signed ? paper.response("-", 3, size, [size + 1, 5], ids(5)) : paper;
    },
    machines: (words) => [{
      rows: signed ? [2, 3] : [2], columns: longest(words), starts: [0],
      inputs: (column) => [[0, column, DIGITS], [1, column, DIGITS], ...(signed && column && column === longest(words) - 1 ? [[0, column, DIGITS]] : [])],
      // State: whether 1 was borrowed, and 2 if a digit of the first row was not 0.
      step: (state, [first, second, atTop]) => {
        if (atTop === 0 && !second) return null;
        const digit = first - second - (state & 1), written = (digit + 10) % 10;
        return [[written, (20 - written - (state & 2 ? 1 : 0)) % 10], (digit < 0 ? 1 : 0) | (state & 2 || written ? 2 : 0)];
      },
      ends: (state) => (signed ? (state & 1 ? [sign("-"), START] : [START, null]) : state & 1 ? null : [START]),
    }],
    sizes: (size) => [[size, size]],
    answer: (rows) => (rows.length > 1 ? `-${plain(reversed(rows[1]))}` : plain(reversed(rows[0]))),
  };
}

const multiplication = {
  window: [[1, QUERY], [0, QUERY], [-1, QUERY], [-2, QUERY], [QUERY, 1], [QUERY, 2]],
  sheet([first, second]) {
    const width = first.length + second.length;
    const paper = sheet(2).word(first, 0, (column) => [width - column, 0]).put(sign("*"), 1, SIGN, 0, second.length + 2);
    return paper.word(second, 1, (column) => [0, second.length - column]).response("=", 2, width, [width + 1, second.length + 1], (column) => [width - column, second.length + 1]);
  },
  // State: ten times the multiplier, and the carry.
  machines: ([first, second]) => [{
    rows: [2], columns: first.length + second.length, starts: DIGITS.map((factor) => 10 * factor),
    fixed: (state) => [[1, 0, Math.floor(state / 10)]],
    inputs: (column) => (column < first.length ? [[0, column, proper(first.length, column)]] : []),
    step: (state, [digit = 0]) => {
      const factor = Math.floor(state / 10), total = factor * digit + (state % 10);
      return [[total % 10], 10 * factor + Math.floor(total / 10)];
    },
    ends: () => [START],
  }],
  sizes: (size) => [[size, 1]],
  answer: (rows) => plain(reversed(rows[0])),
};

const additionScratchpad = {
  window: [[0, 1], [1, 1], [1, QUERY]],
  sheet(words) {
    const width = longest(words), paper = sheet(2);
    operands(paper, words, "+", (column, row) => [width + 1 - column, row + 1], (row) => [1, row + 1]);
    for (let row = 0; row <= words.length; row++) {
      paper.response(row ? ">" : "=", words.length + row, width, row ? [width + 2, row + 1] : [1, 0], (column) => [width + 1 - column, row + 1]);
    }
    paper.blocks = [[words.length, "running sums"]];
    return paper;
  },
  machines(words) {
    const count = words.length, width = longest(words), zeros = String(count - 1).length;
    return range(count + 1).map((row) => ({
      rows: [count + row], columns: width, starts: [0],
      inputs: (column) => (row ? [[count + row - 1, column, row > 1 ? DIGITS : [0]], [row - 1, column, column >= width - zeros ? [0] : DIGITS]] : []),
      step: (carry, [above = 0, own = 0]) => [[(above + own + carry) % 10], above + own + carry > 9 ? 1 : 0],
      ends: (carry) => (carry ? null : [row < count ? sign(">") : START]),
    }));
  },
  sizes: (size) => pairs(size).map(([count, digits]) => Array(count + 1).fill(digits + 1)),
  answer: (rows) => plain(reversed(rows.at(-1))),
};

const multiplicationScratchpad = {
  window: [
    [0, QUERY, QUERY], [1, QUERY, QUERY], [QUERY, 0, QUERY], [QUERY, -1, QUERY], [1, QUERY, NEITHER], [QUERY, 0, NEITHER],
    [NEITHER, 1, 0], [NEITHER, 1, 1], [KEY, 0, 0], [KEY, 0, 1], [KEY, -1, QUERY], [NEITHER, QUERY, 1],
  ],
  sheet([first, second]) {
    const size = first.length, count = second.length, width = size + count;
    const paper = sheet(3).word(first, 0, (column) => [size + 1 - column]).put(sign("*"), 1, SIGN, 0, 0, 1).word(second, 1, (column) => [0, column + 1]);
    for (let row = 0; row < count; row++) {
      paper.response(row ? "+" : "=", 2 + row, size + 1, [size + 2, row + 1], (column) => [size + 1 - column, row + 1, width + 1 - column - row]);
    }
    for (let row = 0; row < count; row++) {
      paper.response(row ? ">" : "=", 2 + count + row, width, [0, row + 1, width + 2], (column) => [0, row + 1, width + 1 - column]);
    }
    paper.blocks = [[2, "partial products"], [2 + count, "running sums"]];
    // A partial product is shifted to its place.
    paper.shift = (row) => (row >= 2 && row < 2 + count ? row - 2 : 0);
    return paper;
  },
  machines([first, second]) {
    const size = first.length, count = second.length;
    const partial = (row) => ({
      rows: [2 + row], columns: size + 1, starts: proper(count, row).map((factor) => 10 * factor), fixed: (state) => [[1, row, Math.floor(state / 10)]],
      inputs: (column) => (column < size ? [[0, column, proper(size, column)]] : []),
      step: (state, [digit = 0]) => {
        const factor = Math.floor(state / 10), total = factor * digit + (state % 10);
        return [[total % 10], 10 * factor + Math.floor(total / 10)];
      },
      ends: () => [sign(row < count - 1 ? "+" : "=")],
    });
    const sum = (row) => ({
      rows: [2 + count + row], columns: size + count, starts: [0],
      inputs: (column) => [
        ...(row ? [[1 + count + row, column, column < size + row ? DIGITS : [0]]] : []),
        ...(column >= row && column <= size + row ? [[2 + row, column - row, column === size + row ? DIGITS.slice(0, 9) : DIGITS]] : []),
      ],
      step: (carry, values) => {
        const total = values.reduce((all, value) => all + value, carry);
        return [[total % 10], total > 9 ? 1 : 0];
      },
      ends: (carry) => (carry ? null : [row < count - 1 ? sign(">") : START]),
    });
    return [...range(count).map(partial), ...range(count).map(sum)];
  },
  domain: ([first, second], row, column) => (row < 2 ? proper((row ? second : first).length, column) : DIGITS),
  sizes: pairs,
  answer: (rows) => plain(reversed(rows.at(-1))),
};

const division = {
  window: [[-1, QUERY], [QUERY, 1], [QUERY, 2], [0, 1]],
  sheet([first, second]) {
    const size = first.length, paper = sheet(2).word(first, 0, (column) => [size - column + 1]).put(sign("/"), 1, SIGN, size + 2).word(second, 1, () => [0, 1]);
    paper.response("=", 2, size, [1, 2], (column) => [column + 2, 2]).response(">", 3, size, [1, 3], (column) => [column + 2, 3]);
    paper.blocks = [[2, "remainders"], [3, "quotient"]];
    return paper;
  },
  // State: ten times the divisor, and what remains.
  machines: ([first]) => [{
    rows: [2, 3], columns: first.length, starts: DIGITS.slice(1).map((divisor) => 10 * divisor), fixed: (state) => [[1, 0, Math.floor(state / 10)]],
    inputs: (column) => [[0, first.length - 1 - column, proper(first.length, first.length - 1 - column)]],
    step: (state, [digit]) => {
      const divisor = Math.floor(state / 10), value = 10 * (state % 10) + digit;
      return [[value % divisor, Math.floor(value / divisor)], 10 * divisor + (value % divisor)];
    },
    ends: () => [sign(">"), START],
  }],
  sizes: (size) => [[size, 1]],
  answer: ([rests, quotient = ""]) => `${plain(quotient)} remainder ${rests.at(-1)}`,
  forward: true,
};

// Rows of a board; the model counts the mines around each cell.
const minesweeper = {
  window: [-1, 0, 1].flatMap((row) => [-1, 0, 1].map((column) => [column, row, QUERY])),
  sheet(rows) {
    const width = rows[0].length, paper = sheet(3);
    rows.forEach((row, above) => {
      if (above) paper.put(sign(">"), above, SIGN, 0, 0, 2);
      for (let column = 0; column < width; column++) paper.put(sign(row[column]), above, width - 1 - column, column + 1, above + 1, 0);
    });
    const next = (cell) => [(cell % width) + 1, Math.floor(cell / width) + 1, 1];
    paper.response("=", rows.length, 0, next(0));
    for (let cell = 0; cell < rows.length * width; cell++) paper.put(null, rows.length + Math.floor(cell / width), cell % width, ...next(cell + 1));
    return paper;
  },
  machines(rows) {
    const width = rows[0].length, height = rows.length;
    return [{
      rows: [height], width, columns: height * width, starts: [0],
      inputs(cell) {
        const [row, column] = [Math.floor(cell / width), cell % width], around = [[row, width - 1 - column, [MINE, BLANK]]];
        for (let above = Math.max(0, row - 1); above <= Math.min(height - 1, row + 1); above++) {
          for (let left = Math.max(0, column - 1); left <= Math.min(width - 1, column + 1); left++) {
            if (above !== row || left !== column) around.push([above, width - 1 - left, [MINE, BLANK]]);
          }
        }
        return around;
      },
      step: (state, [own, ...others]) => [[own === MINE ? MINE : others.filter((other) => other === MINE).length], 0],
      ends: () => [START],
    }];
  },
  sizes: pairs,
  domain: () => [MINE, BLANK],
  blank: ([height, width]) => Array(height).fill("_".repeat(width)),
  answer: (rows) => rows.join("\n"),
  forward: true,
};

// Labels of an encoder, read at the operator and the second number. The column of the operator stands above the others.
function labels(times) {
  // State: the carry; per number 0, 100 or 1000 times: its last digit may be on top, may not, or it has ended; the factor.
  return {
    encoder: true,
    window: times ? [[-1, NEITHER], [0, NEITHER], [QUERY, KEY]] : [[0], [1]],
    sheet([first, second]) {
      const size = second.length, paper = new Sheet(times ? 2 : 1);
      const own = times ? (column) => [size + 2 - column, 0] : (column) => [column + 1];
      paper.word(first, 0, times ? () => [0, 1] : own).put(sign(times ? "*" : "+"), 1, size, ...own(size));
      paper.query = first.length;
      return paper.word(second, 1, own);
    },
    machines: ([first, second]) => [{
      rows: [1], columns: second.length + 1,
      starts: times ? DIGITS.map((factor) => factor * 1e6) : [1e6], fixed: (state) => (times ? [[0, 0, Math.floor(state / 1e6)]] : []),
      inputs: (column) => (column < second.length ? (times ? [1] : [0, 1]).map((row) => [row, column, column ? [...DIGITS, BLANK] : DIGITS]) : []),
      carries: (state) => range(times ? Math.max(1, Math.floor(state / 1e6)) : 2),
      step(state, values, column) {
        const factor = Math.floor(state / 1e6), carry = state % 10;
        let following = factor * 1e6, total = 0, ended = true;
        for (let place = 0; place < (times ? 1 : 2); place++) {
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
    }],
    sizes: (size) => [times ? [1, size] : [size, size]],
    answer: (text) => text.replace(/_/g, ""),
  };
}

export const MOST_TOKENS = 1000000;

// Refuses what would take too many tokens, before any work.
function room(tokens, words) {
  if (tokens > MOST_TOKENS) throw new Error(`question and response would take ${tokens.toLocaleString("en")} tokens, and this page takes ${MOST_TOKENS.toLocaleString("en")} at most`);
  return words;
}

// A question such as 653+49, as its numbers; null if it is none. `count` is 0 for two or more numbers.
const numbers = (between, count, fit) => (question) => {
  const words = question.replace(/=$/, "").split(between);
  if (words.length < (count || 2) || (count && words.length > count) || !words.every((word) => /^[0-9]+$/.test(word))) return null;
  return fit(words);
};
const padded = (zeros) => (words) => {
  const width = longest(words) + zeros(words);
  return room(2 * words.length * (width + 1), words).map((word) => word.padStart(width, "0"));
};
const trimmed = (words) => words.map(plain);
const text = (symbols) => (question) => (new RegExp(`^[${symbols}]+=?$`).test(question) ? room(2 * question.length, [question.replace("=", "")]) : null);
const none = () => 0, carries = (words) => String(words.length - 1).length;
const digitsOf = (size) => Array.from({ length: size }, (_, place) => Math.floor(Math.random() * (place ? 10 : 9)) + (place ? 0 : 1)).join("");
const several = (count, between) => (size) => Array.from({ length: count }, () => digitsOf(size)).join(between);
const digit = (least) => Math.floor(Math.random() * (10 - least)) + least;

// By the name of a task: what it writes, how a question is read, what is legal in words, and how one of a size is drawn.
export const TASKS = {
  addition: () => ({ ...sums({ operands: 2, room: 1, zeros: 0 }), coupling: "addition", read: numbers("+", 2, padded(none)), legal: "two numbers with + between them, such as 653+49", draw: several(2, "+") }),
  multi_operand_addition: ({ operands: count }) => ({
    ...sums({ operands: count, room: 0, zeros: 1 }), coupling: "multi_operand_addition", read: numbers("+", count, padded(() => 1)),
    legal: `${count} numbers with + between them, such as 653+49+871`, draw: several(count, "+"),
  }),
  copy: () => ({ ...strings(DIGITS, false, (state, value) => [[value], 0]), coupling: "copy", read: text("0-9"), legal: "a string of digits, such as 1809", draw: digitsOf }),
  reverse: () => ({ ...strings(DIGITS, true, (state, value) => [[value], 0]), coupling: "reverse", read: text("0-9"), legal: "a string of digits, such as 5962", draw: digitsOf }),
  parity: () => ({
    ...strings([0, 1], false, (state, value) => [[(state + value) % 2], (state + value) % 2]), coupling: "copy", read: text("01"), legal: "a string of 0 and 1, such as 1011",
    answer: ([row]) => row.at(-1) ?? "", draw: (size) => digitsOf(size).replace(/./g, (symbol) => symbol % 2),
  }),
  subtraction: () => ({
    ...differences(false), coupling: "subtraction", legal: "two numbers with - between them, the larger one first, such as 653-49",
    read: numbers("-", 2, (words) => ((all) => (all[0] >= all[1] ? all : null))(padded(none)(words))), draw: (size) => [digitsOf(size), digitsOf(size)].sort().reverse().join("-"),
  }),
  signed_subtraction: () => ({
    ...differences(true), coupling: "signed_subtraction", legal: "two numbers with - between them, such as 49-653",
    read: numbers("-", 2, (words) => padded(none)(trimmed(words))), draw: several(2, "-"),
  }),
  multiplication: ({ multiplier_length: count }) => ({
    ...multiplication, coupling: "multiplication_by_digits", unfit: count === 1 ? "" : "this page multiplies by one digit",
    read: numbers("*", 2, ([first, second]) => (second.length === 1 ? room(2 * first.length, [plain(first), second]) : null)),
    legal: "a number, *, and one digit, such as 653*4", draw: (size) => `${digitsOf(size)}*${digit(0)}`,
  }),
  multiplication_scratchpad: () => ({
    ...multiplicationScratchpad, coupling: "multiplication_scratchpad", legal: "two numbers with * between them, such as 294*68", draw: several(2, "*"), square: true,
    read: numbers("*", 2, (words) => (([first, second]) => room(second.length * (2 * first.length + second.length + 3), [first, second]))(trimmed(words))),
  }),
  addition_scratchpad: () => ({
    ...additionScratchpad, coupling: "addition_scratchpad", read: numbers("+", 0, (words) => padded(carries)(trimmed(words))),
    legal: "numbers with + between them, such as 512+880+300", draw: several(3, "+"),
  }),
  division: () => ({
    ...division, coupling: "division", legal: "a number, /, and one digit that is not 0, such as 8764/7", draw: (size) => `${digitsOf(size)}/${digit(1)}`,
    read: numbers("/", 2, ([first, second]) => (/^[1-9]$/.test(second) ? room(3 * first.length, [plain(first), second]) : null)),
  }),
  minesweeper: () => ({
    ...minesweeper, coupling: "minesweeper_next_cell", square: true, legal: "rows of one width, M for a mine, _ for any other cell, > between two rows, such as M__>__M",
    read: (question) => {
      const rows = question.replace(/=$/, "").split(">");
      return rows.every((row) => /^[M_]+$/.test(row) && row.length === rows[0].length) ? room(2 * question.length, rows) : null;
    },
    draw: (size) => Array.from({ length: size }, () => Array.from({ length: size }, () => (Math.random() < 0.2 ? "M" : "_")).join("")).join(">"),
  }),
  encoder_addition: () => ({
    ...labels(false), coupling: "coupled", legal: "two numbers with + between them, such as 164+235", draw: several(2, "+"),
    read: numbers("+", 2, (words) => room(2 * longest(words), trimmed(words)).map((word, _, all) => word.padStart(longest(all), "_"))),
  }),
  encoder_multiplication: ({ multiplier_length: count }) => ({
    ...labels(true), coupling: "uniform", unfit: count === 1 ? "" : "this page multiplies by one digit", legal: "one digit, *, and a number, such as 7*35", draw: (size) => `${digit(0)}*${digitsOf(size)}`,
    read: numbers("*", 2, ([first, second]) => (first.length === 1 ? room(second.length, [first, plain(second)]) : null)),
  }),
};

// A task of a user's own. Its transducer travels as a table in the configuration, see modeling/transducer.py.
function columns({ alphabet, operands: count = 1, sign: between = "", answer = "all", passes }) {
  const common = ALPHABET.slice(0, 21), own = new Set([...alphabet, ...between, ...passes.flatMap(({ writes }) => [...writes])]);
  const tokens = [...common, ...[...own].filter((symbol) => !common.includes(symbol))];
  const letters = [alphabet, ...passes.map(({ writes }) => writes)].map((text) => [...text].map((symbol) => tokens.indexOf(symbol)));
  const lettersOf = (source) => letters[Math.max(0, source - count + 1)], isOnes = (pass) => passes[pass].direction === "ones_first";
  const readBy = (pass) => passes[pass].reads ?? range(count), shared = passes.every(({ symmetric }) => symmetric);
  const first = range(count).map((place) => (shared ? 1 : place + 1)), rows = [...first, ...passes.map((_, place) => (first.at(-1) + 1) * 2 ** place)];
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
  const machine = (group, width) => {
    const { flush } = passes[group[0]], ones = isOnes(group[0]);
    const sources = [...new Set(group.flatMap(readBy))].filter((source) => !group.includes(source - count));
    const isThere = (source, column) => column < width || (ones && source >= count && isOnes(source - count) && column < width + passes[source - count].flush);
    const there = (column) => sources.filter((source) => isThere(source, column));
    return {
      kind: String(group), rows: group.map((pass) => count + pass), columns: width + flush,
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
          const input = readBy(pass).reduce((number, source) => number * lettersOf(source).length + (known.get(source) ?? 0), 0);
          known.set(count + pass, write[from][input]);
          following += next[from][input] * radix;
          radix *= write.length;
        }
        return [group.map((pass) => lettersOf(count + pass)[known.get(count + pass)]), following];
      },
      ends: () => group.map((pass) => (pass < passes.length - 1 ? sign(">") : START)),
    };
  };
  const alike = passes.every(({ direction, flush }) => direction === passes[0].direction && flush === passes[0].flush && (direction === "ones_first" || !flush));
  const last = passes.at(-1), onesLast = last.direction === "ones_first";
  return {
    tokens, window: [...window.values()], coupling: "columns", forward: !onesLast,
    sheet(words) {
      const width = longest(words), paper = new Sheet(2).put(START, 0, SIGN);
      words.forEach((word, row) => {
        if (row) paper.put(tokens.indexOf(between), row, SIGN, above + 1 + width);
        [...word].forEach((symbol, place) => paper.put(tokens.indexOf(symbol), row, width - 1 - place, above + 1 + place, rows[row]));
      });
      passes.forEach(({ flush }, pass) => {
        const ids = isOnes(pass) ? (column) => [above + width - column, rows[count + pass]] : (column) => [above + 1 + column, rows[count + pass]];
        paper.response(pass ? ">" : "=", count + pass, width + flush, ids(-1), ids);
      });
      return paper;
    },
    machines: (words) => (alike ? [machine(range(passes.length), longest(words))] : range(passes.length).map((pass) => machine([pass], longest(words)))),
    sizes: (size) => [Array(count).fill(size)],
    blank: (sizes) => sizes.map((size) => alphabet[0].repeat(size)),
    answer: (written) => {
      const row = answer === "joined" ? written.join("").replaceAll("_", "") : written[passes.length - 1] ?? "", value = answer === "last" ? [...row].at(-1) ?? "" : onesLast ? reversed(row) : row;
      const zero = answer === "all" && onesLast && last.writes[0] === alphabet[0] ? last.writes[0] : "";
      let from = 0;
      while (zero && value[from] === zero && from < value.length - 1) from++;
      return value.slice(from);
    },
    legal: `${count > 1 ? `${count} words with ${between} between them` : "a word"}, over ${alphabet}`,
    read(question) {
      const words = between ? question.replace(/=$/, "").split(between) : [question.replace(/=$/, "")], width = longest(words);
      const fits = words.length === count && words.every((word) => word && [...word].every((symbol) => alphabet.includes(symbol)));
      return fits ? room((count + passes.length) * (width + 2), words).map((word) => word.padStart(width, alphabet[0])) : null;
    },
    draw: (size) => range(count).map(() => range(size).map(() => alphabet[Math.floor(Math.random() * alphabet.length)]).join("")).join(between),
  };
}

const CALCULATOR = ["addition_scratchpad", "signed_subtraction", "multiplication_scratchpad"];
const FORMAT = { separate_eos: false, zero_padding: true, order: "response_reversed", scratchpad: true, text_tokens: 0 };

// The tasks of a configuration: one, or the parts of a calculator, whose relations are numbered one after the other. Refuses
// what this page does not know, and a window or a format for which its sheets would not be right.
export function tasksOf(config) {
  const options = config.task ?? {}, joined = options.task === "calculator", names = joined ? CALCULATOR : [options.task];
  let before = 0;
  const tasks = names.map((name) => {
    if (!config.transducer && !Object.hasOwn(TASKS, name)) throw new Error(`this page knows no task ${JSON.stringify(name)}`);
    const blank = (sizes) => sizes.map((size) => "0".repeat(size));
    const task = { name, before, blank, tokens: ALPHABET, ...(config.transducer ? columns(config.transducer) : TASKS[name](options)) };
    before += task.window.length;
    if (task.unfit) throw new Error(task.unfit);
    return task;
  });
  const [{ window, coupling }] = tasks, rule = config.coupling ?? config.pair_maps?.[0], bounds = config.relation_range;
  const other = Object.entries(FORMAT).find(([name, value]) => name in options && options[name] !== value);
  if (other) throw new Error(`this page knows tasks whose ${other[0]} is ${other[1]}, and its own is ${options[other[0]]}`);
  if (rule !== (joined ? "calculator" : coupling)) throw new Error(`this page knows this task with the rule ${coupling}, and its own is ${rule}`);
  const differences = window.flat().filter((entry) => typeof entry === "number");
  if (bounds && (bounds[0] !== Math.min(...differences) || bounds[1] !== Math.max(...differences))) {
    throw new Error(`this page knows this task with a window of ${Math.min(...differences)}..${Math.max(...differences)}, and its own is ${bounds.join("..")}`);
  }
  return tasks;
}
