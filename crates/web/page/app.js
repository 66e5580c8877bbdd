// The page of braid web. A report comes each second; the page computes rates and draws. All text of reports
// is inserted as text. Verdicts are the server's.

import * as map from "/map.js";

const $ = (id) => document.getElementById(id);
// The volume in the address; none if the address is malformed.
function named() {
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return null;
  }
}
const POINTS = 120; // Reports of two minutes.
const SOON = 0.3; // Seconds: a scrape between two events makes the next report early.
const STALE_MS = 8000; // Longest silence of the server before the page says that it is blind.
const MOST_ROWS = 200;
const MOST_LINES = 8; // More devices are drawn as means of their classes.
const LEVELS = ["bad", "warning", "good", "idle"]; // The page opens with the first volume of the worst level.
const PAST_MS = 10000; // The server adds a point to the last hour every ten seconds.
const MAP_MS = 5000; // The daemon examines the places every five seconds at most.
const SPANS = { now: [120, 1], hour: [3600, 10], day: [86400, 300] }; // Seconds of a range, and of a point.

const state = {
  source: null, wanted: named(), before: null, rates: null, range: "now",
  recent: new Map(), past: null, heard: 0, allowsChanges: false, charts: new Map(), drawn: "",
};

// --- text ---------------------------------------------------------------------------------------------

const digits = (value) => value.toFixed(value === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2);

function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < 6) [count, unit] = [count / 1024, unit + 1];
  return `${unit ? digits(count) : Math.round(count)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit]}`;
}

