//! Decoding of a chain: the request, checked against the disk.

use crate::chain::{Chain, Place};
use crate::memory::{Cursor, Outside};
use crate::wire::*;
use braid_base::Bytes;
use braid_engine::Zeroing;
use vm_memory::{GuestAddress, GuestMemoryMmap};

/// A request that the export may serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Read into the places to write.
    Read(Span),
    /// Write from the places to read.
    Write(Span),
    /// Make all answered writes durable.
    Flush,
    /// Tell the disk's name.
    Id(Bytes),
    /// Free ranges.
    Discard(Vec<Span>),
    /// Make ranges read as zeros.
    WriteZeroes(Vec<(Span, Zeroing)>),
}

/// A range of the export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte.
    pub offset: Bytes,
    /// Length.
    pub len: Bytes,
}

/// A decoded chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// The request, or the status of a refusal.
    pub order: Result<Order, BlkStatus>,
    /// Place of the status.
    pub status: GuestAddress,
    /// Number of bytes to write, with the status.
    pub written: u32,
}

/// Decodes a chain: head and ranges are read once. `None` if the chain has no place for a status.
///
/// Bytes may be cut anywhere between the places, except that the status is the last byte to write.
pub fn decode(memory: &GuestMemoryMmap, chain: &Chain, facts: &Facts) -> Option<Decoded> {
    let last = chain.to_write().last()?;
    let status = GuestAddress(last.start.0.checked_add(u64::from(last.len - 1))?);
    let all: u64 = chain.to_write().iter().map(|place| u64::from(place.len)).sum();
    // A chain may not be longer than 4 GiB.
    let written = u32::try_from(all).unwrap_or(1);
    let order = if u64::from(written) == all { order(memory, chain, facts) } else { Err(BlkStatus::IoError) };
    Some(Decoded { order, status, written })
}

fn order(memory: &GuestMemoryMmap, chain: &Chain, facts: &Facts) -> Result<Order, BlkStatus> {
    let mut to_read = Cursor::new(chain.to_read());
    let mut head = [0; BlkHead::LEN];
    to_read.read(memory, &mut head).map_err(|Outside| BlkStatus::IoError)?;
    let BlkHead { kind, sector } = BlkHead::decode(&head);
    let bytes = |places: &[Place]| Bytes(places.iter().map(|p| u64::from(p.len)).sum());
    let from_guest = bytes(chain.to_read()) - Bytes::of_len(BlkHead::LEN);
    let to_guest = bytes(chain.to_write()) - Bytes(1);
    match kind {
        VIRTIO_BLK_T_IN => Ok(Order::Read(span(facts, sector, to_guest)?)),
        VIRTIO_BLK_T_OUT if facts.read_only => Err(BlkStatus::IoError),
        VIRTIO_BLK_T_OUT => Ok(Order::Write(span(facts, sector, from_guest)?)),
        VIRTIO_BLK_T_FLUSH => Ok(Order::Flush),
        VIRTIO_BLK_T_GET_ID => Ok(Order::Id(to_guest.min(Bytes::of_len(ID_LEN)))),
        VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES if facts.read_only => Err(BlkStatus::IoError),
        VIRTIO_BLK_T_DISCARD => {
            let ranges = ranges(memory, to_read, from_guest)?;
            if ranges.iter().any(|range| range.unmap) {
                return Err(BlkStatus::Unsupported);
            }
            let spans = ranges.iter().map(|range| span_of(facts, range));
            Ok(Order::Discard(spans.collect::<Result<_, _>>()?))
        }
        VIRTIO_BLK_T_WRITE_ZEROES => {
            let ranges = ranges(memory, to_read, from_guest)?;
            let zeroed = ranges.iter().map(|range| {
                let zeroing = if range.unmap { Zeroing::MayDiscard } else { Zeroing::KeepAllocated };
                Ok((span_of(facts, range)?, zeroing))
            });
            Ok(Order::WriteZeroes(zeroed.collect::<Result<_, BlkStatus>>()?))
        }
        _ => Err(BlkStatus::Unsupported),
    }
}

