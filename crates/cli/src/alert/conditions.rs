//! Conditions of a volume that need its owner, from one report.

use braid_base::Bytes;
use braid_control::{DeviceReport, RestingReport, Result, StatusReport, VolumeReport};
use serde::Serialize;
use std::collections::BTreeMap;

/// Severity of a condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A further failure may lose data, or a promise is weaker than usual.
    Warning,
    /// Data is lost, cannot be flushed or cannot be reached.
    Bad,
}

impl Level {
    /// Name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Level::Warning => "warning",
            Level::Bad => "bad",
        }
    }
}

/// Identity of a condition: while the condition lasts, the owner is told once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// Kind, such as `device-failed`.
    pub kind: &'static str,
    /// The device, for a condition of a device.
    pub device: Option<String>,
}

/// A condition: severity, and a sentence with the remedy.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    pub level: Level,
    pub message: String,
}

/// Conditions by identity.
pub type Conditions = BTreeMap<Key, Condition>;

/// What a report, or its failure, says about the conditions of a volume.
pub struct Findings {
    /// The conditions that it shows.
    pub conditions: Conditions,
    /// True if it shows all conditions of a served volume. Otherwise earlier ones of this kind may last.
    pub is_of_served: bool,
}

/// Kinds that a report can show without an answer of the daemon.
pub const UNSERVED: [&str; 3] = [NO_ANSWER, DAEMON_DIED, "dead-mount"];
pub const NO_ANSWER: &str = "no-answer";
pub const DAEMON_DIED: &str = "daemon-died";

/// Returns the conditions of a report. An SSD with fewer than `life_days` days to live is a condition.
/// `waiting` tells why a daemon without guests cannot end.
pub fn of(report: &Result<VolumeReport>, waiting: Option<String>, life_days: f64) -> Findings {
    let mut found = Found(Conditions::new());
    match report {
        Ok(VolumeReport::Served(status)) => {
            found.of_volume(status);
            status.devices.iter().for_each(|device| found.of_device(&status.name, device, life_days));
        }
        Ok(VolumeReport::Silent(silent)) if silent.is_opening() => {}
        Ok(VolumeReport::Silent(silent)) => {
            found.add(NO_ANSWER, None, Level::Bad, silent.error.to_string());
        }
        Ok(VolumeReport::Resting(resting)) => found.of_rest(resting, waiting),
        Err(error) => found.add(NO_ANSWER, None, Level::Bad, error.to_string()),
    }
    Findings { conditions: found.0, is_of_served: matches!(report, Ok(VolumeReport::Served(_))) }
}

struct Found(Conditions);

impl Found {
    fn add(&mut self, kind: &'static str, device: Option<&str>, level: Level, message: String) {
        let key = Key { kind, device: device.map(str::to_owned) };
        self.0.insert(key, Condition { level, message });
    }

    fn of_volume(&mut self, status: &StatusReport) {
        let name = &status.name;
        if let Some(failure) = &status.failure {
            let message =
                format!("no flush can succeed any more: {failure}: stop and serve the volume again");
            self.add("flush-failed", None, Level::Bad, message);
        }
        if status.lost_bytes > 0 {
            let message =
                format!("{} are lost, and reads fail: braid status {name}", Bytes(status.lost_bytes));
            self.add("data-lost", None, Level::Bad, message);
        }
        if status.behind_bytes > 0 {
            let message = format!("a copy of up to {} is stale", Bytes(status.behind_bytes));
            self.add("degraded", None, Level::Warning, message);
        }
        if let Some(failure) = &status.epoch_failure {
            self.add("epoch-failed", None, Level::Warning, format!("no epoch can end: {failure}"));
        }
        if let Some(failure) = &status.unapplied_failure {
            let message = format!("bytes of a recovered epoch cannot be applied: {failure}");
            self.add("apply-failed", None, Level::Warning, message);
        }
        if let Some(lack) = &status.policy_lacks {
            self.add("device-lacking", None, Level::Warning, format!("{lack}, or add such a device"));
        }
        if let Some(failure) = &status.pending_log_failure {
            let message = format!("a crash of the daemon loses unflushed writes: {failure}");
            self.add("pending-log-failed", None, Level::Warning, message);
        }
        let mut disks = status.devices.iter().filter(|device| device.class == "hdd").peekable();
        if status.dirty_bytes > 0 && disks.peek().is_some() && disks.all(is_away) {
            let dirty = Bytes(status.dirty_bytes);
            let message = format!("{dirty} in the cache cannot be written back: no disk is in use");
            self.add("dirty-stuck", None, Level::Bad, message);
        }
        if status.over_committed_bytes > 0 {
            let over = Bytes(status.over_committed_bytes);
            let message = format!("the volume's files may outgrow the free space by {over}: free some space");
            self.add("no-room", None, Level::Warning, message);
        }
    }

    fn of_device(&mut self, name: &str, device: &DeviceReport, life_days: f64) {
        let DeviceReport { device: id, path, state, .. } = device;
        let error = device.last_error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        match state.as_str() {
            _ if is_away(device) => {
                let kind = if state == "failed" { "device-failed" } else { "device-missing" };
                let message = format!("{id} ({path}) is {state}{error}: see braid status {name}");
                self.add(kind, Some(id), Level::Warning, message);
            }
            "slow" => {
                let times = device.times_slower.map_or_else(
                    || "does not answer in time".to_owned(),
                    |times| format!("takes {times:.0} times as long as before"),
                );
                self.add("device-slow", Some(id), Level::Warning, format!("{id} ({path}) {times}"));
            }
            "returning" => {
                let message = format!("{id} ({path}) is being brought up to date");
                self.add("device-returning", Some(id), Level::Warning, message);
            }
            _ => {}
        }
        if device.errors > 0 && !is_away(device) {
            let message = format!("{id} ({path}): {} requests have failed{error}", device.errors);
            self.add("device-errors", Some(id), Level::Warning, message);
        }
        if let Some(days) = device.ssd_life_days.filter(|&days| days < life_days) {
            let message = format!("{id} ({path}) will be worn out in {days:.0} days at the present rate");
            self.add("ssd-life", Some(id), Level::Warning, message);
        }
    }

