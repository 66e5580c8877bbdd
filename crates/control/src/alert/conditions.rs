//! Conditions of a volume that need its owner, from one report.

use crate::Error;
use crate::report::types::{DeviceReport, RestingReport, StatusReport, VolumeReport};
use braid_base::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// Severity of a condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertLevel {
    /// A further failure may lose data, or a promise is weaker than usual.
    Warning,
    /// Data is lost, cannot be flushed or cannot be reached.
    Bad,
}

impl AlertLevel {
    /// Name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            AlertLevel::Warning => "warning",
            AlertLevel::Bad => "bad",
        }
    }
}

/// Identity of a condition: while the condition lasts, the owner is told once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    /// Kind, such as `device-failed`.
    pub kind: &'static str,
    /// The device, for a condition of a device.
    pub device: Option<String>,
}

/// A condition: severity, and a sentence with the remedy.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Condition {
    pub level: AlertLevel,
    pub message: String,
}

/// An SSD with fewer days to live is a condition, unless the owner chooses another limit.
pub const LIFE_DAYS: u32 = 90;

/// Conditions by identity.
pub(crate) type Conditions = BTreeMap<Key, Condition>;

/// What a report, or its failure, says about the conditions of a volume.
pub struct Findings {
    /// The conditions that it shows.
    pub(crate) conditions: Conditions,
    /// True if it shows all conditions of a served volume. Otherwise earlier ones of this kind may last.
    pub(crate) is_of_served: bool,
}

/// Kinds that a report can show without an answer of the daemon.
pub(crate) const UNSERVED: [&str; 3] = [NO_ANSWER, DAEMON_DIED, "dead-mount"];
pub(crate) const NO_ANSWER: &str = "no-answer";
pub(crate) const DAEMON_DIED: &str = "daemon-died";

impl Findings {
    /// Returns the conditions of a report. An SSD with fewer than `life_days` days to live is a condition.
    pub fn of(report: Result<&VolumeReport, &Error>, life_days: u32) -> Findings {
        let is_of_served = matches!(report, Ok(VolumeReport::Served(_)));
        let mut found = Findings { conditions: Conditions::new(), is_of_served };
        match report {
            Ok(VolumeReport::Served(status)) => {
                found.of_volume(status);
                status.devices.iter().for_each(|device| found.of_device(&status.name, device, life_days));
            }
            Ok(VolumeReport::Silent(silent)) if silent.is_opening() => {}
            Ok(VolumeReport::Silent(silent)) => {
                found.add(NO_ANSWER, None, AlertLevel::Bad, silent.error.to_string());
            }
            Ok(VolumeReport::Resting(resting)) => found.of_rest(resting),
            Err(error) => found.add(NO_ANSWER, None, AlertLevel::Bad, error.to_string()),
        }
        found
    }

    fn add(&mut self, kind: &'static str, device: Option<&str>, level: AlertLevel, message: String) {
        let key = Key { kind, device: device.map(str::to_owned) };
        self.conditions.insert(key, Condition { level, message });
    }

    fn of_volume(&mut self, status: &StatusReport) {
        let name = &status.name;
        if let Some(failure) = &status.failure {
            let message =
                format!("no flush can succeed any more: {failure}: stop and serve the volume again");
            self.add("flush-failed", None, AlertLevel::Bad, message);
        }
        if status.lost_bytes > 0 {
            let message =
                format!("{} are lost, and reads fail: braid status {name}", Bytes(status.lost_bytes));
            self.add("data-lost", None, AlertLevel::Bad, message);
        }
        if status.behind_bytes > 0 {
            let message = format!("a copy of up to {} is stale", Bytes(status.behind_bytes));
            self.add("degraded", None, AlertLevel::Warning, message);
        }
        if let Some(failure) = &status.epoch_failure {
            self.add("epoch-failed", None, AlertLevel::Warning, format!("no epoch can end: {failure}"));
        }
        if let Some(failure) = &status.unapplied_failure {
            let message = format!("bytes of a recovered epoch cannot be applied: {failure}");
            self.add("apply-failed", None, AlertLevel::Warning, message);
        }
        if let Some(lack) = &status.policy_lacks {
            self.add("device-lacking", None, AlertLevel::Warning, format!("{lack}, or add such a device"));
        }
        if let Some(failure) = &status.pending_log_failure {
            let message = format!("a crash of the daemon loses unflushed writes: {failure}");
            self.add("pending-log-failed", None, AlertLevel::Warning, message);
        }
        let mut disks = status.devices.iter().filter(|device| device.class == "hdd").peekable();
        if status.dirty_bytes > 0 && disks.peek().is_some() && disks.all(is_away) {
            let dirty = Bytes(status.dirty_bytes);
            let message = format!("{dirty} in the cache cannot be written back: no disk is in use");
            self.add("dirty-stuck", None, AlertLevel::Bad, message);
        }
        if status.over_committed_bytes > 0 {
            let over = Bytes(status.over_committed_bytes);
            let message = format!("the volume's files may outgrow the free space by {over}: free some space");
            self.add("no-room", None, AlertLevel::Warning, message);
        }
    }

