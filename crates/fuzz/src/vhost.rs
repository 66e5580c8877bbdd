//! Memory of a guest with a disk: descriptors, heads and ranges of requests.

use braid_base::{Bytes, MIB};
use braid_vhost::chain::{Chain, DESCRIPTORS_MAX, Table};
use braid_vhost::decode::{Order, Span, decode};
use braid_vhost::wire::{Facts, RANGES_MAX, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES};
use std::cell::LazyCell;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

/// Descriptors of the queue, at the start of the guest's memory.
const QUEUE: u16 = 16;
const MEMORY: usize = 16 << 10;
const SIZE: Bytes = MIB;

thread_local! {
    /// The guest's memory, for all inputs: a mapping costs more than an input.
    static GUEST: LazyCell<GuestMemoryMmap> = const {
        LazyCell::new(|| GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).expect("a mapping"))
    };
}

/// The chain of each descriptor of the queue: bounded, and within the disk if allowed.
pub fn request(bytes: &[u8]) {
    GUEST.with(|memory| {
        let mut image = vec![0; MEMORY];
        let len = bytes.len().min(MEMORY);
        image[..len].copy_from_slice(&bytes[..len]);
        memory.write_slice(&image, GuestAddress(0)).expect("the guest has this memory");
        let mut chain = Chain::default();
        (0..=QUEUE).for_each(|head| follow(memory, &mut chain, head));
    });
}

fn follow(memory: &GuestMemoryMmap, chain: &mut Chain, head: u16) {
    let facts = Facts { size: SIZE, preferred_block: Bytes(4096), queues: 1, read_only: head % 2 == 1 };
    let table = Table { start: GuestAddress(0), len: QUEUE };
    if chain.read(memory, table, head).is_err() {
        return;
    }
    assert!(chain.places.len() <= DESCRIPTORS_MAX && chain.readable <= chain.places.len());
    assert!(chain.places.iter().all(|place| place.len > 0));
    let Some(decoded) = decode(memory, chain, &facts) else { return };
    assert!(decoded.written > 0, "the status is written");
    match decoded.order {
        Ok(Order::Read(span)) => check(span),
        Ok(Order::Write(span)) => {
            assert!(!facts.read_only);
            check(span);
        }
        Ok(Order::Discard(spans)) => {
            assert!(spans.len() <= RANGES_MAX);
            spans.into_iter().for_each(check);
        }
        Ok(Order::WriteZeroes(spans)) => {
            assert!(spans.len() <= RANGES_MAX);
            spans.into_iter().for_each(|(span, _)| check(span));
        }
        Ok(Order::Flush | Order::Id(_)) | Err(_) => {}
    }
}

fn check(span: Span) {
    let end = span.offset.checked_add(span.len).expect("a range ends");
    assert!(end <= SIZE && span.len.0.is_multiple_of(512), "{span:?} lies outside of the disk");
}

/// A read, a write by an indirect table, and a zeroing.
pub fn requests() -> Vec<Vec<u8>> {
    let descriptor = |start: u64, len: u32, flags: u16, next: u16| {
        [&start.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    let head = |kind: u32| [&kind.to_le_bytes()[..], &[0; 4], &7u64.to_le_bytes()].concat();
    let image = |table: Vec<u8>, kind: u32, more: &[u8]| {
        let mut image = vec![0; 1024];
        image[..table.len()].copy_from_slice(&table);
        image[512..528].copy_from_slice(&head(kind));
        image[528..528 + more.len()].copy_from_slice(more);
        image
    };
    let read = [descriptor(512, 16, 1, 1), descriptor(4096, 4096, 3, 2), descriptor(900, 1, 2, 0)].concat();
    let indirect = descriptor(640, 48, 4, 0);
    let write = [descriptor(512, 16, 1, 1), descriptor(4096, 4096, 1, 2), descriptor(900, 1, 2, 0)].concat();
    let mut within = image(indirect, VIRTIO_BLK_T_OUT, &[]);
    within[640..688].copy_from_slice(&write);
    let zeroing = [descriptor(512, 32, 1, 1), descriptor(900, 1, 2, 0)].concat();
    let range = [&8u64.to_le_bytes()[..], &16u32.to_le_bytes(), &1u32.to_le_bytes()].concat();
    vec![image(read, VIRTIO_BLK_T_IN, &[]), within, image(zeroing, VIRTIO_BLK_T_WRITE_ZEROES, &range)]
}
