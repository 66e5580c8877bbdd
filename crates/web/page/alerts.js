// What needed the owner of a volume since braid web started, the latest first: the events of braid alert.

import { $, make, put } from "/text.js";

const SHOWN = 12;

// The number of alerts of all volumes at the last look, and the look that is under way.
const state = { count: null, look: null };

// Forgets the alerts of another volume.
export function clear() {
  state.count = state.look = null;
  $("alerts").replaceChildren();
  put($("alerts-since"), "");
}

// Looks for new alerts, if the number of alerts has changed. `path`: address of the alerts of the volume.
export async function follow(count, path) {
  if (count === state.count) return;
  const look = { count };
  [state.count, state.look] = [count, look];
  try {
    const answer = await fetch(path);
    const report = await answer.json();
    if (answer.ok && state.look === look) show(report);
  } catch {
    if (state.look === look) state.count = null;
  }
}

const key = (alert) => `${alert.event} ${alert.device ?? ""}`;

function show(report) {
  // A condition whose latest alert is a beginning lasts.
  const latest = new Map([...report.alerts].reverse().map((alert) => [key(alert), alert]));
  const lasting = [...latest.values()].filter((alert) => alert.begins).length;
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
    make("small", [alert.event, alert.device].filter(Boolean).join(" "), item, "faint");
    return item;
  }));
}
