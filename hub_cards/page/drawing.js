// What the page draws. Text from files and questions becomes text nodes, never HTML.

const GOLDEN_ANGLE = 137.5; // between the hues of ids that follow each other, so that neighbours differ much
const MOST_SHOWN = 80, END_SHOWN = 24;
const INVITATION = "Pass over a token of the response, tap it, or use Tab and the arrow keys: " +
  "the tokens that it was written from light up.";

// An element with attributes and children; a function for an attribute named `on...` becomes a listener.
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export const count = (number, noun = "") => `${number.toLocaleString("en")}${noun && ` ${noun}${number === 1 ? "" : "s"}`}`;
const hueOf = (number) => ({ "data-hue": true, style: `--hue:${Math.round((number * GOLDEN_ANGLE) % 360)}` });

export function table(kind, header, rows, cell = (value) => make("td", {}, String(value))) {
  const over = (text) => (text ? make("th", { scope: "col" }, text) : make("td", {}));
  const head = make("thead", {}, make("tr", {}, ...header.map(over)));
  const body = rows.map(([first, ...rest]) => make("tr", {}, make("th", { scope: "row" }, first), ...rest.map(cell)));
  const scroll = { class: "scroll", tabindex: "0", role: "group", "aria-label": header[0] || "Table" };
  return make("div", scroll, make("table", { class: kind }, head, make("tbody", {}, ...body)));
}

const fold = (text) => (text.length > MOST_SHOWN ? `${text.slice(0, END_SHOWN)} … ${text.slice(-END_SHOWN)}` : text);

// A question and its answer; a long one is folded, and can be copied.
export function drawAnswer({ question, answer, right, wrong, ends, count: tokens, seconds }) {
  const parts = [make("p", { class: "answer" }, make("span", {}, `${fold(question)} = `), make("output", {}, fold(answer)))];
  if (answer.length > MOST_SHOWN) {
    const whole = make("div", { class: "whole", tabindex: "0", role: "group", "aria-label": "The whole answer" });
    const show = () => (whole.textContent = answer), copied = make("span", { role: "status" });
    const say = (text) => () => (copied.textContent = text);
    const copy = () => navigator.clipboard.writeText(answer).then(say("copied"), say("the browser does not allow it"));
    parts.push(make("div", { class: "row" }, make("button", { type: "button", onclick: copy }, "Copy"), copied));
    parts.push(make("details", { ontoggle: show }, make("summary", {}, `Show all ${count(answer.length, "digit")}`), whole));
  }
  const endless = ends ? "" : ", and it does not end";
  const verdict = wrong ? `wrong${endless}: right is ${fold(right)}` : "right, by the task's own rule";
  // Short answers take no time that means anything.
  const timed = tokens > MOST_SHOWN ? ` in ${seconds.toFixed(2)} s, ${count(Math.round(tokens / seconds))} a second` : "";
  const speed = make("span", { id: "speed" }, `${count(tokens, "token")}${timed}`);
  const badge = make("span", { class: `badge ${wrong ? "bad" : ""}` }, verdict);
  return [...parts, make("p", { class: "row hint" }, badge, speed)];
}

const describeIds = (ids) => `id${ids.length > 1 ? "s" : ""} ${ids.map((id) => id || "-").join(", ")}`;

// Columns in which the tokens stand: column 0 is the rightmost, signs stand in a margin on the left.
function placeTokens({ tokens, rows, columns, query }) {
  const margin = Math.max(...columns.filter((column) => column !== null)) + 1;
  return tokens.map((token, place) => {
    const isEnd = place === tokens.length - 1 && place >= query, column = columns[place];
    return { row: rows[isEnd ? place - 1 : place], column: column === null ? 0 : margin - column };
  });
}