function time(ns) {
  if (ns === null || ns === undefined) return "–";
  const [size, unit] = ns < 1e3 ? [1, "ns"] : ns < 1e6 ? [1e3, "µs"] : ns < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${digits(ns / size)} ${unit}`;
}

function span(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const found = units.find(([size]) => seconds >= 2 * size);
  return found ? `${Math.round(seconds / found[0])} ${found[1]}` : `${Math.ceil(seconds)} s`;
}

const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
const rate = (count) => `${digits(count)}/s`;
const left = (seconds) => (seconds === null || seconds === undefined ? "" : `, ${span(seconds)} left`);

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function make(tag, text, parent, className) {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  if (className) node.className = className;
  if (parent) parent.append(node);
  return node;
}

// --- rates between two reports --------------------------------------------------------------------------

const of = (device) => ({
  requests: device.guest_read_requests + device.guest_write_requests,
  bytes: device.guest_read_bytes + device.guest_written_bytes,
  mean: device.response_ns_mean,
  busy: device.device_busy_seconds ?? 0,
});

function between(before, now, seconds) {
  const requests = Math.max(0, now.requests - before.requests);
  const took = Math.max(0, now.requests * now.mean - before.requests * before.mean);
  return {
    requests: requests / seconds,
    bytes: Math.max(0, now.bytes - before.bytes) / seconds,
    mean: requests ? took / requests : null,
    inFlight: took / 1e9 / seconds,
    busy: Math.min(1, Math.max(0, now.busy - before.busy) / seconds),
  };
}

// Rates of guests and devices since the report before; none after a restart of the daemon.
function rates(before, now) {
  if (!before || before.name !== now.name || before.process_id !== now.process_id) return null;
  const seconds = now.uptime_seconds - before.uptime_seconds;
  if (!(seconds > 0)) return null;
  const guest = (kind) => {
    const flat = (report) => {
      const guests = report.guests[kind];
      return { requests: guests.requests, bytes: guests.bytes, mean: guests.latency_ns_mean };
    };
    return between(flat(before), flat(now), seconds);
  };
  const earlier = new Map(before.devices.map((device) => [device.device, device]));
  const devices = new Map();
  for (const device of now.devices) {
    if (earlier.has(device.device)) {
      devices.set(device.device, between(of(earlier.get(device.device)), of(device), seconds));
    }
  }
  const all = [...devices.values()].reduce((sum, device) => sum + device.requests, 0);
  for (const device of devices.values()) device.share = all ? device.requests / all : 0;
  const growth = (name) => Math.max(0, now.background[name] - before.background[name]) / seconds;
  return {
    read: guest("read"), write: guest("write"), devices,
    migrated: growth("migrated_bytes"), promotions: growth("promotions"), writeBacks: growth("write_backs"),
  };
}

// True for a report of the same daemon soon after the report before: too soon for rates.
function isSoon(before, now) {
  const passed = before?.process_id === now.process_id ? now.uptime_seconds - before.uptime_seconds : -1;
  return passed >= 0 && passed < SOON;
}

// --- verdict and volumes ---------------------------------------------------------------------------------

function showVerdict(verdict) {
  $("verdict").dataset.level = verdict.level;
  put($("word"), verdict.word);
  put($("sentence"), verdict.sentence);
  document.title = `${verdict.word} – Braid`;
}

function showNotes(notes) {
  const list = $("notes");
  const shown = notes.slice(0, 20);
  while (list.children.length > shown.length) list.lastChild.remove();
  shown.forEach((note, i) => put(list.children[i] ?? make("li", "", list), note));
}

function showVolumes(verdicts) {
  const nav = $("volumes");
  nav.hidden = verdicts.length < 2;
  const names = verdicts.map((verdict) => verdict.name).join("\n");
  if (nav.dataset.names !== names) {
    nav.dataset.names = names;
    nav.replaceChildren(...verdicts.map((verdict) => {
      const button = make("button");
      button.type = "button";
      button.addEventListener("click", () => choose(verdict.name));
      return button;
    }));
  }
  verdicts.forEach((verdict, i) => {
    const button = nav.children[i];
    put(button, verdict.name);
    button.dataset.level = verdict.level;
    button.title = `${verdict.word}: ${verdict.sentence}`;
    button.setAttribute("aria-label", `${verdict.name}: ${verdict.word}`);
    button.setAttribute("aria-current", String(verdict.name === state.wanted));
  });
}

// --- one volume ------------------------------------------------------------------------------------------

function tile(name, value, more) {
  const id = `tile-${name.toLowerCase().replaceAll(" ", "-")}`;
  let box = $(id);
  if (!box) {
    box = make("div", "", $("now"));
    box.id = id;
    make("dt", name, box);
    make("dd", "", box);
    make("dd", "", box, "more");
  }
  put(box.children[1], value);
  put(box.children[2], more);
}

function showNow(report, now) {
  const { guests, background } = report;
  const kind = (name, rates, total) => tile(name, rates ? rate(rates.requests) : "…",
    rates ? `${bytes(rates.bytes)}/s, ${rates.mean === null ? "idle" : time(rates.mean)}` : `${total} in all`);
  kind("Reads", now?.read, guests.read.requests);
  kind("Writes", now?.write, guests.write.requests);
  const hits = guests.cache_hits + guests.cache_misses;
  tile("Memory cache", bytes(report.cache_bytes), hits ? `${percent(guests.cache_hits / hits)} of reads` : "no reads yet");
  tile("Cached on SSDs", bytes(report.extra_bytes), now ? `${rate(now.promotions)} promotions` : "");
  tile("Dirty", bytes(report.dirty_bytes), !report.dirty_bytes ? "the disks have it all"
    : now ? `${rate(now.writeBacks)} blocks written back` : "newer than the disks");
  const behind = report.behind_bytes + report.deferred_bytes + report.journaled_bytes;
  tile("Behind", bytes(behind), report.behind_bytes
    ? `${bytes(report.caught_up_bytes_per_second)}/s${left(report.behind_left_seconds)}`
    : behind ? "copied later by the policy" : "all copies are current");
  tile("To move", bytes(background.moves_left_bytes), background.moves_left_bytes
    ? `${bytes(background.moved_bytes_per_second)}/s${left(background.moves_left_seconds)}`
    : now ? `${bytes(now.migrated)}/s moved` : "");
}

function life(device) {
  if (device.class !== "ssd") return ["", ""];
  const written = `${bytes(device.device_written_bytes)} written`;
  const daily = device.drive_writes_per_day === null ? written : `${digits(device.drive_writes_per_day)} DWPD, ${written}`;
  return [device.ssd_life_days === null ? "" : span(86400 * device.ssd_life_days), daily];
}

const LABELS = ["", "State", "Used", "Data", "Load now", "Response now", "Busy now", "Loss costs", "SSD life", ""];

function row(place) {
  const line = make("tr");
  LABELS.forEach((label, i) => {
    const cell = make(i ? "td" : "th", "", line, i === 1 ? "state" : i === 9 ? "change" : "");
    if (i === 0) cell.scope = "row";
    if (i === 9) {
      for (const [action, text] of [["fail", "Fail"], ["return", "Return"], ["remove", "Remove"], ["keep", "Keep"]]) {
        const button = make("button", text, cell);
        button.type = "button";
        button.dataset.action = action;
        button.setAttribute("aria-label", `${text} ${place}`);
        button.addEventListener("click", () => changeDevice(place, action));
      }
      return;
    }
    cell.dataset.label = label;
    make("span", "", cell);
    make("small", "", cell);
  });
  return line;
}

// Which changes fit the state of a device.
const FITS = {
  __proto__: null,
  active: ["fail", "remove"], slow: ["fail", "remove"], draining: ["keep"], missing: ["return"],
  failed: ["return"], returning: ["fail"],
};

function showDevices(report, now) {
  const body = $("devices").tBodies[0];
  const known = new Map([...body.rows].map((line) => [line.dataset.device, line]));
  const isWell = (device) => device.state === "active";
  const order = [...report.devices.filter((d) => !isWell(d)), ...report.devices.filter(isWell)];
  const shown = order.slice(0, MOST_ROWS);
  put($("more"), order.length > shown.length ? `${order.length - shown.length} more devices: braid status` : "");
  shown.forEach((device, i) => {
    const line = known.get(device.device) ?? row(device.device);
    known.delete(device.device);
    line.dataset.device = device.device;
    line.dataset.state = device.state;
    if (body.rows[i] !== line) body.insertBefore(line, body.rows[i] ?? null);
    const rates = now?.devices.get(device.device);
    const state = device.drain_left_bytes === null ? "" : `${bytes(device.drain_left_bytes)} to move${left(device.drain_left_seconds)}`;
    const slower = device.times_slower === null ? state : `${digits(device.times_slower)} times slower`;
    [
      [`${device.device} ${device.class}`, device.model ? `${device.path} (${device.model})` : device.path],
      [device.state, device.errors ? `${device.errors} errors` : slower],
      [bytes(device.used_bytes), `of ${bytes(device.slots_bytes)}`],
      [percent(device.data_share), ""],
      [rates ? percent(rates.share) : "…", rates ? `${rate(rates.requests)}, ${bytes(rates.bytes)}/s` : ""],
      [rates ? time(rates.mean) : "…", `${time(device.response_ns_p99)} p99 since start`],
      [rates ? percent(rates.busy) : "…", rates ? `${digits(rates.inFlight)} in flight` : ""],
      [device.loss_bytes ? bytes(device.loss_bytes) : "nothing", ""],
      life(device),
    ].forEach(([text, more], column) => {
      put(line.cells[column].children[0], text);
      put(line.cells[column].children[1], more);
    });
    for (const button of line.cells[9].children) button.hidden = !FITS[device.state]?.includes(button.dataset.action);
  });
  for (const line of known.values()) line.remove();
}

// Where data lies: a bar of all used bytes, by device.
function showWhere(report) {
  const bar = $("where");
  const used = report.devices.filter((device) => device.used_bytes > 0);
  while (bar.children.length > used.length) bar.lastChild.remove();
  used.forEach((device, i) => {
    const part = bar.children[i] ?? make("span", "", bar);
    part.className = device.class === "ssd" ? "ssd" : "hdd";
    part.style.flexGrow = String(device.used_bytes);
    part.title = `${device.device}: ${bytes(device.used_bytes)}`;
  });
  const parts = [["ssd", "SSDs"], ["hdd", "Disks"]].map(([kind, name]) => {
    const devices = report.devices.filter((device) => device.class === kind);
    const [held, room] = ["used_bytes", "slots_bytes"].map((field) => devices.reduce((sum, d) => sum + d[field], 0));
    const share = devices.reduce((sum, device) => sum + device.data_share, 0);
    return { kind, text: `${name}: ${bytes(held)} of ${bytes(room)}, ${percent(share)} of the data` };
  });
  bar.setAttribute("aria-label", `Where data lies. ${parts.map((part) => part.text).join(". ")}`);
  legend($("where-legend"), parts);
}

function legend(list, parts) {
  while (list.children.length > parts.length) list.lastChild.remove();
  parts.forEach((part, i) => {
    let item = list.children[i];
    if (!item) {
      item = make("li", "", list);
      make("i", "", item);
      make("span", "", item);
    }
    item.children[0].className = `${part.kind} dash${part.dash ?? 0}`;
    put(item.children[1], part.text);
  });
}

function showVolume(report, verdict) {
  const main = $("volume");
  main.hidden = false;
  put($("name"), verdict.name);
  const isServed = Boolean(report?.guests);
  for (const section of main.querySelectorAll("section")) section.hidden = !isServed;
  $("policy").hidden = !isServed || !state.allowsChanges;
  if (!isServed) {
    put($("facts"), report ? `${verdict.word}: ${verdict.sentence}` : "There is no report of this volume.");
    state.before = state.rates = null;
    return;
  }
  put($("facts"), `${bytes(report.size_bytes)}, ${bytes(report.mapped_bytes)} mapped, ` +
    `${report.copies === 1 ? "one copy" : `${report.copies} copies`}; policy ${report.policy}; ` +
    `served for ${span(report.uptime_seconds)}; ${report.nbd_connections} NBD connections`);
  const isNew = state.before?.process_id !== report.process_id;
  if (!isSoon(state.before, report)) {
    state.rates = rates(state.before, report);
    state.before = report;
    if (state.rates) remember(report, state.rates);
  }
  const now = state.rates;
  showNow(report, now);
  showWhere(report);
  showDevices(report, now);
  showChoice(report);
  draw(report);
  if (isNew) fetchMap();
  if (document.activeElement !== $("policy-text") && $("policy-text").dataset.was !== report.policy) {
    $("policy-text").value = $("policy-text").dataset.was = report.policy;
  }
}

// --- charts ----------------------------------------------------------------------------------------------

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

function remember(report, now) {
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

function chart(field, drawn, data) {
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

function draw(report) {
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
    if (!state.charts.has(field)) state.charts.set(field, chart(field, drawn, [times, ...scaled]));
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

function redraw() {
  map.redraw();
  state.drawn = "";
  if (state.before) draw(state.before);
}

const pathOf = (volume, rest) => `/api/volumes/${encodeURIComponent(volume)}/${rest}`;

async function fetchPast() {
  if (!state.wanted || state.range === "now") return;
  const [volume, range] = [state.wanted, state.range];
  try {
    const answer = await fetch(pathOf(volume, `history?range=${range}`));
    const past = answer.ok ? await answer.json() : null;
    if (volume === state.wanted && range === state.range) state.past = past;
    if (state.before) draw(state.before);
  } catch {
    // The stream of events reports the lost connection.
  }
}

// --- map -------------------------------------------------------------------------------------------------

async function fetchMap() {
  if (!state.wanted || !state.before || document.hidden) return;
  const [volume, device] = [state.wanted, $("map-device").value];
  try {
    const answer = await fetch(pathOf(volume, device ? `map?device=${encodeURIComponent(device)}` : "map"));
    const reply = await answer.json();
    if (volume !== state.wanted || device !== $("map-device").value) return;
    map.show(answer.ok ? reply : null, reply.error?.message ?? "There is no map.");
  } catch {
    // The stream of events reports the lost connection.
  }
}

// The choice of devices for the map.
function showChoice(report) {
  const select = $("map-device");
  const names = report.devices.map((device) => device.device).join(" ");
  if (select.dataset.names === names) return;
  const chosen = select.value;
  select.dataset.names = names;
  select.replaceChildren(new Option("All", ""), ...report.devices.map((device) =>
    new Option(`${device.device} (${device.class})`, device.device.replace(/^d/, ""))));
  select.value = [...select.options].some((option) => option.value === chosen) ? chosen : "";
}

async function explain(offset) {
  const volume = state.wanted;
  $("offset").value = offset;
  try {
    const answer = await fetch(pathOf(volume, `explain?offset_bytes=${encodeURIComponent(offset)}`));
    const reply = await answer.json();
    if (volume !== state.wanted) return;
    map.explain(answer.ok ? map.explained(reply) : [reply.error?.message ?? "There is no explanation."]);
  } catch {
    map.explain(["No answer: the connection to braid web is lost."]);
  }
}

// --- changes ---------------------------------------------------------------------------------------------

function confirmed(text) {
  const dialog = $("confirm");
  put($("confirm-text"), text);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

async function change(path, body, done) {
  put($("outcome"), "…");
  try {
    const answer = await fetch(path, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    });
    const reply = await answer.json();
    put($("outcome"), answer.ok ? done : reply.error?.message ?? "The change failed.");
  } catch {
    put($("outcome"), "No answer: look at the volume before another attempt.");
  }
}

const QUESTIONS = {
  fail: (device, costs) => `Stop the use of ${device} now? ${costs}`,
  return: (device) => `Use ${device} again, and copy what it missed?`,
  remove: (device) => `Move all data away from ${device}, and remove it from the volume?`,
  keep: (device) => `Cancel the removal of ${device}?`,
};

async function changeDevice(place, action) {
  const [name, device] = [state.wanted, state.before?.devices.find((known) => known.device === place)];
  const costs = device?.loss_bytes ? `Its loss now costs ${bytes(device.loss_bytes)}.` : "No data is lost.";
  if (!(await confirmed(QUESTIONS[action](`${place} of volume ${name}`, costs)))) return;
  const path = `/api/volumes/${encodeURIComponent(name)}/devices/${encodeURIComponent(place)}`;
  await change(path, { action }, `${place}: ${action}: begun.`);
}

// --- events ----------------------------------------------------------------------------------------------

function receive(frame) {
  state.heard = Date.now();
  document.body.classList.remove("stale");
  put($("clock"), new Date(frame.unix_seconds * 1000).toLocaleTimeString());
  if (!frame.health) {
    showVerdict({ level: "bad", word: "Unknown", sentence: frame.error.message });
    return;
  }
  const verdicts = frame.health.volumes;
  showVerdict(frame.health);
  showVolumes(verdicts);
  if (!verdicts.some((verdict) => verdict.name === state.wanted)) {
    $("volume").hidden = true;
    showNotes([]);
    const worst = LEVELS.map((level) => verdicts.find((verdict) => verdict.level === level)).find(Boolean);
    if (worst) choose(worst.name);
    return;
  }
  const verdict = verdicts.find((known) => known.name === state.wanted);
  showNotes(verdict.notes);
  showVolume(frame.volumes.find((report) => report.name === state.wanted), verdict);
}

function choose(name) {
  state.wanted = name;
  state.before = state.rates = state.past = null;
  $("map-device").value = "";
  map.clear();
  state.recent.name = null;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  connect();
  fetchPast();
}

function connect() {
  state.source?.close();
  const query = state.wanted ? `?volume=${encodeURIComponent(state.wanted)}` : "";
  const source = new EventSource(`/api/events${query}`);
  state.source = source;
  source.addEventListener("message", (event) => receive(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(() => state.source === source && reconnect(), 2000);
  });
}

// A refused stream: the login has ended, or the server is full or away.
async function reconnect() {
  try {
    const answer = await fetch("/api/health");
    if (answer.status === 401) return location.assign("/login");
    state.allowsChanges = Boolean((await answer.json()).allows_changes);
  } catch {
    // The next attempt follows.
  }
  document.body.classList.toggle("changes", state.allowsChanges);
  connect();
}

function watch() {
  if (state.heard && Date.now() - state.heard > STALE_MS) {
    document.body.classList.add("stale");
    showVerdict({ level: "idle", word: "No connection", sentence: "braid web does not answer: the figures below are old." });
  }
}

for (const button of document.querySelectorAll("[data-range]")) {
  button.addEventListener("click", () => {
    state.range = button.dataset.range;
    for (const other of document.querySelectorAll("[data-range]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    fetchPast();
    redraw();
  });
}
$("map-device").addEventListener("change", fetchMap);
$("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  explain($("offset").value);
});
$("policy-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [name, policy] = [state.wanted, $("policy-text").value];
  if (!(await confirmed(`Change the policy of volume ${name} to ${policy}?`))) return;
  await change(`/api/volumes/${encodeURIComponent(name)}/policy`, { policy }, "The policy is changed.");
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", redraw);
addEventListener("hashchange", () => {
  const name = named();
  if (name && name !== state.wanted) choose(name);
});
setInterval(watch, 1000);
setInterval(fetchPast, PAST_MS);
setInterval(fetchMap, MAP_MS);
document.addEventListener("visibilitychange", fetchMap);
map.setUp({ bytes, percent, rate }, explain);
reconnect();
