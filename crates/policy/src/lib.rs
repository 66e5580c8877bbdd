//! Policies: where a copy of what goes, and when it moves. One file per published system, which reads like
//! its paper.
//!
//! A policy decides; the engine does. The engine asks, the policy answers with values ([`Placement`],
//! [`Plan`]). It has no clock, I/O or randomness of its own: time and the volume come as a [`View`], what
//! happened as [`Request`] and [`Completion`]. So the same code serves a volume and a simulation, and a
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

/// A policy. See the module of each for what it follows.
///
/// The first group of methods is on the path of guests' requests: each takes constant time and allocates
/// nothing in the steady state. None fails: an answer that cannot be carried out falls back as [`Placement`]
/// and [`Outcome`] say.
pub trait Policy {
    /// Whether `observe` and `throttle` are asked at all, read when the policy takes charge. That costs each
    /// request some 20 ns, and most policies learn enough from `place`.
    fn observes(&self) -> bool {
        false
    }

    /// Learns of a guest's request, once, before it waits for anything or is cut into pieces.
    fn observe(&mut self, _request: &Request, _view: &View) {}

    /// How long a guest's request waits before it is served, asked once after `observe`: at most
    /// [`LONGEST_THROTTLE`].
    fn throttle(&mut self, _request: &Request, _view: &View) -> Nanos {
        Nanos::ZERO
    }

    /// Where the bytes of a piece go. Asked for each piece of a request, with the extent's lock held; of a
    /// write once more, as new, if the extent has lost its home since.
    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a>;

    /// Sorts the copies that hold the current bytes by which is read first; the others follow if it fails.
    fn rank_reads(&self, copies: &mut [CurrentCopy], view: &View) {
        view.sort_by_read_wait(copies);
    }

    /// A device completed a request.
    fn completed(&mut self, _io: &Completion) {}

    /// What to do in the background from now on, into an empty plan; returns when to ask again, which is at
    /// least 1 ms later.
    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos;

    /// A move of the last plan has ended. Told once of each, unless another policy has taken charge
    /// meanwhile.
    fn done(&mut self, _job: &Move, _outcome: Outcome) {}

    /// What the volume holds in a range, which [`Move::Inspect`] asked for. The bytes are fewer if the range
    /// goes on beyond the volume. They are those of guests, and may be anything.
    fn inspected(&mut self, _range: ByteRange, _bytes: &[u8], _view: &View) {}

    /// How many extent slots of a device may hold extra copies. If more do when it takes charge, copies go
    /// until no more do: clean ones at once, dirty ones once they are written back.
    fn extra_slots(&self, _device: &DeviceView) -> u32 {
        0
    }

    /// The block whose extra copy on a device goes to make room for another. A dirty one stays, and no room
    /// is made.
    fn evict(&mut self, _device: DeviceId, _view: &View) -> Option<BlockId> {
        None
    }

    /// The extra copy of a block was one thing and is now the other: it was made, became dirty or clean, or
    /// is gone. Told once of each change; a policy that takes charge is told of the copies that there are.
    fn extra_changed(&mut self, _block: BlockId, _before: Option<ExtraCopy>, _now: Option<ExtraCopy>) {}

    /// Whether the disk that keeps addresses, with its journal, shall always be the volume as it was at a
    /// past instant: then it is written by epochs alone, whatever `place` says of the second copies.
    fn keeps_epochs(&self) -> bool {
        false
    }

    /// How much that disk may lack, once all that is known. A write that would make it more waits for the end
    /// of an epoch.
    fn epoch_bound(&self, _view: &View) -> Bytes {
        Bytes(u64::MAX)
    }

    /// How much that disk may lack of one write, which begins though nothing may be lacking beside it. The
    /// engine cuts longer ones, but not below an extent. While the disk is compared, that is also the bound
    /// of all that it lacks.
    fn longest_change(&self, _view: &View) -> Bytes {
        Bytes(u64::MAX)
    }

    /// The class of which no device may be missing or failed: else what guests write, zero or discard fails,
    /// and they can read. None if the volume goes on with the copies that are left.
    fn stops_without(&self) -> Option<DeviceClass> {
        None
    }

    /// The policy in each mode between which it can be switched while it is in charge, as [`written`]; none
    /// if it has no choice. Simulations of the load tell which is the best; where time passes `haste` times
    /// as fast, times of the policy are as much shorter.
    fn modes(&self, _haste: u32) -> Vec<String> {
        Vec::new()
    }

    /// The place of the present mode in [`Policy::modes`].
    fn mode(&self) -> usize {
        0
    }

    /// Goes on in another of these modes, with what it has learned. What it asks for next is for that mode,
    /// [`Policy::extra_slots`] included.
    fn switch(&mut self, _mode: usize) {}

