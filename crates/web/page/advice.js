// What other policies would give: the latest advice about a volume, and its making. The server runs braid
// advise; the sentences are its own.

import { $, digits, make, put, span, time } from "/text.js";

const LOOK_MS = 2000; // Time between two looks while an advice is being made.

const state = { page: null, shown: null, timer: null };

// `page`: the chosen volume, paths of the API, questions and changes.
export function setUp(page) {
  state.page = page;
  $("advice-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const [volume, seconds] = [page.wanted(), Number($("advice-length").value)];
    const question = `Record the requests of volume ${volume} for ${span(seconds)}, and simulate all policies? The ` +
      "recording and the simulations take processor time and room in the temporary folder.";
    if (await page.confirmed(question)) act(volume, { action: "begin", seconds }, "The recording has begun.");
  });
  for (const [action, done] of [["simulate", "The recording ends."], ["cancel", "The advice is cancelled."]]) {
    $(`advice-${action}`).addEventListener("click", () => act(page.wanted(), { action }, done));
  }
}

// Forgets the advice of another volume.
export function clear() {
  clearTimeout(state.timer);
  state.shown = null;
  show({ is_running: false });
}

async function act(volume, body, done) {
  await state.page.change(state.page.path(volume, "advice"), body, done);
  look();
}

// Gets the state of the advice, again and again while it is being made.
export async function look() {
  clearTimeout(state.timer);
  const volume = state.page.wanted();
  if (!volume) return;
  let isRunning = true;
  try {
    const answer = await fetch(state.page.path(volume, "advice"));
    const report = await answer.json();
    if (volume !== state.page.wanted()) return;
    if (answer.ok) show(report);
    isRunning = answer.ok && report.is_running;
  } catch {
    // The stream of events reports the lost connection.
  }
  clearTimeout(state.timer);
  if (isRunning) state.timer = setTimeout(look, LOOK_MS);
}

const LABELS = ["Policy", "Mean response", "Beside the present", "95 % confidence", "p99", "Written to SSDs"];

function show(report) {
  const left = report.recording_left_seconds ?? null;
  const isFocused = document.activeElement?.closest("#advice-form button");
  put($("advice-state"), !report.is_running ? "" : left === null ? "Simulating the policies." : `Recording: ${span(left)} left.`);
  $("advice-simulate").hidden = left === null;
  $("advice-cancel").hidden = !report.is_running;
  // The focus stays in the form when its button goes.
  if (isFocused?.hidden) $("advice-begin").focus();
  const changed = report.advice && state.page?.policy() && report.advice.present_policy !== state.page.policy();
  const shown = JSON.stringify([report.unix_seconds, report.error, changed]);
  if (shown === state.shown) return;
  state.shown = shown;
  const { advice } = report;
  const at = report.unix_seconds && new Date(1000 * report.unix_seconds).toLocaleString();
  const words = report.error ? [`No advice: ${report.error.message}`] : advice
    ? [...advice.sentences, `Advice of ${at}${changed ? "; since then the policy was changed" : ""}.`] : [];
  $("advice-words").replaceChildren(...words.map((text) => make("p", text)));
  $("advice").hidden = !advice;
  $("advice").tBodies[0].replaceChildren(...(advice?.rows ?? []).map((row) => line(row, advice)));
}

function line(row, advice) {
  const isPresent = row.policy === advice.present_policy;
  const present = advice.rows.find((other) => other.policy === advice.present_policy);
  const change = (ns) => {
    const share = (100 * ns) / present.latency_ns_mean;
    return `${share > 0 ? "+" : share < 0 ? "−" : ""}${digits(Math.abs(share))} %`;
  };
  const isKnown = row.difference_ns_mean !== null && present && row.keeps_up;
  const range = isKnown && row.difference_ns_low !== null && `${change(row.difference_ns_low)} to ${change(row.difference_ns_high)}`;
  const node = make("tr");
  [
    row.policy,
    row.keeps_up ? time(row.latency_ns_mean) : "does not keep up",
    isPresent ? "present" : isKnown ? change(row.difference_ns_mean) : "–",
    range || "–",
    row.keeps_up ? time(row.latency_ns_p99) : "–",
    row.drive_writes_per_day === null ? "–" : `${digits(row.drive_writes_per_day)} DWPD`,
  ].forEach((text, i) => {
    const cell = make(i ? "td" : "th", "", node);
    if (!i) cell.scope = "row";
    cell.dataset.label = LABELS[i];
    make("span", text, cell);
  });
  if (!isPresent && row.policy === advice.choice.advised_policy) node.dataset.advised = "true";
  return node;
}
