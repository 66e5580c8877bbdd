//! The volume's public face: open, the verbs of a disk, and what an administrator asks.

use crate::copies::ExtentCache;
use crate::copies::Member;
use crate::core::Core;
use crate::create::{views, written_policy};
use crate::export::{Allocation, Durability, Export, Zeroing};
use crate::journal::Commits;
use crate::journal::Journal;
use crate::journal::{Recovery, recover};
use crate::map::State;
use crate::open::{assemble, write_superblocks};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId, MIB, Nanos, Rng};
use braid_format::SlotNumber;
use braid_format::superblock::{LONGEST_POLICY, Superblock};
use braid_policy::{Origin, Policy};
use braid_runtime::{Arena, Buf, Device, Event, LockTable, Runtime, Semaphore};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// What to call each device in messages: its path.
    pub names: Vec<String>,
    /// Extents in the memory cache; 0 for none.
    pub cache_extents: usize,
    /// Whether closing writes all map pages anew, damaged or not: what a repair does.
    pub rewrite_map: bool,
}

/// One block device out of several. Cheap to clone: a handle.
pub struct Volume<R, D> {
    pub(crate) core: Rc<Core<R, D>>,
}

impl<R, D> Clone for Volume<R, D> {
    fn clone(&self) -> Volume<R, D> {
        Volume { core: self.core.clone() }
    }
}

