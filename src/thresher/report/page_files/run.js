"use strict";
// The page of one run: frontier, size chooser, fields, training curves.
const QUALITIES = [
  ["test_auc", "test AUC", 4], ["validation_auc", "validation AUC", 4], ["test_logloss", "test logloss", 4],
  ["validation_logloss", "validation logloss", 4], ["test_calibration", "test calibration", 3],
  ["test_rare_auc", "test AUC, rare rows", 4],
];
const { points, dense, floor } = data;
const everything = [...points, dense, floor].filter(Boolean);

const spread = (point, key) => fixed(point[key], 4) + (isNumber(point[`${key}_sd`]) ? ` ± ${fixed(point[`${key}_sd`], 4)}` : "");

function describe(point) {
  const share = dense && dense.num_parameters ? ` (${((100 * point.num_parameters) / dense.num_parameters).toPrecision(2)} %)` : "";
  return [
    point.name,
    `${count(point.num_parameters)} parameters${share}`,
    `${bytes(point.storage_bytes)} tables, ${bytes(point.bundle_bytes)} bundle`,
    `AUC ${spread(point, "test_auc")} test, ${spread(point, "validation_auc")} validation`,
    `logloss ${fixed(point.test_logloss, 4)}, calibration ${fixed(point.test_calibration, 3)}`,
    `AUC on rare rows ${fixed(point.test_rare_auc, 4)}`,
  ].join("\n");
}

const shownQualities = QUALITIES.filter(([key]) => points.some((point) => isNumber(point[key])));
fillSelect(byId("quality"), shownQualities);
fillSelect(byId("size"), SIZES.filter(([key]) => points.some((point) => isNumber(point[key]))));

const drawFrontier = chart("frontier", (width) => {
  const quality = byId("quality").value, size = byId("size").value, log = byId("log").checked;
  const label = shownQualities.find(([key]) => key === quality)[1];
  const shown = points.filter((point) => isNumber(point[quality]) && point[size] > 0);
  const reference = dense && isNumber(dense[quality]) ? dense : null;
  const sized = [...shown, ...(reference && reference[size] > 0 ? [reference] : [])];
  if (!sized.length) return element("p", { class: "quiet" }, "No model has this figure.");
  const isAuc = quality.endsWith("auc");
  const split = quality.startsWith("test") ? "test" : "validation";
  const error = isAuc && !quality.includes("rare") ? data.auc_standard_error[split] : null;
  const level = reference ? reference[quality] : null;
  const below = floor && isNumber(floor[quality]) ? floor[quality] : null;
  // The axis never shows less than the confidence band, so that noise does not look like a cliff.
  const bars = sized.filter((point) => isNumber(point[`${quality}_sd`]))
    .map((point) => ({ x: point[size], low: point[quality] - point[`${quality}_sd`], high: point[quality] + point[`${quality}_sd`] }));
  const sizeOf = new Map(sized.map((point) => [point.name, point[size]]));
  const single = data.by_seed.filter((point) => isNumber(point[quality]) && sizeOf.has(point.name))
    .map((point) => ({ x: sizeOf.get(point.name), y: point[quality] }));
  const values = [...sized.map((point) => point[quality]), ...bars.flatMap((bar) => [bar.low, bar.high]), ...single.map((point) => point.y)];
  if (level !== null && error) values.push(level - 2.2 * error, level + 2.2 * error);
  let [low, high] = d3.extent(values);
  if (below !== null && Math.max(low - below, below - high) < 3 * (high - low)) [low, high] = d3.extent([low, high, below]);
  const spare = Math.max((high - low) * 0.08, 0.0008);
  const domain = byId("zero").checked && isAuc ? [0.5, Math.min(1, high + 0.05)] : [low - spare, high + spare];
  const marks = [];
  if (level !== null && error) {
    marks.push(Plot.rect([0], { y1: Math.max(domain[0], level - 1.96 * error), y2: Math.min(domain[1], level + 1.96 * error),
      fill: "var(--quiet)", fillOpacity: 0.13 }));
  }
  if (level !== null) marks.push(Plot.ruleY([level], { stroke: "var(--quiet)", strokeDasharray: "5 4" }));
  if (below !== null && below >= domain[0] && below <= domain[1]) {
    marks.push(Plot.ruleY([below], { stroke: "var(--c1)", strokeDasharray: "2 3" }),
      Plot.text([below], { y: (d) => d, frameAnchor: "right", textAnchor: "end", dy: -8, text: () => "no embedding", fill: "var(--c1)" }));
  }
  const ordered = d3.sort(shown, (point) => point[size]);
  marks.push(
    Plot.dot(single, { x: "x", y: "y", r: 3, fill: "var(--quiet)", fillOpacity: 0.55 }),
    Plot.ruleX(bars, { x: "x", y1: "low", y2: "high", stroke: "var(--quiet)" }),
    Plot.line(ordered, { x: size, y: quality, stroke: "var(--c0)", strokeWidth: 2 }),
    Plot.dot(ordered, { x: size, y: quality, r: 5, fill: "var(--c0)", stroke: "var(--page)" }),
    Plot.text(ordered, { x: size, y: quality, text: "name", dy: -13, fill: "var(--text)" }),
  );
  if (reference && reference[size] > 0) {
    marks.push(Plot.dot([reference], { x: size, y: quality, r: 6, symbol: "square", fill: "var(--quiet)" }),
      Plot.text([reference], { x: size, y: quality, text: "name", dy: -14, fill: "var(--quiet)" }));
  }
  marks.push(Plot.tip(sized, Plot.pointer({ x: size, y: quality, title: describe, maxRadius: 60, ...tipStyle })));
  byId("band").textContent = level !== null && error
    ? `Grey band: 95 % confidence interval of the dense model's ${label} over samples of rows (±\u00a0${fixed(1.96 * error, 4)}).`
      + (bars.length ? " Bars: one standard deviation over seeds; small dots: single seeds." : "")
    : "";
  return plot(width, Math.min(400, Math.max(290, width * 0.42)), {
    x: { ...sizeAxis(sized.map((point) => point[size]), log, size, width - 80), label: SIZES.find(([key]) => key === size)[1] },
    y: { domain, grid: true, label: `↑ ${label}`, nice: false, ticks: 6 }, clip: false, marks,
  });
});
["quality", "size", "log", "zero"].forEach((id) => byId(id).addEventListener("change", drawFrontier));

