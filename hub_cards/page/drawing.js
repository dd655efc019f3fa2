// What the page draws. Text from files and questions becomes text nodes, never HTML.

const GOLDEN_ANGLE = 137.5; // between the hues of ids that follow each other, so that neighbours differ much
const MOST_SHOWN = 80, END_SHOWN = 24;

// An element with attributes and children; a function for an attribute named `on...` becomes a listener.
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

export const count = (number, noun = "") => `${number.toLocaleString("en")}${noun && ` ${noun}${number === 1 ? "" : "s"}`}`;
const hueOf = (id) => (id ? { "data-hue": true, style: `--hue:${Math.round((id * GOLDEN_ANGLE) % 360)}` } : {});

export function table(kind, header, rows, cell = (value) => make("td", {}, String(value))) {
  const head = make("thead", {}, make("tr", {}, ...header.map((text) => make("th", { scope: "col" }, text))));
  const body = rows.map(([first, ...rest]) => make("tr", {}, make("th", { scope: "row" }, first), ...rest.map(cell)));
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": header[0] || "Table" }, make("table", { class: kind }, head, make("tbody", {}, ...body)));
}

// A question and its answer; a long one is folded, and can be copied.
export function drawAnswer(result) {
  const { question, answer, right } = result, fold = (text) => (text.length > MOST_SHOWN ? `${text.slice(0, END_SHOWN)} … ${text.slice(-END_SHOWN)}` : text);
  const parts = [make("p", { class: "answer" }, make("span", {}, `${fold(question)} = `), make("output", {}, fold(answer)))];
  if (answer.length > MOST_SHOWN) {
    const whole = make("div", { class: "whole", hidden: true, tabindex: "0", role: "group", "aria-label": "The whole answer" });
    const copied = make("span", { role: "status" }), show = make("button", { type: "button", "aria-expanded": "false", onclick: () => {
      whole.hidden = !whole.hidden;
      whole.textContent = whole.hidden ? "" : answer;
      show.setAttribute("aria-expanded", String(!whole.hidden));
      show.textContent = whole.hidden ? `Show all ${count(answer.length, "digit")}` : "Fold";
    } }, `Show all ${count(answer.length, "digit")}`);
    const copy = make("button", { type: "button", onclick: () => navigator.clipboard.writeText(answer).then(() => (copied.textContent = "copied"), () => (copied.textContent = "the browser does not allow it")) }, "Copy");
    parts.push(make("div", { class: "row" }, show, copy, copied), whole);
  }
  const verdict = result.wrong ? make("span", { class: "badge bad" }, `wrong: right is ${fold(right)}`) : make("span", { class: "badge" }, "right, by the task's own rule");
  // Short answers take no time that means anything.
  const timed = result.count > MOST_SHOWN ? ` in ${result.seconds.toFixed(2)} s, ${count(Math.round(result.count / result.seconds))} a second` : "";
  const speed = `${count(result.count, "token")}${timed}`;
  parts.push(make("p", { class: "row hint" }, verdict, make("span", { id: "speed" }, speed)));
  return parts;
}

const describeIds = (ids) => (ids.some(Boolean) ? `id${ids.length > 1 ? "s" : ""} ${ids.map((id) => id || "-").join(", ")}` : "no id");

// Columns in which the tokens stand: column 0 is the rightmost, signs stand in a margin on the left.
function placeTokens({ tokens, rows, columns, forward, query }) {
  const known = columns.slice(0, tokens.length), widest = Math.max(...known.filter((column) => column !== null));
  const own = known.filter((column, place) => place >= query && column !== null), last = own.at(-1), step = own.length > 1 ? Math.sign(own.at(-1) - own.at(-2)) || 1 : forward ? -1 : 1;
  if (tokens.at(-1) === "$" && known.length === tokens.length - 1) known.push(null);
  const margin = Math.max(widest, step > 0 && last === widest ? last + 1 : widest) + 1;
  return tokens.map((token, place) => {
    if (place === tokens.length - 1 && place >= query) return { row: rows[place - 1], column: margin - ((known[place - 1] ?? (forward ? 0 : -1)) + (step || 1)) };
    return { row: rows[place], column: known[place] === null ? 0 : margin - known[place] };
  });
}

