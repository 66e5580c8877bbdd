//! Notes on an outcome, in sentences: caveats for the reader.

use crate::outcome::{LinkOutcome, Outcome};
use crate::rig::DeviceKind;
use braid_base::DeviceClass;

/// The notes of an outcome, beside those of its load. `unwritten` is the number of pieces of reads in extents
/// without data.
pub(crate) fn notes(
    outcome: &Outcome,
    kinds: &[DeviceKind],
    is_open_loop: bool,
    unwritten: u64,
) -> Vec<String> {
    let larger = |(kind, device): (&DeviceKind, _)| larger_than_its_model(kind, device);
    let mut notes: Vec<String> =
        kinds.iter().zip(outcome.devices.iter().map(|device| &*device.device)).filter_map(larger).collect();
    notes.extend(spill(outcome));
    notes.extend(outcome.network.iter().flat_map(|network| network.links.iter().filter_map(full)));
    if unwritten > 0 {
        notes.push(format!("{unwritten} reads of unwritten extents, which take no time: see --prefill"));
    }
    let all = &outcome.all;
    if is_open_loop && all.queue.mean > all.service.mean {
        notes.push(format!(
            "overload: requests wait {:.1} ms outside the volume on average, and take {:.1} ms in it: the \
             devices are too slow for the load; see --speed and --clients",
            all.queue.mean / 1e6,
            all.service.mean / 1e6
        ));
    }
    notes
}

fn larger_than_its_model(kind: &DeviceKind, id: &str) -> Option<String> {
    let DeviceKind { model, size, capacity, .. } = kind;
    (size > capacity).then(|| {
        format!(
            "{id} has {size}, and its model {model} is a device of {capacity}: the timing is of {capacity}"
        )
    })
}

/// Note on a link that limits the devices.
fn full(link: &LinkOutcome) -> Option<String> {
    let (verb, most) = match link.send_utilisation >= link.receive_utilisation {
        true => ("sends", link.send_utilisation),
        false => ("receives", link.receive_utilisation),
    };
    let machine = link.node.as_deref().unwrap_or("the host");
    (most >= FULL).then(|| {
        format!("the network is a limit: {machine} {verb} {:.0} % of the time on its link", most * 100.0)
    })
}

/// Note on a policy with a placement rule, if some data lies elsewhere.
fn spill(outcome: &Outcome) -> Option<String> {
    let of_class = |class: DeviceClass| outcome.devices.iter().filter(move |device| device.is(class));
    let on = |class| of_class(class).map(|device| device.data_share).sum::<f64>();
    let (asked, found, what) = match outcome.policy.split_once(',').unwrap_or((&outcome.policy, "")) {
        ("ssd-only", _) => (0.0, on(DeviceClass::Hdd), "on devices of class hdd"),
        ("hdd-only", _) => (0.0, on(DeviceClass::Ssd), "on devices of class ssd"),
        ("static", shares) => {
            (share_of_ssds(outcome, shares)?, on(DeviceClass::Ssd), "on devices of class ssd")
        }
        _ => return None,
    };
    let differs = outcome.mapped_bytes > 0 && (found - asked).abs() > SPILL;
    let (asked, found) = (asked * 100.0, found * 100.0);
    differs.then(|| {
        format!(
            "{} has no room for what it asks: {found:.1} % of the data is {what}, and not {asked:.1} %",
            outcome.policy
        )
    })
}

/// Share of data that a static split (`d0=20%,d1=80%`) puts on the SSDs.
fn share_of_ssds(outcome: &Outcome, shares: &str) -> Option<f64> {
    let share = |id: &str| {
        let found = shares.split(',').find_map(|share| share.strip_prefix(id)?.strip_prefix('='));
        found?.strip_suffix('%')?.parse::<f64>().ok()
    };
    let ssds = outcome.devices.iter().filter(|device| device.is(DeviceClass::Ssd));
    ssds.map(|device| share(&device.device)).sum::<Option<f64>>().map(|percent| percent / 100.0)
}

/// Utilisation from which on a link is a limit.
const FULL: f64 = 0.9;

/// Tolerated deviation from a placement rule, as a share of the data: whole extents do not split exactly.
const SPILL: f64 = 0.01;
