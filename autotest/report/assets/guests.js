// -- several guests: the chart along their number, and a table for each set-up --

const GUEST_COLUMNS = ["achieved", "loss", "p50", "p99"];
const FRAMES = ["sent", "received"];
const MOST_OPEN = 2; // set-ups whose tables are open from the start

const numberOfGuests = (one) => one.parameters.guests;
const faded = (colour, alpha) => colour + Math.round(alpha * 255).toString(16).padStart(2, "0");

// From the lowest to the highest guest; a single guest is both.
function guestRange(one, metric) {
  const range = one.guests?.ranges[metric];
  return range ?? [one.figures[metric][0], one.figures[metric][0]];
}

// Two invisible lines with the colour between them.
function guestBand(cases, metric, colour, axes) {
  const ranges = cases.map((one) => guestRange(one, metric));
  const edge = { mode: "lines", x: cases.map(numberOfGuests), hoverinfo: "skip", showlegend: false, line: { width: 0 }, ...axes };
  return [
    { ...edge, y: ranges.map(([low]) => low) },
    { ...edge, y: ranges.map(([, high]) => high), fill: "tonexty", fillcolor: faded(colour, 0.18) },
  ];
}

// Only where the page has all guests: the first ones alone would look like all.
function guestPoints(cases, metric, colour, axes) {
  const { label, unit } = data.metrics[metricNumber[metric]];
  const points = cases
    .filter((one) => one.guests && one.guests.numbers.length === one.guests.count)
    .flatMap((one) => one.guests.numbers.map((guest, at) => ({ one, guest, value: one.guests[metric][at] })));
  return {
    mode: "markers",
    x: points.map(({ one }) => numberOfGuests(one)),
    y: points.map(({ value }) => value),
    customdata: points.map(({ one }) => one.number),
    text: points.map(
      ({ one, guest, value }) => `<b>${escaped(one.label)}</b><br>guest ${guest}<br>${escaped(label)}: ${number(value, unit)} ${unit}`,
    ),
    hovertemplate: "%{text}<extra></extra>",
    showlegend: false,
    marker: { size: 4, color: faded(colour, 0.75) },
    ...axes,
  };
}

// Like trace() in the other charts, but along the number of guests, and of a line's own colour.
function guestTraces(line, at, shown, metric, axes, withLegend) {
  const { colour } = style(at);
  const cases = line.cases.map((number) => data.cases[number]).filter((one) => shown.has(one) && one.figures[metric]);
  const groups = [false, true].map((underSent) => cases.filter((one) => one.underSent === underSent));
  return groups.flatMap((group, underSent) => {
    if (!group.length) return [];
    const own = { ...axes, legendgroup: String(at) };
    const main = { ...trace(group, at, metric, Boolean(underSent)), ...own, x: group.map(numberOfGuests), name: line.label };
    main.showlegend = withLegend && (!underSent || !groups[0].length);
    const band = underSent ? [] : guestBand(group, metric, colour, own);
    return [...band, guestPoints(group, metric, colour, own), main];
  });
}

function drawGuests(cases, latency) {
  const shown = new Set(cases);
  const lines = data.lines
    .map((line, at) => ({ ...line, at }))
    .filter((line) => line.cases.some((number) => shown.has(data.cases[number])));
  $("chart-guests").hidden = !lines.length;
  if (!lines.length) return;
  const metric = data.guestMetrics.includes(latency.name) ? latency : data.metrics[metricNumber.p50];
  const drawn = lines.flatMap((line) => [
    ...guestTraces(line, line.at, shown, metric.name, {}, true),
    ...guestTraces(line, line.at, shown, "loss", { xaxis: "x2", yaxis: "y2" }, false),
  ]);
  const there = lines.flatMap((line) => line.cases.map((number) => data.cases[number])).filter((one) => shown.has(one));
  const tickvals = [...new Set(there.map(numberOfGuests))].sort((a, b) => a - b);
  const ends = [Math.log10(tickvals[0]) - 0.1, Math.log10(tickvals.at(-1)) + 0.1];
  const along = (domain, anchor) => axis("number of guests", { type: "log", tickvals, range: ends, domain, anchor });
  const look = layout(
    `${metric.label} and loss over the number of guests (shaded: from the lowest to the highest guest)`,
    along([0, 0.36], "y"),
    axis(`${metric.label} [µs]`, { ...logarithmic, range: guestLatencies(there, metric.name) }),
  );
  draw("chart-guests", drawn, {
    ...look,
    xaxis2: along([0.44, 0.8], "y2"),
    yaxis2: axis("loss [%]", { range: guestLosses(there), anchor: "x2" }),
    legend: { x: 0.82, y: 1, font: { size: 11 }, tracegroupgap: 0 },
  });
}

