"use strict";

const byId = (id) => document.getElementById(id);
const bundles = new Map();
let inputs = [];
let example = {};

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

async function getJson(path, options) {
  const response = await fetch(path, options);
  const content = await response.json();
  if (!response.ok) throw Object.assign(new Error(content.error), content);
  return content;
}

function showForm() {
  const rows = inputs.map((input, at) => {
    const field = make("input", { id: `input-${at}`, name: input.column, autocomplete: "off" });
    if (input.kind === "number") field.inputMode = "decimal";
    if (input.kind === "list") field.placeholder = "values, separated by commas";
    const parts = [make("span", {}, input.column), field];
    if (input.values && input.values.length) {
      field.setAttribute("list", `values-${at}`);
      parts.push(make("datalist", { id: `values-${at}` }, ...input.values.map((value) => make("option", { value }))));
    }
    return make("label", {}, ...parts);
  });
  byId("inputs").replaceChildren(...rows);
}

function fill(row) {
  inputs.forEach((input, at) => {
    const value = row[input.column] ?? "";
    byId(`input-${at}`).value = Array.isArray(value) ? value.join(", ") : value;
  });
}

function readRow() {
  const row = {};
  inputs.forEach((input, at) => {
    const text = byId(`input-${at}`).value;
    if (text === "") row[input.column] = null;
    else if (input.kind === "list") row[input.column] = text.split(",").map((part) => part.trim()).filter(Boolean);
    else row[input.column] = text;
  });
  return row;
}

function percent(probability) {
  const digits = probability < 0.001 || probability > 0.999 ? 4 : 2;
  return `${(100 * probability).toFixed(digits)} %`;
}

function showResult(answer) {
  const scale = make("div");
  scale.style.width = `${100 * answer.probability}%`;
  const list = [...answer.inputs].sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
  const widest = Math.max(...list.map((each) => Math.abs(each.contribution)), 1e-9);
  const rows = list.map((each) => {
    const name = make("td", {}, each.name);
    if (each.state === "unknown" || each.state === "missing") name.append(make("span", { class: "tag" }, each.state));
    const value = Array.isArray(each.value) ? each.value.join(", ") : each.value ?? "";
    const bar = make("div", { class: each.contribution < 0 ? "down" : "up" });
    const width = (50 * Math.abs(each.contribution)) / widest;
    bar.style.width = `${width}%`;
    bar.style.left = each.contribution < 0 ? `${50 - width}%` : "50%";
    const sign = each.contribution > 0 ? "+" : each.contribution < 0 ? "−" : "";
    const drawn = make("td", { class: "drawn" }, make("div", { class: "bar", "aria-hidden": "true" }, bar));
    const number = make("td", { class: "number" }, sign + Math.abs(each.contribution).toFixed(3));
    return make("tr", {}, name, make("td", {}, String(value)), drawn, number);
  });
  const head = make("tr", {}, make("th", { scope: "col" }, "input"), make("th", { scope: "col" }, "value"),
    make("th", { scope: "col", class: "drawn" }, "contribution"), make("th", { scope: "col", class: "number" }, "log-odds"));
  const unknown = answer.inputs.filter((each) => each.state === "unknown").length;
  const parts = [
    make("div", { class: "probability", id: "probability" }, percent(answer.probability)),
    make("div", { class: "scale", "aria-hidden": "true" }, scale),
  ];
  if (unknown) {
    const text = unknown === 1 ? "1 value is" : `${unknown} values are`;
    parts.push(make("p", { class: "soft", id: "unknown" }, `${text} unknown to the model: new, rare or pruned.`));
  }
  parts.push(make("table", { id: "contributions" }, make("thead", {}, head), make("tbody", {}, ...rows)));
  parts.push(make("p", { class: "soft" },
    "Contribution: the change of the log-odds compared with the same row where this input is unknown " +
    "(a number: at its mean). Inputs interact, so that contributions need not add up."));
  byId("result").replaceChildren(...parts);
}

function showError(error) {
  for (const field of byId("inputs").querySelectorAll("input")) field.classList.toggle("invalid", field.name === error.column);
  byId("result").replaceChildren(make("p", { class: "error", role: "alert" }, error.message));
}

function showCard(bundle) {
  const facts = { model: bundle.model, engine: bundle.engine, "bytes of the bundle": bundle.bytes.toLocaleString("en"),
    loaded: new Date(1000 * bundle.loaded_at).toLocaleString() };
  for (const [name, [rows, width]] of Object.entries(bundle.tables)) facts[name] = `${rows.toLocaleString("en")} × ${width}`;
  for (const [name, value] of Object.entries(bundle.metadata)) {
    facts[name.replaceAll("_", " ").replace(/\bauc\b/, "AUC")] = typeof value !== "number" ? value
      : Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(4);
  }
  byId("card").replaceChildren(...Object.entries(facts).flatMap(([name, value]) =>
    [make("dt", {}, name), make("dd", {}, String(value))]));
}

async function choose(name) {
  const schema = await getJson(`schema?bundle=${encodeURIComponent(name)}`);
  ({ inputs, example } = schema);
  showForm();
  fill(example);
  showCard(bundles.get(name));
}

byId("row").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = byId("bundle").value;
  try {
    const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(readRow()) };
    const answer = await getJson(`predict?explain=true&bundle=${encodeURIComponent(name)}`, options);
    showError({ message: "" });
    showResult(answer);
  } catch (error) {
    showError(error);
  }
});
byId("example").addEventListener("click", () => fill(example));
byId("clear").addEventListener("click", () => fill({}));
byId("bundle").addEventListener("change", (event) => choose(event.target.value).catch(showError));

async function start() {
  const found = await getJson("bundles");
  for (const bundle of found.bundles) bundles.set(bundle.name, bundle);
  byId("bundle").replaceChildren(...found.bundles.map((bundle) => make("option", { value: bundle.name }, bundle.name)));
  byId("bundle").value = found.default;
  await choose(found.default);
}

start().catch(showError);
