//! Engines small enough to be understood at a glance, without a journal: two correct engines, and an engine
//! for each classical mistake.
//!
//! A block lies at its own address ([`Layout::InPlace`]), or each write goes to a fresh slot and a map names
//! the slot ([`Layout::Mapped`]). Each flush writes the whole map, with generation and checksum, to one of
//! two places.

use braid_base::{Bytes, KIB, MIB};
use braid_engine::{Allocation, Durability, Error, Export, Result, Zeroing};
use braid_runtime::{Arena, Buf, Device, LockTable, Mode};
use braid_sim::{Disk, Subject, World};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// The size of a toy volume, and of its disk.
pub const VOLUME: Bytes = Bytes(1 << 20);
pub const DISK: Bytes = Bytes(16 << 20);

const BLOCK: Bytes = Bytes(4096);
const BLOCKS: usize = (VOLUME.0 / BLOCK.0) as usize;
/// Slot 0 stands for a hole; the room of the first slots holds the two maps.
const FIRST_SLOT: u16 = 32;
const SLOTS: u16 = (DISK.0 / BLOCK.0) as u16;
const MAP_LEN: Bytes = Bytes(1024);
/// The lock of a flush; block locks have lower numbers.
const FLUSH_LOCK: u64 = u64::MAX >> 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    InPlace,
    Mapped,
}

/// The mistake of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    None,
    /// Flush does nothing.
    FlushIsNotPassedOn,
    /// A flush makes the data durable, but the map lives in memory only.
    MapIsNeverWritten,
    /// Data and map are flushed together, so that the map may be durable before the data.
    MapBeforeData,
    /// Nothing detects a map that was not written whole.
    MapWithoutChecksum,
    /// A slot is reused before the map that freed the slot is durable.
    SlotIsReusedTooEarly,
    /// FUA is treated as an ordinary write.
    FuaIsIgnored,
    /// A write to part of a block does not lock the block.
    BlockIsNotLocked,
    /// After a failed flush the next flush may succeed.
    FailedFlushIsForgotten,
    /// A failed write is acknowledged.
    FailedWriteIsAcknowledged,
    /// A request to a failing device waits instead of failing.
    ErrorIsWaitedOut,
    /// A map found after a kill is relied on before the map is durable.
    FoundMapIsNotFlushed,
    /// A panic takes the place of an error.
    ErrorPanics,
}

/// A toy engine, to be created and opened by a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Toy {
    pub layout: Layout,
    pub mistake: Mistake,
}

impl Subject for Toy {
    type Export = ToyVolume;

    async fn create(self, _: World, disks: Vec<Disk>) -> Result<ToyVolume> {
        let volume = ToyVolume::new(self, disks);
        volume.commit().await.map_err(|error| Error::io("create", &error))?;
        Ok(volume)
    }

    async fn open(self, _: World, disks: Vec<Disk>) -> Result<ToyVolume> {
        let volume = ToyVolume::new(self, disks);
        volume.load().await.map_err(|error| Error::io("open", &error))?;
        Ok(volume)
    }
}

#[derive(Clone)]
pub struct ToyVolume {
    inner: Rc<Inner>,
}

struct Inner {
    toy: Toy,
    disk: Disk,
    arena: Arena,
    locks: LockTable,
    map: RefCell<Vec<u16>>,
    free: RefCell<Vec<u16>>,
    /// Slots that become free as soon as a map without them is durable.
    freed: RefCell<Vec<u16>>,
    generation: Cell<u64>,
    /// A flush failed: nothing can be promised any more.
    has_failed: Cell<bool>,
}

impl Export for ToyVolume {
    fn size(&self) -> Bytes {
        VOLUME
    }

    fn preferred_block(&self) -> Bytes {
        BLOCK
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        for (block, within, part) in pieces(offset, into.len()) {
            let _lock = self.inner.locks.lock(block as u64, Mode::Shared).await;
            let buf = self.inner.arena.alloc(BLOCK).await;
            self.read_block(block, &buf).await.map_err(|error| Error::io("read", &error))?;
            into.copy_from(part, &buf.slice(within.0..within.1));
        }
        Ok(())
    }

    async fn write(&self, offset: Bytes, from: &Buf, durability: Durability) -> Result<()> {
        for (block, within, part) in pieces(offset, from.len()) {
            let part = from.slice(part..part + (within.1 - within.0));
            let written = self.change_block(block, within, Some(&part)).await;
            self.judge(written).await?;
        }
        self.settle(durability).await
    }

