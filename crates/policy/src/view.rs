//! What a policy sees: the volume at one moment.

use crate::ByteRange;
use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, Nanos, NodeId};
use std::cmp::Reverse;

/// A device as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// Which one.
    pub id: DeviceId,
    /// What kind.
    pub class: DeviceClass,
    /// The machine that it is on; none for the host's own. What moves between devices of one node does not
    /// cross the network.
    pub node: Option<NodeId>,
    /// Extent slots in all.
    pub slots: u32,
    /// Extent slots that are free.
    pub free: u32,
    /// Requests of guests that it is serving right now.
    pub in_flight: u32,
    /// Response time of guests' reads and of read probes, exponentially averaged; none before the first.
    pub read_latency: Option<Nanos>,
    /// All bytes written to it since the volume was opened, metadata included, as of the last
    /// [`crate::Policy::plan`].
    pub written: Bytes,
}

/// One read in so many counts in the mean: long enough to be steady, short enough to follow the load within
/// some 100 reads.
const READS_AVERAGED: u64 = 32;

impl DeviceView {
    /// A device of the host of which nothing is in use and nothing is known.
    pub fn empty(id: DeviceId, class: DeviceClass, slots: u32) -> DeviceView {
        DeviceView {
            id,
            class,
            node: None,
            slots,
            free: slots,
            in_flight: 0,
            read_latency: None,
            written: Bytes::ZERO,
        }
    }

    /// Whether both classes are among the devices that have slots.
    pub(crate) fn are_of_both_classes(devices: &[DeviceView]) -> bool {
        let has = |class| DeviceView::of_class(devices, class).next().is_some();
        has(DeviceClass::Ssd) && has(DeviceClass::Hdd)
    }

    /// The devices of a class that have slots. One without was removed, or is about to be.
    pub(crate) fn of_class(devices: &[DeviceView], class: DeviceClass) -> impl Iterator<Item = &DeviceView> {
        devices.iter().filter(move |device| device.class == class && device.slots > 0)
    }

    /// Takes the response time of a read into the mean. For the engine.
    #[inline]
    pub fn measure_read(&mut self, latency: Nanos) {
        // Each term is divided for itself, so that no sum overflows; what that loses is nanoseconds.
        let part = |time: Nanos| time.0 / READS_AVERAGED;
        let mean = self.read_latency.map_or(latency.0, |mean| mean.0 - part(mean) + part(latency));
        self.read_latency = Some(Nanos(mean));
    }

    /// How long one more read would take: the mean response time, for each request in flight and for itself.
    /// Zero for a device that has not been measured: it is tried, and is measured then.
    #[inline]
    pub fn expected_read_wait(&self) -> Nanos {
        let mean = self.read_latency.map_or(0, |mean| mean.0);
        Nanos(mean.saturating_mul(u64::from(self.in_flight) + 1))
    }
}

/// Where extents lie.
pub trait Homes {
    /// Extents of the volume.
    fn extents(&self) -> u32;

    /// The device that holds an extent's home, if the extent is allocated.
    fn home(&self, extent: ExtentId) -> Option<DeviceId>;

    /// Whether the memory cache holds all of an extent.
    fn is_in_memory(&self, _extent: ExtentId) -> bool {
        false
    }

    /// Visits the extents that the memory cache holds whole, the last used first.
    fn visit_memory(&self, _visit: &mut dyn FnMut(ExtentId)) {}

    /// The extra copy of a block, if it has one.
    fn extra(&self, _block: BlockId) -> Option<ExtraCopy> {
        None
    }

    /// The block whose extra copy has this number, if there is one.
    fn block_in(&self, _cell: CellId) -> Option<BlockId> {
        None
    }

    /// How many bytes of the volume are behind: of these the second required copy may differ from the home.
    /// It counts whole regions, in the size in which they are recorded durably.
    fn behind(&self) -> Bytes {
        Bytes::ZERO
    }

    /// What a loss of the SSDs would cost: what is behind, without what a journal of epochs on the disk has.
    fn lag(&self) -> Bytes {
        self.behind()
    }

    /// How much of the journal of epochs is in use or asked for, and how much epochs may hold before guests
    /// have to wait for its room. None without one.
    fn epoch_journal(&self) -> Option<(Bytes, Bytes)> {
        None
    }

    /// Whether any of that can be copied now: not while all but one of the devices are lost.
    fn can_resync(&self) -> bool {
        true
    }

    /// The first range at or after `from` that is behind, as long as it goes on; none if there is none up to
    /// the end of the volume. Ranges come in the order of their addresses if `from` is the end of the last
    /// one.
    fn next_behind(&self, _from: Bytes) -> Option<ByteRange> {
        None
    }
}