    /// Whether it leaves homes where they are, wherever that is: only then it fits a disk that was adopted,
    /// where every byte stays in its place.
    fn keeps_homes(&self) -> bool {
        false
    }

    /// Required copies of each extent that it needs, at least: a volume with fewer refuses it.
    fn copies(&self) -> u8 {
        1
    }

    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Its settings with their present values, as `key=value,…`: with the name before it, the way to make it
    /// again.
    fn settings(&self) -> String {
        String::new()
    }

    /// Why an extent lies where it lies, and what may happen next, with the numbers.
    fn explain(&self, extent: ExtentId, view: &View) -> String;

    /// What the policy knows of each device, for status: pairs of a name with its unit, and a number.
    fn figures(&self, _device: DeviceId) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Bytes of memory that it takes, about.
    fn memory(&self) -> usize {
        0
    }

    /// Devices that homes are placed on by choice: what a volume's size is computed from.
    fn uses(&self, _device: &DeviceView) -> bool {
        true
    }

    /// What it has learned, at most [`LONGEST_STATE`], for the next time that the volume is opened. Asked
    /// every few minutes, and when the volume closes or gets other settings. The volume keeps it as of such a
    /// moment, so that it may be missing, or be older than what the view shows. [`View::now`] begins anew at
    /// each opening: a policy saves ages, not times.
    fn save(&self, _view: &View) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back what `save` returned when a policy of this name was in charge, with the same settings or
    /// others, in this version or another: what it does not understand it ignores. The bytes may be anything,
    /// and must neither make it panic nor take memory beyond what the volume in the view needs. Called once,
    /// after `extra_changed` has told of the copies that there are.
    fn restore(&mut self, _state: &[u8], _view: &View) {}

    /// For the engine: `observe` and `throttle` in one dynamic call. Not to be overridden.
    fn arrived(&mut self, request: &Request, view: &View) -> Nanos {
        self.observe(request, view);
        self.throttle(request, view).min(LONGEST_THROTTLE)
    }
}

/// The longest time that a policy may hold up a request: far below the time-outs of guests.
pub const LONGEST_THROTTLE: Nanos = Nanos::from_secs(1);

/// The most that a policy may ask to see at once.
pub const LONGEST_INSPECTED: Bytes = Bytes(128 << 10);

/// The most that a policy may save: it is written whole, twice.
pub const LONGEST_STATE: Bytes = Bytes(255 << 10);

/// A policy as `name` or `name,key=value,…` with all its settings: what [`parse`] makes it from again, as
/// people write it.
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

/// Makes a policy from `name` or `name,key=value,…`, for volumes with these devices.
pub fn parse(text: &str, devices: &[DeviceView]) -> Result<Box<dyn Policy>, BadSetting> {
    parse_with_keys(text, devices).map(|(policy, _)| policy)
}

/// As [`parse`], with the settings that such a policy takes: some are taken only beside others.
///
/// # Errors
/// For settings that are none.
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

/// The setting without which a policy does not have the setting `key`.
fn beside(settings: &Settings, key: &str, devices: &[DeviceView]) -> Option<&'static str> {
    /// Settings that bring others with them.
    const BRING: [&str; 5] =
        ["mode=write-back", "evict=s3-fifo", "admit=sievestore", "write-behind", "order=epoch"];
    BRING.into_iter().find(|bring| {
        let with = Settings::parse("policy", &format!("{},{bring}", settings.name()));
        with.is_ok_and(|mut with| take(&mut with, devices).is_ok() && with.has_known(key))
    })
}

/// The policy of these settings; what it does not know stays there.
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

/// As [`parse`], for a policy that has been in charge of these devices: it stays so if a class has no device
/// with slots any more, and uses what there is. With what it lacks then.
///
/// # Errors
/// For settings that are none.
pub fn parse_in_charge(
    text: &str,
    devices: &[DeviceView],
) -> Result<(Box<dyn Policy>, Option<BadSetting>), BadSetting> {
    let lacking = match parse(text, devices) {
        Ok(policy) => return Ok((policy, None)),
        Err(lacking) => lacking,
    };
    // Each question shows what slots there are.
    let all: Vec<DeviceView> =
        devices.iter().map(|device| DeviceView { slots: device.slots.max(1), ..*device }).collect();
    Ok((parse(text, &all)?, Some(lacking)))
}

/// The names of the policies that these devices allow, and that leave homes where they are.
pub fn keeping_homes(devices: &[DeviceView]) -> Vec<&'static str> {
    let keeps = |name: &&&str| parse(name, devices).is_ok_and(|policy| policy.keeps_homes());
    NAMES.iter().filter(keeps).copied().collect()
}

/// The policy of a volume that is given none.
pub const DEFAULT: &str = "equi,mode=auto";

/// The policies by name.
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
