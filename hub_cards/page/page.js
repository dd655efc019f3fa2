// The page: a model, a question, a certificate; a worker computes, so that nothing here takes long.

import { count, drawAnswer, drawMachine, drawPasses, drawTokens, make, table } from "./drawing.js";
import { readFolder, unfit } from "./own.js";

const MODELS = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const say = (texts) => Object.entries(texts).forEach(([id, text]) => (at(id).textContent = text));
const badge = (kind, text) => make("span", { class: `badge ${kind}` }, text);
const known = new Map(); // what the worker said of each model, and what was found
let worker, chosen = null, asked = 0, jobs = new Map();

// Starts a worker; a new one takes the place of one that computes for a model that is no longer shown.
function start() {
  worker?.terminate();
  jobs = new Map();
  for (const facts of known.values()) delete facts.loaded;
  worker = new Worker(URL.createObjectURL(new Blob([at("worker-code").textContent], { type: "text/javascript" })));
  worker.onerror = (event) => say({ error: `The worker stopped: ${event.message}` });
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
async function request(action, options = {}, tell = null, place = chosen) {
  const { name, config, certificate, weights, bytes } = MODELS[place];
  const facts = known.get(name) ?? known.set(name, {}).get(name);
  facts.loaded ??= send("load", { name, config, certificate, bytes, weights: at(weights)?.textContent ?? "" });
  facts.summary = await facts.loaded;
  return action === "load" ? facts.summary : send(action, { name, ...options }, tell);
}

const MOST_ADDRESSED = 200; // symbols of a question that stand in the page's address
const isChosen = (name) => MODELS[chosen]?.name === name;

// Shows a model; `isNew` if a person chose it, so that the browser's way back leads to what was shown before. The address
// says it at once: who chooses another model before the first one has answered would find no way back to it.
async function choose(place, question = "", isNew = false) {
  if (jobs.size || !worker) start();
  chosen = place;
  at("lesson-view").hidden = true;
  at("model-view").hidden = false;
  const { name, about, unfit, examples } = MODELS[place];
  history[isNew ? "pushState" : "replaceState"](null, "", addressOf(name, question));
  at("model").value = place;
  at("models").querySelector(`[value="${place}"]`).checked = true;
  for (const id of ["checked", "stated", "broken", "described", "sizes", "result", "verdict"]) at(id).replaceChildren();
  say({ name, about, error: "", busy: "", legal: "", "checking-said": "", "noising-said": "", "folder-error": "" });
  for (const id of ["checking", "noising"]) at(id).hidden = true;
  // What is typed before the model's own question stands there would be lost.
  setEnabled(false);
  try {
    if (unfit) throw new Error(unfit);
    const summary = await request("load");
    if (!isChosen(name)) return;
    setEnabled(true);
    showSummary(summary);
    at("question").value = question || examples[0] || summary.tasks[0].example;
    await ask("ask", { question: at("question").value });
  } catch (error) {
    if (!isChosen(name)) return;
    setEnabled(false);
    at("verdict").replaceChildren(badge("bad", `not shown: ${error.message}`));
  }
}

function setEnabled(on) {
  for (const element of document.querySelectorAll("section input, #form button, #check, #breaking")) element.disabled = !on;
}

// Sizes of random problems.
function sizesOf(square, isDense) {
  if (isDense) return [2, 3, 4, 5, 6, 8, 12];
  return square ? [5, 20, 60] : [10, 100, 1000, 10000, 100000];
}

function showSummary({ tasks, certificate, encoder, parameters, heads, layers, isDense }) {
  const asIn = (example) => (tasks.length > 1 ? `, as in ${example}` : "");
  say({ legal: `${tasks.map(({ legal }) => legal).join("; or ")}.` });
  at("sizes").replaceChildren(...tasks.map(({ name, square, example }) => {
    const buttons = sizesOf(square, isDense).map((size) => {
      const onclick = () => ask("draw", { part: name, size });
      return make("button", { type: "button", onclick }, square ? `${size} × ${size}` : count(size));
    });
    return make("span", { class: "row" }, ...buttons, `${name === "minesweeper" ? "cells" : "symbols"}${asIn(example)}`);
  }));
  showVerdict();
  showStated(certificate);
  const seen = `A token sees ${encoder ? "a sink" : "$"} and the tokens, itself among them, ` +
    "whose ids stand in one of these relations to its own:";
  const parts = tasks.flatMap(({ example, window, table: rows }) => [
    ...(isDense ? [make("p", {}, "A token sees all tokens before it.")] : [
      make("h3", {}, `The window${asIn(example)}`), make("p", {}, seen),
      make("ul", { class: "relations" }, ...window.map((entries) => make("li", {}, entries.map(describeEntry).join("; ")))),
    ]),
    ...(rows ? [make("h3", {}, "The machine"), drawMachine(rows, MODELS[chosen].state)] : []),
  ]);
  const { code } = MODELS[chosen];
  if (code) parts.push(make("h3", {}, "A few lines of its code"), make("pre", { tabindex: "0" }, make("code", {}, code)));
  const depth = layers === 1 ? "one layer" : `${layers} layers`;
  parts.push(make("p", { class: "hint" }, `${count(parameters, "number")} in ${depth} of ${count(heads, "head")}.`));
  at("described").replaceChildren(...parts);
}

// A difference of ids, the id of the token that sees less that of the token that is seen, or who has one, in words.
function describeEntry(entry, level, { length }) {
  const difference = entry === 0 ? "the same id" : `an id ${entry > 0 ? "smaller" : "larger"} by ${Math.abs(entry)}`;
  const words = { key: "an id where its own has none", query: "no id", neither: "no id, as its own" }[entry] ?? difference;
  return length > 1 ? `level ${level + 1}: ${words}` : words;
}

// What is known of the chosen model. "Right in every neighbourhood" is said only of what this page has checked itself.
function showVerdict() {
  const { summary: { certificate: { fault } }, checked } = known.get(MODELS[chosen].name);
  let verdict = badge("", fault ? `not certified: ${fault}` : "its certificate says: exactly right at every length");
  if (checked) verdict = badge("good", "checked here: right in every neighbourhood, so at every length");
  if (checked && total(checked).wrong) verdict = badge("bad", "checked here: wrong in some neighbourhoods");
  at("verdict").replaceChildren(verdict);
}

function showStated({ fault, proof, statement }) {
  if (fault) return at("stated").replaceChildren(make("p", { class: "note" }, `Not certified: ${fault}.`));
  const steps = (Array.isArray(proof) ? proof : []).map((step) => make("li", {}, String(step)));
  const summary = make("summary", {}, "What its certificate says, and the proof");
  at("stated").replaceChildren(make("details", {}, summary, make("p", {}, statement), make("ol", {}, ...steps)));
}

async function ask(action, options) {
  const { name } = MODELS[chosen], tell = (done, all) => say({ busy: `computing: ${count(done)} of ${count(all)}` });
  say({ error: "", busy: action === "draw" ? "computing …" : "" });
  try {
    const result = await request(action, options, tell);
    if (!isChosen(name)) return;
    at("result").replaceChildren(...drawAnswer(result), draw(result.drawing));
    at("result").hidden = false;
    const isShort = result.question.length < MOST_ADDRESSED;
    if (isShort && action === "draw") at("question").value = result.question;
    history.replaceState(null, "", addressOf(name, result.question));
  } catch (error) {
    if (!isChosen(name)) return;
    history.replaceState(null, "", addressOf(name));
    // An answer to another question does not stay below a refusal.
    at("result").replaceChildren();
    at("result").hidden = true;
    say({ error: `${error.message[0].toUpperCase()}${error.message.slice(1)}.` });
  }
  if (isChosen(name)) say({ busy: "" });
}

// The address of a question, such as #addition?653+49, or of its model if it is long, and what an address says: the place of
// a model, and a question.
function addressOf(name, question = "") {
  const isShort = question && question.length < MOST_ADDRESSED;
  return `#${encodeURIComponent(name)}${isShort ? `?${encodeURIComponent(question).replaceAll("%2B", "+")}` : ""}`;
}

const placeOf = (wanted) => MODELS.findIndex(({ name }) => name === wanted);
const isOfLesson = (hash) => /^#lesson($|\?)/.test(hash);

function readAddress(hash) {
  const [name, question = ""] = hash.slice(1).split(/\?(.*)/s).map((text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text; // a `%` that somebody typed
    }
  });
  return [placeOf(name), question, name];
}