    async fn flush(&self) -> Result<()> {
        self.commit().await.map_err(|error| Error::io("flush", &error))
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> Result<()> {
        for (block, within, _) in pieces(offset, len) {
            let changed = self.change_block(block, within, None).await;
            changed.map_err(|error| Error::io("discard", &error))?;
        }
        Ok(())
    }

    async fn write_zeroes(
        &self,
        offset: Bytes,
        len: Bytes,
        _: Zeroing,
        durability: Durability,
    ) -> Result<()> {
        self.discard(offset, len).await?;
        self.settle(durability).await
    }

    async fn prefetch(&self, _: Bytes, _: Bytes) -> Result<()> {
        Ok(())
    }

    fn allocation(&self, _: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        (Allocation::Data, limit)
    }
}

impl ToyVolume {
    fn new(toy: Toy, disks: Vec<Disk>) -> ToyVolume {
        let disk = disks.into_iter().next().expect("a toy volume has one disk");
        let inner = Inner {
            toy,
            disk,
            arena: Arena::new(MIB),
            locks: LockTable::default(),
            map: RefCell::new(vec![0; BLOCKS]),
            free: RefCell::new((FIRST_SLOT..SLOTS).collect()),
            freed: RefCell::default(),
            generation: Cell::new(0),
            has_failed: Cell::new(false),
        };
        ToyVolume { inner: Rc::new(inner) }
    }

    async fn settle(&self, durability: Durability) -> Result<()> {
        if durability == Durability::Fua && self.inner.toy.mistake != Mistake::FuaIsIgnored {
            return self.flush().await;
        }
        Ok(())
    }

    /// Returns the result of a write for the guest.
    async fn judge(&self, written: io::Result<()>) -> Result<()> {
        match (written, self.inner.toy.mistake) {
            (Ok(()), _) | (Err(_), Mistake::FailedWriteIsAcknowledged) => Ok(()),
            (Err(_), Mistake::ErrorIsWaitedOut) => std::future::pending().await,
            (Err(error), Mistake::ErrorPanics) => panic!("no write ever fails: {error}"),
            (Err(error), _) => Err(Error::io("write", &error)),
        }
    }

    async fn read_block(&self, block: usize, into: &Buf) -> io::Result<()> {
        match self.address(block) {
            // Another block's bytes may lie in the slot.
            Some(_) if self.inner.has_failed.get() && self.inner.toy.layout == Layout::Mapped => {
                Err(io::Error::other("a flush failed, and what it lost is not known"))
            }
            Some(address) => self.inner.disk.read(address, into).await,
            None => {
                into.fill_zero();
                Ok(())
            }
        }
    }

    /// Returns the address of a block; `None` for a hole.
    fn address(&self, block: usize) -> Option<Bytes> {
        match self.inner.toy.layout {
            Layout::InPlace => Some(BLOCK * (u64::from(FIRST_SLOT) + block as u64)),
            Layout::Mapped => match self.inner.map.borrow()[block] {
                0 => None,
                slot => Some(BLOCK * u64::from(slot)),
            },
        }
    }

    /// Replaces a part of a block with `from`, or with zeros.
    async fn change_block(&self, block: usize, within: (Bytes, Bytes), from: Option<&Buf>) -> io::Result<()> {
        let inner = &self.inner;
        let forgets = inner.toy.mistake == Mistake::BlockIsNotLocked;
        let mode = if forgets { Mode::Shared } else { Mode::Exclusive };
        let _lock = inner.locks.lock(block as u64, mode).await;
        let buf = inner.arena.alloc(BLOCK).await;
        if within != (Bytes::ZERO, BLOCK) {
            self.read_block(block, &buf).await?;
        }
        match from {
            Some(from) => buf.copy_from(within.0, from),
            None => buf.slice(within.0..within.1).fill_zero(),
        }
        if inner.toy.layout == Layout::InPlace {
            return inner.disk.write(BLOCK * (u64::from(FIRST_SLOT) + block as u64), &buf).await;
        }
        let slot =
            if from.is_none() && within == (Bytes::ZERO, BLOCK) { 0 } else { self.take_slot().await? };
        if slot > 0 {
            inner.disk.write(BLOCK * u64::from(slot), &buf).await?;
        }
        let old = std::mem::replace(&mut inner.map.borrow_mut()[block], slot);
        if old > 0 && inner.toy.mistake == Mistake::SlotIsReusedTooEarly {
            inner.free.borrow_mut().push(old);
        } else if old > 0 {
            inner.freed.borrow_mut().push(old);
        }
        Ok(())
    }

