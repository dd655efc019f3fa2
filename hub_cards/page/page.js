// The page: a model, a question, a certificate; a worker computes, so that nothing here takes long.

import { count, drawAnswer, drawMachine, drawPasses, drawTokens, make, table } from "./drawing.js";

const MODELS = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
let worker, chosen = null, asked = 0, jobs = new Map();
const known = new Map(); // what the worker said of each model, and what was found

// Starts a worker; a new one takes the place of one that computes for a model that is no longer shown.
function start() {
  worker?.terminate();
  jobs = new Map();
  for (const facts of known.values()) delete facts.loaded;
  worker = new Worker(URL.createObjectURL(new Blob([at("worker-code").textContent], { type: "text/javascript" })));
  worker.onerror = (event) => (at("error").textContent = `The worker stopped: ${event.message}`);
  worker.onmessage = ({ data: { id, progress, result, error } }) => {
    const job = jobs.get(id);
    if (progress) return job?.tell?.(...progress);
    jobs.delete(id);
    if (error === undefined) job?.resolve(result);
    else job?.reject(new Error(error));
  };
}

function send(action, options, tell) {
  return new Promise((resolve, reject) => {
    jobs.set(++asked, { resolve, reject, tell });
    worker.postMessage({ id: asked, action, ...options });
  });
}

// Asks the worker about the chosen model, which it loads at first.
async function request(action, options = {}, tell = null) {
  const { name, config, certificate, weights } = MODELS[chosen], facts = known.get(name) ?? known.set(name, {}).get(name);
  facts.loaded ??= send("load", { name, config, certificate, weights: at(weights)?.textContent ?? "" });
  facts.summary = await facts.loaded;
  return action === "load" ? facts.summary : send(action, { name, ...options }, tell);
}

const isChosen = (name) => MODELS[chosen].name === name;

async function choose(place) {
  if (jobs.size || !worker) start();
  chosen = place;
  const { name, about, unfit, examples } = MODELS[place];
  at("model").value = String(place);
  for (const [other, button] of [...at("models").children].entries()) {
    button.setAttribute("aria-checked", String(other === place));
    button.tabIndex = other === place ? 0 : -1;
  }
  at("name").textContent = name;
  at("about").textContent = about;
  for (const id of ["checked", "stated", "broken", "described", "sizes", "result", "verdict"]) at(id).replaceChildren();
  for (const id of ["error", "busy", "legal", "checking-said", "breaking-said"]) at(id).textContent = "";
  for (const id of ["checking", "breaking-bar"]) at(id).hidden = true;
  try {
    if (unfit) throw new Error(unfit);
    const summary = await request("load");
    if (!isChosen(name)) return;
    setEnabled(true);
    showSummary(summary);
    at("question").value = examples[0] || summary.tasks[0].example;
    await ask("ask", { question: at("question").value });
  } catch (error) {
    if (!isChosen(name)) return;
    setEnabled(false);
    at("verdict").replaceChildren(make("span", { class: "badge bad" }, `not shown: ${error.message}`));
  }
}

function setEnabled(on) {
  for (const element of document.querySelectorAll("main input, #form button, #check, #breaking")) element.disabled = !on;
}

function showSummary(summary) {
  const { examples, code } = MODELS[chosen], { tasks } = summary;
  at("legal").textContent = tasks.map(({ legal }) => legal).join("; or ") + ".";
  at("sizes").replaceChildren(...tasks.map(({ name, square }) => {
    const sizes = square ? [5, 20, 60] : [10, 100, 1000, 10000, 100000], draw = (size) => () => ask("draw", { part: name, size });
    const buttons = sizes.map((size) => make("button", { type: "button", onclick: draw(size) }, square ? `${size} × ${size}` : count(size)));
    const unit = `${name === "minesweeper" ? "cells" : "symbols"}${tasks.length > 1 ? `, ${name.replaceAll("_", " ")}` : ""}`;
    return make("span", { class: "row" }, ...buttons, unit);
  }));
  showVerdict();
  showStated(summary.certificate);
  const parts = tasks.flatMap(({ name, window, table: rows }) => [
    make("h3", {}, tasks.length > 1 ? `The window: ${name.replaceAll("_", " ")}` : "The window"),
    make("p", {}, `A token sees ${summary.encoder ? "a sink" : "$"} and the tokens, itself among them, whose ids stand in one of these relations to its own:`),
    make("ul", { class: "relations", "data-part": name }, ...window.map((entries) => make("li", {}, entries.map(entryName(entries.length)).join("; ")))),
    ...(rows ? [make("h3", {}, "The machine"), drawMachine(rows)] : []),
  ]);
  const needed = make("button", { type: "button", onclick: () => showNeeded(needed, said) }, "Which of these are needed?"), said = make("span", { role: "status" });
  parts.splice(3, 0, make("p", { class: "act" }, needed, make("progress", { id: "needed-bar", max: 1, hidden: true, "aria-label": "Searching" }), said));
  if (code) parts.push(make("h3", {}, "A few lines of its code"), make("pre", { tabindex: "0" }, make("code", {}, code)));
  parts.push(make("p", { class: "hint" }, `${count(summary.parameters, "number")} in one layer of ${count(summary.heads, "head")}.`));
  at("described").replaceChildren(...parts);
}

