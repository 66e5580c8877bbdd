// The page of braid web. A report comes each second; the page computes rates and draws. All text of reports
// is inserted as text. Verdicts are the server's.

import * as advice from "/advice.js";
import * as alerts from "/alerts.js";
import * as charts from "/charts.js";
import * as map from "/map.js";
import { $, bytes, digits, left, legend, make, percent, put, rate, span, time } from "/text.js";

// The volume in the address; none if the address is malformed.
function named() {
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return null;
  }
}
const SOON = 0.3; // Seconds: a scrape between two events makes the next report early.
const STALE_MS = 8000; // Longest silence of the server before the page says that it is blind.
const MOST_ROWS = 200;
const LEVELS = ["bad", "warning", "good", "idle"]; // The page opens with the first volume of the worst level.
const PAST_MS = 10000; // The server adds a point to the last hour every ten seconds.
const MAP_MS = 5000; // The daemon examines the places every five seconds at most.

const state = {
  source: null, wanted: named(), before: null, rates: null, heard: 0, allowsChanges: false,
};

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

function showVolume(report, verdict) {
  const main = $("volume");
  main.hidden = false;
  put($("name"), verdict.name);
  const isServed = Boolean(report?.guests);
  for (const section of main.querySelectorAll("section:not([data-always])")) section.hidden = !isServed;
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
    if (state.rates) charts.remember(report, state.rates);
  }
  const now = state.rates;
  showNow(report, now);
  showWhere(report);
  showDevices(report, now);
  showChoice(report);
  charts.draw(report);
  if (isNew) fetchMap();
  if (document.activeElement !== $("policy-text") && $("policy-text").dataset.was !== report.policy) {
    $("policy-text").value = $("policy-text").dataset.was = report.policy;
  }
}

function redraw() {
  map.redraw();
  charts.redraw(state.before);
}

const pathOf = (volume, rest) => `/api/volumes/${encodeURIComponent(volume)}/${rest}`;

async function fetchPast() {
  const [volume, range] = [state.wanted, charts.range()];
  if (!volume || range === "now") return;
  try {
    const answer = await fetch(pathOf(volume, `history?range=${range}`));
    const past = answer.ok ? await answer.json() : null;
    if (volume === state.wanted && range === charts.range()) charts.take(past);
    if (state.before) charts.draw(state.before);
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
    for (const part of [alerts, advice]) part.clear();
    const worst = LEVELS.map((level) => verdicts.find((verdict) => verdict.level === level)).find(Boolean);
    if (worst) choose(worst.name);
    return;
  }
  const verdict = verdicts.find((known) => known.name === state.wanted);
  showNotes(verdict.notes);
  showVolume(frame.volumes.find((report) => report.name === state.wanted), verdict);
  alerts.follow(frame.alerts_mark, pathOf(state.wanted, "alerts"));
}

function choose(name) {
  state.wanted = name;
  state.before = state.rates = null;
  $("map-device").value = "";
  for (const part of [map, charts, alerts, advice]) part.clear();
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  connect();
  fetchPast();
  advice.look();
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
    charts.choose(button.dataset.range);
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
setInterval(advice.look, PAST_MS);
setInterval(fetchMap, MAP_MS);
document.addEventListener("visibilitychange", fetchMap);
map.setUp(explain);
advice.setUp({ wanted: () => state.wanted, policy: () => state.before?.policy, path: pathOf, confirmed, change });
advice.look();
reconnect();
