//! Lines of the status that depend on the policy: data lost with an SSD, state of the disk alone, expected
//! gain of moves.

use super::{is_lost, name_of, percent};
use braid_base::{Bytes, Nanos};
use braid_control::{DeviceReport, ModeReport, StatusReport};

/// Returns the lines of a volume's status above the line of the policy itself.
pub fn lines(status: &StatusReport) -> String {
    let of_pass = match name_of(&status.policy) {
        "pass" => behind(status) + mirror(status),
        _ => deferred(status),
    };
    of_pass + &epochs(status) + &gain(status)
}

/// Line of the policy's guard: the mode, and the forecasts of simulations for all modes.
pub fn guard(status: &StatusReport) -> String {
    let Some(guard) = &status.guard else { return String::new() };
    let short = |mode: &str| mode.split_once(",mode=").map_or("tier", |(_, name)| name).to_owned();
    let mut text = format!("  mode    {}", short(&guard.mode));
    if let Some(seconds) = guard.switched_seconds_ago {
        text += &format!(" for {}, {} switches", Nanos::from_secs(seconds as u64), guard.switches);
    }
    let mean = |mode: &ModeReport| {
        let mean = mode.latency_ns_mean?;
        Some(format!("{} {}", short(&mode.mode), Nanos(mean)))
    };
    let means: Vec<String> = guard.modes.iter().filter_map(mean).collect();
    if !means.is_empty() {
        let measured =
            guard.measured_ns_mean.map_or(String::new(), |mean| format!("takes {}, and ", Nanos(mean)));
        text += &format!("; a request {measured}would take: {}", means.join(", "));
    }
    if !guard.measured_models_off.is_empty() {
        let off = guard.measured_models_off.iter();
        let off: Vec<String> =
            off.map(|(device, off)| format!("{device} within {}", percent(off - 1.0))).collect();
        text += &format!("; models measured in service: {}", off.join(", "));
    }
    if let Some(problem) = &guard.problem {
        text += &format!("; {problem}");
    }
    text + "\n"
}

/// Highest value of a policy's figure over all devices.
fn figure(status: &StatusReport, name: &str) -> Option<f64> {
    let of_device = |device: &DeviceReport| device.policy_figures.get(name).copied();
    status.devices.iter().filter_map(of_device).reduce(f64::max)
}

fn devices_left<'a>(status: &'a StatusReport, class: &str) -> impl Iterator<Item = &'a DeviceReport> {
    status.devices.iter().filter(move |device| device.class == class && !is_lost(device))
}

/// Data that lies only on the SSDs, for policies that report no bound.
fn deferred(status: &StatusReport) -> String {
    if status.deferred_bytes == 0 {
        return String::new();
    }
    let share = percent(status.deferred_bytes as f64 / status.size_bytes as f64);
    let deferred = Bytes(status.deferred_bytes);
    format!("  behind  {deferred} ({share}) lie only on the SSDs, and are copied later\n")
}

/// Data that `pass` keeps only on the SSDs: now, highest so far, and bound. Once all SSDs are missing or
/// failed, as for other policies.
fn behind(status: &StatusReport) -> String {
    if devices_left(status, "ssd").next().is_none() {
        return deferred(status);
    }
    let (size, now) = (status.size_bytes as f64, status.deferred_bytes);
    let share = |bytes: f64| match bytes / size {
        share if share > 0.0 && share < 0.01 => format!("{:.2} %", share * 100.0),
        share => percent(share),
    };
    let mut text = format!(
        "  behind  {} now, {} of the volume: what the loss of the SSDs would cost",
        Bytes(now),
        share(now as f64)
    );
    if let Some(highest) = figure(status, "behind_highest_bytes") {
        text += &format!("; {} at most so far", Bytes((highest as u64).max(now)));
    }
    if let Some(bound) = figure(status, "behind_bound_bytes") {
        text += &format!("; bound {} ({})", Bytes(bound as u64), share(bound));
    }
    if let Some(seconds) = figure(status, "behind_bound_seconds") {
        text += &format!(" and {}", Nanos::from_secs_f64(seconds));
    }
    text + "\n"
}

/// Note if other programs cannot read the mirror of `pass`; empty if they can, or if no disk is left.
fn mirror(status: &StatusReport) -> &'static str {
    let mut disks = devices_left(status, "hdd").peekable();
    if disks.peek().is_none() || disks.all(|disk| disk.keeps_addresses) {
        return "";
    }
    "  mirror  readable by Braid only: the disk does not hold data at the volume's addresses, so no other program can mount the disk. For a disk that any \
     program can mount, create a volume with --hdd PATH,layout=tail, and copy this volume to it\n"
}

