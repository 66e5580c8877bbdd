//! Baselines that place by a fixed rule and never move data: `ssd-only`, `hdd-only`, `stripe`, `static`.
//!
//! Wu and Reddy compare with these baselines (sections II and III): all on the SSD; all on the disks, striped
//! if there are several; striped over all devices alike; and split by fixed shares, 80/20 among others
//! (figure 1).
//!
//! Shares count allocated extents. The device furthest below its share gets the next new extent, so that
//! every prefix of the allocations is split as closely as whole extents allow.

use crate::{BadSetting, DeviceView, Occasion, Placement, Plan, Policy, Settings, View};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};

/// Places new extents by a fixed rule.
pub struct Fixed {
    name: &'static str,
    rule: Rule,
    text: String,
}

enum Rule {
    /// Extent i goes to device i modulo the number of listed devices.
    RoundRobin(Vec<DeviceId>),
    /// A share for each device, by id.
    Shares(Vec<f64>),
}

impl Fixed {
    /// Creates the policy. Settings of `static`: `ssd=80%` splits between the classes, evenly within each;
    /// `d0=50%,d1=30%,…` names devices, and unnamed devices share the rest evenly. The other policies have no
    /// settings.
    ///
    /// Fails if the shares are missing, mixed or do not add up to 100 %, or if the volume has no device for
    /// the rule.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<Fixed, BadSetting> {
        let of_class = |class: DeviceClass| -> Result<Vec<DeviceId>, BadSetting> {
            let ids: Vec<DeviceId> = DeviceView::of_class(devices, class).map(|d| d.id).collect();
            match ids.is_empty() {
                true => Err(BadSetting::new(format!(
                    "policy {class}-only needs a device of class {class}, and the volume has none: use another policy"
                ))),
                false => Ok(ids),
            }
        };
        let (name, rule, text) = match settings.name() {
            "ssd-only" => ("ssd-only", Rule::RoundRobin(of_class(DeviceClass::Ssd)?), String::new()),
            "hdd-only" => ("hdd-only", Rule::RoundRobin(of_class(DeviceClass::Hdd)?), String::new()),
            "stripe" => {
                let with_slots = devices.iter().filter(|device| device.slots > 0);
                let ids: Vec<DeviceId> = with_slots.map(|device| device.id).collect();
                if ids.is_empty() {
                    return Err(BadSetting::new("policy stripe needs a device with room: add one"));
                }
                ("stripe", Rule::RoundRobin(ids), String::new())
            }
            _ => {
                let shares = shares(settings, devices)?;
                let text = text(&shares, devices);
                ("static", Rule::Shares(shares), text)
            }
        };
        Ok(Fixed { name, rule, text })
    }

    /// Returns the device of a new extent. A separate function: the decision at all other requests is
    /// constant.
    #[inline(never)]
    fn place_new(&self, extent: ExtentId, view: &View) -> DeviceId {
        match &self.rule {
            Rule::RoundRobin(devices) => devices[extent.index() % devices.len()],
            Rule::Shares(shares) => furthest_below(shares, view),
        }
    }
}

/// Names of devices for shares by device. A volume with more devices takes shares by class.
const KEYS: [&str; 32] = [
    "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11", "d12", "d13", "d14", "d15",
    "d16", "d17", "d18", "d19", "d20", "d21", "d22", "d23", "d24", "d25", "d26", "d27", "d28", "d29", "d30",
    "d31",
];

/// Returns the settings that reproduce the shares.
fn text(shares: &[f64], devices: &[DeviceView]) -> String {
    if shares.len() <= KEYS.len() {
        let pairs = shares.iter().zip(KEYS).map(|(&share, key)| format!("{key}={}", percent(share)));
        return pairs.collect::<Vec<_>>().join(",");
    }
    let of_ssds = devices.iter().zip(shares).filter(|(device, _)| device.class == DeviceClass::Ssd);
    format!("ssd={}", percent(of_ssds.map(|(_, share)| share).sum()))
}