function draw(drawing) {
  if (!drawing) return make("p", { class: "hint" }, "Drawings have 500 tokens at most.");
  return drawing.passes ? drawPasses(drawing) : drawTokens(drawing);
}

// Runs a long computation, which has a button, a bar and a line of text.
async function compute(action, button, bar, options, show) {
  const { name } = MODELS[chosen], said = `${bar}-said`;
  at(button).disabled = true;
  at(bar).hidden = false;
  at(bar).removeAttribute("value");
  try {
    const found = await request(action, options, (done, all, text) => {
      if (done) at(bar).value = done / all;
      say({ [said]: text });
    });
    if (!isChosen(name)) return;
    say({ [said]: "" });
    show(found);
  } catch (error) {
    if (isChosen(name)) say({ [said]: error.message });
  } finally {
    if (isChosen(name)) at(bar).hidden = true;
    at(button).disabled = false;
  }
}

// Over all parts: how many neighbourhoods there are, in how many the model is wrong, and the one with the smallest lead.
function total({ parts }) {
  const sum = (name) => parts.reduce((all, part) => all + part[name], 0);
  const [{ lead, closest }] = parts.toSorted((left, right) => left.lead - right.lead);
  return { all: sum("count"), wrong: sum("wrong"), lead, closest };
}

const describeCase = ({ own, keys, right }) => `a token ${own} that sees ${keys.join(", ")}: right is ${right}`;
const digits = (number) => (Math.abs(number) < 0.01 ? number.toExponential(2) : number.toFixed(4));

