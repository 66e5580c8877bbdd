//! A policy's view: the volume at one moment.

use crate::ByteRange;
use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, Nanos, NodeId};
use std::cmp::Reverse;

/// A device as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// Its id.
    pub id: DeviceId,
    /// Its class.
    pub class: DeviceClass,
    /// The machine of the device; `None` for the host itself. Moves between devices of one node do not cross
    /// the network.
    pub node: Option<NodeId>,
    /// Extent slots in total.
    pub slots: u32,
    /// Free extent slots.
    pub free: u32,
    /// Guests' requests in flight on the device.
    pub in_flight: u32,
    /// Response time of guests' reads and of read probes, exponentially averaged; `None` before the first
    /// read.
    pub read_latency: Option<Nanos>,
    /// Bytes written to the device since the volume was opened, metadata included, as of the last
    /// [`crate::Policy::plan`].
    pub written: Bytes,
}

/// Reads in the exponential mean: long enough to be steady, short enough to follow the load within some 100
/// reads.
const READS_AVERAGED: u64 = 32;

impl DeviceView {
    /// Returns an unused device of the host, without measurements.
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

    /// True if devices of both classes have slots.
    pub(crate) fn are_of_both_classes(devices: &[DeviceView]) -> bool {
        let has = |class| DeviceView::of_class(devices, class).next().is_some();
        has(DeviceClass::Ssd) && has(DeviceClass::Hdd)
    }

    /// Returns the devices of a class that have slots. A device without slots was removed, or is about to be
    /// removed.
    pub(crate) fn of_class(devices: &[DeviceView], class: DeviceClass) -> impl Iterator<Item = &DeviceView> {
        devices.iter().filter(move |device| device.class == class && device.slots > 0)
    }

    /// Adds the response time of a read to the mean. For the engine.
    #[inline]
    pub fn measure_read(&mut self, latency: Nanos) {
        // Each term is divided separately, so that no sum overflows; the loss is nanoseconds.
        let part = |time: Nanos| time.0 / READS_AVERAGED;
        let mean = self.read_latency.map_or(latency.0, |mean| mean.0 - part(mean) + part(latency));
        self.read_latency = Some(Nanos(mean));
    }

    /// Returns the expected time of one more read: the mean response time, once for each request in flight
    /// and once for the read. Zero for a device without a measurement, which is thus tried and measured.
    #[inline]
    pub fn expected_read_wait(&self) -> Nanos {
        let mean = self.read_latency.map_or(0, |mean| mean.0);
        Nanos(mean.saturating_mul(u64::from(self.in_flight) + 1))
    }
}

/// Places of extents.
pub trait Homes {
    /// Number of extents of the volume.
    fn extents(&self) -> u32;

    /// Returns the device with an extent's home, if the extent is allocated.
    fn home(&self, extent: ExtentId) -> Option<DeviceId>;

    /// True if the memory cache holds the whole extent.
    fn is_in_memory(&self, _extent: ExtentId) -> bool {
        false
    }

    /// Visits the extents in the memory cache, most recently used first.
    fn visit_memory(&self, _visit: &mut dyn FnMut(ExtentId)) {}

    /// Returns the extra copy of a block, if any.
    fn extra(&self, _block: BlockId) -> Option<ExtraCopy> {
        None
    }

    /// Returns the block whose extra copy has this number, if any.
    fn block_in(&self, _cell: CellId) -> Option<BlockId> {
        None
    }

    /// Returns the stale bytes of the volume: the second required copy may differ from the home. Whole
    /// regions count, of the size that is recorded durably.
    fn behind(&self) -> Bytes {
        Bytes::ZERO
    }

    /// Returns the bytes that a loss of the SSDs would cost: stale bytes that the journal of epochs on the
    /// disk lacks, too.
    fn lag(&self) -> Bytes {
        self.behind()
    }

    /// Returns the bytes of the journal of epochs that are used or requested, and the bytes that epochs may
    /// hold before guests must wait for room. `None` without such a journal.
    fn epoch_journal(&self) -> Option<(Bytes, Bytes)> {
        None
    }

