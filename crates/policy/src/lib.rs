//! Policies: where a copy of what goes, and when it moves. One file per published system, which reads like its paper.
//!
//! A policy decides; the engine does. It is a value without clock, I/O or randomness of its own: time comes as an
//! argument, what the volume looks like as a [`View`], what happened as [`Access`] and [`Completion`]. So the same code
//! serves a volume and a simulation, and a decision can be replayed.
#![forbid(unsafe_code)]

mod fixed;
mod heat;
mod lru;
mod mean_request;
mod ssd_first;
mod wardrop;

pub use fixed::Fixed;
pub use heat::Heat;
pub use lru::Lru;
pub use ssd_first::SsdFirst;
pub use wardrop::Wardrop;

pub use braid_base::{BadSetting, Settings};

use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, Nanos};

/// A device as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// Which one.
    pub id: DeviceId,
    /// What kind.
    pub class: DeviceClass,
    /// Extent slots in all.
    pub slots: u32,
    /// Extent slots that are free.
    pub free: u32,
    /// Requests of guests that it is serving right now.
    pub in_flight: u32,
}

/// Where extents lie.
pub trait Homes {
    /// Extents of the volume.
    fn extents(&self) -> u32;
    /// The device that holds an extent's home, if it was ever written.
    fn home(&self, extent: ExtentId) -> Option<DeviceId>;
}

/// The volume at one moment.
pub struct View<'a> {
    /// The time of the runtime's clock.
    pub now: Nanos,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// The devices, by id.
    pub devices: &'a [DeviceView],
    /// Where extents lie.
    pub homes: &'a dyn Homes,
}

impl View<'_> {
    /// Devices with a free slot.
    pub fn with_room(&self) -> impl Iterator<Item = &DeviceView> {
        self.devices.iter().filter(|d| d.free > 0)
    }
}

/// What a guest did to one extent.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Which extent.
    pub extent: ExtentId,
    /// The first block that was touched.
    pub first_block: BlockId,
    /// How many blocks.
    pub blocks: u32,
    /// Read or write.
    pub direction: Direction,
    /// Whether the memory cache served it.
    pub cached: bool,
}

/// Which way bytes went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the guest.
    Read,
    /// From the guest.
    Write,
    /// Nowhere: what was written became durable. Only a [`Completion`] has this, with a length of zero.
    Flush,
}

/// What a device did for a guest, or for a probe.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Which device.
    pub device: DeviceId,
    /// Read, write or flush.
    pub direction: Direction,
    /// How much.
    pub len: Bytes,
    /// Response time: queue and service, as the engine saw it.
    pub latency: Nanos,
    /// Whether a guest caused it. A probe tells how fast a device would be, and counts for nothing else.
    pub origin: Origin,
}

/// On whose behalf a device works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A guest waits for it.
    Guest,
    /// A measurement in idle time.
    Probe,
    /// Background work: moves, write-back, metadata.
    Background,
}

/// Work in the background that a policy asks for. The engine may do it later, or not at all where the guest overtakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// Give an extent a new home.
    Migrate {
        /// Which extent.
        extent: ExtentId,
        /// Its home to be.
        target: DeviceId,
    },
    /// Give an extent its second required copy.
    Mirror {
        /// Which extent.
        extent: ExtentId,
        /// Where the copy shall be.
        target: DeviceId,
    },
    /// Bring the required copy of a dirty block up to date.
    WriteBack {
        /// Which block.
        block: BlockId,
    },
    /// Drop the extra copy of a block; written back before where it is dirty.
    Demote {
        /// Which block.
        block: BlockId,
    },
    /// Ask a device how fast it is now, with a request as guests make them on average.
    Probe {
        /// Which device.
        device: DeviceId,
        /// Read or write (into a free slot).
        direction: Direction,
        /// How much.
        len: Bytes,
    },
}

/// Where a write to an extent that has a home goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// To the home, and to the extra copy where there is one.
    Home,
    /// To a new home on this device, all of the extent; asked only while the extent is in the memory cache.
    NewHome(DeviceId),
    /// To an extra copy on this device, which is then dirty (write-back).
    Extra(DeviceId),
}

/// A policy. See the module of each for what it follows.
pub trait Policy {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Its settings with their present values, as `key=value,…`: with the name before it, the way to make it again.
    fn settings(&self) -> String;

    /// Which device the home of a new extent is allocated on. Where that has no room, the engine asks
    /// [`Policy::next_choice`].
    fn place_new(&mut self, extent: ExtentId, view: &View) -> DeviceId;

    /// Where to allocate when the choice is full: by default the device with the most free slots.
    fn next_choice(&self, view: &View) -> Option<DeviceId> {
        view.with_room().max_by_key(|d| d.free).map(|d| d.id)
    }

    /// Where a write to an extent with a home goes.
    fn place_write(&mut self, _write: &Access, _view: &View) -> Placement {
        Placement::Home
    }

    /// Whether blocks that are being read from their home shall get an extra copy, and on which device.
    fn admit(&mut self, _read: &Access, _view: &View) -> Option<DeviceId> {
        None
    }

    /// How many extent slots of a device may hold extra copies.
    fn extra_slots(&self, _device: &DeviceView) -> u32 {
        0
    }

    /// The block whose extra copy on a device goes to make room for another.
    fn evict(&mut self, _device: DeviceId) -> Option<BlockId> {
        None
    }

    /// An extra copy was made.
    fn extra_made(&mut self, _block: BlockId, _device: DeviceId) {}

    /// An extra copy is gone.
    fn extra_gone(&mut self, _block: BlockId) {}

    /// A guest accessed an extent.
    fn on_access(&mut self, _access: &Access, _view: &View) {}

    /// A device completed a request.
    fn on_complete(&mut self, _completion: &Completion) {}

    /// What to do in the background now, in order of importance, into `moves`; returns when to ask again.
    fn plan(&mut self, view: &View, moves: &mut Vec<Move>) -> Nanos;

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
}

/// Makes a policy from `name` or `name,key=value,…`, for volumes with these devices.
pub fn parse(text: &str, devices: &[DeviceView]) -> Result<Box<dyn Policy>, BadSetting> {
    let mut settings = Settings::parse("policy", text)?;
    let policy: Box<dyn Policy> = match settings.name() {
        "wardrop" => Box::new(Wardrop::new(&mut settings, devices)?),
        "ssd-first" => Box::new(SsdFirst::new(&mut settings, devices)?),
        "ssd-only" | "hdd-only" | "stripe" | "static" => Box::new(Fixed::new(&mut settings, devices)?),
        other => return Err(BadSetting::unknown_name("policy", other, NAMES.iter().copied())),
    };
    settings.finish()?;
    Ok(policy)
}

/// The policies by name.
pub const NAMES: &[&str] = &["wardrop", "ssd-only", "hdd-only", "stripe", "static", "ssd-first"];
