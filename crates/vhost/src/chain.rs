//! Descriptor chains: the places in guest memory of one request.
//!
//! The guest may change its memory at any time, so each descriptor is read once. A chain is bounded by the
//! size of its table and by [`DESCRIPTORS_MAX`], so a loop ends. Places outside of the guest's memory are
//! found when the places are used.

use vm_memory::{Bytes as _, GuestAddress, GuestMemory};

/// Largest number of descriptors in a chain: the largest queue.
pub const DESCRIPTORS_MAX: usize = 1024;

/// A place in guest memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// First byte.
    pub start: GuestAddress,
    /// Length in bytes.
    pub len: u32,
}

/// The places of a request: the device reads the first ones and writes the others. An empty place is left
/// out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// The places, in the order of the chain.
    pub places: Vec<Place>,
    /// Number of places to read.
    pub readable: usize,
}

/// Why a chain is no chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadChain {
    /// The chain leaves its table or the guest's memory.
    Outside,
    /// The chain is longer than its table, or longer than [`DESCRIPTORS_MAX`].
    TooLong,
    /// A table within a table, a table with a next descriptor, or a table of a wrong size.
    Indirect,
    /// A place to read after a place to write.
    Direction,
}

/// A table of descriptors.
#[derive(Clone, Copy)]
pub struct Table {
    /// First byte.
    pub start: GuestAddress,
    /// Number of descriptors.
    pub len: u16,
}

impl Chain {
    /// Reads the chain that begins at descriptor `head`. Keeps the memory of a former chain.
    pub fn read<M: GuestMemory>(&mut self, memory: &M, table: Table, head: u16) -> Result<(), BadChain> {
        self.places.clear();
        self.readable = 0;
        let (mut table, mut next, mut left, mut within) = (table, head, table.len, false);
        loop {
            let descriptor = read_descriptor(memory, table, next)?;
            left = left.checked_sub(1).ok_or(BadChain::TooLong)?;
            if descriptor.flags & VIRTQ_DESC_F_INDIRECT != 0 {
                if within || descriptor.flags & VIRTQ_DESC_F_NEXT != 0 {
                    return Err(BadChain::Indirect);
                }
                table = indirect(&descriptor)?;
                (next, left, within) = (0, table.len, true);
                continue;
            }
            self.add(&descriptor)?;
            if descriptor.flags & VIRTQ_DESC_F_NEXT == 0 {
                return Ok(());
            }
            next = descriptor.next;
        }
    }

    /// Places to read.
    pub fn to_read(&self) -> &[Place] {
        &self.places[..self.readable]
    }

    /// Places to write.
    pub fn to_write(&self) -> &[Place] {
        &self.places[self.readable..]
    }

    fn add(&mut self, descriptor: &Descriptor) -> Result<(), BadChain> {
        let is_written = descriptor.flags & VIRTQ_DESC_F_WRITE != 0;
        if !is_written && self.readable < self.places.len() {
            return Err(BadChain::Direction);
        }
        if descriptor.place.len == 0 {
            return Ok(());
        }
        if self.places.len() == DESCRIPTORS_MAX {
            return Err(BadChain::TooLong);
        }
        self.places.push(descriptor.place);
        self.readable += usize::from(!is_written);
        Ok(())
    }
}

struct Descriptor {
    place: Place,
    flags: u16,
    next: u16,
}

/// Reads a descriptor, once: address u64, length u32, flags u16, next u16.
fn read_descriptor<M: GuestMemory>(memory: &M, table: Table, index: u16) -> Result<Descriptor, BadChain> {
    if index >= table.len {
        return Err(BadChain::Outside);
    }
    let start = table.start.0.checked_add(u64::from(index) * DESCRIPTOR_LEN as u64);
    let mut bytes = [0; DESCRIPTOR_LEN];
    let place = GuestAddress(start.ok_or(BadChain::Outside)?);
    memory.read_slice(&mut bytes, place).map_err(|_| BadChain::Outside)?;
    let value = u128::from_le_bytes(bytes);
    let place = Place { start: GuestAddress(value as u64), len: (value >> 64) as u32 };
    Ok(Descriptor { place, flags: (value >> 96) as u16, next: (value >> 112) as u16 })
}

