// -- charts --

function style(setUp) {
  const [marker, sign] = MARKERS[setUp % MARKERS.length];
  return {
    colour: COLOURS[setUp % COLOURS.length],
    marker,
    sign,
    dash: DASHES[Math.floor(setUp / COLOURS.length) % DASHES.length],
  };
}

function repetitionsText(one, name) {
  const metric = data.metrics[metricNumber[name]];
  const used = one.trials.filter((trial) => trial.used);
  const some = used.slice(0, 12).map(
    (trial, at) =>
      // four in a line
      `${at && at % 4 === 0 ? "<br>" : ""}rep. ${trial.repetition}: ${number(trial.figures[metricNumber[name]], metric.unit)}`,
  );
  return `${metric.label}: ${some.join(", ")}${used.length > some.length ? ", ..." : ""} ${metric.unit}`;
}

function caseText(one, name) {
  const lines = [
    `<b>${escaped(one.label)}</b>`,
    `${one.used} of ${one.trials.length} repetitions used, ${one.samples} samples`,
    `verdicts: ${escaped(one.verdicts)}`,
    repetitionsText(one, name),
  ];
  for (const metric of data.metrics)
    if (one.figures[metric.name] && metric.name !== "samples")
      lines.push(`${metric.label}: ${estimateText(one.figures[metric.name], metric)}`);
  lines.push(one.used > 1 ? "in brackets: 95 % confidence interval" : "one repetition: no confidence interval");
  return lines.join("<br>");
}

function trace(cases, setUp, metric, underSent) {
  const { colour, marker, dash } = style(setUp);
  const found = cases.map((one) => one.figures[metric]);
  const reach = (low, mean) => (low === null ? 0 : mean - Math.max(low, 1e-9)); // a logarithmic axis has nothing below 0
  return {
    name: data.setUps[setUp],
    mode: underSent ? "markers" : "lines+markers",
    showlegend: false,
    x: cases.map((one) => one.load),
    y: found.map(([mean]) => mean),
    error_y: {
      type: "data",
      array: found.map(([mean, , high]) => (high === null ? 0 : high - mean)),
      symmetric: false,
      arrayminus: found.map(([mean, low]) => reach(low, mean)),
      thickness: 1.2,
      width: 3,
      color: colour,
    },
    line: { color: colour, dash, width: 1.5 },
    marker: {
      symbol: underSent ? `${marker}-open` : marker,
      size: 8,
      color: colour,
      line: { color: colour, width: underSent ? 1.8 : 0 },
    },
    customdata: cases.map((one) => one.number),
    text: cases.map((one) => caseText(one, metric)),
    hovertemplate: "%{text}<extra></extra>",
  };
}

