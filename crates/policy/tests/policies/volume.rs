//! A volume as a policy sees it, without an engine: homes in a list, devices with counters.

use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, KIB, Nanos};
use braid_policy::{Access, Completion, DeviceView, Direction, Homes, Move, Origin, Policy, View};

pub const SSD: DeviceId = DeviceId(0);
pub const HDD: DeviceId = DeviceId(1);

pub struct Volume {
    pub now: Nanos,
    pub devices: Vec<DeviceView>,
    homes: List,
}

struct List(Vec<Option<DeviceId>>);

impl Homes for List {
    fn extents(&self) -> u32 {
        self.0.len() as u32
    }

    fn home(&self, extent: ExtentId) -> Option<DeviceId> {
        self.0[extent.index()]
    }
}

/// Devices of these classes, with as many slots each.
pub fn devices(classes: &[(DeviceClass, u32)]) -> Vec<DeviceView> {
    let device = |(i, &(class, slots)): (usize, &(DeviceClass, u32))| DeviceView {
        id: DeviceId(i as u16),
        class,
        slots,
        free: slots,
        in_flight: 0,
    };
    classes.iter().enumerate().map(device).collect()
}

impl Volume {
    pub fn new(devices: &[DeviceView], extents: usize) -> Volume {
        Volume { now: Nanos::ZERO, devices: devices.to_vec(), homes: List(vec![None; extents]) }
    }

    pub fn view(&self) -> View<'_> {
        View {
            now: self.now,
            extent_size: KIB * 128,
            block_size: KIB * 4,
            devices: &self.devices,
            homes: &self.homes,
        }
    }

    /// Allocates an extent as the engine does.
    pub fn allocate(&mut self, policy: &mut dyn Policy, extent: u32) -> DeviceId {
        let device = policy.place_new(ExtentId(extent), &self.view());
        self.settle(extent, device);
        device
    }

    /// Gives an extent a home.
    pub fn settle(&mut self, extent: u32, device: DeviceId) {
        if let Some(before) = self.homes.0[extent as usize].replace(device) {
            self.devices[before.index()].free += 1;
        }
        self.devices[device.index()].free -= 1;
    }

    pub fn home(&self, extent: u32) -> Option<DeviceId> {
        self.homes.0[extent as usize]
    }

    /// A guest's access, as the policy learns of it.
    pub fn access(&self, policy: &mut dyn Policy, extent: u32, direction: Direction) -> Access {
        let access = Access {
            extent: ExtentId(extent),
            first_block: BlockId(u64::from(extent) * 32),
            blocks: 1,
            direction,
            cached: false,
        };
        policy.on_access(&access, &self.view());
        access
    }

    /// Lets time pass to when the policy wants to be asked, and asks it.
    pub fn tick(&mut self, policy: &mut dyn Policy) -> Vec<Move> {
        let mut moves = Vec::new();
        self.now = policy.plan(&self.view(), &mut moves).max(self.now);
        moves
    }
}

/// A device completed some requests of a guest, of 8 KiB each.
pub fn complete(policy: &mut dyn Policy, device: DeviceId, count: u32, millis: f64) {
    complete_write(policy, device, count, KIB * 8, millis);
}

/// A device completed some writes of a guest.
pub fn complete_write(policy: &mut dyn Policy, device: DeviceId, count: u32, len: Bytes, millis: f64) {
    for _ in 0..count {
        policy.on_complete(&Completion {
            device,
            direction: Direction::Write,
            len,
            latency: Nanos((millis * 1e6) as u64),
            origin: Origin::Guest,
        });
    }
}

/// A figure of a device.
pub fn figure(policy: &dyn Policy, device: DeviceId, name: &str) -> f64 {
    policy.figures(device).into_iter().find(|(n, _)| *n == name).expect("the policy has this figure").1
}
