// -- table --

const SHORT_TITLES = {
  p50: "median",
  p999: "p99.9",
  mean_size: "mean size",
  bit_rate: "bit rate",
  loss_spread: "loss spread",
  p50_spread: "median spread",
};

const columns = [
  ...data.keys.map((key) => {
    const numeric = data.cases.every((one) => typeof (one.parameters[key] ?? 0) === "number");
    return {
      title: key,
      unit: (numeric && { rate: "kpps", size: "B", runtime: "s" }[key]) || "",
      value: (trial) => trial.of.parameters[key] ?? null,
      numeric,
    };
  }),
  { title: "rep.", unit: "", value: (trial) => trial.repetition, numeric: true },
  {
    title: "verdict",
    unit: "",
    value: (trial) => trial.verdict,
    numeric: false,
    show: (trial) => verdictText(trial.verdict) + (trial.accepted ? " (accepted)" : ""),
  },
  ...COLUMNS.map((name) => ({
    title: SHORT_TITLES[name] ?? name,
    unit: data.metrics[metricNumber[name]].unit,
    value: (trial) => trial.figures[metricNumber[name]],
    numeric: true,
    show: (trial) => number(trial.figures[metricNumber[name]], data.metrics[metricNumber[name]].unit),
  })),
  { title: "reason", unit: "", value: (trial) => trial.reason, numeric: false, className: "reason" },
  { title: "started", unit: "", value: (trial) => trial.started && shortTime(trial.started), numeric: false },
];

function showTableHead() {
  const cells = columns.map((column, at) => {
    const button = element(
      "button",
      { title: "sort", onclick: () => sortBy(at) },
      column.title,
      saying("small", column.unit),
    );
    const className = column.numeric ? "number" : "";
    return element("th", { scope: "col", className, attributes: { "aria-sort": "none" } }, button);
  });
  document.querySelector("#trials thead").append(row(...cells));
}

function sortBy(at) {
  view.descending = view.sort === at && !view.descending;
  view.sort = at;
  [...document.querySelectorAll("#trials th")].forEach((cell, number) =>
    cell.setAttribute("aria-sort", number !== at ? "none" : view.descending ? "descending" : "ascending"),
  );
  updateTable();
}

function updateTable() {
  view.rows = data.trials.filter(
    (trial) => matches(trial) && view.words.every((word) => searchable(trial).includes(word)),
  );
  if (view.sort !== null) {
    const { value } = columns[view.sort];
    const sign = view.descending ? -1 : 1;
    const isNumber = (found) => Number(typeof found === "number");
    const order = (a, b) => isNumber(a) - isNumber(b) || (isNumber(a) ? a - b : a < b ? -1 : a > b ? 1 : 0);
    const none = (found) => found === null || found === "";
    view.rows.sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      return none(a) || none(b) ? none(a) - none(b) : sign * order(a, b);
    });
  }
  view.rendered = 0;
  document.querySelector("#trials tbody").replaceChildren();
  $("table-box").scrollTop = 0;
  moreRows();
}

function cell(column, trial) {
  const shown = column.show ? column.show(trial) : escaped(column.value(trial) ?? "–");
  return `<td class="${column.numeric ? "number" : (column.className ?? "")}">${shown}</td>`;
}

function rowText(trial) {
  const look = trial === view.open ? ' class="open"' : "";
  const cells = columns.map((column) => cell(column, trial)).join("");
  return `<tr tabindex="0" data-trial="${trial.number}"${look}>${cells}</tr>`;
}

function moreRows() {
  const next = view.rows.slice(view.rendered, view.rendered + ROWS_AT_ONCE);
  view.rendered += next.length;
  document.querySelector("#trials tbody").insertAdjacentHTML("beforeend", next.map(rowText).join(""));
  const listed = view.rendered < view.rows.length ? `, the first ${view.rendered} listed (scroll for more)` : "";
  const hint = "A click on a row opens its log and JSON.";
  $("count").textContent = `${view.rows.length} of ${data.trials.length} trials${listed}. ${hint}`;
}

// -- one trial --

async function openTrial(trial) {
  view.open = trial;
  markOpenRow();
  $("detail").hidden = false;
  $("detail").replaceChildren(...trialFacts(trial));
  $("detail").focus();
  $("detail").scrollTop = 0;
  const texts = await trialTexts(trial);
  if (view.open === trial) $("detail").append(...texts);
}

function trialFacts(trial) {
  const one = trial.of;
  const accepted = trial.accepted ? " (accepted by the user)" : "";
  const started = trial.started ? `Started ${trial.started}. ` : "";
  const figures = data.metrics.map((metric, at) => {
    const mine = saying("td", withUnit(trial.figures[at], metric), { className: "number" });
    return row(metric.label, mine, estimateText(one.figures[metric.name], metric));
  });
  const link = (kind, suffix) =>
    saying("a", kind, { href: one.folder + encodeURI(`${kind}_${one.infix}_rep${trial.repetition}.${suffix}`) });
  return [
    saying("button", "close", { className: "close", onclick: closeTrial }),
    saying("h2", `${one.label}, repetition ${trial.repetition}`),
    element("p", { innerHTML: `${verdictText(trial.verdict)} ${escaped(trial.reason)}${accepted}` }),
    saying("p", `${started}${trial.used ? "Part of" : "Not part of"} its case's figures (${one.verdicts}).`),
    element(
      "p",
      {},
      saying("button", "only this case", { onclick: () => pinned() === one || toggleCase(one) }),
      " Files beside this report: ",
      link("output", "log"),
      ", ",
      link("histogram", "csv"),
      ", ",
      link("trial", "json"),
    ),
    table(["figure", "this trial", "its case (95 % CI)"], figures),
  ];
}

async function trialTexts(trial) {
  const text = (title, content) =>
    element(
      "details",
      { open: true, className: title },
      saying("summary", title),
      saying("pre", content, { tabIndex: 0 }),
    );
  const colours = /\x1b\[[0-?]*[ -/]*[@-~]/g; // of a terminal
  try {
    const [log, record] = [await packedOf(trial, "logs"), await packedOf(trial, "records")];
    return [
      text("log", log.replace(colours, "") || "There is no output, or nothing in it."),
      text("JSON", record ?? "There is no JSON: the older tool wrote none."),
    ];
  } catch (error) {
    const reason = `This browser cannot open what is packed into the page (${error.message})`;
    return [text("log", `${reason}: use the files beside it.`)];
  }
}

function closeTrial() {
  const opened = document.querySelector("#trials tr.open");
  view.open = null;
  $("detail").hidden = true;
  markOpenRow();
  opened?.focus();
}

function markOpenRow() {
  for (const one of document.querySelectorAll("#trials tbody tr"))
    one.classList.toggle("open", one.dataset.trial === String(view.open?.number));
}