function traces(cases, metric) {
  const usable = cases.filter((one) => one.figures[metric]);
  const groups = new Map();
  for (const one of usable) {
    const key = `${one.setUp}/${one.underSent}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(one);
  }
  const drawn = [...groups.values()].map((group) => trace(group, group[0].setUp, metric, group[0].underSent));
  const marked = usable.filter((one) => one === pinned());
  drawn.push({
    mode: "markers",
    x: marked.map((one) => one.load),
    y: marked.map((one) => one.figures[metric][0]),
    showlegend: false,
    hoverinfo: "skip",
    marker: { symbol: "circle-open", size: 18, color: "#000", line: { width: 2 } },
  });
  if (metric === "throughput" && usable.length) {
    const ends = [Math.min(...usable.map((one) => one.load)), Math.max(...usable.map((one) => one.load))];
    drawn.unshift({
      mode: "lines",
      x: ends,
      y: ends,
      hoverinfo: "skip",
      showlegend: false,
      line: { color: "#999", dash: "dot", width: 1 },
    });
  }
  return drawn;
}

// Without "complete" the ticks between powers of ten say just "2" and "5".
const logarithmic = { type: "log", minorloglabels: "complete" };

const axis = (title, more) => ({
  title: { text: title, standoff: 6 },
  gridcolor: "#e3e5e8",
  linecolor: "#888",
  ticks: "outside",
  zeroline: false,
  automargin: true,
  exponentformat: "none",
  ...more,
});

// By means and upper ends: an interval that reaches below 0 would stretch a logarithmic axis to nowhere.
function latencyRange(cases, metric) {
  const found = cases.map((one) => one.figures[metric]).filter((figures) => figures && figures[0] > 0);
  const ends = [
    Math.min(...found.map(([mean, low]) => Math.max(low ?? mean, mean / 2))),
    Math.max(...found.map(([mean, , high]) => high ?? mean)),
  ];
  return found.length ? [Math.log10(ends[0]) - 0.1, Math.log10(ends[1]) + 0.1] : undefined;
}

const layout = (title, x, y, subtitle = "") => ({
  xaxis: x,
  yaxis: y,
  uirevision: subtitle ? null : `${title} ${x.type}`, // zoom outlasts a click
  title: {
    text: title,
    subtitle: { text: subtitle, font: { size: 11, color: "#565d66" } },
    x: 0.02,
    xanchor: "left",
    font: { size: 14 },
  },
  margin: { l: 60, r: 16, t: subtitle ? 60 : 46, b: 46 },
  hovermode: "closest",
  font: { family: "system-ui, Liberation Sans, Arial, sans-serif", size: 12, color: "#1a1d21" },
  hoverlabel: { align: "left", bgcolor: "#fff", font: { color: "#1a1d21", size: 11 } },
  paper_bgcolor: "#fff",
  plot_bgcolor: "#fff",
});
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

function draw(id, drawn, look) {
  const box = $(id);
  const first = !box.on;
  if (first) box.replaceChildren();
  window.Plotly.react(box, drawn, look, CONFIG);
  if (!first || id === "chart-cdf") return;
  const caseOf = (event) => data.cases[event.points[0]?.customdata];
  box.on("plotly_click", (event) => caseOf(event) && toggleCase(caseOf(event)));
  box.on("plotly_hover", (event) => hover(caseOf(event)));
}

function drawCharts() {
  if (!window.Plotly) return;
  const cases = casesShown();
  const logRate = $("log-rate").checked;
  const loads = [...new Set(cases.map((one) => one.load))];
  const rate = () =>
    axis("offered rate [kpps]", {
      ...(logRate ? logarithmic : { type: "linear", rangemode: "tozero" }),
      ...(logRate && loads.length <= 12 ? { tickvals: loads } : {}),
    });
  const chosen = data.metrics[metricNumber[$("metric").value]];
  draw(
    "chart-latency",
    traces(cases, chosen.name),
    layout(
      `${chosen.label} over offered rate`,
      rate(),
      axis(`${chosen.label} [µs]`, { ...logarithmic, range: latencyRange(cases, chosen.name) }),
    ),
  );
  draw(
    "chart-loss",
    traces(cases, "loss"),
    layout("loss over offered rate", rate(), axis("loss [%]", { rangemode: "tozero", autorangeoptions: { minallowed: 0, maxallowed: 102 } })),
  );
  draw(
    "chart-throughput",
    traces(cases, "throughput"),
    layout(
      "throughput over offered rate (dotted: all that was offered)",
      rate(),
      axis("throughput [kpps]", { rangemode: "tozero", autorangeoptions: { minallowed: 0 } }),
    ),
  );
  const [now, possible] = [cases, casesShown("set-up")].map((some) => new Set(some.map((one) => one.setUp)));
  [...$("legend").children].forEach((button, setUp) => {
    button.hidden = !possible.has(setUp);
    button.classList.toggle("absent", !now.has(setUp));
  });
  drawGuests(cases, chosen);
  drawDistribution();
}

let hovering;
function hover(one) {
  clearTimeout(hovering);
  hovering = setTimeout(() => {
    view.hovered = one;
    drawDistribution();
  }, 60);
}

const tail = () => $("tail").checked;

// Where the largest sample is reached, the rest of the grid says nothing more.
const upTo = (quantiles) => quantiles.indexOf(quantiles.at(-1)) + 1;

async function distribution(one, dash) {
  const { colour } = style(one.setUp);
  const all = await Promise.all(one.trials.map(async (trial) => [trial, await packedOf(trial, "quantiles")]));
  return all
    .filter(([, quantiles]) => quantiles)
    .map(([trial, quantiles]) => ({
      x: tail() ? quantiles.slice(0, upTo(quantiles)) : quantiles,
      y: tail() ? data.grid.map((percent) => 100 - percent) : data.grid,
      mode: "lines",
      showlegend: false,
      line: { shape: "hv", width: trial.used ? 1.6 : 1, dash, color: trial.used ? colour : "#999" },
      name: `${escaped(one.label)}, repetition ${trial.repetition}${trial.used ? "" : ` (${trial.verdict}, not used)`}`,
      hovertemplate: `%{y:.3~f} % take ${tail() ? "longer than" : "at most"} %{x} µs<br>%{fullData.name}<extra></extra>`,
    }));
}

let lastDistribution = 0;
async function drawDistribution() {
  const mine = ++lastDistribution;
  const shown = casesShown();
  const hovered = shown.includes(view.hovered) ? view.hovered : null;
  const fallback = pinned() ? null : shown.find((one) => one.used);
  const ones = [...new Set([pinned(), hovered ?? fallback])].filter(Boolean);
  const drawn = (await Promise.all(ones.map((one, at) => distribution(one, at ? "dot" : "solid")))).flat();
  if (mine !== lastDistribution) return; // something newer is on its way
  const names = ones.map((one, at) => `${at ? "dotted: " : ""}${escaped(one.label)}`).join("; ");
  draw(
    "chart-cdf",
    drawn,
    layout(
      "latency distribution of each repetition",
      axis("latency [µs]", logarithmic),
      tail() ? axis("samples above [%]", logarithmic) : axis("samples at or below [%]", { range: [0, 101] }),
      names,
    ),
  );
}

function chartsUnavailable(reason) {
  for (const box of document.querySelectorAll("#charts figure")) box.replaceChildren(saying("p", reason));
}
