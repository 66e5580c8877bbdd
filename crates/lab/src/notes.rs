//! What a reader of an outcome should know before believing it, in sentences.

use crate::outcome::Outcome;
use crate::rig::Kind;
use braid_base::DeviceClass;

/// The notes of an outcome, beside those of its load. `unwritten` pieces of reads met extents that hold nothing.
pub(crate) fn notes(outcome: &Outcome, kinds: &[Kind], is_open_loop: bool, unwritten: u64) -> Vec<String> {
    let larger = |(kind, device): (&Kind, _)| larger_than_its_model(kind, device);
    let mut notes: Vec<String> =
        kinds.iter().zip(outcome.devices.iter().map(|device| &*device.id)).filter_map(larger).collect();
    notes.extend(spill(outcome));
    if unwritten > 0 {
        notes.push(format!(
            "{unwritten} reads met extents that were never written, which takes no time: see --prefill"
        ));
    }
    let all = &outcome.all;
    if is_open_loop && all.queue.mean > all.service.mean {
        notes.push(format!(
            "overload: requests wait {:.1} ms outside the volume on average, and take {:.1} ms in it: the devices are too slow for \
             the times of the load; see --speed and --clients",
            all.queue.mean / 1e6,
            all.service.mean / 1e6
        ));
    }
    notes
}

fn larger_than_its_model(kind: &Kind, id: &str) -> Option<String> {
    let Kind { model, size, capacity, .. } = kind;
    (size > capacity)
        .then(|| format!("{id} has {size}, and {model} is a device of {capacity}, whose timing it has"))
}

/// Of a policy that keeps to one class: what lies on the other one.
fn spill(outcome: &Outcome) -> Option<String> {
    let policy = outcome.policy.as_str();
    let other = match policy {
        "ssd-only" => DeviceClass::Hdd,
        "hdd-only" => DeviceClass::Ssd,
        _ => return None,
    };
    let share: f64 = outcome.devices.iter().filter(|device| device.is(other)).map(|d| d.data_share).sum();
    let percent = share * 100.0;
    (share > 0.0).then(|| {
        format!("{policy} has no room for all: {percent:.1} % of the data lies on devices of class {other}")
    })
}