    /// True if stale bytes can be copied now: not while all but one of the devices are lost.
    fn can_resync(&self) -> bool {
        true
    }

    /// Returns the first stale range at or after `from`, up to its end. `None` if there is no such range up
    /// to the end of the volume. A caller that passes the end of the last range gets the ranges in address
    /// order.
    fn next_behind(&self, _from: Bytes) -> Option<ByteRange> {
        None
    }
}

/// The volume at one moment. Cheap: the engine makes a view for each question.
pub struct View<'a> {
    /// Time of the runtime's clock.
    pub now: Nanos,
    /// Unit of placement.
    pub extent_size: Bytes,
    /// Unit of caching.
    pub block_size: Bytes,
    /// Devices, by id.
    pub devices: &'a [DeviceView],
    /// Places of extents.
    pub homes: &'a dyn Homes,
}

impl View<'_> {
    /// Returns the devices with a free slot.
    pub fn with_room(&self) -> impl Iterator<Item = &DeviceView> {
        self.devices.iter().filter(|d| d.free > 0)
    }

    /// Returns the device with the most free slots; `None` if all devices are full.
    pub fn roomiest(&self) -> Option<DeviceId> {
        self.with_room().max_by_key(|d| d.free).map(|d| d.id)
    }

    /// Returns the bytes of the volume in an extent.
    pub fn range_of_extent(&self, extent: ExtentId) -> ByteRange {
        ByteRange::new(self.extent_size * u64::from(extent.0), self.extent_size)
    }

    /// Returns the bytes of the volume in a block.
    pub fn range_of_block(&self, block: BlockId) -> ByteRange {
        ByteRange::new(self.block_size * block.0, self.block_size)
    }

    /// Returns the blocks that a range touches.
    pub fn blocks_of(&self, range: ByteRange) -> impl Iterator<Item = BlockId> + use<> {
        let size = self.block_size.0;
        (range.start.0 / size..range.end.0.div_ceil(size)).map(BlockId)
    }

    /// Sorts copies by the expected time of a read, shortest first. Among equals, the extra copy comes first,
    /// then the home. Takes constant time for the few copies of a block; does not allocate.
    pub fn sort_by_read_wait(&self, copies: &mut [CurrentCopy]) {
        let wait = |device: DeviceId| self.devices[device.index()].expected_read_wait();
        copies.sort_unstable_by_key(|copy| (wait(copy.device), Reverse(copy.kind)));
    }
}

/// A copy with the current bytes of a guest's read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentCopy {
    /// Its device.
    pub device: DeviceId,
    /// Its kind.
    pub kind: CopyKind,
}

/// The extra copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraCopy {
    /// Its device.
    pub device: DeviceId,
    /// True if the copy is newer than every required copy.
    pub dirty: bool,
    /// Its number.
    pub cell: CellId,
}

/// Number of an extra copy during its life. Numbers begin at 0 and have no large gaps, so that a policy can
/// keep its state of extra copies in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(pub u32);

/// Kinds of copies of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyKind {
    /// The required copy beyond the home.
    Second,
    /// The required copy at the extent's chosen place.
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

    /// Returns the device that is read first: the SSD with an extra copy, or the disk with the home.
    /// Parameters: mean read latencies and requests in flight.
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
    fn unmeasured_device_is_read_first_extra_copy_wins_tie() {
        assert_eq!(first([Some(1), None], [0, 50]), HDD);
        assert_eq!(first([None, Some(1)], [50, 0]), SSD);
        assert_eq!(first([None, None], [0, 0]), SSD);
    }

    #[test]
    fn mean_read_latency_follows_measured_reads() {
        let mut device = DeviceView::empty(SSD, DeviceClass::Ssd, 10);
        device.measure_read(Nanos(3_200));
        assert_eq!(device.read_latency, Some(Nanos(3_200)));
        device.measure_read(Nanos(6_400));
        assert_eq!(device.read_latency, Some(Nanos(3_300)));
        (0..200).for_each(|_| device.measure_read(Nanos(100)));
        assert!(device.read_latency.is_some_and(|mean| mean < Nanos(150)), "{device:?}");
    }
}