fn shares(settings: &mut Settings, devices: &[DeviceView]) -> Result<Vec<f64>, BadSetting> {
    let (ssd, hdd) = (settings.take_share("ssd")?, settings.take_share("hdd")?);
    let mut named = Vec::new();
    for device in devices {
        let key = KEYS.get(device.id.index());
        named.push(key.map_or(Ok(None), |key| settings.take_share(key))?);
    }
    if named.iter().any(Option::is_some) && devices.len() > KEYS.len() {
        return Err(BadSetting::new(format!(
            "policy static takes shares by device for {} devices at most, and the volume has {}: give them by class, as ssd=80%",
            KEYS.len(),
            devices.len()
        )));
    }
    if (ssd.is_some() || hdd.is_some()) == named.iter().any(Option::is_some) {
        return Err(BadSetting::new(
            "policy static needs shares: either by class, as ssd=80%, or by device, as d0=50%,d1=30%",
        ));
    }
    let split_evenly = |rest: f64, count: usize| if count == 0 { 0.0 } else { rest / count as f64 };
    let mut shares: Vec<f64> = if ssd.is_some() || hdd.is_some() {
        let ssd = ssd.unwrap_or_else(|| 1.0 - hdd.unwrap_or(0.0));
        let hdd = hdd.unwrap_or(1.0 - ssd);
        let count = |class| DeviceView::of_class(devices, class).count();
        let share = |d: &DeviceView| match d.class {
            _ if d.slots == 0 => 0.0,
            DeviceClass::Ssd => split_evenly(ssd, count(DeviceClass::Ssd)),
            DeviceClass::Hdd => split_evenly(hdd, count(DeviceClass::Hdd)),
        };
        devices.iter().map(share).collect()
    } else {
        let rest = 1.0 - named.iter().flatten().sum::<f64>();
        let unnamed = named.iter().filter(|s| s.is_none()).count();
        named.iter().map(|s| s.unwrap_or(split_evenly(rest.max(0.0), unnamed))).collect()
    };
    // The rest of 80 % is 20 %, and not 19.999999999999996 %.
    shares.iter_mut().for_each(|share| *share = (*share * FINENESS).round() / FINENESS);
    let sum: f64 = shares.iter().sum();
    if (sum - 1.0).abs() > 0.001 {
        return Err(BadSetting::new(format!(
            "the shares of policy static add up to {:.1} %, not to 100 %: give each class or device of the volume one",
            sum * 100.0
        )));
    }
    Ok(shares)
}

/// Returns a share in per cent, without superfluous digits. Parsing the text returns the same share.
fn percent(share: f64) -> String {
    let text = format!("{:.10}", share * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Shares are multiples of `1 / FINENESS`, 10 digits of a per cent: finer than an extent of the largest
/// volume.
const FINENESS: f64 = 1e12;

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        self.name
    }

    /// True for `hdd-only`. Applies only if every home is on a disk already: then nothing is placed.
    fn keeps_homes(&self) -> bool {
        self.name == "hdd-only"
    }

    fn settings(&self) -> String {
        self.text.clone()
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        let Occasion::New { extent, .. } = occasion else { return Placement::KEEP };
        Placement::on(self.place_new(*extent, view))
    }

    fn plan(&mut self, view: &View, _plan: &mut Plan) -> Nanos {
        view.now + Nanos::from_secs(3600)
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let rule = match &self.rule {
            Rule::RoundRobin(devices) => format!(
                "extent {} modulo {} device(s) is {}",
                extent.0,
                devices.len(),
                devices[extent.index() % devices.len()]
            ),
            Rule::Shares(shares) => {
                let used: f64 = view.devices.iter().map(used_slots).sum::<f64>().max(1.0);
                let each = view.devices.iter().map(|d| {
                    let (share, now) = (shares[d.id.index()], used_slots(d) / used);
                    format!("{} {:.1} % of {:.1} %", d.id, now * 100.0, share * 100.0)
                });
                format!(
                    "a new extent goes to the device furthest below its share: {}",
                    each.collect::<Vec<_>>().join(", ")
                )
            }
        };
        format!("{rule}; {} never moves anything", self.name)
    }

    fn uses(&self, device: &DeviceView) -> bool {
        match &self.rule {
            Rule::RoundRobin(devices) => devices.contains(&device.id),
            Rule::Shares(shares) => shares[device.id.index()] > 0.0,
        }
    }
}

fn used_slots(device: &DeviceView) -> f64 {
    f64::from(device.slots - device.free)
}

/// Returns the device with the largest deficit from its share, with the next extent counted.
fn furthest_below(shares: &[f64], view: &View) -> DeviceId {
    let total: f64 = view.devices.iter().map(used_slots).sum::<f64>() + 1.0;
    let lacks = |d: &DeviceView| shares[d.id.index()] * total - used_slots(d);
    let candidates = view.devices.iter().filter(|d| shares[d.id.index()] > 0.0);
    let best = candidates.max_by(|a, b| lacks(a).total_cmp(&lacks(b)).then(b.id.cmp(&a.id)));
    best.map_or(view.devices[0].id, |d| d.id)
}