/// State of the disk with epochs, as seen without the SSDs.
fn epochs(status: &StatusReport) -> String {
    if let Some(unapplied) = status.unapplied_bytes {
        let why = status.unapplied_failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let unapplied = Bytes(unapplied);
        return format!(
            "  recovery in the background: {unapplied} are in the disk's journal, not yet in place{why}\n"
        );
    }
    let is_kept = name_of(&status.policy) == "pass" && status.policy.contains("order=epoch");
    let lost = status.devices.iter().find(|device| device.class == "ssd" && is_lost(device));
    match (status.epoch, lost) {
        _ if !is_kept => String::new(),
        (Some(epoch), _) => {
            format!("  epoch   {epoch}: the disk alone is the volume as it was when that ended\n")
        }
        (None, Some(lost)) if devices_left(status, "ssd").next().is_none() => format!(
            "  epoch   none: the disk alone is the volume now, and has all writes. Epochs begin again with a new SSD: braid device replace {} {} PATH\n",
            status.name, lost.device
        ),
        (None, _) => {
            "  epoch   none yet: the disk does not have its first full copy: until then only the SSDs have the whole volume\n"
                .to_owned()
        }
    }
}

/// Gain that `working-set` expects of its present or last moves.
fn gain(status: &StatusReport) -> String {
    let of_device = |device: &DeviceReport| device.policy_figures.get("expected_gain_ms_per_second").copied();
    let gains: Vec<f64> = status.devices.iter().filter_map(of_device).collect();
    let sum: f64 = gains.iter().sum();
    match gains.is_empty() {
        true => String::new(),
        false if sum == 0.0 => "  gain    no reorganization has moved data to an SSD yet\n".to_owned(),
        false => format!(
            "  gain    {sum:.1} ms of waiting per second: expected gain of the present reorganization, or of the last\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::samples::{device, status};
    use braid_base::MIB;
    use serde_json::{Value, json};

    fn pair(disk: Value) -> [Value; 2] {
        let mut disk = device("d1", "hdd", disk);
        disk["keeps_addresses"] = true.into();
        [device("d0", "ssd", json!({})), disk]
    }

    #[test]
    fn status_shows_current_highest_and_bounding_pass_deferral() {
        let bytes = |bytes: Bytes| bytes.0 as f64;
        let figures = json!({
            "behind_highest_bytes": bytes(MIB * 60), "behind_bound_bytes": bytes(MIB * 400), "behind_bound_seconds": 2.5,
        });
        let text = lines(&status("pass,order=lba", &pair(figures), json!({ "deferred_bytes": (MIB * 5).0 })));
        for part in ["5 MiB", "0.49 %", "60 MiB", "400 MiB", "39 %", "2.50 s"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        assert!(lines(&status("raid1", &pair(json!({})), json!({}))).is_empty());
    }

    #[test]
    fn pass_status_suggests_layout_tail_for_translated_hdd() {
        let mut devices = pair(json!({}));
        let says = |policy: &str, devices: &[Value]| {
            lines(&status(policy, devices, json!({}))).contains("layout=tail")
        };
        assert!(!says("pass,order=lba", &devices));
        devices[1]["keeps_addresses"] = false.into();
        assert!(says("pass,order=lba", &devices) && !says("equi", &devices));
    }

    /// Bug: after a recovery the status said "none yet: the disk alone is not a state of the volume", while
    /// the volume was served from its disk alone.
    #[test]
    fn status_shows_epoch_if_hdd_alone_serves_the_volume() {
        let mut devices = pair(json!({}));
        let text = |devices: &[Value]| lines(&status("pass,order=epoch", devices, json!({})));
        let first = text(&devices);
        devices[0]["state"] = "missing".into();
        let alone = text(&devices);
        assert!(first.contains("epoch") && alone.contains("epoch") && first != alone);
        assert!(alone.contains("braid device replace vault d0") && !first.contains("replace"), "{alone}");
        assert!(!alone.contains("behind"), "no SSD can be lost any more: {alone}");
    }

    #[test]
    fn status_shows_expected_gain_of_reorganization() {
        let figures = |gain: f64| json!({ "expected_gain_ms_per_second": gain });
        let devices = [device("d0", "hdd", figures(1.5)), device("d1", "hdd", figures(11.0))];
        assert!(lines(&status("working-set", &devices, json!({}))).contains("12.5 ms"));
        let none = lines(&status("working-set", &[device("d0", "hdd", figures(0.0))], json!({})));
        assert!(none.contains("gain") && !none.contains("0.0"), "{none}");
    }
}
