//! Differences between reports, as alerts: a condition begins or ends.

use super::conditions::{AlertLevel, Condition, DAEMON_DIED, Findings, Key, UNSERVED};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Shortest time between two events about failed requests of the same device.
const AGAIN: Duration = Duration::from_secs(3600);
/// The kind that is told again when its message changes.
const COUNTED: &str = "device-errors";
/// Time until a dead daemon is told: at a boot, the service manager starts daemons one after the other.
const RESTARTS: Duration = Duration::from_secs(30);

/// The beginning or the end of a condition.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Alert {
    /// Name of the volume.
    pub name: String,
    /// Kind of the condition.
    pub event: &'static str,
    /// The device, for a condition of a device.
    pub device: Option<String>,
    /// Severity.
    pub level: AlertLevel,
    /// True at the beginning, false at the end.
    pub begins: bool,
    /// The condition in a sentence; at the end, the last one.
    pub message: String,
}

/// The conditions of all volumes that the owner was told of.
#[derive(Default)]
pub struct AlertWatch {
    volumes: BTreeMap<String, BTreeMap<Key, Told>>,
    /// Beginning of a daemon's death that is not told yet, by volume.
    died: BTreeMap<String, Duration>,
}

struct Told {
    condition: Condition,
    at: Duration,
}

impl AlertWatch {
    /// Returns the events since the last report of a volume. `now` is the time since the start.
    pub fn step(&mut self, volume: &str, findings: Findings, now: Duration) -> Vec<Alert> {
        let Findings { mut conditions, is_of_served } = findings;
        let told = self.volumes.entry(volume.to_owned()).or_default();
        if conditions.keys().any(|key| key.kind == DAEMON_DIED) {
            let since = *self.died.entry(volume.to_owned()).or_insert(now);
            if now < since + RESTARTS {
                conditions.retain(|key, _| key.kind != DAEMON_DIED);
            }
        } else {
            self.died.remove(volume);
        }
        let mut events = Vec::new();
        // Without a daemon's answer, nothing is known of devices and data.
        let has_ended =
            |key: &Key| (is_of_served || UNSERVED.contains(&key.kind)) && !conditions.contains_key(key);
        for (key, before) in told.extract_if(.., |key, _| has_ended(key)) {
            events.push(event(volume, &key, &before.condition, false));
        }
        for (key, condition) in conditions {
            let is_known = told.get(&key).is_some_and(|before| {
                key.kind != COUNTED || before.condition == condition || now < before.at + AGAIN
            });
            if !is_known {
                events.push(event(volume, &key, &condition, true));
                told.insert(key, Told { condition, at: now });
            } else if key.kind != COUNTED
                && let Some(before) = told.get_mut(&key)
            {
                before.condition = condition;
            }
        }
        events
    }

    /// Returns the number of conditions of a volume that were told and last.
    pub fn lasting(&self, volume: &str) -> usize {
        self.volumes.get(volume).map_or(0, BTreeMap::len)
    }

    /// Returns the ends of all conditions of volumes that are not among the given ones any more.
    pub fn forget_others(&mut self, known: &[String]) -> Vec<Alert> {
        self.died.retain(|name, _| known.contains(name));
        let gone = self.volumes.extract_if(.., |name, _| !known.contains(name));
        let ends = gone.flat_map(|(name, told)| {
            told.into_iter().map(move |(key, before)| event(&name, &key, &before.condition, false))
        });
        ends.collect()
    }
}

fn event(volume: &str, key: &Key, condition: &Condition, begins: bool) -> Alert {
    Alert {
        name: volume.to_owned(),
        event: key.kind,
        device: key.device.clone(),
        level: condition.level,
        begins,
        message: condition.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(all: &[(&'static str, &str)]) -> Findings {
        let condition = |&(kind, message): &(&'static str, &str)| {
            (
                Key { kind, device: None },
                Condition { level: AlertLevel::Warning, message: message.to_owned() },
            )
        };
        let is_of_served = all.iter().all(|(kind, _)| !UNSERVED.contains(kind));
        Findings { conditions: all.iter().map(condition).collect(), is_of_served }
    }

    fn step(watch: &mut AlertWatch, seconds: u64, all: &[(&'static str, &str)]) -> Vec<(&'static str, bool)> {
        let events = watch.step("vault", findings(all), Duration::from_secs(seconds));
        events.into_iter().map(|event| (event.event, event.begins)).collect()
    }

    #[test]
    fn a_condition_begins_once_and_ends_once() {
        let mut watch = AlertWatch::default();
        assert_eq!(step(&mut watch, 0, &[]), []);
        assert_eq!(step(&mut watch, 1, &[("degraded", "8 MiB")]), [("degraded", true)]);
        assert_eq!(step(&mut watch, 2, &[("degraded", "4 MiB")]), []);
        assert_eq!(
            step(&mut watch, 3, &[("data-lost", "4 KiB")]),
            [("degraded", false), ("data-lost", true)]
        );
        assert_eq!(step(&mut watch, 4, &[]), [("data-lost", false)]);
        assert_eq!(step(&mut watch, 5, &[]), []);
    }

    #[test]
    fn conditions_of_devices_last_while_the_daemon_does_not_answer() {
        let mut watch = AlertWatch::default();
        assert_eq!(step(&mut watch, 0, &[("data-lost", "")]), [("data-lost", true)]);
        assert_eq!(step(&mut watch, 1, &[("no-answer", "")]), [("no-answer", true)]);
        assert_eq!(step(&mut watch, 2, &[("data-lost", "")]), [("no-answer", false)]);
        assert_eq!(step(&mut watch, 3, &[]), [("data-lost", false)]);
    }

    #[test]
    fn dead_daemon_is_told_unless_it_is_restarted() {
        let mut watch = AlertWatch::default();
        assert_eq!(step(&mut watch, 0, &[(DAEMON_DIED, "")]), []);
        assert_eq!(step(&mut watch, 29, &[(DAEMON_DIED, "")]), []);
        assert_eq!(step(&mut watch, 29, &[]), []);
        assert_eq!(step(&mut watch, 30, &[(DAEMON_DIED, "")]), []);
        assert_eq!(step(&mut watch, 60, &[(DAEMON_DIED, "")]), [(DAEMON_DIED, true)]);
        assert_eq!(step(&mut watch, 61, &[]), [(DAEMON_DIED, false)]);
    }

    #[test]
    fn further_failed_requests_are_told_once_an_hour() {
        let mut watch = AlertWatch::default();
        assert_eq!(step(&mut watch, 0, &[(COUNTED, "1")]), [(COUNTED, true)]);
        assert_eq!(step(&mut watch, 3599, &[(COUNTED, "2")]), []);
        assert_eq!(step(&mut watch, 3600, &[(COUNTED, "2")]), [(COUNTED, true)]);
        assert_eq!(step(&mut watch, 9999, &[(COUNTED, "2")]), []);
    }

    #[test]
    fn conditions_of_a_forgotten_volume_end() {
        let mut watch = AlertWatch::default();
        assert_eq!(watch.step("other", findings(&[("degraded", "")]), Duration::ZERO).len(), 1);
        assert_eq!(step(&mut watch, 0, &[("degraded", "")]).len(), 1);
        let ends = watch.forget_others(&["vault".to_owned()]);
        assert_eq!(
            ends.iter().map(|end| (end.name.as_str(), end.begins)).collect::<Vec<_>>(),
            [("other", false)]
        );
        assert_eq!(watch.forget_others(&["vault".to_owned()]), []);
    }
}
