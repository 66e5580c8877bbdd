//! The life of a write: split by extent, lock, where it goes, devices, map.
//!
//! The lock is shared where the write changes bytes that the map already says are valid: such writes may overlap, as
//! on any disk. It is exclusive where the copy-set changes or is more than the home: a new extent, the rest of a part that
//! must become zero, an extra or second copy, an extent in the memory cache, or an edge that the device cannot write
//! alone.

use crate::core::Core;
use crate::shape::Piece;
use crate::{Durability, Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::{Direction, Origin, Placement};
use braid_runtime::{Arena, Buf, Device, LockGuard, Mode, Runtime, join_all};
use std::ops::Range;
use std::rc::Rc;

/// How long a guest waits before it looks again whether a slot that is being trimmed is free.
const WAIT_FOR_TRIM: Nanos = Nanos::from_millis(1);

impl<R: Runtime, D: Device> Core<R, D> {
    /// Writes `from` at `offset`.
    pub async fn write(self: &Rc<Self>, offset: Bytes, from: &Buf, durability: Durability) -> Result<()> {
        self.check_range(offset, from.len())?;
        if from.is_empty() {
        } else if self.shape.is_one_piece(offset, from.len()) {
            let piece = self.shape.one_piece(offset, from.len());
            self.write_piece(&piece, from).await?;
        } else {
            Box::pin(self.write_pieces(offset, from)).await?;
        }
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Fua => self.commit(Origin::Guest).await,
        }
    }

    async fn write_pieces(self: &Rc<Self>, offset: Bytes, from: &Buf) -> Result<()> {
        let all = self.shape.pieces(offset, from.len()).map(async |piece| {
            let start = self.shape.extent_size * u64::from(piece.extent.0) + piece.range.start - offset;
            let part = from.slice(start..start + piece.len());
            self.write_piece(&piece, &part).await
        });
        join_all(all).await.into_iter().collect()
    }

    async fn write_piece(self: &Rc<Self>, piece: &Piece, from: &Buf) -> Result<()> {
        let records = self.most_records(piece);
        let _room = match self.try_reserve(records) {
            Some(room) => room,
            None => Box::pin(self.reserve(records)).await?,
        };
        let mut guard = self.lock_to_write(piece).await;
        let cached = guard.mode() == Mode::Exclusive && self.cache.borrow().contains(piece.extent);
        let (mut entry, mut placement) = self.place(piece, cached);
        if guard.mode() == Mode::Shared && placement != Placement::Home {
            // What others who share the lock write to the home would be hidden by the copy that is made now.
            drop(guard);
            guard = self.locks.lock(Self::lock_number(piece.extent), Mode::Exclusive).await;
            entry = self.state.borrow().map.get(piece.extent);
            placement = if entry.home == SlotNumber::NONE { Placement::Home } else { placement };
        }
        let mode = guard.mode();
        self.state.borrow_mut().disturb(piece.extent);
        let result = if placement == Placement::Home && (mode == Mode::Shared || self.is_plain(piece, &entry))
        {
            // Nearly every write: to one place of one device, and no other copy is there or comes meanwhile.
            let (member, start) = self.locate(entry.home);
            let at = start + piece.range.start;
            let attempt = self.begin(member, Direction::Write, at, from.len(), Origin::Guest);
            let written = self.end(&attempt, member.device.write(at, from).await);
            written.map(|()| self.make_valid(piece, entry))
        } else {
            Box::pin(self.write_placed(piece, from, entry, placement)).await
        };
        if mode == Mode::Exclusive {
            match &result {
                Ok(()) => self.cache.borrow_mut().write(piece, from),
                // What the devices hold of it now is unknown; the next read must ask them.
                Err(_) => self.cache.borrow_mut().remove(piece.extent),
            }
        }
        drop(guard);
        result
    }

    /// Takes the lock of an extent as a write needs it.
    async fn lock_to_write(&self, piece: &Piece) -> LockGuard {
        let lock = Self::lock_number(piece.extent);
        let mode = self.mode_to_write(piece);
        if let Some(guard) = self.locks.try_lock(lock, mode) {
            return guard;
        }
        let guard = self.locks.lock(lock, mode).await;
        // While this task waited, the extent may have moved into the cache or lost its home.
        if mode == Mode::Exclusive || self.mode_to_write(piece) == Mode::Shared {
            return guard;
        }
        drop(guard);
        self.locks.lock(lock, Mode::Exclusive).await
    }

    fn mode_to_write(&self, piece: &Piece) -> Mode {
        let entry = self.state.borrow().map.get(piece.extent);
        let shared = self.is_plain(piece, &entry) && !self.cache.borrow().contains(piece.extent);
        if shared { Mode::Shared } else { Mode::Exclusive }
    }

    /// Whether a write to the home changes nothing but bytes of one device that are valid already, and that it can write
    /// alone.
    #[inline]
    fn is_plain(&self, piece: &Piece, entry: &Entry) -> bool {
        let state = self.state.borrow();
        if entry.home == SlotNumber::NONE || entry.second != SlotNumber::NONE || !state.extras.is_empty() {
            return false;
        }
        let edges = self.shape.parts_touched(&piece.range) & !self.shape.parts_covered(&piece.range);
        let device = state.space.locate(entry.home).expect("the map names slots that exist").device;
        let align = self.members[device.index()].alignment;
        let aligned = piece.range.start.is_aligned(align) && piece.range.end.is_aligned(align);
        edges & !entry.valid == 0 && aligned
    }

    /// Tells the policy of a write and asks it where that goes.
    #[inline]
    fn place(&self, piece: &Piece, cached: bool) -> (Entry, Placement) {
        let entry = self.state.borrow().map.get(piece.extent);
        let access = self.access(piece, Direction::Write, cached);
        let placement = self.with_policy(|policy, view| {
            policy.on_access(&access, view);
            if entry.home == SlotNumber::NONE { Placement::Home } else { policy.place_write(&access, view) }
        });
        (entry, placement)
    }

    async fn write_placed(
        self: &Rc<Self>,
        piece: &Piece,
        from: &Buf,
        entry: Entry,
        placement: Placement,
    ) -> Result<()> {
        match placement {
            Placement::Home if entry.home == SlotNumber::NONE => self.write_new(piece, from).await,
            Placement::Home => self.write_home(piece, from, entry).await,
            Placement::NewHome(target) => match self.write_moved(piece, from, target).await? {
                true => Ok(()),
                false => self.write_home(piece, from, entry).await,
            },
            Placement::Extra(device) => match self.write_extra(piece, from, device).await? {
                true => Ok(()),
                false => self.write_home(piece, from, entry).await,
            },
        }
    }

    /// The first write to an extent, or the first since it was discarded: allocates its required copies.
    async fn write_new(&self, piece: &Piece, from: &Buf) -> Result<()> {
        let home = self.allocate(piece.extent).await?;
        let second = match self.shape.copies {
            1 => SlotNumber::NONE,
            _ => self.allocate_second(home).await?,
        };
        let fresh = Entry { home, valid: 0, second, behind: 0 };
        let result = self.write_home(piece, from, fresh).await;
        if result.is_err() {
            let mut state = self.state.borrow_mut();
            [home, second].into_iter().filter(|&s| s != SlotNumber::NONE).for_each(|s| state.release(s));
        }
        result
    }

    /// Writes to the required copies, and to extra copies where there are any, at the same time.
    async fn write_home(&self, piece: &Piece, from: &Buf, entry: Entry) -> Result<()> {
        let slots = [entry.home, entry.second];
        if entry.second == SlotNumber::NONE {
            self.write_slot(entry.home, &piece.range, Some(from), entry.valid, Origin::Guest).await?;
        } else {
            let both = slots
                .iter()
                .map(|&slot| self.write_slot(slot, &piece.range, Some(from), entry.valid, Origin::Guest));
            join_all(both).await.into_iter().collect::<Result<()>>()?;
        }
        self.update_extras(piece, from).await?;
        self.make_valid(piece, entry);
        Ok(())
    }

    /// What a piece touches of its extent has been written to the required copies.
    fn make_valid(&self, piece: &Piece, entry: Entry) {
        let mut state = self.state.borrow_mut();
        // Others who share the lock may have made parts valid since `entry` was read.
        let now = state.map.get(piece.extent);
        let valid = entry.valid | now.valid | self.shape.parts_touched(&piece.range);
        state.set_extent(piece.extent, Entry { valid, ..entry });
    }

    /// Writes all of an extent, as the memory cache holds it with this piece written, to a new home.
    /// False where there is no room for it, or where a second required copy would have to follow.
    async fn write_moved(&self, piece: &Piece, from: &Buf, target: DeviceId) -> Result<bool> {
        if self.state.borrow().map.get(piece.extent).second != SlotNumber::NONE {
            return Ok(false);
        }
        let Some(slot) = self.state.borrow_mut().take(target) else { return Ok(false) };
        let whole = {
            let cache = self.cache.borrow();
            let buf = cache.whole(piece.extent).expect("a write that is placed anew is cached");
            buf.copy_from(piece.range.start, from);
            buf.clone()
        };
        let all = Bytes::ZERO..self.shape.extent_size;
        if let Err(error) =
            self.write_slot(slot, &all, Some(&whole), self.shape.all_parts(), Origin::Guest).await
        {
            self.state.borrow_mut().release(slot);
            return Err(error);
        }
        self.update_extras(piece, from).await?;
        let mut state = self.state.borrow_mut();
        let before = state.map.get(piece.extent);
        state.set_extent(piece.extent, Entry { home: slot, valid: self.shape.all_parts(), ..before });
        state.retire(before.home);
        drop(state);
        let mut background = self.background.borrow_mut();
        background.migrations += 1;
        background.migrated_bytes += self.shape.extent_size.0;
        Ok(true)
    }

    /// Writes a range of a slot. Of the parts that it touches, those not `valid` become zero where it does not reach;
    /// edges that the device cannot write alone are read first. `from` is none for zeros.
    pub async fn write_slot(
        &self,
        slot: SlotNumber,
        range: &Range<Bytes>,
        from: Option<&Buf>,
        valid: u16,
        origin: Origin,
    ) -> Result<()> {
        let (member, start) = self.locate(slot);
        let (head, tail) =
            (self.pad(range.start, range.start, valid), self.pad(range.end, range.end - Bytes(1), valid));
        let align = member.alignment;
        let span = range.start.align_down(align).min(head.start)..range.end.align_up(align).max(tail.end);
        if let Some(from) = from.filter(|_| span == *range) {
            return self.device_write(member, start + range.start, from, origin).await;
        }
        let mut at = span.start;
        while at < span.end {
            let end = (at + self.bounce_limit()).min(span.end);
            let bounce = self.bounce.alloc(end - at).await;
            bounce.fill_zero();
            for edge in [range.start, range.end].into_iter().filter(|e| !e.is_aligned(align)) {
                let block = edge.align_down(align);
                if (at..end).contains(&block) && self.is_valid(block, valid) {
                    let part = bounce.slice(block - at..block - at + align);
                    self.device_read(member, start + block, &part, origin).await?;
                }
            }
            let wanted = at.max(range.start)..end.min(range.end);
            if wanted.start < wanted.end {
                let part = bounce.slice(wanted.start - at..wanted.end - at);
                match from {
                    None => part.fill_zero(),
                    Some(from) => {
                        let source = wanted.start - range.start..wanted.end - range.start;
                        part.copy_from(Bytes::ZERO, &from.slice(source));
                    }
                }
            }
            self.device_write(member, start + at, &bounce, origin).await?;
            at = end;
        }
        Ok(())
    }

    /// What must become zero around an edge: the part that holds `inside`, where that is not valid; else nothing.
    fn pad(&self, edge: Bytes, inside: Bytes, valid: u16) -> Range<Bytes> {
        if self.is_valid(inside, valid) {
            return edge..edge;
        }
        let part = inside.align_down(self.shape.part_size);
        part..part + self.shape.part_size
    }

    fn is_valid(&self, at: Bytes, valid: u16) -> bool {
        valid >> (at / self.shape.part_size) & 1 == 1
    }

    /// The largest bounce buffer.
    pub fn bounce_limit(&self) -> Bytes {
        Arena::LARGEST
    }

    /// A slot for a new extent: where the policy wants it, else wherever there is room.
    pub async fn allocate(&self, extent: ExtentId) -> Result<SlotNumber> {
        let wanted = self.with_policy(|policy, view| policy.place_new(extent, view));
        if let Some(slot) = self.state.borrow_mut().take(wanted) {
            return Ok(slot);
        }
        self.allocate_anywhere(None).await
    }

    /// A slot on another device than `home`'s.
    pub async fn allocate_second(&self, home: SlotNumber) -> Result<SlotNumber> {
        let not = self.device_of(home);
        let result = self.allocate_anywhere(Some(not)).await;
        if result.is_err() {
            self.state.borrow_mut().release(home);
        }
        result
    }

    /// The device with the most free slots; once more after a commit, which may free some.
    async fn allocate_anywhere(&self, not: Option<DeviceId>) -> Result<SlotNumber> {
        loop {
            let choice = self.with_policy(|policy, view| match not {
                None => policy.next_choice(view),
                Some(not) => view.with_room().filter(|d| d.id != not).max_by_key(|d| d.free).map(|d| d.id),
            });
            if let Some(slot) = choice.and_then(|device| self.state.borrow_mut().take(device)) {
                return Ok(slot);
            }
            if self.release_trims() {
                continue;
            }
            if self.state.borrow().trimming() > 0 {
                self.rt.sleep(WAIT_FOR_TRIM).await;
                continue;
            }
            if self.state.borrow().freeing() == 0 {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "no device of the volume has a free slot: discard data that is no longer needed (fstrim), or make a \
                     larger volume",
                ));
            }
            self.commit(Origin::Guest).await?;
        }
    }
}