// A difference of ids, the id of the token that sees less that of the token that is seen, or who has one, in words.
const entryName = (levels) => (entry, level) => {
  const difference = entry === 0 ? "the same id" : `an id ${entry > 0 ? "smaller" : "larger"} by ${Math.abs(entry)}`;
  const name = { key: "an id where its own has none", query: "no id", neither: "no id, as its own" }[entry] ?? difference;
  return levels > 1 ? `level ${level + 1}: ${name}` : name;
};

// Which relations of the window the search needs: without another one, nothing that follows differs.
async function showNeeded(button, said) {
  await compute("needed", button, at("needed-bar"), said, {}, (needed) => {
    for (const [part, list] of [...document.querySelectorAll("#described .relations")].entries()) {
      [...list.children].forEach((item, place) => item.append(make("span", { class: `badge ${needed[part][place] ? "good" : ""}` }, needed[part][place] ? "needed" : "could go")));
    }
    said.textContent = "A relation is needed if, without it, two different tokens follow one neighbourhood.";
  });
  button.disabled = true;
}

// What is known of the chosen model. "Certified" is said only of what this page has checked itself.
function showVerdict() {
  const { summary: { certificate }, checked } = known.get(MODELS[chosen].name);
  let badge = ["", `not certified: ${certificate.fault}`];
  if (!certificate.fault) badge = ["", "its certificate says: exactly right at every length"];
  if (checked) badge = checked.parts.some(({ wrong }) => wrong) ? ["bad", "checked here: wrong in some neighbourhoods"] : ["good", "checked here: right in every neighbourhood, so at every length"];
  at("verdict").replaceChildren(make("span", { class: `badge ${badge[0]}` }, badge[1]));
}

function showStated(certificate) {
  if (certificate.fault) return at("stated").replaceChildren(make("p", { class: "note" }, `Not certified: ${certificate.fault}.`));
  const proof = Array.isArray(certificate.proof) ? certificate.proof.map((step) => make("li", {}, String(step))) : [];
  at("stated").replaceChildren(make("details", {}, make("summary", {}, "What its certificate says, and the proof"), make("p", {}, certificate.statement), make("ol", {}, ...proof)));
}

