// -- head --

function showHead() {
  const about = [
    ["directory", data.directories.join("\n")],
    ["everywhere", data.everywhere],
    ["command", data.command],
    ["made", `${data.made} by autotest ${data.version}`],
  ].filter(([, text]) => text);
  $("about").append(...about.flatMap(([name, text]) => [saying("dt", name), saying("dd", text)]));
  const shortened = data.shortened
    ? ` To keep this file small, ${data.shortened} of ${data.trials.length} logs have their middle left out, as they say.`
    : "";
  $("foot").textContent = `Nothing on this page is loaded from elsewhere. Charts: plotly.js (MIT license).${shortened}`;
}

function showSummary() {
  const tile = (value, text) => element("div", { className: "tile" }, saying("strong", value), saying("span", text));
  const verdictTile = (verdict, count) => {
    const inside = [saying("strong", count), element("span", { innerHTML: verdictText(verdict) })];
    const test = (trial) => trial.verdict === verdict;
    return filterButton("verdict", `verdict: ${verdict}`, test, { className: "tile" }, ...inside);
  };
  const empty = data.cases.filter((one) => !one.used).length;
  const counts = data.verdicts.map((verdict) => [
    verdict,
    data.trials.filter((trial) => trial.verdict === verdict).length,
  ]);
  const [first, last] = data.span.map(shortTime);
  $("summary").append(
    tile(data.cases.length, `test cases${empty ? `, ${empty} without figures` : ""}`),
    tile(data.trials.length, "trials"),
    ...counts.filter(([, count]) => count).map(([verdict, count]) => verdictTile(verdict, count)),
    ...(first ? [tile(first, `first trial; last ${last}`)] : []),
  );
}

function showComplaints() {
  if (!data.complaintCount) return;
  const more = data.complaintCount > data.complaints.length ? `; here the first ${data.complaints.length}` : "";
  const where = (directory) => (data.directories.length > 1 ? `${directory}: ` : "");
  const items = data.complaints.map(([directory, file, message]) =>
    saying("li", `${where(directory)}${file}: ${message}`),
  );
  $("complaints").hidden = false;
  $("complaints").querySelector("summary").textContent =
    `Not used, or not as it is: ${data.complaintCount} complaints${more}`;
  $("complaints")
    .querySelector("ul")
    .append(...items);
}

const shortTime = (text) => text.slice(0, 16).replace("T", " ");

function showChoices() {
  for (const key of data.keys) {
    const values = [...new Set(data.cases.map((one) => one.parameters[key]))].filter((value) => value !== undefined);
    values.sort((a, b) =>
      typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)),
    );
    const select = element(
      "select",
      { attributes: { "data-key": key, "aria-label": key } },
      saying("option", "all", { value: "" }),
      ...values.map((value) => saying("option", value, { value })),
    );
    select.onchange = () => {
      const chosen = select.value;
      const test = (trial) => String(trial.of.parameters[key]) === chosen;
      setFilter(`parameter:${key}`, chosen && { text: `${key} = ${chosen}`, test, chosen });
    };
    $("choices").append(element("label", {}, `${key} `, select));
  }
}

function showLegend() {
  $("legend").append(
    ...data.setUps.map((label, setUp) =>
      filterButton(
        "set-up",
        `set-up: ${label}`,
        (trial) => trial.of.setUp === setUp,
        {},
        saying("b", style(setUp).sign, { style: `color: ${style(setUp).colour}` }),
        label,
      ),
    ),
  );
}

// -- environment --

function showDifferences() {
  const known = data.trials.length - data.withoutRecord;
  const unknown = `${data.withoutRecord} of ${data.trials.length} trials have no JSON (the older tool wrote none)`;
  const box = $("differences");
  if (data.withoutRecord) box.append(saying("p", `${unknown}: nothing is known of what they were measured with.`));
  if (!data.differences.length) {
    if (known) box.append(saying("p", "All trials with a JSON were measured with the same."));
    return;
  }
  const hint = "A click on a value shows its trials; in brackets how many they are.";
  box.append(saying("p", hint, { className: "hint" }), table(["key", "values"], data.differences.map(differenceRow)));
}

function differenceRow({ key, values, chosen, withinCase }) {
  const counts = values.map((_, at) => chosen.filter((value) => value === at).length);
  const most = [...values.keys()].sort((a, b) => counts[b] - counts[a]);
  const buttons = most.slice(0, VALUES_SHOWN).map((at) => {
    const value = values[at] ?? "(absent)";
    const test = (trial) => chosen[trial.number] === at;
    return filterButton(`environment:${key}`, `${key} = ${value}`, test, {}, `${value} (${counts[at]})`);
  });
  if (most.length > VALUES_SHOWN) buttons.push(`and ${most.length - VALUES_SHOWN} more values`);
  const name = saying("td", key);
  if (withinCase) name.append(saying("div", "differs between repetitions of a case", { className: "warning" }));
  return row(name, element("td", {}, ...buttons));
}

function showCommon() {
  const parts = new Map();
  for (const [key, value] of data.common) {
    const [part, ...rest] = key.split(".");
    if (!parts.has(part)) parts.set(part, []);
    parts.get(part).push(row(rest.join(".") || part, value));
  }
  if (!parts.size) $("common").textContent = "Nothing is recorded.";
  for (const [part, rows] of parts) $("common").append(saying("h3", part), table([], rows));
}

// -- start --

function listen() {
  let typing;
  $("search").oninput = () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      view.words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
      updateChips();
      updateTable();
    }, 120);
  };
  $("table-box").onscroll = ({ target }) =>
    target.scrollTop + target.clientHeight > target.scrollHeight - 600 && moreRows();
  const body = document.querySelector("#trials tbody");
  const rowOf = (event) => event.target.closest("tr");
  body.onclick = (event) => rowOf(event) && openTrial(data.trials[rowOf(event).dataset.trial]);
  body.onkeydown = (event) => {
    if (event.key === "Enter") openTrial(data.trials[rowOf(event).dataset.trial]);
    const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (next) {
      event.preventDefault();
      rowOf(event)[next]?.focus();
    }
  };
  addEventListener("keydown", (event) => event.key === "Escape" && view.open && closeTrial());
  $("metric").onchange = $("log-rate").onchange = $("tail").onchange = drawCharts;
  const resize = (look) =>
    window.Plotly &&
    document.querySelectorAll("#charts figure").forEach((box) => box.on && window.Plotly.relayout(box, look(box)));
  addEventListener("beforeprint", () => resize((box) => ({ width: box.classList.contains("wide") ? 1000 : 495 })));
  addEventListener("afterprint", () => resize(() => ({ width: null, autosize: true })));
}

async function start() {
  const latencies = data.metrics.filter(
    (metric) => metric.unit === "µs" && (metric.name !== "p50_spread" || data.cases.some((one) => one.guests)),
  );
  $("metric").append(
    ...latencies.map((metric) =>
      saying("option", metric.label, { value: metric.name, selected: metric.name === "p50" }),
    ),
  );
  const loads = data.cases.map((one) => one.load);
  $("log-rate").checked = Math.min(...loads) > 0 && Math.max(...loads) / Math.min(...loads) > 20;
  showHead();
  showSummary();
  showComplaints();
  showChoices();
  showLegend();
  showTableHead();
  showDifferences();
  showCommon();
  listen();
  update();
  try {
    const code = await unpacked("plotly");
    document.head.append(element("script", { textContent: code }));
    drawCharts();
  } catch (error) {
    chartsUnavailable(`This browser cannot draw the charts (${error.message}). It needs to be of 2023 or newer.`);
  }
}

start();