    fn of_rest(&mut self, resting: &RestingReport, waiting: Option<String>) {
        let name = &resting.name;
        if let Some(waiting) = waiting {
            self.add(NO_ANSWER, None, Level::Bad, waiting);
        } else if resting.is_attached_dead() {
            let message = format!("the daemon died, and its mounts fail: braid detach {name}");
            self.add("dead-mount", None, Level::Bad, message);
        } else if resting.ended_unclean {
            let verb = if resting.temporary { "forget" } else { "serve" };
            self.add(DAEMON_DIED, None, Level::Bad, format!("the daemon died: braid {verb} {name}"));
        }
    }
}

fn is_away(device: &DeviceReport) -> bool {
    matches!(device.state.as_str(), "failed" | "missing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::samples;
    use serde_json::{Value, json};

    fn device(differs: Value) -> Value {
        let mut device = samples::device("d1", "hdd", json!({}));
        for (key, value) in differs.as_object().unwrap() {
            device[key] = value.clone();
        }
        device
    }

    fn kinds(devices: &[Value], differs: Value) -> Vec<(&'static str, Level)> {
        let report = VolumeReport::Served(Box::new(samples::status("cache", devices, differs)));
        let found = of(&Ok(report), None, 90.0);
        assert!(found.is_of_served);
        found.conditions.into_iter().map(|(key, condition)| (key.kind, condition.level)).collect()
    }

    #[test]
    fn each_finding_of_a_served_volume_is_a_condition() {
        use Level::{Bad, Warning};
        assert_eq!(kinds(&[device(json!({}))], json!({})), []);
        let findings = json!({
            "failure": "no", "lost_bytes": 1, "behind_bytes": 1, "epoch_failure": "no", "unapplied_failure": "no",
            "policy_lacks": "no", "pending_log_failure": "no", "over_committed_bytes": 1,
        });
        assert_eq!(
            kinds(&[], findings),
            [
                ("apply-failed", Warning),
                ("data-lost", Bad),
                ("degraded", Warning),
                ("device-lacking", Warning),
                ("epoch-failed", Warning),
                ("flush-failed", Bad),
                ("no-room", Warning),
                ("pending-log-failed", Warning),
            ]
        );
    }

    #[test]
    fn states_errors_and_wear_of_devices_are_conditions() {
        let of_device = |differs, status| kinds(&[device(differs)], status);
        let failed = json!({ "state": "failed", "errors": 4 });
        assert_eq!(of_device(failed.clone(), json!({})), [("device-failed", Level::Warning)]);
        let dirty = json!({ "dirty_bytes": 4096 });
        let stuck = [("device-failed", Level::Warning), ("dirty-stuck", Level::Bad)];
        assert_eq!(of_device(failed.clone(), dirty.clone()), stuck);
        let disks = [device(failed), samples::device("d2", "hdd", json!({}))];
        assert_eq!(kinds(&disks, dirty.clone()), [("device-failed", Level::Warning)]);
        assert_eq!(of_device(json!({ "state": "missing" }), json!({})), [("device-missing", Level::Warning)]);
        assert_eq!(of_device(json!({ "state": "slow" }), dirty), [("device-slow", Level::Warning)]);
        let both = [("device-errors", Level::Warning), ("device-slow", Level::Warning)];
        assert_eq!(of_device(json!({ "state": "slow", "errors": 1 }), json!({})), both);
        assert_eq!(of_device(json!({ "errors": 1 }), json!({})), [("device-errors", Level::Warning)]);
        assert_eq!(of_device(json!({ "ssd_life_days": 89.0 }), json!({})), [("ssd-life", Level::Warning)]);
        assert_eq!(of_device(json!({ "ssd_life_days": 90.0 }), json!({})), []);
    }

    #[test]
    fn failed_reports_and_dead_daemons_are_conditions_and_clean_stops_are_none() {
        let rest = |differs: Value, waiting: Option<&str>| {
            let mut value =
                json!({ "name": "vault", "served": false, "uuid": "", "temporary": false, "devices": [] });
            for (key, differing) in differs.as_object().unwrap() {
                value[key] = differing.clone();
            }
            let resting: VolumeReport = serde_json::from_value(value).unwrap();
            let found = of(&Ok(resting), waiting.map(str::to_owned), 90.0);
            assert!(!found.is_of_served);
            found.conditions.into_keys().map(|key| key.kind).collect::<Vec<_>>()
        };
        assert_eq!(rest(json!({}), None), [""; 0]);
        assert_eq!(rest(json!({}), Some("it waits for d1")), [NO_ANSWER]);
        assert_eq!(rest(json!({ "ended_unclean": true }), None), [DAEMON_DIED]);
        assert_eq!(rest(json!({ "ended_unclean": true, "dead_mounts": ["/mnt"] }), None), ["dead-mount"]);
        let error = braid_control::Error::new(braid_control::ErrorKind::Io, "the record is damaged");
        let found = of(&Err(error), None, 90.0);
        assert_eq!(found.conditions.into_keys().map(|key| key.kind).collect::<Vec<_>>(), [NO_ANSWER]);
    }
}