// --- size chooser ---
function showChoice(place, point, none) {
  if (!point) return byId(place).replaceChildren(element("p", {}, none));
  const sentence = `${point.name}: ${bytes(point.storage_bytes)} of tables, ${bytes(point.bundle_bytes)} in all, validation AUC `
    + `${fixed(point.validation_auc, 4)}${dense ? ` (dense ${fixed(dense.validation_auc, 4)})` : ""}, test AUC ${fixed(point.test_auc, 4)}.`;
  byId(place).replaceChildren(element("p", {}, sentence), ...(point.command ? [copyable(point.command)] : []));
}

function chooseBytes() {
  const limit = byId("afford").valueAsNumber * Number(byId("unit").value), of = byId("of").value;
  const fitting = points.filter((point) => point[of] <= limit);
  const best = fitting.length ? fitting.reduce((a, b) => (b.validation_auc > a.validation_auc ? b : a)) : null;
  const smallest = d3.min(points, (point) => point[of]);
  showChoice("within-bytes", best, `No size of this run fits. The smallest has ${bytes(smallest)}; a run with a smaller budget can go below.`);
}

function chooseDrop() {
  if (!dense) return showChoice("within-drop", null, "This run has no dense model to compare with.");
  const least = dense.validation_auc - byId("lose").valueAsNumber;
  const within = points.filter((point) => point.validation_auc >= least);
  const smallest = within.length ? within.reduce((a, b) => (b.num_parameters < a.num_parameters ? b : a)) : null;
  showChoice("within-drop", smallest, "No size of this run is within that. A run with larger budgets may be.");
}
const middle = d3.median(points, (point) => point.bundle_bytes ?? point.storage_bytes) || 1000;
byId("unit").value = middle >= 1e6 ? "1000000" : "1000";
byId("afford").value = +(1.05 * middle / Number(byId("unit").value)).toPrecision(2);
byId("lose").value = data.max_auc_drop ?? 0.001;
["afford", "unit", "of"].forEach((id) => byId(id).addEventListener("input", chooseBytes));
byId("lose").addEventListener("input", chooseDrop);
chooseBytes();
chooseDrop();

