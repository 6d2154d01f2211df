"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const COLOURS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)"];
const SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "wye", "cross"];
const SIZES = [["num_parameters", "parameters"], ["storage_bytes", "table bytes"], ["bundle_bytes", "bundle bytes"]];
const ABSENT = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const fixed = (value, digits) => (isNumber(value) ? value.toFixed(digits) : ABSENT);
const count = (value) => (isNumber(value) ? Math.round(value).toLocaleString("en") : ABSENT);

function bytes(value) {
  if (!isNumber(value)) return ABSENT;
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) {
    if (value >= size) return `${(value / size).toFixed(value >= 99.95 * size ? 0 : value >= 9.995 * size ? 1 : 2)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

function shortCount(value) {
  for (const [unit, size] of [["B", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return `${+(value / size).toPrecision(3)}${unit}`;
  }
  return `${+value.toPrecision(3)}`;
}

function shortBytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) {
    if (value >= size) return `${+(value / size).toPrecision(3)} ${unit}`;
  }
  return `${+value.toPrecision(3)} B`;
}

const writeSize = (size, value) => (size === "num_parameters" ? shortCount(value) : shortBytes(value));

// Elements are made with textContent, never with markup: names of fields and values come from the data.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function fillSelect(select, options) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
}

// Draw a chart into a container as wide as that is, and again whenever the width changes.
const redraws = [];
function chart(id, draw) {
  const place = byId(id);
  if (!place) return () => {};
  let width = 0;
  const redraw = () => {
    width = Math.max(260, Math.floor(place.clientWidth));
    const drawn = draw(width);
    place.replaceChildren(...(drawn ? [drawn] : []));
  };
  redraws.push(() => Math.max(260, Math.floor(place.clientWidth)) !== width && redraw());
  redraw();
  return redraw;
}
window.addEventListener("resize", () => redraws.forEach((redraw) => redraw()));

// Ticks of a log axis at 1, 2 and 5 of each decade, or fewer if there is no room for them.
function sizeAxis(values, log, size, width) {
  const low = Math.min(...values), high = Math.max(...values);
  const domain = log ? [low / 1.25, high * 1.25] : [0, high * 1.05];
  const axis = { type: log ? "log" : "linear", domain, nice: false, label: null, grid: true };
  if (!log) return { ...axis, ticks: Math.max(3, Math.floor(width / 110)), tickFormat: (value) => writeSize(size, value) };
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let decade = Math.floor(Math.log10(domain[0])); decade <= Math.log10(domain[1]); decade++) {
      for (const step of steps) {
        const tick = step * 10 ** decade;
        if (tick >= domain[0] && tick <= domain[1]) ticks.push(tick);
      }
    }
    if (ticks.length * 62 <= width || steps.length === 1) {
      return { ...axis, ticks, tickFormat: (value) => writeSize(size, value) };
    }
  }
}

function plot(width, height, options) {
  return Plot.plot({
    width, height, marginLeft: 58, marginRight: 20, marginTop: 26, marginBottom: 40,
    style: { background: "transparent", color: "var(--text)", fontSize: "12.5px", overflow: "visible" },
    ...options,
  });
}

const tipStyle = { fill: "var(--page)", stroke: "var(--quiet)", fontSize: 12.5, lineHeight: 1.35, textPadding: 9 };

// Make a table sortable by its header buttons. Cells may carry their value in data-value.
function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    const text = head.textContent;
    const button = element("button", { type: "button", onclick: () => sort(at) }, text);
    head.replaceChildren(button);
  });
  function sort(at) {
    const down = heads[at].getAttribute("aria-sort") !== "descending";
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[at].setAttribute("aria-sort", down ? "descending" : "ascending");
    const valueOf = (row) => row.cells[at].dataset.value ?? row.cells[at].textContent;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [valueOf(a), valueOf(b)];
      const [p, q] = [parseFloat(x), parseFloat(y)];
      if (Number.isNaN(p) !== Number.isNaN(q)) return Number.isNaN(p) ? 1 : -1; // missing values last
      const order = Number.isNaN(p) ? x.localeCompare(y) : p - q;
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
  }
}

// Tables that are wider than the page can be scrolled with the keyboard.
function makeScrollable() {
  document.querySelectorAll(".scroll").forEach((place) => {
    const section = place.closest("section");
    if (place.scrollWidth > place.clientWidth) {
      place.setAttribute("tabindex", "0");
      place.setAttribute("role", "region");
      if (section) place.setAttribute("aria-labelledby", section.getAttribute("aria-labelledby"));
    } else place.removeAttribute("tabindex");
  });
}
window.addEventListener("resize", makeScrollable);
document.addEventListener("toggle", makeScrollable, true);
window.addEventListener("DOMContentLoaded", makeScrollable);

function copyable(text) {
  const button = element("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(shown);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  const shown = element("pre", { class: "command" }, text);
  return element("div", {}, shown, button);
}
