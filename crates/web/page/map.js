// The map of a volume: where data lies, by device and heat. The daemon counts in cells; the page draws them
// on a canvas, and asks for the explanation of a byte. All text of reports is inserted as text.

import { $, bytes, percent, rate } from "/text.js";

const WIDE = 640; // Below this width in pixels, four cells are drawn as one: a finger hits them.
const MOST_SIDE = 24; // Pixels of a cell on a small volume.
const STEPS = 1000; // The coldest visible cell is so many times colder than the hottest cell.
const FAINT = 0.2; // Part of the colour of a cell without heat.
const PLACES = 0.65; // Part of the colour of a cell in the view without heat.

const state = { map: null, cells: [], columns: 1, side: 1, gap: 1, chosen: null, view: "heat" };

export function setUp(explain) {
  const canvas = $("map");
  canvas.addEventListener("pointermove", (event) => say(at(event)));
  canvas.addEventListener("pointerleave", () => say(state.chosen));
  canvas.addEventListener("click", (event) => choose(at(event), explain));
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -state.columns, ArrowDown: state.columns };
    const ends = { Home: 0, End: state.cells.length - 1 };
    if (event.key === "Enter" || event.key === " ") choose(state.chosen ?? 0, explain);
    else if (event.key in steps) select((state.chosen ?? 0) + (state.chosen === null ? 0 : steps[event.key]));
    else if (event.key in ends) select(ends[event.key]);
    else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-view]")) {
    button.addEventListener("click", () => {
      state.view = button.dataset.view;
      for (const other of document.querySelectorAll("[data-view]")) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      paint();
    });
  }
}

// Forgets the map of another volume.
export function clear() {
  state.map = state.chosen = null;
  state.cells = [];
  for (const id of ["map-summary", "cell", "explanation"]) $(id).replaceChildren();
  paint();
}

// Shows a map, or why there is none.
export function show(map, failure) {
  if (!map) {
    $("map-summary").textContent = failure;
    return;
  }
  const chosen = state.chosen === null ? null : state.cells[state.chosen]?.from;
  state.map = map;
  arrange();
  if (chosen !== null && chosen !== undefined) {
    const found = state.cells.findIndex((cell) => cell.from <= chosen && chosen < cell.to);
    state.chosen = found < 0 ? null : found;
  }
  summarise();
  paint();
  say(state.chosen);
}

// Draws again, as after a change of width or colours.
export function redraw() {
  if (!state.map) return;
  const chosen = state.cells[state.chosen]?.from;
  arrange();
  state.chosen = chosen === undefined ? null : state.cells.findIndex((cell) => cell.from <= chosen && chosen < cell.to);
  paint();
}

// Width in pixels that the canvas may take.
function room() {
  const box = $("map").parentElement;
  const { paddingLeft, paddingRight } = getComputedStyle(box);
  return Math.max(1, box.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight));
}

// --- cells ---------------------------------------------------------------------------------------------------

// Cells to draw: those of the daemon, or means of four.
function arrange() {
  const { cell_bytes: bytes, size_bytes: size, map_cells: cells } = state.map;
  const count = cells.mapped_share.length;
  const merged = room() < WIDE && count > 1024 ? 4 : 1;
  state.cells = [];
  for (let i = 0; i < count; i += merged) {
    const places = [...Array(Math.min(merged, count - i)).keys()].map((n) => i + n);
    const mean = (list) => places.reduce((sum, place) => sum + (list[place] ?? 0), 0) / places.length;
    const mapped = mean(cells.mapped_share);
    const onSsds = places.reduce((sum, place) => sum + cells.ssd_share[place] * cells.mapped_share[place], 0) / places.length;
    state.cells.push({
      from: i * bytes, to: Math.min(size, (i + places.length) * bytes), mapped, ssd: mapped ? onSsds / mapped : 0,
      on: cells.on_device_share.length ? mean(cells.on_device_share) : null,
      extra: mean(cells.extra_share), lost: mean(cells.lost_share),
      heat: cells.cell_requests_per_second[i] === null ? null : mean(cells.cell_requests_per_second) * places.length,
      device: places.map((place) => cells.main_device[place]).find(Boolean) ?? null,
      first: places.map((place) => cells.first_mapped_bytes[place]).find((offset) => offset !== null) ?? null,
    });
  }
}

