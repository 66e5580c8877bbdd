// Charts of the devices' figures: the last two minutes from the reports that the page got, the last hour and
// day from the server.

import { $, digits, legend, put } from "/text.js";

const POINTS = 120; // Reports of two minutes.
const MOST_LINES = 8; // More devices are drawn as means of their classes.
const SPANS = { now: [120, 1], hour: [3600, 10], day: [86400, 300] }; // Seconds of a range, and of a point.

const state = { range: "now", recent: new Map(), past: null, charts: new Map(), drawn: "" };

// The range of the charts: now, hour or day.
export const range = () => state.range;

export function choose(range) {
  state.range = range;
}

// Takes the points of the last hour or day.
export function take(past) {
  state.past = past;
}

// Forgets the points of another volume.
export function clear() {
  state.past = null;
  state.recent.name = null;
}

// Draws anew, as in other colours or another size.
export function redraw(report) {
  state.drawn = "";
  if (report) draw(report);
}

// Lines of the charts: devices, or the means of classes if there are many devices.
function lines(report) {
  if (report.devices.length <= MOST_LINES) {
    const count = { ssd: 0, hdd: 0 };
    return report.devices.map((device) => {
      const kind = device.class === "ssd" ? "ssd" : "hdd";
      return { kind, dash: count[kind]++ % 4, text: device.device, of: [device.device] };
    });
  }
  return [["ssd", "SSDs, mean"], ["hdd", "disks, mean"]].map(([kind, text]) => ({
    kind, text, dash: 0, of: report.devices.filter((d) => (d.class === "ssd") === (kind === "ssd")).map((d) => d.device),
  })).filter((line) => line.of.length);
}

export function remember(report, now) {
  const recent = state.recent;
  if (recent.name !== report.name) {
    recent.clear();
    recent.name = report.name;
    recent.times = [];
  }
  const at = Date.now() / 1000;
  recent.times.push(at);
  while (recent.times.length > POINTS) recent.times.shift();
  for (const device of report.devices) {
    const points = recent.get(device.device) ?? [];
    const rates = now.devices.get(device.device);
    points.push({ at, response: rates?.mean ?? null, share: rates?.share ?? null,
      flight: rates?.inFlight ?? null, busy: rates?.busy ?? null });
    while (points.length > POINTS) points.shift();
    recent.set(device.device, points);
  }
}

// Points by device and time, of the chosen range.
function chosen() {
  if (state.range === "now") return state.recent;
  const devices = new Map();
  for (const series of state.past?.range === state.range ? state.past.devices : []) {
    devices.set(series.device, series.unix_seconds.map((at, i) => ({
      at, response: series.response_ns_mean[i], share: series.requests_share[i], flight: series.in_flight_mean[i],
      busy: series.utilisation[i],
    })));
  }
  return devices;
}

// Times of the points of some lines. Where points are missing, as while no daemon ran, a time between them
// breaks the lines.
function timesOf(devices, drawn) {
  const times = new Set();
  for (const line of drawn) for (const name of line.of) for (const point of devices.get(name) ?? []) times.add(point.at);
  const sorted = [...times].sort((a, b) => a - b);
  const longest = 3.5 * SPANS[state.range][1];
  return sorted.flatMap((at, i) => {
    const before = i ? sorted[i - 1] : at;
    return at - before > longest ? [{ at: (at + before) / 2, breaks: true }, { at }] : [{ at }];
  });
}

// Columns for uPlot: times, and a value for each line: null breaks the line, undefined continues it.
function columns(devices, drawn, field) {
  const times = timesOf(devices, drawn);
  const values = drawn.map((line) => {
    const sums = new Map();
    for (const name of line.of) {
      for (const point of devices.get(name) ?? []) {
        if (point[field] === null || point[field] === undefined) continue;
        const [sum, count] = sums.get(point.at) ?? [0, 0];
        sums.set(point.at, [sum + point[field], count + 1]);
      }
    }
    // Shares of a class add up; times and numbers of requests are means.
    const value = ([sum, count]) => (field === "share" ? sum : sum / count);
    return times.map(({ at, breaks }) => (breaks ? null : sums.has(at) ? value(sums.get(at)) : undefined));
  });
  return [times.map(({ at }) => at), ...values];
}

const FIELDS = [["response", 1e-6], ["share", 100], ["busy", 100], ["flight", 1]];
const DASHES = [[], [8, 5], [2, 4], [12, 4, 2, 4]];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function plot(field, drawn, data) {
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const [seconds] = SPANS[state.range];
  const clock = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit", ...(seconds < 300 && { second: "2-digit" }) });
  return new uPlot({
    width: Math.max(200, $(field).clientWidth), height: 180, legend: { show: false }, cursor: { show: false },
    scales: {
      x: { range: () => { const end = Date.now() / 1000; return [end - seconds, end]; } },
      y: { range: (_, __, most) => (field === "share" || field === "busy" ? [0, 100] : [0, Math.max(most * 1.1, 0.1)]) },
    },
    axes: [
      { ...axis, space: 80, size: 30, values: (_, times) => times.map((at) => clock.format(1000 * at)) },
      { ...axis, size: 44 },
    ],
    series: [{}, ...drawn.map((line) => ({
      stroke: colour(`--${line.kind}`), fill: `${colour(`--${line.kind}`)}14`, width: 2, dash: DASHES[line.dash], points: { show: false }, spanGaps: false,
    }))],
  }, data, $(field));
}

export function draw(report) {
  if (typeof uPlot === "undefined") return;
  const drawn = lines(report);
  const devices = chosen();
  const shape = JSON.stringify([report.name, state.range, drawn]);
  if (shape !== state.drawn) {
    for (const made of state.charts.values()) made.destroy();
    state.charts.clear();
    state.drawn = shape;
  }
  const latest = drawn.map(() => []);
  for (const [field, scale] of FIELDS) {
    const [times, ...values] = columns(devices, drawn, field);
    const scaled = values.map((line) => line.map((value) => (value === null || value === undefined ? value : value * scale)));
    if (!state.charts.has(field)) state.charts.set(field, plot(field, drawn, [times, ...scaled]));
    else state.charts.get(field).setData([times, ...scaled]);
    scaled.forEach((line, i) => latest[i].push(line.findLast((value) => value !== null && value !== undefined)));
  }
  const number = (value, unit) => (value === undefined ? "–" : `${digits(value)}${unit}`);
  legend($("legend"), drawn.map((line, i) => ({ ...line,
    text: `${line.text}: ${number(latest[i][0], " ms")}, ${number(latest[i][1], " %")}, ${number(latest[i][2], " % busy")}`,
  })));
  showSince();
}

// From when on there are figures, if the range begins before.
function showSince() {
  const since = state.range === state.past?.range ? state.past.since_unix_seconds : null;
  const begins = Date.now() / 1000 - SPANS[state.range][0];
  const text = state.range === "now" ? "" : !since ? "No figures yet." : since <= begins ? ""
    : `Figures since ${new Date(1000 * since).toLocaleString()}: braid web keeps them in memory, and began then.`;
  put($("since"), text);
}
