//! Policies decide where copies lie and when they move. Each published system has one file, which reads like
//! its paper.
//!
//! A policy decides; the engine acts. The engine asks, and the policy answers with values ([`Placement`],
//! [`Plan`]). A policy has no clock, I/O or randomness of its own: time and volume come as a [`View`], events
//! as [`Request`] and [`Completion`]. The same code therefore serves a volume and a simulation, and any
//! decision can be replayed.
#![forbid(unsafe_code)]

mod cache;
pub mod caching;
mod cell_list;
mod colloid;
mod equi;
mod exclusive;
mod fixed;
mod hemem;
mod hystor;
mod lru;
mod most;
mod orthus;
mod pass;
mod placement;
mod plan;
mod raid1;
mod request;
mod ssd_first;
mod tier;
mod view;
mod wardrop;
mod working_set;

pub use cache::Cache;
pub use cell_list::CellLists;
pub use colloid::Colloid;
pub use equi::Equi;
pub use exclusive::Exclusive;
pub use fixed::Fixed;
pub use hystor::Hystor;
pub use lru::Lru;
pub use most::Most;
pub use orthus::Orthus;
pub use pass::Pass;
pub use placement::{Home, Occasion, Placement, Second, WriteTarget};
pub use plan::{Move, Outcome, Plan};
pub use raid1::Raid1;
pub use request::{ByteRange, Completion, Direction, Flags, Origin, Piece, Request, WholeInMemory};
pub use ssd_first::SsdFirst;
pub use view::{CellId, CopyKind, CurrentCopy, DeviceView, ExtraCopy, Homes, View};
pub use wardrop::Wardrop;
pub use working_set::WorkingSet;

pub use braid_base::{BadSetting, Settings};

use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, Nanos};

/// A policy. The module of each policy names its source.
///
/// The first methods are on the path of guests' requests: each takes constant time and allocates nothing in
/// the steady state. None fails: an impossible answer falls back by the rules of [`Placement`] and
/// [`Outcome`].
pub trait Policy {
    /// True if the engine calls `observe` and `throttle`. Read when the policy becomes active. The calls cost
    /// each request some 20 ns, and most policies learn enough from `place`.
    fn observes(&self) -> bool {
        false
    }

    /// Observes a guest's request: once, before the request waits for anything or is cut into pieces.
    fn observe(&mut self, _request: &Request, _view: &View) {}

    /// Returns the time that a guest's request waits before the engine serves the request, at most
    /// [`LONGEST_THROTTLE`]. Called once, after `observe`.
    fn throttle(&mut self, _request: &Request, _view: &View) -> Nanos {
        Nanos::ZERO
    }

    /// Places the bytes of a piece. Called for each piece of a request, with the extent's lock held. If the
    /// extent has lost its home since, the engine asks again for the write, as a new extent.
    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a>;

    /// Sorts current copies by preference for a read. If the first copy fails, the next copy is read.
    fn rank_reads(&self, copies: &mut [CurrentCopy], view: &View) {
        view.sort_by_read_wait(copies);
    }

    /// Notes that a device completed a request.
    fn completed(&mut self, _io: &Completion) {}

    /// Fills an empty plan with background work. Returns the time of the next call, at least 1 ms later.
    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos;

    /// Notes the end of a move of the last plan. Called once for each move, unless another policy has become
    /// active meanwhile.
    fn done(&mut self, _job: &Move, _outcome: Outcome) {}

    /// Receives the bytes of a range, as asked for by [`Move::Inspect`]. A range beyond the end of the volume
    /// gives fewer bytes. The bytes are guests' and may be anything.
    fn inspected(&mut self, _range: ByteRange, _bytes: &[u8], _view: &View) {}

    /// Returns the number of extent slots of a device that may hold extra copies. If a newly active policy
    /// allows fewer, the engine drops copies down to the limit: clean copies at once, dirty copies after
    /// write-back.
    fn extra_slots(&self, _device: &DeviceView) -> u32 {
        0
    }

    /// Returns the block whose extra copy is evicted from a device to make room for another. A dirty copy
    /// stays, and no room is made.
    fn evict(&mut self, _device: DeviceId, _view: &View) -> Option<BlockId> {
        None
    }

    /// Notes a change of a block's extra copy from `before` to `now`: created, now dirty, now clean, or gone.
    /// Called once for each change. A newly active policy is told of all existing copies.
    fn extra_changed(&mut self, _block: BlockId, _before: Option<ExtraCopy>, _now: Option<ExtraCopy>) {}