function at(event) {
  const box = $("map").getBoundingClientRect();
  const [column, row] = [(event.clientX - box.left) / state.side, (event.clientY - box.top) / state.side].map(Math.floor);
  const place = row * state.columns + column;
  return column >= 0 && column < state.columns && row >= 0 && place < state.cells.length ? place : null;
}

function select(place) {
  if (!state.cells.length) return;
  state.chosen = Math.max(0, Math.min(state.cells.length - 1, place));
  paint();
  say(state.chosen);
}

function choose(place, explain) {
  if (place === null || !state.cells.length) return;
  select(place);
  const cell = state.cells[state.chosen];
  explain(cell.first ?? cell.from);
}

// Says what a cell holds.
function say(place) {
  const cell = place === null ? null : state.cells[place];
  const parts = [];
  if (cell) {
    parts.push(`${bytes(cell.to - cell.from)} from ${bytes(cell.from)}`);
    parts.push(cell.mapped ? `${percent(cell.mapped)} mapped, ${percent(cell.ssd)} of that on SSDs, most on ${cell.device}` : "nothing written");
    if (cell.on !== null) parts.push(`${percent(cell.on)} on ${state.map.on_device}`);
    if (cell.extra) parts.push(`${percent(cell.extra)} cached`);
    if (cell.lost) parts.push(`${percent(cell.lost)} lost`);
    if (cell.heat !== null) parts.push(cell.heat ? `${rate(cell.heat)} requests` : "no requests lately");
  }
  const text = parts.join("; ");
  if ($("cell").textContent !== text) $("cell").textContent = text;
}

// How much of the load meets data on SSDs, and what a cell is.
function summarise() {
  const heats = state.cells.map((cell) => cell.heat ?? 0);
  const all = heats.reduce((sum, heat) => sum + heat, 0);
  const cells = `A cell is ${bytes(state.map.cell_bytes)}` +
    (state.map.examined_one_in > 1 ? `; one of ${state.map.examined_one_in} extents was examined` : "");
  if (!all) {
    const waits = state.cells.length && state.cells[0].heat === null;
    $("map-summary").textContent = `${waits ? "Heat is measured from now on" : "No requests in the last minutes"}. ${cells}.`;
    return;
  }
  const fast = state.cells.reduce((sum, cell) => sum + (cell.heat ?? 0) * cell.ssd, 0);
  const size = state.cells.reduce((sum, cell) => sum + (cell.to - cell.from) * cell.mapped, 0);
  const onSsds = state.cells.reduce((sum, cell) => sum + (cell.to - cell.from) * cell.mapped * cell.ssd, 0);
  $("map-summary").textContent = `${percent(fast / all)} of the requests meet the ${percent(size ? onSsds / size : 0)} ` +
    `of the data at home on SSDs; the hottest cell has ${rate(Math.max(...heats))}. ${cells}.`;
}

// --- drawing -------------------------------------------------------------------------------------------------

const named = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function rgb(name) {
  const hex = named(name).slice(1);
  return [0, 2, 4].map((place) => parseInt(hex.slice(place, place + 2), 16));
}

const mix = (from, to, part) => from.map((value, i) => Math.round(value + (to[i] - value) * part));
const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