// Like latencyRange, with all guests in it.
function guestLatencies(cases, metric) {
  const whole = latencyRange(cases, metric);
  const ends = cases.filter((one) => one.figures[metric]).flatMap((one) => guestRange(one, metric)).filter((value) => value > 0);
  return whole && [Math.min(whole[0], Math.log10(Math.min(...ends)) - 0.05), Math.max(whole[1], Math.log10(Math.max(...ends)) + 0.05)];
}

// Not less than 1 %: no mountains out of single frames.
function guestLosses(cases) {
  const found = cases.filter((one) => one.figures.loss);
  const ends = found.flatMap((one) => [guestRange(one, "loss")[1], one.figures.loss[2] ?? 0]);
  const top = Math.min(100, Math.max(1, 1.08 * Math.max(0, ...ends)));
  return [-0.02 * top, 1.02 * top];
}

// -- tables --

let tablesShown = "";
function updateGuestTables() {
  const cases = casesShown().filter((one) => one.guests);
  $("guests").hidden = !cases.length;
  const key = cases.map((one) => one.number).join(" ");
  if (key === tablesShown) return;
  tablesShown = key;
  const setUps = new Map();
  for (const one of cases) {
    if (!setUps.has(one.setUp)) setUps.set(one.setUp, []);
    setUps.get(one.setUp).push(one);
  }
  $("guest-tables").replaceChildren(
    ...[...setUps].map(([setUp, ones], at) => guestDetails(data.setUps[setUp], ones, at < MOST_OPEN)),
  );
}

// A table is made when somebody opens it.
function guestDetails(label, cases, open) {
  const details = element("details", { open }, saying("summary", label));
  const fill = () => details.open && details.childElementCount === 1 && details.append(guestTable(cases));
  details.ontoggle = fill;
  fill();
  return details;
}

function guestTable(cases) {
  const titles = ["guest", ...FRAMES, ...GUEST_COLUMNS.map((name) => SHORT_TITLES[name] ?? name)];
  const units = ["", "frames", "frames", ...GUEST_COLUMNS.map((name) => data.metrics[metricNumber[name]].unit)];
  const head = titles.map((title, at) =>
    element("th", { scope: "col", className: "number" }, title, saying("small", units[at])),
  );
  const rows = cases.flatMap((one) => [row(guestCase(one, titles.length)), ...guestRows(one, titles.length)]);
  return element("table", {}, element("thead", {}, row(...head)), element("tbody", {}, ...rows));
}

function guestCase(one, colSpan) {
  const between = ["fairness", "loss_spread", "p50_spread"]
    .filter((name) => one.figures[name])
    .map((name) => {
      const metric = data.metrics[metricNumber[name]];
      return saying("span", `${SHORT_TITLES[name] ?? name} ${estimateText(one.figures[name], metric)}`);
    });
  const sign = one.underSent ? " ○ under-sent" : "";
  return element("th", { colSpan, className: "case", scope: "rowgroup" }, `${one.load} kpps${sign}`, ...between);
}

function guestRows(one, columns) {
  const cells = (guest, at) => [
    guest,
    ...FRAMES.map((name) => Math.round(one.guests[name][at])),
    ...GUEST_COLUMNS.map((name) => number(one.guests[name][at], data.metrics[metricNumber[name]].unit)),
  ];
  const rows = one.guests.numbers.map((guest, at) =>
    row(...cells(guest, at).map((text) => saying("td", text, { className: "number" }))),
  );
  const more = one.guests.count - one.guests.numbers.length;
  if (more) rows.push(row(saying("td", `and ${more} more guests: autotest export --per-guest has them`, { colSpan: columns })));
  return rows;
}