function showChecked(found) {
  const facts = known.get(MODELS[chosen].name), { certificate: stated } = facts.summary;
  const { all, wrong, lead, closest } = total(found), isStated = !stated.fault;
  const isSame = stated.neighbourhoods === all && stated.wrong === wrong && Math.abs(stated.margin - lead) < 1e-4;
  facts.checked = found;
  showVerdict();
  const right = `Right in all ${count(all)} neighbourhoods that this page found, so right at every length.`;
  const beside = isStated ? ` The certificate says ${isSame ? "the same" : "something else"}.` : "";
  const bad = `This page finds ${count(wrong, "neighbourhood")} in which the model is wrong. The model is not certified.`;
  const note = { class: `note ${wrong || (isStated && !isSame) ? "bad" : "good"}`, id: "found" };
  const says = (name, write) => (isStated ? write(stated[name]) : "-");
  const rows = [
    ["neighbourhoods", count(all), says("neighbourhoods", count)], ["wrong", count(wrong), says("wrong", count)],
    ["smallest lead", digits(lead), says("margin", digits)],
    ["smallest lead ÷ its bound on rounding in float32", "-", says("ratio", digits)],
    ["seconds", found.seconds.toFixed(1), "-"],
  ];
  const hint = make("p", { class: "hint" }, `The closest call: ${describeCase(closest)}, by ${digits(lead)}.`);
  const facing = table("facts", ["", "found here", "its certificate says"], rows);
  at("checked").replaceChildren(make("p", note, wrong ? bad : right + beside), facing, hint);
}

function showBroken({ example, ...found }) {
  const { all, wrong, lead, closest } = total(found), note = { class: `note ${wrong ? "bad" : "good"}`, id: "outcome" };
  const still = `Still right in all ${count(all)} neighbourhoods: the smallest lead is ${digits(lead)}. Add more noise.`;
  const parts = [make("p", note, wrong ? `Wrong in ${count(wrong)} of ${count(all)} neighbourhoods.` : still)];
  if (wrong) parts.push(make("p", {}, `The worst: ${describeCase(closest)}, which trails by ${digits(-lead)}.`));
  if (example) parts.push(...drawAnswer(example), draw(example.drawing));
  else if (wrong) parts.push(make("p", {}, "Thousands of random problems do not show it: only the proof does."));
  at("broken").replaceChildren(...parts);
}

const groups = new Map(); // the two elements in which the models of a group are listed