fn indirect(descriptor: &Descriptor) -> Result<Table, BadChain> {
    let Place { start, len } = descriptor.place;
    let count = len as usize / DESCRIPTOR_LEN;
    if count == 0 || count > DESCRIPTORS_MAX || !(len as usize).is_multiple_of(DESCRIPTOR_LEN) {
        return Err(BadChain::Indirect);
    }
    Ok(Table { start, len: count as u16 })
}

const DESCRIPTOR_LEN: usize = 16;
const VIRTQ_DESC_F_NEXT: u16 = 1;
/// Flag of a descriptor: the device writes.
pub const VIRTQ_DESC_F_WRITE: u16 = 2;
const VIRTQ_DESC_F_INDIRECT: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::GuestMemoryMmap;

    const TABLE: Table = Table { start: GuestAddress(0x1000), len: 16 };

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]).expect("memory")
    }

    fn put(memory: &GuestMemoryMmap, table: u64, index: u64, place: (u64, u32), flags: u16, next: u16) {
        let bytes =
            [&place.0.to_le_bytes()[..], &place.1.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        memory.write_slice(&bytes.concat(), GuestAddress(table + index * 16)).expect("the table");
    }

    fn read(memory: &GuestMemoryMmap, head: u16) -> Result<Chain, BadChain> {
        let mut chain = Chain::default();
        chain.read(memory, TABLE, head).map(|()| chain)
    }

    #[test]
    fn places_keep_their_order_and_direction() {
        let memory = memory();
        put(&memory, 0x1000, 3, (0x100, 16), VIRTQ_DESC_F_NEXT, 1);
        put(&memory, 0x1000, 1, (0x200, 0), VIRTQ_DESC_F_NEXT, 2);
        put(&memory, 0x1000, 2, (0x300, 512), VIRTQ_DESC_F_NEXT | VIRTQ_DESC_F_WRITE, 0);
        put(&memory, 0x1000, 0, (0x900, 1), VIRTQ_DESC_F_WRITE, 9);
        let chain = read(&memory, 3).unwrap();
        let place = |start, len| Place { start: GuestAddress(start), len };
        assert_eq!(chain.to_read(), [place(0x100, 16)], "the empty place is left out");
        assert_eq!(chain.to_write(), [place(0x300, 512), place(0x900, 1)]);
    }

    #[test]
    fn indirect_table_is_followed_once() {
        let memory = memory();
        put(&memory, 0x1000, 0, (0x2000, 32), VIRTQ_DESC_F_INDIRECT, 0);
        put(&memory, 0x2000, 0, (0x100, 16), VIRTQ_DESC_F_NEXT, 1);
        put(&memory, 0x2000, 1, (0x900, 1), VIRTQ_DESC_F_WRITE, 0);
        assert_eq!(read(&memory, 0).unwrap().places.len(), 2);
        put(&memory, 0x2000, 1, (0x3000, 16), VIRTQ_DESC_F_INDIRECT, 0);
        assert_eq!(read(&memory, 0), Err(BadChain::Indirect), "a table within a table");
        for len in [0, 15, 17, 16 * 1025, u32::MAX] {
            put(&memory, 0x1000, 0, (0x2000, len), VIRTQ_DESC_F_INDIRECT, 0);
            assert_eq!(read(&memory, 0), Err(BadChain::Indirect), "a table of {len} bytes");
        }
    }

    #[test]
    fn hostile_chains_end() {
        let memory = memory();
        put(&memory, 0x1000, 0, (0x100, 16), VIRTQ_DESC_F_NEXT, 0);
        assert_eq!(read(&memory, 0), Err(BadChain::TooLong), "a loop");
        put(&memory, 0x1000, 0, (0x100, 16), VIRTQ_DESC_F_NEXT, 16);
        assert_eq!(read(&memory, 0), Err(BadChain::Outside), "an index beyond the table");
        assert_eq!(read(&memory, 16), Err(BadChain::Outside), "a head beyond the table");
        put(&memory, 0x1000, 0, (0x100, 16), VIRTQ_DESC_F_NEXT | VIRTQ_DESC_F_WRITE, 1);
        put(&memory, 0x1000, 1, (0x100, 16), 0, 1);
        assert_eq!(read(&memory, 0), Err(BadChain::Direction));
        for start in [0x1_0000, u64::MAX - 8] {
            put(&memory, 0x1000, 0, (start, 64), VIRTQ_DESC_F_INDIRECT, 0);
            assert_eq!(read(&memory, 0), Err(BadChain::Outside), "a table outside of memory");
        }
    }
}
