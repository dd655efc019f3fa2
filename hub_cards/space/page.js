// Lights up what a token of a response was written from, and the line of a row of a table; by pointer, touch and keyboard.
(() => {
  const make = (name, text, attributes = {}) => {
    const element = document.createElement(name);
    element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  const describe = (token) => `${token.firstChild.textContent} (${token.dataset.ids})`;

  const drawHeads = (drawing, sight, keys) => {
    const table = make("table", "", { class: "lh-table" });
    const header = table.createTHead().insertRow();
    header.append(make("th", "attention in %", { scope: "col" }));
    for (const key of keys) {
      header.append(make("th", key.firstChild.textContent, { scope: "col", title: key.dataset.ids, style: key.style.cssText.replace(/grid-area:[^;]*;?/, "") }));
    }
    const body = table.createTBody();
    JSON.parse(drawing.dataset.heads).forEach((name, head) => {
      const row = body.insertRow();
      row.append(make("th", name, { scope: "row" }));
      row.append(...sight.weights[head].map((share) => make("td", share, { style: `--share:${share}%` })));
    });
    const scroll = make("div", "", { class: "lh-scroll", tabindex: "0", role: "group", "aria-label": "Attention of every head" });
    scroll.append(table);
    return scroll;
  };

  const show = (token) => {
    const drawing = token.closest(".lh-drawing");
    const sight = JSON.parse(token.dataset.sight);
    const at = (place) => drawing.querySelector(`[data-place="${place}"]`);
    for (const lit of drawing.querySelectorAll(".lh-written, .lh-query, .lh-seen")) lit.classList.remove("lh-written", "lh-query", "lh-seen");
    drawing.classList.add("lh-lit");
    token.classList.add("lh-written");
    at(sight.query).classList.add("lh-query");
    const keys = sight.keys.map(at);
    for (const key of keys) key.classList.add("lh-seen");
    const more = sight.hidden ? `, and ${sight.hidden} more with less attention` : "";
    const said = `${describe(token)} is written by the token before it, ${describe(at(sight.query))}, which sees ${keys.map(describe).join(", ")}${more}.`;
    drawing.querySelector(".lh-said").textContent = said;
    drawing.querySelector(".lh-panel").replaceChildren(drawHeads(drawing, sight, keys));
  };

  const select = (row) => {
    const figure = row.closest(".lh-comparison");
    figure.classList.add("lh-lit");
    for (const on of figure.querySelectorAll(".lh-on")) on.classList.remove("lh-on");
    for (const on of figure.querySelectorAll(`[data-series="${row.dataset.series}"]`)) on.classList.add("lh-on");
  };

  const light = (event) => {
    const token = event.target.closest?.("button.lh-token");
    if (token) show(token);
    const row = event.target.closest?.("[data-series]");
    if (row) select(row);
  };
  for (const kind of ["pointerover", "focusin", "click"]) document.addEventListener(kind, light);

  document.addEventListener("keydown", (event) => {
    const token = event.target.closest?.("button.lh-token");
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!token || !step) return;
    event.preventDefault();
    const tokens = [...token.closest(".lh-drawing").querySelectorAll("button.lh-token")];
    const next = tokens[Math.max(0, Math.min(tokens.length - 1, tokens.indexOf(token) + step))];
    token.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
})();