// --- fields ---
const shorten = (text) => (text.length > 18 ? `${text.slice(0, 17)}…` : text);
const MOST_BARS = 40;
const drop = (row) => (isNumber(row.auc_drop) ? `${fixed(row.auc_drop, 4)} ± ${fixed(row.auc_drop_sd, 4)}` : ABSENT);
const fieldsOf = () => data.fields[byId("field-budget").value] || [];

function bars(width, key, label, colour, write) {
  const rows = fieldsOf().filter((row) => isNumber(row[key])).slice(0, MOST_BARS);
  if (!rows.length) return null;
  const named = rows.map((row) => ({ ...row, label: shorten(row.field), text: `${row.field}\n${write(row)}` }));
  const domain = [...new Set(named.map((row) => row.label))];
  return plot(width, 66 + 21 * domain.length, {
    marginLeft: Math.min(150, 24 + 7.2 * d3.max(domain, (name) => name.length)),
    x: { label, grid: true, ticks: Math.max(3, Math.floor(width / 130)), tickFormat: key === "kept_share" ? ".0%" : "~g",
      domain: key === "kept_share" ? [0, 1] : undefined },
    y: { domain, label: null, tickSize: 0 },
    marks: [Plot.ruleX([0], { stroke: "var(--quiet)" }), Plot.barX(named, { x: key, y: "label", fill: colour, rx: 2 }),
      Plot.tip(named, Plot.pointerY({ x: key, y: "label", title: "text", ...tipStyle }))],
  });
}

function fieldTable() {
  const rows = fieldsOf();
  const keeps = rows.some((row) => isNumber(row.num_kept));
  const heads = ["field", "features", ...(keeps ? ["features kept", "mean size", "entries", "bytes", "share of entries"] : []), "AUC it contributes",
    ...(keeps ? ["heaviest values", "frequent values without an embedding"] : [])];
  const listed = (values) => values.map((value) => value[0]).join(", ") || ABSENT;
  const body = rows.map((row) => element("tr", {},
    element("td", { class: "text" }, row.field), element("td", { "data-value": row.num_features }, count(row.num_features)),
    ...(keeps ? [
      element("td", { "data-value": row.num_kept }, `${count(row.num_kept)}`), element("td", {}, fixed(row.mean_size, 1)),
      element("td", { "data-value": row.num_parameters }, count(row.num_parameters)),
      element("td", { "data-value": row.storage_bytes }, bytes(row.storage_bytes)),
      element("td", { "data-value": row.entry_share }, `${fixed(100 * row.entry_share, 1)} %`)] : []),
    element("td", { "data-value": row.auc_drop ?? "" }, drop(row)),
    ...(keeps ? [element("td", { class: "text wrap" }, listed(row.heaviest)), element("td", { class: "text wrap" }, listed(row.dropped))] : [])));
  const isText = (head) => head === "field" || head.includes("values");
  const table = element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", isText(head) ? { class: "text" } : {}, head)))),
    element("tbody", {}, ...body));
  makeSortable(table);
  byId("field-table").replaceChildren(table);
}

if (byId("field-budget")) {
  fillSelect(byId("field-budget"), Object.keys(data.fields).map((budget) => [budget, budget]));
  const redraws = [
    chart("field-importance", (width) => bars(width, "auc_drop", "AUC lost when the field is shuffled →", "var(--c0)",
      (row) => `${drop(row)} AUC`)),
    chart("field-kept", (width) => bars(width, "kept_share", "share of features kept →", "var(--c2)",
      (row) => `${count(row.num_kept)} of ${count(row.num_features)} features kept, mean size ${fixed(row.mean_size, 1)}`)),
    fieldTable,
  ];
  fieldTable();
  byId("field-budget").addEventListener("change", () => redraws.forEach((redraw) => redraw()));
}