async function ask(action, options) {
  const name = MODELS[chosen].name;
  at("error").textContent = "";
  at("busy").textContent = action === "draw" ? "computing …" : "";
  try {
    const result = await request(action, options, (done, all) => (at("busy").textContent = `computing: ${count(done)} of ${count(all)}`));
    if (!isChosen(name)) return;
    const drawing = result.drawing && (result.drawing.passes ? drawPasses(result.drawing) : drawTokens(result.drawing));
    at("result").replaceChildren(...drawAnswer(result), drawing ?? make("p", { class: "hint" }, "Drawings have 500 tokens at most."));
    at("result").hidden = false;
    at("busy").textContent = "";
    if (action === "draw" && result.question.length < 200) at("question").value = result.question;
  } catch (error) {
    if (!isChosen(name)) return;
    at("busy").textContent = "";
    at("error").textContent = `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
  }
}

// Runs a long computation with a button, a bar and a line of text.
async function compute(action, button, bar, said, options, show) {
  const name = MODELS[chosen].name;
  button.disabled = true;
  bar.hidden = false;
  bar.removeAttribute("value");
  try {
    const found = await request(action, options, (done, all, text) => {
      if (done) bar.value = done / all;
      said.textContent = text;
    });
    if (isChosen(name)) show(found);
  } catch (error) {
    if (isChosen(name)) said.textContent = error.message;
  }
  if (isChosen(name)) bar.hidden = true;
  button.disabled = false;
}

const describeCase = ({ own, keys, right }) => `a token ${own} that sees ${keys.join(", ")}: right is ${right}`;
const digits = (number) => (number === undefined || number === null ? "" : Math.abs(number) < 0.01 ? number.toExponential(2) : number.toFixed(4));

function showChecked(found) {
  const facts = known.get(MODELS[chosen].name), { certificate } = facts.summary, stated = certificate.fault ? null : certificate;
  facts.checked = found;
  showVerdict();
  const all = found.parts.reduce((sum, part) => sum + part.count, 0), wrong = found.parts.reduce((sum, part) => sum + part.wrong, 0), lead = Math.min(...found.parts.map((part) => part.lead));
  const same = stated && stated.neighbourhoods === all && stated.wrong === wrong && Math.abs(stated.margin - lead) < 1e-4;
  at("checking-said").textContent = "";
  const rows = [["neighbourhoods", count(all), stated ? count(stated.neighbourhoods) : "-"], ["wrong", count(wrong), stated ? count(stated.wrong) : "-"], ["smallest lead", digits(lead), stated ? digits(stated.margin) : "-"],
    ["smallest lead ÷ its bound on rounding in float32", "-", stated ? digits(stated.ratio) : "-"], ["seconds", found.seconds.toFixed(1), "-"]];
  const { closest } = found.parts.find((part) => part.lead === lead);
  const said = wrong ? `This page finds ${count(wrong, "neighbourhood")} in which the model is wrong. It is not certified.` : `Right in all ${count(all)} neighbourhoods that this page found, so right at every length.${same ? " The certificate says the same." : stated ? " The certificate says something else." : ""}`;
  at("checked").replaceChildren(make("p", { class: `note ${wrong || (stated && !same) ? "bad" : "good"}`, id: "found" }, said), table("facts", ["", "found here", "its certificate says"], rows), make("p", { class: "hint" }, `The closest call: ${describeCase(closest)}, by ${digits(lead)}.`));
}

function showBroken(found) {
  const all = found.parts.reduce((sum, part) => sum + part.count, 0), wrong = found.parts.reduce((sum, part) => sum + part.wrong, 0), worst = found.parts.toSorted((left, right) => left.lead - right.lead)[0];
  at("breaking-said").textContent = "";
  const parts = [make("p", { class: `note ${wrong ? "bad" : "good"}`, id: "outcome" }, wrong ? `Wrong in ${count(wrong)} of ${count(all)} neighbourhoods.` : `Still right in all ${count(all)} neighbourhoods: the smallest lead is ${digits(worst.lead)}. Add more noise.`)];
  if (wrong) parts.push(make("p", {}, `The worst: ${describeCase(worst.closest)}, which trails by ${digits(-worst.lead)}.`));
  if (found.example) {
    const { example } = found;
    parts.push(make("p", { class: "answer" }, make("span", {}, `${example.question} = `), make("output", {}, example.answer)), make("p", {}, make("span", { class: "badge bad" }, `wrong: right is ${example.right}`)));
    if (example.drawing) parts.push(example.drawing.passes ? drawPasses(example.drawing) : drawTokens(example.drawing));
  } else if (wrong) parts.push(make("p", {}, "Among thousands of random problems none showed it: without the proof nobody would know."));
  at("broken").replaceChildren(...parts);
}

// Tabs and the list of models: arrow keys go on, as in all lists of one choice.
function arrows(list, pick) {
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key], all = [...list.children];
    if (!step) return;
    event.preventDefault();
    const next = (all.indexOf(document.activeElement) + step + all.length) % all.length;
    all[next].focus();
    pick(next);
  });
}

const tabs = [...document.querySelectorAll("[role=tab]")];
function open(place) {
  for (const [other, tab] of tabs.entries()) {
    tab.setAttribute("aria-selected", String(other === place));
    tab.tabIndex = other === place ? 0 : -1;
    at(tab.getAttribute("aria-controls")).hidden = other !== place;
  }
}

tabs.forEach((tab, place) => tab.addEventListener("click", () => open(place)));
arrows(document.querySelector("[role=tablist]"), open);
MODELS.forEach(({ name }, place) => {
  at("model").append(make("option", { value: place }, name));
  at("models").append(make("button", { type: "button", role: "radio", onclick: () => choose(place) }, name));
});
arrows(at("models"), choose);
at("model").addEventListener("change", () => choose(Number(at("model").value)));
at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask("ask", { question: at("question").value });
});
at("check").addEventListener("click", () => compute("check", at("check"), at("checking"), at("checking-said"), {}, showChecked));
const amount = () => at("noise").value / 1000;
const showAmount = () => (at("amount").textContent = `${(100 * amount()).toFixed(1)} % of the weights' size`);
at("noise").addEventListener("input", showAmount);
at("breaking").addEventListener("click", () => compute("break", at("breaking"), at("breaking-bar"), at("breaking-said"), { amount: amount() }, showBroken));
showAmount();
// Other programs, such as tests, ask the worker by this.
globalThis.longhand = { request, choose: (name) => choose(MODELS.findIndex((model) => model.name === name)) };
choose(0);