    async fn take_slot(&self) -> io::Result<u16> {
        loop {
            if let Some(slot) = self.inner.free.borrow_mut().pop() {
                return Ok(slot);
            }
            self.commit().await?;
        }
    }

    /// Makes all writes until now durable. After a failure no commit succeeds again: the extent of the loss
    /// is unknown.
    async fn commit(&self) -> io::Result<()> {
        let _lock = self.inner.locks.lock(FLUSH_LOCK, Mode::Exclusive).await;
        // Checked only now: the previous holder of the lock may have failed.
        if self.inner.has_failed.get() {
            return Err(io::Error::other("an earlier flush failed"));
        }
        let result = self.commit_once().await;
        let forgets = self.inner.toy.mistake == Mistake::FailedFlushIsForgotten;
        self.inner.has_failed.set(result.is_err() && !forgets);
        result
    }

    /// Writes data, then the map. One commit at a time.
    async fn commit_once(&self) -> io::Result<()> {
        let Inner { toy, disk, .. } = &*self.inner;
        if toy.mistake == Mistake::FlushIsNotPassedOn {
            return Ok(());
        }
        if toy.layout == Layout::InPlace || toy.mistake == Mistake::MapIsNeverWritten {
            return disk.flush().await;
        }
        let (map, freed) = (self.inner.map.borrow().clone(), self.inner.freed.take());
        if toy.mistake != Mistake::MapBeforeData {
            disk.flush().await?;
        }
        let generation = self.inner.generation.get() + 1;
        let buf = self.inner.arena.alloc(MAP_LEN).await;
        buf.copy_from_slice(Bytes::ZERO, &encode(generation, &map));
        disk.write(KIB * 64 * (generation % 2), &buf).await?;
        disk.flush().await?;
        self.inner.generation.set(generation);
        self.inner.free.borrow_mut().extend(freed);
        Ok(())
    }

    /// Reads the newest whole map.
    async fn load(&self) -> io::Result<()> {
        let Inner { toy, disk, arena, .. } = &*self.inner;
        if toy.layout == Layout::InPlace || toy.mistake == Mistake::MapIsNeverWritten {
            return Ok(());
        }
        for place in 0..2 {
            let buf = arena.alloc(MAP_LEN).await;
            disk.read(KIB * 64 * place, &buf).await?;
            let trusts = toy.mistake == Mistake::MapWithoutChecksum;
            let Some((generation, map)) = buf.with_bytes(|bytes| decode(bytes, trusts)) else { continue };
            if generation > self.inner.generation.get() {
                self.inner.generation.set(generation);
                *self.inner.map.borrow_mut() = map;
            }
        }
        let map = self.inner.map.borrow().clone();
        self.inner.free.borrow_mut().retain(|slot| !map.contains(slot));
        // After a kill the map may lie only in the disk's cache. Slots that the map calls free are not free
        // until the map is durable.
        if toy.mistake == Mistake::FoundMapIsNotFlushed { Ok(()) } else { disk.flush().await }
    }
}

/// The pieces of a range by block: block, start and end within the block, and start within the range.
fn pieces(offset: Bytes, len: Bytes) -> impl Iterator<Item = (usize, (Bytes, Bytes), Bytes)> {
    let end = offset + len;
    (offset / BLOCK..end.align_up(BLOCK) / BLOCK).map(move |block| {
        let start = BLOCK * block;
        let (from, to) = (offset.max(start), end.min(start + BLOCK));
        (block as usize, (from - start, to - start), from - offset)
    })
}

/// Generation, checksum, entries.
fn encode(generation: u64, map: &[u16]) -> Vec<u8> {
    let mut bytes = [generation.to_le_bytes(), [0; 8]].concat();
    map.iter().for_each(|slot| bytes.extend(slot.to_le_bytes()));
    let sum = checksum(&bytes);
    bytes[8..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8], trusts: bool) -> Option<(u64, Vec<u16>)> {
    let mut bytes = bytes[..16 + 2 * BLOCKS].to_vec();
    let found = bytes[8..16].to_vec();
    bytes[8..16].fill(0);
    if !trusts && checksum(&bytes).to_le_bytes() != found[..] {
        return None;
    }
    let generation = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    let entries = bytes[16..].chunks(2).map(|entry| u16::from_le_bytes([entry[0], entry[1]]));
    // Even an engine that trusts the map reads no slot beyond the disk.
    Some((generation, entries.map(|slot| slot % SLOTS).collect()))
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