// --- training ---
if (byId("seed")) fillSelect(byId("seed"), data.trainings.map((training, at) => [at, training.seed]));
const shownSeed = () => (byId("seed") ? data.trainings[Number(byId("seed").value)] : data.trainings[0]);

const drawCurves = chart("curves", (width) => {
  const key = byId("curve").value;
  const label = byId("curve").selectedOptions[0].textContent;
  const { curves } = shownSeed();
  const rows = curves.flatMap((curve) => curve.records.filter((record) => isNumber(record[key])).map((record) => ({
    ...record, stage: curve.stage, best: curve.best !== null && record.epoch === curve.best.epoch && key !== "train_loss",
    cut: (curve.tickets || []).filter((ticket) => ticket.epoch === record.epoch).map((ticket) => ticket.budget),
  })));
  if (!rows.length) return null;
  const range = d3.extent(rows, (row) => row[key]);
  const stages = [...new Set(rows.map((row) => row.stage))];
  const colours = stages.map((stage, at) => (stage === "no embedding" ? "var(--quiet)" : COLOURS[at % COLOURS.length]));
  const cut = rows.filter((row) => row.cut.length);
  const drawn = plot(width, 300, {
    x: { label: "epoch →", tickFormat: (value) => (Number.isInteger(value) ? value : ""), domain: [1, Math.max(2, d3.max(rows, (row) => row.epoch))] },
    y: { label: `↑ ${label}`, grid: true, domain: range, nice: true },
    color: { domain: stages, range: colours },
    marks: [
      Plot.line(rows, { x: "epoch", y: key, stroke: "stage", z: "stage", strokeWidth: 1.7 }),
      Plot.dot(rows.filter((row) => row.best), { x: "epoch", y: key, fill: "stage", r: 4.5, stroke: "var(--page)" }),
      Plot.dot(cut, { x: "epoch", y: key, fill: "stage", symbol: "diamond", r: 5, stroke: "var(--page)" }),
      Plot.tip(rows, Plot.pointer({ x: "epoch", y: key, ...tipStyle, title: (row) =>
        `${row.stage}\nepoch ${row.epoch}: ${fixed(row[key], 4)}${row.cut.length ? `\ntickets ${row.cut.join(", ")}` : ""}` })),
    ],
  });
  const legend = element("div", { class: "legend" }, ...stages.map((stage, at) => element("span", {},
    element("span", { class: "swatch", style: `background:${colours[at]}` }), stage)));
  return element("div", {}, legend, drawn);
});

const drawKept = chart("kept", (width) => {
  const rows = shownSeed().kept;
  if (!rows.length) return null;
  const tickets = shownSeed().tickets.filter((ticket) => isNumber(ticket.step));
  return plot(width, 330, {
    marginTop: 40, marginRight: 44,
    x: { label: "search step →", tickFormat: (value) => shortCount(value), ticks: Math.max(3, Math.floor(width / 90)) },
    y: { ...sizeAxis([...rows, ...tickets].map((row) => Math.max(1, row.num_kept)), true, "num_parameters", 500), label: "↑ entries kept; dots are tickets" },
    marks: [
      Plot.line(rows, { x: "step", y: "num_kept", stroke: "var(--c2)", strokeWidth: 2 }),
      Plot.dot(tickets, { x: "step", y: "num_kept", r: 5, fill: "var(--c1)", stroke: "var(--page)" }),
      Plot.text(tickets, { x: "step", y: "num_kept", text: "budget", dx: 9, dy: -7, textAnchor: "start" }),
      Plot.tip(tickets, Plot.pointer({ x: "step", y: "num_kept", title: (row) => `ticket ${row.budget}\n${count(row.num_kept)} entries at step ${count(row.step)}`, ...tipStyle })),
    ],
  });
});
byId("curve").addEventListener("change", drawCurves);
byId("seed")?.addEventListener("change", () => [drawCurves, drawKept].forEach((draw) => draw()));