/// The volume at one moment. Cheap to make: the engine makes one for each question.
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

    /// The device with the most free slots; none if all are full.
    pub fn roomiest(&self) -> Option<DeviceId> {
        self.with_room().max_by_key(|d| d.free).map(|d| d.id)
    }

    /// The bytes of the volume that an extent holds.
    pub fn range_of_extent(&self, extent: ExtentId) -> ByteRange {
        ByteRange::new(self.extent_size * u64::from(extent.0), self.extent_size)
    }

    /// The bytes of the volume that a block holds.
    pub fn range_of_block(&self, block: BlockId) -> ByteRange {
        ByteRange::new(self.block_size * block.0, self.block_size)
    }

    /// The blocks that a range touches.
    pub fn blocks_of(&self, range: ByteRange) -> impl Iterator<Item = BlockId> + use<> {
        let size = self.block_size.0;
        (range.start.0 / size..range.end.0.div_ceil(size)).map(BlockId)
    }

    /// Sorts copies by how long a read of each is expected to take, the shortest first; among equals the
    /// extra copy, then the home. Constant time for the few copies that a block has; does not allocate.
    pub fn sort_by_read_wait(&self, copies: &mut [CurrentCopy]) {
        let wait = |device: DeviceId| self.devices[device.index()].expected_read_wait();
        copies.sort_unstable_by_key(|copy| (wait(copy.device), Reverse(copy.kind)));
    }
}

/// A copy that holds the current bytes of what a guest reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentCopy {
    /// Where it lies.
    pub device: DeviceId,
    /// Which of the copies it is.
    pub kind: CopyKind,
}

/// The extra copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraCopy {
    /// Where it lies.
    pub device: DeviceId,
    /// Whether it is newer than every required copy.
    pub dirty: bool,
    /// Its number.
    pub cell: CellId,
}

/// The number of an extra copy, as long as it exists: from 0 on and without large gaps, so that a policy can
/// keep what it knows of extra copies in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(pub u32);

/// The copies of a block's copy-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyKind {
    /// The required copy beyond the home.
    Second,
    /// The required copy that counts as the extent's place.
    Home,
    /// A cached copy.
    Extra,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SSD: DeviceId = DeviceId(0);
    const HDD: DeviceId = DeviceId(1);

    struct Nothing;

    impl Homes for Nothing {
        fn extents(&self) -> u32 {
            0
        }

        fn home(&self, _: ExtentId) -> Option<DeviceId> {
            None
        }
    }

    /// The order of an extra copy on the SSD and the home on the disk, for mean read latencies and requests
    /// in flight.
    fn first(latencies_ms: [Option<u64>; 2], in_flight: [u32; 2]) -> DeviceId {
        let device = |(id, class): (DeviceId, DeviceClass)| DeviceView {
            in_flight: in_flight[id.index()],
            read_latency: latencies_ms[id.index()].map(Nanos::from_millis),
            ..DeviceView::empty(id, class, 10)
        };
        let devices = [(SSD, DeviceClass::Ssd), (HDD, DeviceClass::Hdd)].map(device);
        let sizes = (Bytes(1 << 17), Bytes(1 << 12));
        let view = View {
            now: Nanos::ZERO,
            extent_size: sizes.0,
            block_size: sizes.1,
            devices: &devices,
            homes: &Nothing,
        };
        let mut copies = [
            CurrentCopy { device: HDD, kind: CopyKind::Home },
            CurrentCopy { device: SSD, kind: CopyKind::Extra },
        ];
        view.sort_by_read_wait(&mut copies);
        copies[0].device
    }

    #[test]
    fn the_copy_with_the_shortest_expected_wait_is_read_first() {
        assert_eq!(first([Some(1), Some(8)], [0, 0]), SSD);
        assert_eq!(first([Some(1), Some(8)], [6, 0]), SSD);
        assert_eq!(first([Some(1), Some(8)], [8, 0]), HDD);
        assert_eq!(first([Some(9), Some(8)], [0, 0]), HDD);
    }

    #[test]
    fn a_device_that_was_never_measured_is_tried_and_an_extra_copy_wins_a_tie() {
        assert_eq!(first([Some(1), None], [0, 50]), HDD);
        assert_eq!(first([None, Some(1)], [50, 0]), SSD);
        assert_eq!(first([None, None], [0, 0]), SSD);
    }

    #[test]
    fn the_mean_read_latency_follows_what_reads_take() {
        let mut device = DeviceView::empty(SSD, DeviceClass::Ssd, 10);
        device.measure_read(Nanos(3_200));
        assert_eq!(device.read_latency, Some(Nanos(3_200)));
        device.measure_read(Nanos(6_400));
        assert_eq!(device.read_latency, Some(Nanos(3_300)));
        (0..200).for_each(|_| device.measure_read(Nanos(100)));
        assert!(device.read_latency.is_some_and(|mean| mean < Nanos(150)), "{device:?}");
    }
}
