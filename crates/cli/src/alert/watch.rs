//! Differences between reports, as events: a condition begins or ends.

use super::conditions::{Condition, Conditions, Key, Level};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Shortest time between two events about failed requests of the same device.
const AGAIN: Duration = Duration::from_secs(3600);
/// The kind that is told again when its message changes.
const COUNTED: &str = "device-errors";

/// The beginning or the end of a condition.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Event {
    /// Name of the volume.
    pub name: String,
    /// Kind of the condition.
    pub event: &'static str,
    /// The device, for a condition of a device.
    pub device: Option<String>,
    /// Severity.
    pub level: Level,
    /// True at the beginning, false at the end.
    pub begins: bool,
    /// The condition in a sentence; at the end, the last one.
    pub message: String,
}

/// The conditions of all volumes that the owner was told of.
#[derive(Default)]
pub struct Watch {
    volumes: BTreeMap<String, BTreeMap<Key, Told>>,
}

struct Told {
    condition: Condition,
    at: Duration,
}

impl Watch {
    /// Returns the events since the last report of a volume. `now` is the time since the start.
    pub fn step(&mut self, volume: &str, conditions: Conditions, now: Duration) -> Vec<Event> {
        let told = self.volumes.entry(volume.to_owned()).or_default();
        let mut events = Vec::new();
        for (key, before) in told.extract_if(.., |key, _| !conditions.contains_key(key)) {
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

    /// Returns the ends of all conditions of volumes that are not among the given ones any more.
    pub fn forget_others(&mut self, known: &[String]) -> Vec<Event> {
        let gone = self.volumes.extract_if(.., |name, _| !known.contains(name));
        let ends = gone.flat_map(|(name, told)| {
            told.into_iter().map(move |(key, before)| event(&name, &key, &before.condition, false))
        });
        ends.collect()
    }
}

fn event(volume: &str, key: &Key, condition: &Condition, begins: bool) -> Event {
    Event {
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

    fn conditions(all: &[(&'static str, &str)]) -> Conditions {
        let condition = |&(kind, message): &(&'static str, &str)| {
            (Key { kind, device: None }, Condition { level: Level::Warning, message: message.to_owned() })
        };
        all.iter().map(condition).collect()
    }

    fn step(watch: &mut Watch, seconds: u64, all: &[(&'static str, &str)]) -> Vec<(&'static str, bool)> {
        let events = watch.step("vault", conditions(all), Duration::from_secs(seconds));
        events.into_iter().map(|event| (event.event, event.begins)).collect()
    }

    #[test]
    fn a_condition_begins_once_and_ends_once() {
        let mut watch = Watch::default();
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
    fn further_failed_requests_are_told_once_an_hour() {
        let mut watch = Watch::default();
        assert_eq!(step(&mut watch, 0, &[(COUNTED, "1")]), [(COUNTED, true)]);
        assert_eq!(step(&mut watch, 3599, &[(COUNTED, "2")]), []);
        assert_eq!(step(&mut watch, 3600, &[(COUNTED, "2")]), [(COUNTED, true)]);
        assert_eq!(step(&mut watch, 9999, &[(COUNTED, "2")]), []);
    }

    #[test]
    fn conditions_of_a_forgotten_volume_end() {
        let mut watch = Watch::default();
        assert_eq!(watch.step("other", conditions(&[("degraded", "")]), Duration::ZERO).len(), 1);
        assert_eq!(step(&mut watch, 0, &[("degraded", "")]).len(), 1);
        let ends = watch.forget_others(&["vault".to_owned()]);
        assert_eq!(
            ends.iter().map(|end| (end.name.as_str(), end.begins)).collect::<Vec<_>>(),
            [("other", false)]
        );
        assert_eq!(watch.forget_others(&["vault".to_owned()]), []);
    }
}