/// The ranges of a discard or a zeroing.
fn ranges(memory: &GuestMemoryMmap, mut from: Cursor<'_>, len: Bytes) -> Result<Vec<BlkRange>, BlkStatus> {
    let count = len.as_usize() / BlkRange::LEN;
    if count == 0 || count > RANGES_MAX || !len.is_aligned(Bytes::of_len(BlkRange::LEN)) {
        return Err(BlkStatus::IoError);
    }
    let range = |_| {
        let mut bytes = [0; BlkRange::LEN];
        from.read(memory, &mut bytes).map_err(|Outside| BlkStatus::IoError)?;
        BlkRange::decode(&bytes).ok_or(BlkStatus::Unsupported)
    };
    (0..count).map(range).collect()
}

fn span_of(facts: &Facts, range: &BlkRange) -> Result<Span, BlkStatus> {
    if range.sectors > RANGE_SECTORS_MAX {
        return Err(BlkStatus::IoError);
    }
    span(facts, range.sector, SECTOR * u64::from(range.sectors))
}

/// A range of whole sectors within the disk.
fn span(facts: &Facts, sector: u64, len: Bytes) -> Result<Span, BlkStatus> {
    let offset = Bytes(sector.checked_mul(SECTOR.0).ok_or(BlkStatus::IoError)?);
    let end = offset.checked_add(len).ok_or(BlkStatus::IoError)?;
    if end > facts.size.align_down(SECTOR) || !len.is_aligned(SECTOR) {
        return Err(BlkStatus::IoError);
    }
    Ok(Span { offset, len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::{Table, VIRTQ_DESC_F_WRITE};
    use braid_base::MIB;
    use virtio_queue::desc::RawDescriptor;
    use virtio_queue::desc::split::Descriptor;
    use virtio_queue::mock::MockSplitQueue;
    use vm_memory::Bytes as _;

    const FACTS: Facts = Facts { size: MIB, preferred_block: Bytes(4096), queues: 1, read_only: false };
    const HEAD: u64 = 0x8000;
    const STATUS: u64 = 0x9000;

    /// Part of a chain: address, length, direction.
    #[derive(Clone, Copy)]
    struct Part(u64, u32, u16);

    const READ: u16 = 0;
    const WRITE: u16 = VIRTQ_DESC_F_WRITE;

    fn decoded(facts: &Facts, kind: u32, sector: u64, parts: &[Part]) -> Option<Decoded> {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10_0000)]).expect("memory");
        memory.write_obj(kind.to_le(), GuestAddress(HEAD)).expect("memory");
        memory.write_obj(sector.to_le(), GuestAddress(HEAD + 8)).expect("memory");
        // Two ranges, of which the second one may be freed.
        for (at, range) in [(0, [2, 8, 0]), (16, [10, 1, 1])] {
            let [sector, sectors, flags] = range.map(u32::to_le);
            memory.write_obj(u64::from(sector), GuestAddress(0x4000 + at)).expect("memory");
            memory.write_obj(sectors, GuestAddress(0x4000 + at + 8)).expect("memory");
            memory.write_obj(flags, GuestAddress(0x4000 + at + 12)).expect("memory");
        }
        let queue = MockSplitQueue::new(&memory, 16);
        let of_part = |part: &Part| RawDescriptor::from(Descriptor::new(part.0, part.1, part.2, 0));
        let descriptors: Vec<_> = parts.iter().map(of_part).collect();
        queue.build_desc_chain(&descriptors).expect("it fits");
        let mut chain = Chain::default();
        let table = Table { start: queue.desc_table_addr(), len: 16 };
        chain.read(&memory, table, 0).expect("a chain");
        decode(&memory, &chain, facts)
    }

    fn order_of(kind: u32, sector: u64, parts: &[Part]) -> Result<Order, BlkStatus> {
        decoded(&FACTS, kind, sector, parts).expect("a place for the status").order
    }

    fn span(offset: u64, len: u64) -> Span {
        Span { offset: Bytes(offset), len: Bytes(len) }
    }

    #[test]
    fn bytes_may_be_cut_anywhere() {
        let parts = [
            Part(HEAD, 5, READ),
            Part(HEAD + 5, 11, READ),
            Part(0x4000, 100, WRITE),
            Part(0x5000, 412, WRITE),
            Part(STATUS, 1, WRITE),
        ];
        let found = decoded(&FACTS, VIRTIO_BLK_T_IN, 3, &parts).unwrap();
        assert_eq!(found.order, Ok(Order::Read(span(1536, 512))));
        assert_eq!((found.status, found.written), (GuestAddress(STATUS), 513));
        // The status may be the last byte of the data's place, and the data may follow the head.
        let parts = [Part(HEAD, 16, READ), Part(0x4000, 513, WRITE)];
        let found = decoded(&FACTS, VIRTIO_BLK_T_IN, 0, &parts).unwrap();
        assert_eq!((found.status, found.order), (GuestAddress(0x4200), Ok(Order::Read(span(0, 512)))));
        let parts = [Part(HEAD, 16 + 1024, READ), Part(STATUS, 1, WRITE)];
        assert_eq!(order_of(VIRTIO_BLK_T_OUT, 1, &parts), Ok(Order::Write(span(512, 1024))));
    }

    #[test]
    fn ranges_lie_within_the_disk() {
        let ends = MIB.0 / 512;
        for (sector, len, allowed) in [
            (0, 0, true),
            (ends - 1, 512, true),
            (ends, 0, true),
            (ends, 512, false),
            (ends - 1, 1024, false),
            (0, 511, false),
            (u64::MAX, 512, false),
            (u64::MAX / 512, 512, false),
            (0, u32::MAX - 1, false),
        ] {
            let parts = [Part(HEAD, 16, READ), Part(0x4000, len, WRITE), Part(STATUS, 1, WRITE)];
            assert_eq!(order_of(VIRTIO_BLK_T_IN, sector, &parts).is_ok(), allowed, "{len} bytes at {sector}");
        }
        // More than 4 GiB in one chain.
        let parts = [Part(HEAD, 16, READ), Part(0, u32::MAX, WRITE), Part(0, u32::MAX, WRITE)];
        assert_eq!(order_of(VIRTIO_BLK_T_IN, 0, &parts), Err(BlkStatus::IoError));
    }

    #[test]
    fn discards_and_zeroings_have_whole_known_ranges() {
        let ranges = |len| [Part(HEAD, 16, READ), Part(0x4000, len, READ), Part(STATUS, 1, WRITE)];
        assert_eq!(
            order_of(VIRTIO_BLK_T_WRITE_ZEROES, 0, &ranges(32)),
            Ok(Order::WriteZeroes(vec![
                (span(1024, 4096), Zeroing::KeepAllocated),
                (span(5120, 512), Zeroing::MayDiscard)
            ]))
        );
        assert_eq!(
            order_of(VIRTIO_BLK_T_DISCARD, 0, &ranges(16)),
            Ok(Order::Discard(vec![span(1024, 4096)]))
        );
        let with_flag = order_of(VIRTIO_BLK_T_DISCARD, 0, &ranges(32));
        assert_eq!(with_flag, Err(BlkStatus::Unsupported), "a discard has no flags");
        for len in [1, 15, 17, 16 * 17, u32::MAX] {
            assert_eq!(order_of(VIRTIO_BLK_T_DISCARD, 0, &ranges(len)), Err(BlkStatus::IoError), "{len}");
        }
    }

    #[test]
    fn other_requests_are_answered_too() {
        let parts = [Part(HEAD, 16, READ), Part(0x4000, 30, WRITE), Part(STATUS, 1, WRITE)];
        assert_eq!(order_of(VIRTIO_BLK_T_GET_ID, 0, &parts), Ok(Order::Id(Bytes(20))));
        assert_eq!(order_of(99, 0, &parts), Err(BlkStatus::Unsupported));
        let parts = [Part(HEAD, 16, READ), Part(STATUS, 1, WRITE)];
        assert_eq!(order_of(VIRTIO_BLK_T_FLUSH, 7, &parts), Ok(Order::Flush));
        assert_eq!(
            order_of(VIRTIO_BLK_T_FLUSH, 0, &[Part(HEAD, 15, READ), Part(STATUS, 1, WRITE)]),
            Err(BlkStatus::IoError)
        );
        assert_eq!(order_of(VIRTIO_BLK_T_FLUSH, 0, &[Part(STATUS, 1, WRITE)]), Err(BlkStatus::IoError));
        assert_eq!(decoded(&FACTS, VIRTIO_BLK_T_FLUSH, 0, &[Part(HEAD, 16, READ)]), None, "no status");
        let read_only = Facts { read_only: true, ..FACTS };
        for kind in [VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES] {
            let refused = decoded(&read_only, kind, 0, &parts).unwrap().order;
            assert_eq!(refused, Err(BlkStatus::IoError));
        }
    }
}