// Tokens in their columns, coloured by their ids; what a token of the response was written from lights up.
export function drawTokens(drawing) {
  const { tokens, ids, query, sights, heads, wrong } = drawing, places = placeTokens(drawing);
  const leftmost = Math.min(...places.map(({ column }) => column)), rightmost = Math.max(...places.map(({ column }) => column)), top = Math.min(...places.map(({ row }) => row));
  const blocks = drawing.blocks.length ? drawing.blocks : [[drawing.rows[query - 1], "response"]];
  // The level that tells the columns of a number apart gives the colour.
  const used = ids.map((level) => new Set(level.slice(0, tokens.length)).size), colours = ids[used.indexOf(Math.max(...used))] ?? [];
  const idsOf = (place) => ids.map((level) => (place < tokens.length - 1 || place < query ? level[place] ?? 0 : 0));
  const describe = (place) => `${tokens[place]} (${describeIds(idsOf(place))})`;
  const said = make("p", { class: "said", "aria-live": "polite" }, "Pass over a token of the response, tap it, or use Tab and the arrow keys: what it was written from lights up."), panel = make("div", { class: "panel" });
  const area = (place) => `grid-area:${places[place].row - top + 1}/${places[place].column - leftmost + 1}`;
  const elements = tokens.map((token, place) => {
    const [id] = [place === tokens.length - 1 && place >= query ? 0 : colours[place] ?? 0], hue = hueOf(id), written = place >= query;
    const label = written ? `response token ${place - query + 1}: ${describe(place)}${place === wrong ? ", wrong" : ""}` : null;
    return make(written ? "button" : "span", { ...hue, style: `${area(place)};${hue.style ?? ""}`, class: `token${place === wrong ? " wrong" : ""}`, type: written ? "button" : null, "aria-label": label, tabindex: written ? (place === query ? "0" : "-1") : null }, token, make("small", {}, String(id || "\u00a0")));
  });
  const lines = blocks.map(([row, name]) => make("div", { class: "rule", style: `grid-area:${row - top + 1}/1/auto/-1;margin-top:-1px`, "aria-hidden": "true" }));
  const grid = make("div", { class: "tokens", role: "group", "aria-label": `Tokens in columns: ${blocks.map(([, name]) => name).join(", ")}`, style: `grid-template-columns:repeat(${rightmost - leftmost + 1},var(--pitch))` }, ...lines, ...elements);
  const show = (place) => {
    const sight = sights[place - query];
    for (const element of elements) element.classList.remove("written", "query", "seen");
    grid.classList.add("lit");
    elements[place].classList.add("written");
    elements[sight.query].classList.add("query");
    for (const key of sight.keys) elements[key].classList.add("seen");
    said.textContent = `${describe(place)} is written by the token before it, ${describe(sight.query)}, which sees ${sight.keys.map(describe).join(", ")}.`;
    const rows = sight.weights.slice(0, heads).map((shares, head) => [`head ${head + 1}`, ...shares]);
    panel.replaceChildren(table("heat", ["attention in %", ...sight.keys.map((key) => tokens[key])], rows, (share) => make("td", { style: `--share:${share}%` }, String(share))));
  };
  const placeOf = (event) => elements.indexOf(event.target.closest?.("button.token"));
  for (const kind of ["pointerover", "focusin", "click"]) grid.addEventListener(kind, (event) => placeOf(event) >= query && show(placeOf(event)));
  grid.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key], place = placeOf(event);
    if (!step || place < query) return;
    event.preventDefault();
    const next = Math.max(query, Math.min(tokens.length - 1, place + step));
    elements[place].tabIndex = -1;
    elements[next].tabIndex = 0;
    elements[next].focus();
  });
  const named = drawing.blocks.length ? ` Below the lines: ${drawing.blocks.map(([, name]) => name).join(", then ")}.` : "";
  const key = make("p", { class: "hint" }, `Tokens of one colour share an id, which stands below them. The response is written token by token${drawing.forward ? "" : ", the ones first"}.${named}`);
  if (wrong >= 0 && sights[wrong - query]) show(wrong);
  return make("div", { class: "desk" }, make("div", { class: "sheet" }, grid), make("div", {}, said, panel, key));
}

// Labels of an encoder, a row for each pass.
export function drawPasses({ tokens, passes }) {
  const rows = passes.map((labels, pass) => [`pass ${pass + 1}`, ...labels]);
  const hint = "The model labels all tokens at once, again and again until nothing changes. ? stands for a label that is not known yet, _ for none.";
  return make("div", {}, make("p", { class: "hint" }, hint), table("machine", ["tokens", ...tokens], rows, (label) => make("td", label && label !== "?" && label !== "_" ? { "data-hue": true, style: "--hue:150" } : {}, label)));
}

// The table of a machine: what it writes in a column of two symbols from each state; the colour says the next state.
export function drawMachine({ states, inputs, rows }) {
  const shown = states.slice(0, 4), hue = (state) => ({ "data-hue": true, style: `--hue:${Math.round((60 + states.indexOf(state) * GOLDEN_ANGLE) % 360)}` });
  const figures = shown.map((state) => {
    const own = rows.filter(([from]) => from === state), at = (first, second) => own.find((row) => row[1] === first && row[2] === second) ?? [];
    const across = inputs[1] ?? [null], cell = ([, , , symbols, next]) => (symbols ? make("td", hue(next), symbols.join(" ")) : make("td", {}, "·"));
    const body = inputs[0].map((first) => [String(first), ...across.map((second) => at(first, second))]);
    return make("figure", {}, make("figcaption", {}, make("span", { class: "badge", ...hue(state) }, `state ${state}`)), table("machine", ["", ...across.map((second) => (second === null ? "writes" : String(second)))], body, cell));
  });
  const more = states.length > shown.length ? ` There are ${states.length} states; the first four are shown.` : "";
  return make("div", {}, make("p", { class: "hint" }, `In a column, the machine reads ${inputs.length === 2 ? "a symbol of each number (down and across)" : "one symbol"}, writes a symbol and goes to the next state, whose colour the cell has.${more}`), make("div", { class: "machines" }, ...figures));
}
