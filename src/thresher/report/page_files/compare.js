"use strict";
// The page of a comparison: one line per method, tables to sort and filter.
const QUALITIES = [["test_auc", "test AUC"], ["validation_auc", "validation AUC"], ["test_logloss", "test logloss"]];
const methods = d3.sort(new Set(data.points.filter((point) => point.model !== data.floor).map((point) => point.method)),
  (method) => (method === "pep" ? "" : method));
const FIRST = 6; // with colours alone; further methods repeat them with another dash and symbol
const DASHES = [null, "6 3", "2 3", "8 3 2 3"];
const look = (method) => {
  const at = methods.indexOf(method);
  return { colour: COLOURS[at % FIRST], symbol: SYMBOLS[at % SYMBOLS.length], dash: DASHES[Math.floor(at / FIRST) % DASHES.length] };
};
const shown = new Set(methods);

const models = [...new Set(data.points.map((point) => point.model))].filter((model) => model !== data.floor);
fillSelect(byId("model"), models.map((model) => [model, model]));
fillSelect(byId("quality"), QUALITIES);
fillSelect(byId("size"), SIZES.filter(([key]) => data.points.some((point) => isNumber(point[key]))));

function meansOf(method, model, quality, size) {
  const own = data.points.filter((point) => point.method === method && point.model === model && point[size] > 0);
  const groups = d3.group(own, (point) => point.budget ?? `${point.num_parameters} parameters`);
  return d3.sort([...groups].map(([budget, group]) => {
    const values = group.map((point) => point[quality]);
    const mean = d3.mean(values), sd = values.length > 1 ? d3.deviation(values) : 0;
    return { method, budget, x: d3.mean(group, (point) => point[size]), y: mean, low: mean - sd, high: mean + sd, sd,
      seeds: values.length, storage: d3.mean(group, (point) => point.storage_bytes) };
  }), (row) => row.x);
}

const draw = chart("frontier", (width) => {
  const quality = byId("quality").value, size = byId("size").value, model = byId("model").value;
  const lines = methods.filter((method) => shown.has(method)).map((method) => meansOf(method, model, quality, size)).filter((line) => line.length);
  const rows = lines.flat();
  if (!rows.length) return element("p", { class: "quiet" }, "No method is chosen.");
  const below = d3.mean(data.points.filter((point) => point.model === data.floor), (point) => point[quality]);
  const [low, high] = d3.extent([...rows.flatMap((row) => [row.low, row.high]), ...(isNumber(below) ? [below] : [])]);
  const spare = Math.max(0.0008, 0.05 * (high - low));
  const marks = [];
  if (isNumber(below)) {
    marks.push(Plot.ruleY([below], { stroke: "var(--quiet)", strokeDasharray: "2 3" }),
      Plot.text([below], { y: (d) => d, frameAnchor: "right", textAnchor: "end", dy: -8, text: () => "no embedding", fill: "var(--quiet)" }));
  }
  for (const line of lines) {
    const { colour, symbol, dash } = look(line[0].method);
    const leads = line[0].method === "pep";
    marks.push(
      Plot.line(line, { x: "x", y: "y", stroke: colour, strokeWidth: leads ? 2.8 : 1.5, strokeDasharray: dash }),
      Plot.ruleX(line.filter((row) => row.sd > 0), { x: "x", y1: "low", y2: "high", stroke: colour }),
      Plot.dot(line, { x: "x", y: "y", r: leads ? 5.5 : 4.2, symbol, fill: dash ? "var(--page)" : colour, stroke: colour }),
    );
  }
  marks.push(Plot.tip(rows, Plot.pointer({ x: "x", y: "y", maxRadius: 40, ...tipStyle, title: (row) =>
    `${row.method} · ${row.budget}\n${fixed(row.y, 4)}${row.seeds > 1 ? ` ± ${fixed(row.sd, 4)} (${row.seeds} seeds)` : " (1 seed)"}\n${bytes(row.storage)} of tables` })));
  return plot(width, Math.min(470, Math.max(320, width * 0.46)), {
    x: { ...sizeAxis(rows.map((row) => row.x), byId("log").checked, size, width - 80), label: SIZES.find(([key]) => key === size)[1] },
    y: { domain: [low - spare, high + spare], grid: true, label: `↑ ${QUALITIES.find(([key]) => key === quality)[1]}`, ticks: 7 },
    marks,
  });
});

function swatch(method) {
  const { colour, symbol, dash } = look(method);
  const drawn = d3.create("svg").attr("class", "swatch").attr("viewBox", "0 0 28 14").attr("style", "width:28px;height:14px").attr("aria-hidden", "true");
  drawn.append("line").attr("x2", 28).attr("y1", 7).attr("y2", 7).attr("stroke", colour).attr("stroke-width", 2).attr("stroke-dasharray", dash);
  const kind = d3[`symbol${symbol[0].toUpperCase()}${symbol.slice(1)}`];
  drawn.append("path").attr("transform", "translate(14,7)").attr("d", d3.symbol(kind, 42)()).attr("fill", dash ? "var(--page)" : colour).attr("stroke", colour);
  return drawn.node();
}

const boxes = methods.map((method) => element("input", { type: "checkbox", checked: "", value: method, onchange: (event) => {
  event.target.checked ? shown.add(method) : shown.delete(method);
  draw();
} }));
byId("legend").replaceChildren(...methods.map((method, at) => element("label", {}, boxes[at], swatch(method), method)));
function setAll(on) {
  methods.forEach((method) => (on ? shown.add(method) : shown.delete(method)));
  boxes.forEach((box) => (box.checked = on));
  draw();
}
byId("all").addEventListener("click", () => setAll(true));
byId("none").addEventListener("click", () => setAll(false));
["model", "quality", "size", "log"].forEach((id) => byId(id).addEventListener("change", draw));

document.querySelectorAll("table.methods, #all-points").forEach(makeSortable);
byId("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  document.querySelectorAll("tr[data-method]").forEach((row) => (row.hidden = !row.dataset.method.toLowerCase().includes(wanted)));
});