function paint() {
  const canvas = $("map");
  const width = room();
  const count = state.cells.length;
  const ratio = devicePixelRatio || 1;
  // Four times as wide as high, or square on a narrow page; cells are whole pixels.
  const wished = Math.sqrt(Math.max(1, count) * (width < WIDE ? 1 : 4));
  const side = Math.max(1, Math.min(Math.floor((width * ratio) / wished), MOST_SIDE * ratio));
  state.side = side / ratio;
  state.columns = Math.max(1, Math.floor((width * ratio) / side));
  canvas.dataset.columns = state.columns;
  const rows = Math.max(1, Math.ceil(count / state.columns));
  canvas.width = side * state.columns;
  canvas.height = side * rows;
  canvas.style.width = `${canvas.width / ratio}px`;
  canvas.style.height = `${canvas.height / ratio}px`;
  const brush = canvas.getContext("2d");
  const [ssd, hdd, shade, bad] = ["--ssd", "--hdd", "--cell", "--lost"].map(rgb);
  const hottest = Math.max(...state.cells.map((cell) => cell.heat ?? 0), 0);
  const warmth = (heat) => (heat ? Math.max(0, 1 + Math.log(heat / hottest) / Math.log(STEPS)) : 0);
  const gap = Math.max(1, Math.round(side / 12));
  state.cells.forEach((cell, i) => {
    const [x, y] = [(i % state.columns) * side, Math.floor(i / state.columns) * side];
    let base = mix(hdd, ssd, cell.ssd);
    let part = state.view === "heat" ? FAINT + (1 - FAINT) * warmth(cell.heat) : PLACES;
    if (cell.on !== null) part *= cell.on;
    else if (cell.lost) [base, part] = [bad, 1];
    else part *= Math.min(1, 0.4 + 0.6 * cell.mapped) * (cell.mapped ? 1 : 0);
    brush.fillStyle = css(mix(shade, base, part));
    brush.fillRect(x, y, side - gap, side - gap);
    if (cell.extra && cell.on === null) {
      const high = Math.max(ratio, Math.round((side - gap) * Math.min(1, cell.extra)));
      brush.fillStyle = css(mix(shade, ssd, state.view === "heat" ? Math.max(0.5, part) : 0.9));
      brush.fillRect(x, y + side - gap - high, side - gap, high);
    }
  });
  if (state.chosen !== null) {
    const [x, y] = [(state.chosen % state.columns) * side, Math.floor(state.chosen / state.columns) * side];
    brush.strokeStyle = named("--ink");
    brush.lineWidth = 2 * ratio;
    brush.strokeRect(x - gap / 2, y - gap / 2, side, side);
  }
}

// --- explanations --------------------------------------------------------------------------------------------

const KINDS = { __proto__: null, ssd: "SSD", hdd: "disk" };
const copy = ({ device, class: kind, path }) => `${device} (${KINDS[kind] ?? kind}, ${path})`;

// The report of braid explain, in words.
export function explained(report) {
  const words = [];
  const place = `Byte ${report.offset_bytes} (at ${bytes(report.offset_bytes)}, extent ${report.extent})`;
  if (!report.home && !report.extra) words.push(`${place} was never written, or was discarded: it reads as zero.`);
  else if (!report.home) words.push(`${place} has no home: its only copy is gone.`);
  else words.push(`${place} is at home on ${copy(report.home)}, at byte ${report.home.device_offset_bytes} of the device.`);
  if (report.second) {
    words.push(`A second copy is on ${copy(report.second)}${report.second.copy_state === "behind" ? ", and lacks recent writes" : ""}.`);
  }
  if (report.extra) {
    words.push(`The block is cached on ${copy(report.extra)}${report.extra.copy_state === "dirty" ? ", newer than its home" : ""}.`);
  }
  if (report.home && !report.written) words.push("It was not written since its extent was allocated, and reads as zero.");
  if (report.cached) words.push("The memory of the daemon holds its extent.");
  words.push(`Why: ${report.reason}`);
  return words;
}

export function explain(words) {
  $("explanation").replaceChildren(...words.map((sentence) => {
    const line = document.createElement("p");
    line.textContent = sentence;
    return line;
  }));
}
