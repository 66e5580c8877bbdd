//! Beginnings and ends of conditions that need the owner, as `braid alert` tells them, since the start.

use crate::survey::{Shared, is_late};
use braid_control::{Alert, AlertWatch, Findings, LIFE_DAYS, VolumeName};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Most alerts kept of a volume; the oldest are forgotten first.
const MOST_KEPT: usize = 100;

/// The alerts of all volumes.
pub(crate) struct Alerts {
    start: Instant,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    watch: AlertWatch,
    /// First report of any volume.
    since: Option<u64>,
    /// Number of alerts of all volumes since the start.
    count: u64,
    volumes: BTreeMap<String, VecDeque<TimedAlert>>,
}

#[derive(Clone, Serialize)]
struct TimedAlert {
    unix_seconds: u64,
    #[serde(flatten)]
    alert: Alert,
}

/// The alerts of a volume, the latest first.
#[derive(Serialize)]
pub(crate) struct AlertsReport {
    since_unix_seconds: Option<u64>,
    /// Number of conditions that last.
    lasting_count: usize,
    alerts: Vec<TimedAlert>,
}

impl Default for Alerts {
    fn default() -> Alerts {
        Alerts { start: Instant::now(), noted: Mutex::default() }
    }
}

impl Alerts {
    /// Notes the differences from the reports of the call before. Calls must follow one another.
    pub fn note(&self, unix_seconds: u64, reports: &[(VolumeName, Shared)]) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let Noted { watch, since, count, volumes } = &mut *noted;
        since.get_or_insert(unix_seconds);
        // A daemon that has not answered yet is no silent daemon: its client waits longer than a page.
        for (name, report) in reports.iter().filter(|(_, report)| !is_late(report)) {
            let findings = Findings::of(report.as_deref(), LIFE_DAYS);
            let kept = volumes.entry(name.to_string()).or_default();
            for alert in watch.step(name.as_str(), findings, self.start.elapsed()) {
                *count += 1;
                kept.push_front(TimedAlert { unix_seconds, alert });
            }
            kept.truncate(MOST_KEPT);
        }
        let known: Vec<String> = reports.iter().map(|(name, _)| name.to_string()).collect();
        watch.forget_others(&known);
        volumes.retain(|name, _| known.contains(name));
    }

    /// Changes with each alert, and with a new start.
    pub fn mark(&self) -> String {
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{}-{}", noted.since.unwrap_or_default(), noted.count)
    }

    /// Returns the latest alerts of a volume.
    pub fn report(&self, name: &VolumeName) -> AlertsReport {
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = noted.volumes.get(name.as_str());
        let alerts = kept.into_iter().flatten().cloned().collect();
        let lasting_count = noted.watch.lasting(name.as_str());
        AlertsReport { since_unix_seconds: noted.since, lasting_count, alerts }
    }
}
