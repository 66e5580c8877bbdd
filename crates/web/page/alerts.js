// What needed the owner of a volume since braid web started, the latest first: the events of braid alert.

import { $, make, put } from "/text.js";

const SHOWN = 12;

// The mark of the alerts at the last look, and the look that is under way.
const state = { mark: null, look: null };

// Forgets the alerts of another volume.
export function clear() {
  state.mark = state.look = null;
  $("alerts").replaceChildren();
  put($("alerts-since"), "");
}

// Looks for new alerts, if the mark has changed. `path`: address of the alerts of the volume.
export async function follow(mark, path) {
  if (mark === state.mark) return;
  const look = {};
  [state.mark, state.look] = [mark, look];
  const report = await fetch(path).then((answer) => answer.ok && answer.json()).catch(() => null);
  if (state.look !== look) return;
  if (report) show(report);
  else state.mark = null;
}

function show(report) {
  const lasting = report.lasting_count;
  const since = report.since_unix_seconds && new Date(1000 * report.since_unix_seconds).toLocaleString();
  const more = report.alerts.length > SHOWN ? ` The latest ${SHOWN} of ${report.alerts.length}:` : "";
  put($("alerts-since"), report.alerts.length
    ? `${lasting ? `${lasting} last now.` : "All have ended."} Since ${since}.${more}`
    : `None since ${since ?? "now"}.`);
  $("alerts").replaceChildren(...report.alerts.slice(0, SHOWN).map((alert) => {
    const item = make("li");
    item.dataset.level = alert.begins ? alert.level : "ended";
    make("time", new Date(1000 * alert.unix_seconds).toLocaleString(), item, "faint").dateTime =
      new Date(1000 * alert.unix_seconds).toISOString();
    make("span", alert.begins ? alert.message : `ended: ${alert.message}`, item);
    make("small", [alert.begins ? alert.level : "", alert.event, alert.device].filter(Boolean).join(" "), item, "faint");
    return item;
  }));
}