    /// True if the image disk, with its journal, must always equal the volume at a past instant. Only epochs
    /// then write to the disk, whatever `place` answers for second copies.
    fn keeps_epochs(&self) -> bool {
        false
    }

    /// Returns the bytes that the image may lag, once its whole lag is known. A write beyond the bound waits
    /// for the end of an epoch.
    fn epoch_bound(&self, _view: &View) -> Bytes {
        Bytes(u64::MAX)
    }

    /// Returns the bytes that one write may add to the lag of the image. If the image lags by nothing, any
    /// write is admitted, so the bound must hold for one write alone. The engine cuts longer writes, but not
    /// below an extent. Until the comparison of the disk has ended, this is also the bound of the whole lag.
    fn longest_change(&self, _view: &View) -> Bytes {
        Bytes(u64::MAX)
    }

    /// Returns the class of devices that the volume cannot do without. If one of these devices is missing or
    /// failed, writes, zeroing and discards fail; reads continue. `None` if the volume continues with the
    /// copies that are left.
    fn stops_without(&self) -> Option<DeviceClass> {
        None
    }

    /// Returns the policy in each of its modes, as from [`written`]; empty if the policy has no modes. An
    /// active policy can be switched between its modes. Simulations of the load tell the best mode. `haste`
    /// divides the policy's times, for a simulation with time `haste` times as fast.
    fn modes(&self, _haste: u32) -> Vec<String> {
        Vec::new()
    }

    /// Returns the index of the present mode in [`Policy::modes`].
    fn mode(&self) -> usize {
        0
    }

    /// Switches to another mode and keeps everything learned. Later answers are for the new mode,
    /// [`Policy::extra_slots`] included.
    fn switch(&mut self, _mode: usize) {}

    /// True if the policy never moves homes, wherever they are. Only such a policy fits an adopted disk, on
    /// which every byte stays in its place.
    fn keeps_homes(&self) -> bool {
        false
    }

    /// Returns the least number of required copies: a volume with fewer copies refuses the policy.
    fn copies(&self) -> u8 {
        1
    }

    /// Returns the name on the command line.
    fn name(&self) -> &'static str;

    /// Returns the present settings as `key=value,…`. The name and the settings together make an equal
    /// policy.
    fn settings(&self) -> String {
        String::new()
    }

    /// Explains the place of an extent and its possible next moves, with numbers.
    fn explain(&self, extent: ExtentId, view: &View) -> String;

    /// Returns figures of a device for status: pairs of a name with its unit, and a number.
    fn figures(&self, _device: DeviceId) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Returns the memory of the policy in bytes, approximately.
    fn memory(&self) -> usize {
        0
    }

    /// True if the policy places homes on the device by choice: the volume's size is computed from such
    /// devices.
    fn uses(&self, _device: &DeviceView) -> bool {
        true
    }

    /// Returns the learned state for the next opening of the volume, at most [`LONGEST_STATE`]. Called every
    /// few minutes, at a shutdown, and before a change of settings. The saved state may be missing, or older
    /// than the view. [`View::now`] begins anew at each opening: a policy saves ages, not times.
    fn save(&self, _view: &View) -> Vec<u8> {
        Vec::new()
    }

    /// Restores a state from `save`. The state is from a policy of the same name, perhaps with other settings
    /// or from another version: unknown parts are ignored. The bytes may be anything. They must neither cause
    /// a panic nor take more memory than the volume in the view needs. Called once, after `extra_changed` has
    /// told of all existing copies.
    fn restore(&mut self, _state: &[u8], _view: &View) {}

    /// Calls `observe` and `throttle` in one dynamic call. For the engine; not to be overridden.
    fn arrived(&mut self, request: &Request, view: &View) -> Nanos {
        self.observe(request, view);
        self.throttle(request, view).min(LONGEST_THROTTLE)
    }
}

/// Longest delay of a request by a policy: far below the time-outs of guests.
pub const LONGEST_THROTTLE: Nanos = Nanos::from_secs(1);

/// Longest range of one inspection.
pub const LONGEST_INSPECTED: Bytes = Bytes(128 << 10);

/// Longest saved state of a policy: the state is written whole, twice.
pub const LONGEST_STATE: Bytes = Bytes(255 << 10);

/// Returns a policy as `name` or `name,key=value,…` with all settings, in the form that people write.
/// [`parse`] makes an equal policy from the text.
pub fn written(policy: &dyn Policy) -> String {
    as_written(policy.name(), &policy.settings())
}

fn as_written(name: &str, settings: &str) -> String {
    let mut text = name.to_owned();
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let written = setting.split_once('=').map_or_else(
            || setting.to_owned(),
            |(key, value)| format!("{key}={}", braid_base::written(value)),
        );
        text = text + "," + &written;
    }
    text
}