/// Memory for unaligned edges and background copies.
const BOUNCE: Bytes = Bytes(8 << 20);

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Opens the volume that lies on `devices`, given in any order; recovers it where it was not closed. Takes less than
    /// a second per TiB mapped.
    ///
    /// # Errors
    /// `Invalid` for a foreign, wrong, old or duplicated device and for a cache that memory does not hold, `Degraded` for a
    /// missing device, `Unsupported` for a volume of a newer version, `Corrupt` for damage: then nothing was changed.
    pub async fn open(rt: R, devices: Vec<D>, options: OpenOptions) -> Result<(Volume<R, D>, Recovery)> {
        let (mut superblock, devices, order) = assemble(devices, &options.names).await?;
        let shape = Shape::new(
            superblock.volume_size,
            superblock.extent_size,
            superblock.block_size,
            superblock.copies,
        );
        let mut state = State::new(&shape, &superblock.devices);
        let (ring, recovery) = recover(&devices, &superblock, &mut state).await?;
        let policy = braid_policy::parse(&superblock.policy, &views(&superblock.devices)).map_err(|e| {
            Error::new(
                ErrorKind::Unsupported,
                format!("the policy that volume '{}' was left with: {e}", superblock.name),
            )
        })?;
        let cache = ExtentCache::new(options.cache_extents, shape.extent_size)?;
        if options.rewrite_map {
            (0..shape.extents()).for_each(|extent| state.mark_stale(ExtentId(extent)));
        }
        superblock.sequence += 1;
        superblock.generation += 1;
        write_superblocks(&devices.iter().collect::<Vec<_>>(), &superblock, &order).await?;
        let journal = {
            let device = superblock.metadata_device;
            let (offset, _) =
                superblock.devices[device.index()].journal.expect("recovery found the journal there");
            Journal::new(device, offset, ring)
        };
        let entries = superblock.devices.iter().cloned();
        let members = devices.into_iter().zip(entries).enumerate();
        let core = Rc::new(Core {
            rt,
            shape,
            members: members.map(|(i, (d, entry))| Member::new(DeviceId(i as u16), entry, d)).collect(),
            state: RefCell::new(state),
            locks: LockTable::default(),
            policy: RefCell::new(policy),
            cache: RefCell::new(cache),
            journal,
            commits: Commits::default(),
            checkpoints: Semaphore::new(1),
            bounce: Arena::new(BOUNCE),
            blocks: Arena::new(MIB),
            copies: Arena::new(Arena::LARGEST * 2),
            dice: RefCell::new(Rng::new(superblock.generation)),
            policy_changes: Cell::new(0),
            superblock: RefCell::new(superblock),
            guests: RefCell::default(),
            background: RefCell::default(),
            attention: Event::default(),
            closing: Cell::new(false),
            jobs: Cell::new(0),
        });
        core.start_background();
        core.adopt_extras();
        Ok((Volume { core }, recovery))
    }

    /// Stops background work, makes everything durable and the journal short, so that the next opening is quick.
    /// The caller has stopped the guests.
    pub async fn close(&self) -> Result<()> {
        let core = &self.core;
        core.closing.set(true);
        core.attention.notify();
        core.attention.wait_for(|| (core.jobs.get() == 0).then_some(())).await;
        core.commit(Origin::Background).await?;
        core.checkpoint().await
    }

    /// Changes the policy; no data is copied now. What the new policy wants moved, it moves in the background.
    pub async fn set_policy(&self, text: &str) -> Result<()> {
        let core = &self.core;
        let devices = core.state.borrow().views.clone();
        let policy =
            braid_policy::parse(text, &devices).map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
        let written = written_policy(&*policy);
        if written.len() > LONGEST_POLICY {
            let message =
                format!("the policy's settings have {} characters: at most {LONGEST_POLICY}", written.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        self.replace_policy(policy);
        let superblock = {
            let mut superblock = core.superblock.borrow_mut();
            superblock.policy = written;
            superblock.sequence += 1;
            superblock.clone()
        };
        let order: Vec<usize> = (0..core.members.len()).collect();
        let devices: Vec<&D> = core.members.iter().map(|m| &m.device).collect();
        write_superblocks(&devices, &superblock, &order).await
    }

    /// Puts a policy in charge that was made elsewhere, until the volume is closed: for experiments and tests.
    pub fn replace_policy(&self, policy: Box<dyn Policy>) {
        let core = &self.core;
        *core.policy.borrow_mut() = policy;
        core.adopt_extras();
        core.policy_changes.set(core.policy_changes.get() + 1);
        core.attention.notify();
    }

    /// Brings the map pages up to date now, which makes the journal short. It happens by itself in time.
    pub async fn checkpoint(&self) -> Result<()> {
        self.core.checkpoint().await
    }

    /// The policy with its settings, as `name,key=value,…`.
    pub fn policy(&self) -> String {
        written_policy(&**self.core.policy.borrow())
    }

    /// What the superblock says.
    pub fn superblock(&self) -> Superblock {
        self.core.superblock.borrow().clone()
    }

    #[inline]
    fn timed<T>(
        &self,
        start: Nanos,
        result: Result<T>,
        record: impl FnOnce(&mut crate::GuestStats, Nanos),
    ) -> Result<T> {
        let took = self.core.rt.now().saturating_sub(start);
        let mut guests = self.core.guests.borrow_mut();
        guests.errors += u64::from(result.is_err());
        record(&mut guests, took);
        result
    }
}

impl<R: Runtime, D: Device> Export for Volume<R, D> {
    fn size(&self) -> Bytes {
        self.core.shape.volume_size
    }

    fn preferred_block(&self) -> Bytes {
        self.core.shape.block_size
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        let start = self.core.rt.now();
        let result = self.core.read(offset, into).await;
        self.timed(start, result, |guests, took| {
            guests.reads += 1;
            guests.read_bytes += into.len().0;
            guests.read_latency.record(took);
        })
    }

    async fn write(&self, offset: Bytes, from: &Buf, durability: Durability) -> Result<()> {
        let start = self.core.rt.now();
        let result = self.core.write(offset, from, durability).await;
        self.timed(start, result, |guests, took| {
            guests.writes += 1;
            guests.write_bytes += from.len().0;
            guests.write_latency.record(took);
        })
    }

    async fn flush(&self) -> Result<()> {
        let start = self.core.rt.now();
        let result = self.core.commit(Origin::Guest).await;
        self.timed(start, result, |guests, took| {
            guests.flushes += 1;
            guests.flush_latency.record(took);
        })
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> Result<()> {
        self.write_zeroes(offset, len, Zeroing::MayDiscard, Durability::Volatile).await
    }

    async fn write_zeroes(
        &self,
        offset: Bytes,
        len: Bytes,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Result<()> {
        let start = self.core.rt.now();
        let result = self.core.zero(offset, len, zeroing, durability).await;
        self.timed(start, result, |guests, _| guests.discards += 1)
    }

    async fn prefetch(&self, offset: Bytes, len: Bytes) -> Result<()> {
        self.core.check_range(offset, len)?;
        for piece in self.core.shape.pieces(offset, len) {
            self.core.prefetch(&piece).await?;
        }
        Ok(())
    }

    fn allocation(&self, offset: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        let (shape, state) = (&self.core.shape, self.core.state.borrow());
        let mapped = |at: Bytes| state.map.get(shape.extent_of(at)).home != SlotNumber::NONE;
        let end = (offset + limit).min(shape.volume_size);
        let first = mapped(offset);
        let mut at = offset.align_down(shape.extent_size) + shape.extent_size;
        while at < end && mapped(at) == first {
            at += shape.extent_size;
        }
        let allocation = if first { Allocation::Data } else { Allocation::Hole };
        (allocation, at.min(end) - offset)
    }
}