// Tokens in their columns, coloured by their ids; what a token of the response was written from lights up.
export function drawTokens(drawing) {
  const { tokens, ids, query, sights, heads, wrong, rows, columns: own } = drawing, places = placeTokens(drawing);
  const columns = places.map(({ column }) => column), leftmost = Math.min(...columns);
  const top = Math.min(...places.map(({ row }) => row));
  const blocks = drawing.blocks.length ? drawing.blocks : [[rows[query - 1], "response"]];
  const named = blocks.map(([, name]) => name);
  // The level that tells the columns of a number apart gives the colour.
  const used = ids.map((level) => new Set(level.slice(0, tokens.length)).size);
  const colours = ids[used.indexOf(Math.max(...used))] ?? [];
  const hasIds = (place) => place < tokens.length - 1 || place < query;
  const idsOf = (place) => ids.map((level) => (hasIds(place) && level[place]) || 0);
  const hasId = (place) => idsOf(place).some(Boolean), haveIds = tokens.some((_, place) => hasId(place));
  const idOf = (place) => (hasId(place) ? describeIds(idsOf(place)) : "no id");
  const describe = (place) => tokens[place] + (haveIds ? ` (${idOf(place)})` : "");
  const elements = tokens.map((token, place) => {
    const id = (hasIds(place) && colours[place]) || 0, isWritten = place >= query;
    const { style = "", ...hue } = id ? hueOf(id) : {};
    const area = `grid-area:${places[place].row - top + 1}/${columns[place] - leftmost + 1}`;
    const label = `response token ${place - query + 1}: ${describe(place)}${place === wrong ? ", wrong" : ""}`;
    const attributes = { ...hue, style: `${area};${style}`, class: `token${place === wrong ? " wrong" : ""}` };
    const text = [token, make("small", {}, String(id || "\u00a0"))];
    if (!isWritten) return make("span", attributes, ...text);
    return make("label", attributes, make("input", { type: "radio", name: "token", "aria-label": label }), ...text);
  });
  const lines = blocks.map(([row]) => {
    const style = `grid-area:${row - top + 1}/1/auto/-1;margin-top:-1px`;
    return make("div", { class: "rule", style, "aria-hidden": "true" });
  });
  const style = `grid-template-columns:repeat(${Math.max(...columns) - leftmost + 1},var(--pitch))`;
  const label = `Tokens in columns: ${named.join(", ")}`;
  const grid = make("div", { class: "tokens", role: "group", style, "aria-label": label }, ...lines, ...elements);
  const said = make("p", { class: "said", "aria-live": "polite" }, INVITATION), panel = make("div", { class: "panel" });
  const show = (place) => {
    const { query: own, keys, weights } = sights[place - query], mark = (at, name) => elements[at].classList.add(name);
    for (const element of elements) element.classList.remove("written", "query", "seen");
    grid.classList.add("lit");
    mark(place, "written");
    mark(own, "query");
    for (const key of keys) mark(key, "seen");
    const seen = keys.map(describe).join(", ");
    const sees = drawing.isDense ? `sees all ${count(own + 1, "token")} up to itself, and its heads look most at` : "sees";
    said.textContent = `${describe(place)} is written by the token before it, ${describe(own)}, which ${sees} ${seen}.`;
    const layer = (row) => (weights.length > heads ? `layer ${Math.floor(row / heads) + 1}, ` : "");
    const shares = weights.map((row, place) => [`${layer(place)}head ${(place % heads) + 1}`, ...row]);
    const cell = (share) => make("td", { style: `--share:${share}%` }, String(share));
    panel.replaceChildren(table("heat", ["attention in %", ...keys.map((key) => tokens[key])], shares, cell));
  };
  const placeOf = (event) => elements.indexOf(event.target.closest?.("label.token"));
  for (const kind of ["pointerover", "focusin", "click"]) {
    grid.addEventListener(kind, (event) => placeOf(event) >= query && show(placeOf(event)));
  }
  const isFromRight = own.at(-1) > (own[query] ?? own.at(-1));
  const order = `The response is written token by token, from the ${isFromRight ? "right" : "left"}.`;
  const later = drawing.ahead ? " Below the line a token has the id of the cell that is written after it." : "";
  const below = drawing.blocks.length ? ` Below the lines: ${named.join(", then ")}.` : "";
  const shared = haveIds ? "Tokens of one colour share an id, which stands below them. " : "";
  const key = make("p", { class: "hint" }, `${shared}${order}${later}${below}`);
  if (sights[wrong - query]) show(wrong);
  return make("div", { class: "desk" }, make("div", { class: "sheet" }, grid), make("div", {}, said, panel, key));
}

// Labels of an encoder, a row for each pass.
export function drawPasses({ tokens, passes }) {
  const rows = passes.map((labels, pass) => [`pass ${pass + 1}`, ...labels]);
  const hint = "The model labels all tokens at once, again and again until nothing changes. " +
    "? stands for a label that is not known yet, _ for none.";
  const cell = (label) => make("td", ["", "?", "_"].includes(label) ? {} : { "data-hue": true, style: "--hue:150" }, label);
  return make("div", {}, make("p", { class: "hint" }, hint), table("machine", ["tokens", ...tokens], rows, cell));
}

// The table of a machine: what it writes in a column of two symbols from each state; the colour says the next state.
export function drawMachine({ states, named, inputs, rows }, word) {
  const shown = states.slice(0, 4), hue = (state) => hueOf(states.indexOf(state) + 1), across = inputs[1] ?? [null];
  const cell = ([, , , symbols, next]) => (symbols ? make("td", hue(next), symbols.join(" ")) : make("td", {}, "·"));
  const figures = shown.map((state) => {
    const at = (first, second) => rows.find((row) => row[0] === state && row[1] === first && row[2] === second) ?? [];
    const body = inputs[0].map((first) => [String(first), ...across.map((second) => at(first, second))]);
    const said = named ? named[states.indexOf(state)] : `${word} ${state}`;
    const caption = make("figcaption", {}, make("span", { class: "badge", ...hue(state) }, said));
    const header = ["", ...across.map((second) => String(second ?? "writes"))];
    return make("figure", {}, caption, table("machine", header, body, cell));
  });
  const more = states.length > shown.length ? ` There are ${states.length} states; the first four are shown.` : "";
  const read = inputs.length === 2 ? "a symbol of each number (down and across)" : "one symbol";
  const hint = `In a column, the machine reads ${read}, writes a symbol and goes to the state whose colour the cell has.`;
  return make("div", {}, make("p", { class: "hint" }, `${hint}${more}`), make("div", { class: "machines" }, ...figures));
}
