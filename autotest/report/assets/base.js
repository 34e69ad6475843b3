// -- data --

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const metricNumber = Object.fromEntries(data.metrics.map((metric, number) => [metric.name, number]));
// Colours of M. Okabe and K. Ito ("Color Universal Design", 2008); 7 colours and 8 markers repeat together only after 56 set-ups.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
const MARKERS = [
  ["circle", "●"],
  ["square", "■"],
  ["triangle-up", "▲"],
  ["diamond", "◆"],
  ["triangle-down", "▼"],
  ["cross", "✚"],
  ["x", "✖\ufe0e"],
  ["star", "★"],
];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const COLUMNS = ["achieved", "loss", "p50", "p95", "p99", "p999", "max", "samples"];
if (data.cases.some((one) => typeof one.parameters.size === "string")) COLUMNS.push("mean_size", "bit_rate");
if (data.cases.some((one) => one.guests)) COLUMNS.push("fairness", "loss_spread", "p50_spread");
const ROWS_AT_ONCE = 200;
const VALUES_SHOWN = 12; // of a key that differs

data.trials.forEach((trial, number) => {
  trial.number = number;
  trial.of = data.cases[trial.case];
  (trial.of.trials ??= []).push(trial);
});
data.cases.forEach((one, number) => {
  one.number = number;
  one.label = `${data.setUps[one.setUp]}, ${one.load} kpps`;
});

const escaped = (text) => String(text).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

function element(tag, properties = {}, ...children) {
  const { attributes = {}, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const saying = (tag, textContent, more = {}) => element(tag, { textContent, ...more });
const row = (...cells) => element("tr", {}, ...cells.map((one) => (one instanceof Node ? one : saying("td", one))));
const table = (titles, rows) =>
  element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...titles.map((title) => saying("th", title)))),
    element("tbody", {}, ...rows),
  );

function number(value, unit) {
  if (value === null || value === undefined) return "–";
  if (value === 0 || (!unit && Number.isInteger(value))) return String(value);
  if (Math.abs(value) < 0.0001) return value < 0 ? ">-0.0001" : "<0.0001";
  const decimals =
    [
      [100, 0],
      [10, 1],
      [1, 2],
      [0.1, 3],
    ].find(([least]) => Math.abs(value) >= least)?.[1] ?? 4;
  return value.toFixed(decimals);
}

const withUnit = (value, metric) =>
  `${number(value, metric.unit)}${metric.unit && value !== null ? ` ${metric.unit}` : ""}`;

function estimateText(found, metric) {
  if (!found) return "–";
  const [mean, low, high, pooled] = found;
  const interval = low === null ? "" : ` (${number(low, metric.unit)} to ${number(high, metric.unit)})`;
  return `${withUnit(mean, metric)}${interval}${pooled === null ? "" : `, pooled ${withUnit(pooled, metric)}`}`;
}

function verdictText(verdict) {
  const [look, sign] = { valid: ["valid", "●"], "under-sent": ["under-sent", "○"] }[verdict] ?? ["bad", "✕"];
  return `<span class="${look}">${sign} ${escaped(verdict)}</span>`;
}

async function unpacked(id) {
  const raw = atob($(id).textContent.trim());
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const chunks = new Map(); // promises, so that a chunk is opened once
async function packedOf(trial, kind) {
  const chunk = `${kind}-${Math.floor(trial.number / data.trialsPerChunk)}`;
  if (!chunks.has(chunk)) chunks.set(chunk, unpacked(chunk).then(JSON.parse));
  return (await chunks.get(chunk))[trial.number % data.trialsPerChunk];
}

// -- filters --

const filters = new Map(); // id -> {text, test(trial)}, and what was chosen
const view = { words: [], sort: null, descending: false, rows: [], rendered: 0, hovered: null, open: null };

function setFilter(id, filter) {
  if (filter) filters.set(id, filter);
  else filters.delete(id);
  update();
}
const toggleFilter = (id, filter) => setFilter(id, filters.get(id)?.text === filter.text ? null : filter);
const toggleCase = (one) =>
  toggleFilter("case", { text: `case: ${one.label}`, test: (trial) => trial.of === one, one });
const pinned = () => filters.get("case")?.one ?? null;

function clearAll() {
  filters.clear();
  $("search").value = "";
  view.words = [];
  update();
}

const matches = (trial, ...without) => [...filters].every(([id, filter]) => without.includes(id) || filter.test(trial));
// A chosen case is marked among the others, not shown alone.
const casesShown = (...without) =>
  data.cases.filter((one) => one.trials.some((trial) => matches(trial, "case", ...without)));

function searchable(trial) {
  trial.words ??= [
    trial.of.infix,
    `rep${trial.repetition}`,
    ...Object.values(trial.of.parameters),
    trial.of.label,
    trial.verdict,
    trial.reason,
    trial.accepted ? "accepted" : "",
    trial.started,
  ]
    .join(" ")
    .toLowerCase();
  return trial.words;
}

function updateChips() {
  $("chips").replaceChildren(
    ...[...filters].map(([id, filter]) =>
      saying("button", `${filter.text} ✕`, { title: "remove this filter", onclick: () => setFilter(id) }),
    ),
  );
  if (filters.size || view.words.length) {
    $("chips").prepend("Filters:");
    $("chips").append(saying("button", "clear all", { id: "clear", onclick: clearAll }));
  } else $("chips").append("No filter: everything is shown.");
  for (const select of document.querySelectorAll("#choices select"))
    select.value = filters.get(`parameter:${select.dataset.key}`)?.chosen ?? "";
  for (const button of document.querySelectorAll("[data-filter]"))
    button.setAttribute("aria-pressed", filters.get(button.dataset.filter)?.text === button.dataset.text);
}

let drawing;
function update() {
  updateChips();
  updateTable();
  updateGuestTables();
  clearTimeout(drawing);
  drawing = setTimeout(drawCharts); // the table does not wait for them
}

function filterButton(id, text, test, properties, ...children) {
  return element(
    "button",
    {
      ...properties,
      attributes: { "data-filter": id, "data-text": text, "aria-pressed": "false" },
      onclick: () => toggleFilter(id, { text, test }),
    },
    ...children,
  );
}