function enlist({ name, group }, value) {
  if (!groups.has(group)) {
    const options = make("optgroup", { label: group }), list = make("div", { role: "group", "aria-label": group });
    list.append(make("p", { class: "group", "aria-hidden": "true" }, group));
    at("model").append(options);
    at("models").append(list);
    groups.set(group, { options, list });
  }
  const { options, list } = groups.get(group);
  options.append(make("option", { value }, name));
  list.append(make("label", {}, make("input", { type: "radio", name: "model", value }), name));
}

// A folder that is opened is one more model, and no file of it leaves the browser.
async function openFolder(input) {
  say({ "folder-error": "" });
  try {
    const model = await readFolder([...input.files]);
    while (MODELS.some(({ name }) => name === model.name)) model.name += " (yours)";
    enlist(model, MODELS.push(model) - 1);
    await choose(MODELS.length - 1, "", true);
  } catch (error) {
    say({ "folder-error": `${error.message[0].toUpperCase()}${error.message.slice(1)}.` });
  }
  input.value = ""; // the same folder may be opened again
}

MODELS.forEach(enlist);
document.querySelector("nav").addEventListener("change", ({ target }) => {
  if (target.id !== "folder") choose(Number(target.value), "", true);
  else if (target.files.length) openFolder(target);
});
at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask("ask", { question: at("question").value });
});
const amount = () => at("noise").value / 1000;
const showAmount = () => say({ amount: `${(100 * amount()).toFixed(1)} % of the weights' size` });
at("check").addEventListener("click", () => compute("check", "check", "checking", {}, showChecked));
at("breaking").addEventListener("click", () => compute("break", "breaking", "noising", { amount: amount() }, showBroken));
at("noise").addEventListener("input", showAmount);
showAmount();
// Other programs, such as tests, ask the worker by this.
globalThis.longhand = { request, unfit, choose: (name) => choose(placeOf(name), "", true) };

// The lesson: one question to the models that fail and to one that does not, and what each looks at.
const LESSON = MODELS.flatMap(({ lesson }, place) => (lesson ? [place] : []))
  .sort((one, other) => MODELS[one].order - MODELS[other].order);

async function teach(question) {
  at("lesson-question").value = question;
  say({ "lesson-error": "" });
  try {
    const results = [];
    for (const place of LESSON) results.push(await request("ask", { question }, null, place));
    at("lesson-answers").replaceChildren(...results.map((result, index) => {
      const { name, lesson } = MODELS[LESSON[index]];
      const heading = [make("h4", {}, name), make("p", { class: "hint" }, lesson)];
      return make("div", { class: "pupil" }, ...heading, ...drawAnswer(result));
    }));
    at("lesson-looks").replaceChildren(draw(results[0].drawing));
    at("lesson-ids").replaceChildren(...results.slice(1).map(({ drawing }, index) =>
      make("div", {}, make("h4", {}, MODELS[LESSON[index + 1]].name), draw(drawing))));
    const isShown = !at("lesson-view").hidden;
    if (isShown) history.replaceState(null, "", addressOf("lesson", question));
  } catch (error) {
    for (const id of ["lesson-answers", "lesson-looks", "lesson-ids"]) at(id).replaceChildren();
    say({ "lesson-error": `${error.message[0].toUpperCase()}${error.message.slice(1)}.` });
  }
}

at("to-lesson").hidden = !LESSON.length;
at("lesson-form").addEventListener("submit", (event) => {
  event.preventDefault();
  teach(at("lesson-question").value);
});

function follow(hash) {
  const [place, question, name] = readAddress(hash), isLesson = LESSON.length > 0 && isOfLesson(hash);
  at("lesson-view").hidden = !isLesson;
  at("model-view").hidden = isLesson;
  if (isLesson) {
    // An answer that came in between may have changed the address.
    history.replaceState(null, "", hash);
    if (!worker) start();
    // No model is chosen, so that each of them can be.
    chosen = null;
    at("model").selectedIndex = -1;
    for (const input of at("models").querySelectorAll("input")) input.checked = false;
    return teach(question || "73918+26485");
  }
  if (place >= 0) return choose(place, question);
  if (chosen === null) choose(0);
  if (name) say({ "folder-error": `This page has no model ${name}.` });
}
// The event's address, since an answer that comes in between may have changed the page's.
globalThis.addEventListener("hashchange", ({ newURL }) => follow(new URL(newURL).hash));
follow(location.hash);