    fn of_device(&mut self, name: &str, device: &DeviceReport, life_days: u32) {
        let DeviceReport { device: id, path, state, .. } = device;
        let error = device.last_error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        match state.as_str() {
            _ if is_away(device) => {
                let kind = if state == "failed" { "device-failed" } else { "device-missing" };
                let message = format!("{id} ({path}) is {state}{error}: see braid status {name}");
                self.add(kind, Some(id), AlertLevel::Warning, message);
            }
            "slow" => {
                let times = device.times_slower.map_or_else(
                    || "does not answer in time".to_owned(),
                    |times| format!("takes {times:.0} times as long as before"),
                );
                self.add("device-slow", Some(id), AlertLevel::Warning, format!("{id} ({path}) {times}"));
            }
            "returning" => {
                let message = format!("{id} ({path}) is being brought up to date");
                self.add("device-returning", Some(id), AlertLevel::Warning, message);
            }
            _ => {}
        }
        if device.errors > 0 && !is_away(device) {
            let message = format!("{id} ({path}): {} requests have failed{error}", device.errors);
            self.add("device-errors", Some(id), AlertLevel::Warning, message);
        }
        if let Some(days) = device.ssd_life_days.filter(|&days| days < f64::from(life_days)) {
            let message = format!("{id} ({path}) will be worn out in {days:.0} days at the present rate");
            self.add("ssd-life", Some(id), AlertLevel::Warning, message);
        }
    }

    fn of_rest(&mut self, resting: &RestingReport) {
        let name = &resting.name;
        if let Some(problem) = &resting.cannot_end {
            self.add(NO_ANSWER, None, AlertLevel::Bad, problem.clone());
        } else if resting.is_attached_dead() {
            let message = format!("the daemon died, and its mounts fail: braid detach {name}");
            self.add("dead-mount", None, AlertLevel::Bad, message);
        } else if resting.ended_unclean {
            let verb = if resting.temporary { "forget" } else { "serve" };
            self.add(DAEMON_DIED, None, AlertLevel::Bad, format!("the daemon died: braid {verb} {name}"));
        }
    }
}

fn is_away(device: &DeviceReport) -> bool {
    matches!(device.state.as_str(), "failed" | "missing")
}

#[cfg(test)]
mod tests {
    use super::AlertLevel::{Bad, Warning};
    use super::*;
    use crate::ErrorKind;

    fn device(differs: impl Fn(&mut DeviceReport)) -> DeviceReport {
        let (class, state) = ("hdd".to_owned(), "active".to_owned());
        let mut device = DeviceReport { device: "d1".to_owned(), class, state, ..DeviceReport::default() };
        differs(&mut device);
        device
    }

    fn kinds(status: StatusReport) -> Vec<(&'static str, AlertLevel)> {
        let found = Findings::of(Ok(&VolumeReport::Served(Box::new(status))), LIFE_DAYS);
        assert!(found.is_of_served);
        found.conditions.into_iter().map(|(key, condition)| (key.kind, condition.level)).collect()
    }

    fn of_devices(devices: &[DeviceReport], dirty_bytes: u64) -> Vec<(&'static str, AlertLevel)> {
        kinds(StatusReport { devices: devices.to_vec(), dirty_bytes, ..StatusReport::default() })
    }

    #[test]
    fn each_finding_of_a_served_volume_is_a_condition() {
        assert_eq!(of_devices(&[device(|_| ())], 0), []);
        let no = || Some("no".to_owned());
        let findings = StatusReport {
            failure: no(),
            lost_bytes: 1,
            behind_bytes: 1,
            epoch_failure: no(),
            unapplied_failure: no(),
            policy_lacks: no(),
            pending_log_failure: no(),
            over_committed_bytes: 1,
            ..StatusReport::default()
        };
        assert_eq!(
            kinds(findings),
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
        let in_state = |state: &'static str, errors| {
            device(move |device| (device.state, device.errors) = (state.to_owned(), errors))
        };
        let failed = in_state("failed", 4);
        assert_eq!(of_devices(std::slice::from_ref(&failed), 0), [("device-failed", Warning)]);
        let stuck = [("device-failed", Warning), ("dirty-stuck", Bad)];
        assert_eq!(of_devices(std::slice::from_ref(&failed), 4096), stuck);
        let other = device(|device| device.device = "d2".to_owned());
        assert_eq!(of_devices(&[failed, other], 4096), [("device-failed", Warning)]);
        assert_eq!(of_devices(&[in_state("missing", 0)], 0), [("device-missing", Warning)]);
        assert_eq!(of_devices(&[in_state("slow", 0)], 4096), [("device-slow", Warning)]);
        let both = [("device-errors", Warning), ("device-slow", Warning)];
        assert_eq!(of_devices(&[in_state("slow", 1)], 0), both);
        assert_eq!(of_devices(&[in_state("active", 1)], 0), [("device-errors", Warning)]);
        let worn = |days| device(move |device| device.ssd_life_days = Some(days));
        assert_eq!(of_devices(&[worn(89.0)], 0), [("ssd-life", Warning)]);
        assert_eq!(of_devices(&[worn(90.0)], 0), []);
    }

    #[test]
    fn failed_reports_and_dead_daemons_are_conditions_and_clean_stops_are_none() {
        let kinds = |report: Result<&VolumeReport, &Error>| {
            let found = Findings::of(report, LIFE_DAYS);
            assert!(!found.is_of_served);
            found.conditions.into_keys().map(|key| key.kind).collect::<Vec<_>>()
        };
        let rest = |resting| kinds(Ok(&VolumeReport::Resting(resting)));
        let clean = RestingReport::default;
        assert_eq!(rest(clean()), [""; 0]);
        let cannot_end = Some("it waits for d1".to_owned());
        assert_eq!(rest(RestingReport { cannot_end, ..clean() }), [NO_ANSWER]);
        let died = RestingReport { ended_unclean: true, ..clean() };
        assert_eq!(rest(died.clone()), [DAEMON_DIED]);
        assert_eq!(rest(RestingReport { dead_mounts: vec!["/mnt".into()], ..died }), ["dead-mount"]);
        let error = Error::new(ErrorKind::Io, "the record is damaged");
        assert_eq!(kinds(Err(&error)), [NO_ANSWER]);
    }
}
