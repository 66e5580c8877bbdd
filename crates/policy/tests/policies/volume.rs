//! A volume as seen by a policy, without an engine: homes in a list, devices with counters.

use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, KIB, Nanos};
use braid_policy::{
    ByteRange, CellId, Completion, DeviceView, Direction, ExtraCopy, Homes, Move, Occasion, Origin, Piece,
    Placement, Plan, Policy, View, WholeInMemory,
};

pub const SSD: DeviceId = DeviceId(0);
pub const HDD: DeviceId = DeviceId(1);

pub struct Volume {
    pub now: Nanos,
    pub devices: Vec<DeviceView>,
    homes: List,
}

struct List {
    homes: Vec<Option<DeviceId>>,
    /// Extents held whole by the memory cache, the most recently used first.
    memory: Vec<ExtentId>,
    /// Sorted and disjoint; no two ranges touch.
    behind: Vec<ByteRange>,
    is_alone: bool,
}

impl Homes for List {
    fn extents(&self) -> u32 {
        self.homes.len() as u32
    }

    fn home(&self, extent: ExtentId) -> Option<DeviceId> {
        self.homes[extent.index()]
    }

    fn is_in_memory(&self, extent: ExtentId) -> bool {
        self.memory.contains(&extent)
    }

    fn visit_memory(&self, visit: &mut dyn FnMut(ExtentId)) {
        self.memory.iter().for_each(|&extent| visit(extent));
    }

    fn behind(&self) -> Bytes {
        self.behind.iter().fold(Bytes::ZERO, |sum, range| sum + range.len())
    }

    fn can_resync(&self) -> bool {
        !self.is_alone
    }

    fn next_behind(&self, from: Bytes) -> Option<ByteRange> {
        let range = self.behind.iter().find(|range| range.end > from)?;
        Some(ByteRange { start: range.start.max(from), ..*range })
    }

    fn extra(&self, block: BlockId) -> Option<ExtraCopy> {
        Some(extra_of(block))
    }

    fn block_in(&self, cell: CellId) -> Option<BlockId> {
        Some(BlockId(cell.0.into()))
    }
}

/// Every extra copy is on the SSD here, and its cell has the block's number.
pub fn extra_of(block: BlockId) -> ExtraCopy {
    ExtraCopy { device: SSD, dirty: false, cell: CellId(block.0 as u32) }
}

/// Returns devices with the given classes and numbers of slots.
pub fn devices(classes: &[(DeviceClass, u32)]) -> Vec<DeviceView> {
    let device = |(i, &(class, slots)): (usize, &(DeviceClass, u32))| {
        DeviceView::empty(DeviceId(i as u16), class, slots)
    };
    classes.iter().enumerate().map(device).collect()
}

impl Volume {
    pub fn new(devices: &[DeviceView], extents: usize) -> Volume {
        Volume {
            now: Nanos::ZERO,
            devices: devices.to_vec(),
            homes: List {
                homes: vec![None; extents],
                memory: Vec::new(),
                behind: Vec::new(),
                is_alone: false,
            },
        }
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
        let occasion = Occasion::New { extent: ExtentId(extent), write: None };
        let device = policy.place(&occasion, &self.view()).new_home().expect("the policy chooses a device");
        self.settle(extent, device);
        device
    }

    /// Gives an extent a home.
    pub fn settle(&mut self, extent: u32, device: DeviceId) {
        if let Some(before) = self.homes.homes[extent as usize].replace(device) {
            self.devices[before.index()].free += 1;
        }
        self.devices[device.index()].free -= 1;
    }

    pub fn home(&self, extent: u32) -> Option<DeviceId> {
        self.homes.homes[extent as usize]
    }

    /// Sets the extents held by the memory cache, the most recently used first.
    pub fn remember(&mut self, extents: impl IntoIterator<Item = u32>) {
        self.homes.memory = extents.into_iter().map(ExtentId).collect();
    }

    /// Sets the ranges with stale second copies: sorted, and no two touch.
    pub fn lack(&mut self, ranges: impl IntoIterator<Item = ByteRange>) {
        self.homes.behind = ranges.into_iter().collect();
    }

    /// Makes all devices but one lost.
    pub fn lose_others(&mut self) {
        self.homes.is_alone = true;
    }

    /// A guest's request for one block of an extent, not held by the memory cache.
    pub fn access(&self, policy: &mut dyn Policy, extent: u32, direction: Direction) -> Placement<'static> {
        self.access_blocks(policy, extent, 1, direction)
    }

    /// A guest's request for the first blocks of an extent, not held by the memory cache.
    pub fn access_blocks(
        &self,
        policy: &mut dyn Policy,
        extent: u32,
        blocks: u32,
        direction: Direction,
    ) -> Placement<'static> {
        let piece = piece(extent, blocks, None);
        let occasion = match direction {
            Direction::Read => Occasion::ReadMiss(piece),
            Direction::Write | Direction::Flush => Occasion::Write(piece),
        };
        policy.place(&occasion, &self.view())
    }

    /// A guest's write to a block of an extent held whole by the memory cache.
    pub fn write_cached(&self, policy: &mut dyn Policy, extent: u32) -> Placement<'static> {
        let whole = WholeInMemory::vouched_by_the_engine();
        policy.place(&Occasion::Write(piece(extent, 1, Some(whole))), &self.view())
    }

    /// Advances time to the policy's next plan, and returns its moves.
    pub fn tick(&mut self, policy: &mut dyn Policy) -> Vec<Move> {
        let mut plan = Plan::default();
        self.now = policy.plan(&self.view(), &mut plan).max(self.now);
        plan.moves
    }
}

fn piece(extent: u32, blocks: u32, whole: Option<WholeInMemory<'_>>) -> Piece<'_> {
    Piece {
        extent: ExtentId(extent),
        range: Bytes::ZERO..KIB * 4 * u64::from(blocks),
        first_block: BlockId(u64::from(extent) * 32),
        blocks,
        request: ByteRange::new(KIB * 128 * u64::from(extent), KIB * 4 * u64::from(blocks)),
        whole,
    }
}

/// Completes `count` writes of a guest on a device, of 8 KiB each.
pub fn complete(policy: &mut dyn Policy, device: DeviceId, count: u32, millis: f64) {
    complete_write(policy, device, count, KIB * 8, millis);
}

/// Completes `count` writes of a guest on a device.
pub fn complete_write(policy: &mut dyn Policy, device: DeviceId, count: u32, len: Bytes, millis: f64) {
    for _ in 0..count {
        policy.completed(&Completion {
            device,
            direction: Direction::Write,
            len,
            latency: Nanos((millis * 1e6) as u64),
            origin: Origin::Guest,
        });
    }
}

/// Returns a figure of a device.
pub fn figure(policy: &dyn Policy, device: DeviceId, name: &str) -> f64 {
    policy.figures(device).into_iter().find(|(n, _)| *n == name).expect("the policy has this figure").1
}