/// Makes a policy from `name` or `name,key=value,…`, for a volume with these devices.
///
/// # Errors
/// If the name, a setting or a value is not valid, or the devices do not fit the policy.
pub fn parse(text: &str, devices: &[DeviceView]) -> Result<Box<dyn Policy>, BadSetting> {
    parse_with_keys(text, devices).map(|(policy, _)| policy)
}

/// Like [`parse`]; also returns the settings that the policy accepts. Some settings are accepted only
/// together with others.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_keys(
    text: &str,
    devices: &[DeviceView],
) -> Result<(Box<dyn Policy>, Vec<&'static str>), BadSetting> {
    let mut settings = Settings::parse("policy", text)?;
    let policy = take(&mut settings, devices)?;
    let beside = settings.left().and_then(|key| beside(&settings, key, devices));
    let keys = settings.finish().map_err(|error| match beside {
        Some(beside) => error.and(&format!("it has that setting only with {beside}")),
        None => error.and("docs/policies/ says what each does"),
    })?;
    Ok((policy, keys))
}

/// Returns the setting that the policy requires before it accepts `key`.
fn beside(settings: &Settings, key: &str, devices: &[DeviceView]) -> Option<&'static str> {
    /// Settings that make other settings valid.
    const BRING: [&str; 5] =
        ["mode=write-back", "evict=s3-fifo", "admit=sievestore", "write-behind", "order=epoch"];
    BRING.into_iter().find(|bring| {
        let with = Settings::parse("policy", &format!("{},{bring}", settings.name()));
        with.is_ok_and(|mut with| take(&mut with, devices).is_ok() && with.has_known(key))
    })
}

/// Makes the policy of these settings. Settings unknown to the policy remain in `settings`.
fn take(settings: &mut Settings, devices: &[DeviceView]) -> Result<Box<dyn Policy>, BadSetting> {
    Ok(match settings.name() {
        "equi" => Box::new(Equi::new(settings, devices)?),
        "wardrop" => Box::new(Wardrop::new(settings, devices)?),
        "ssd-first" => Box::new(SsdFirst::new(settings, devices)?),
        "cache" => Box::new(Cache::new(settings, devices)?),
        "orthus" => Box::new(Orthus::new(settings, devices)?),
        "colloid" => Box::new(Colloid::new(settings, devices)?),
        "most" => Box::new(Most::new(settings, devices)?),
        "hystor" => Box::new(Hystor::new(settings, devices)?),
        "exclusive" | "inclusive" => Box::new(Exclusive::new(settings, devices)?),
        "pass" => Box::new(Pass::new(settings, devices)?),
        "working-set" => Box::new(WorkingSet::new(settings, devices)?),
        "raid1" => Box::new(Raid1::new(settings, devices)?),
        "ssd-only" | "hdd-only" | "stripe" | "static" => Box::new(Fixed::new(settings, devices)?),
        other => return Err(BadSetting::unknown_name("policy", other, NAMES.iter().copied())),
    })
}

/// Like [`parse`], for the active policy of these devices. The policy stays active if a class has no device
/// with slots any more, and uses the other devices. Also returns the error of [`parse`], if any.
///
/// # Errors
/// If the settings are not valid.
pub fn parse_in_charge(
    text: &str,
    devices: &[DeviceView],
) -> Result<(Box<dyn Policy>, Option<BadSetting>), BadSetting> {
    let lacking = match parse(text, devices) {
        Ok(policy) => return Ok((policy, None)),
        Err(lacking) => lacking,
    };
    // The view of each later call has the real number of slots.
    let all: Vec<DeviceView> =
        devices.iter().map(|device| DeviceView { slots: device.slots.max(1), ..*device }).collect();
    Ok((parse(text, &all)?, Some(lacking)))
}

/// Returns the names of the policies that fit these devices and never move homes.
pub fn keeping_homes(devices: &[DeviceView]) -> Vec<&'static str> {
    let keeps = |name: &&&str| parse(name, devices).is_ok_and(|policy| policy.keeps_homes());
    NAMES.iter().filter(keeps).copied().collect()
}

/// Policy of a volume that names none.
pub const DEFAULT: &str = "equi,mode=auto";

/// Names of all policies.
pub const NAMES: &[&str] = &[
    "equi",
    "wardrop",
    "working-set",
    "pass",
    "hystor",
    "exclusive",
    "inclusive",
    "raid1",
    "ssd-only",
    "hdd-only",
    "stripe",
    "static",
    "ssd-first",
    "cache",
    "orthus",
    "colloid",
    "most",
];
