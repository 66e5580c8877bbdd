//! Pending log: a copy of every uncommitted change in memory that outlives the daemon, made before a reply
//! depends on the change. Acknowledged writes survive a crash of the daemon; a power cut makes the log void.
//! Layout: `format/src/pending_log.rs`.
//!
//! ```text
//! change ── append ──> entry ── publish ──> counts ── its batch is durable ──> forgotten
//! ```
//!
//! A change of one extent may take several entries: a discard drops dirty extra copies, then the parts below.
//! Nothing waits in between, so the entries count together: from the next reply, write to a device, or
//! commit. No later write may reach a device before these entries.
//!
//! Entries are numbered, and their places form a ring. When more than half of the places are in use, all
//! pending changes are appended again, and all earlier entries are forgotten.

use super::State;
use crate::planted::{Bug, planted};
use braid_base::Bytes;
use braid_format::Uuid;
use braid_format::journal::Record;
use braid_format::pending_log::{
    self, END, FIRST, FOUND_OWNER, HEAD_USED, Head, LOSS, Loss, MAGIC, MOST_ENTRIES, MOST_POSITION, NEWEST,
    PER_PENDING, READER, READER_OWNER, Seal, encode_head, in_position, place,
};
use braid_runtime::LastingMemory;
use std::io;
use std::rc::Rc;

/// Pending log of an opening.
pub(crate) struct PendingLog {
    memory: Rc<dyn LastingMemory>,
    seal: Seal,
    capacity: u64,
    /// First entry that counts.
    first: u64,
    /// End of all entries, and end of the published entries.
    end: u64,
    published: u64,
    /// Loss recorded in the head.
    loss: Loss,
    /// True if a device may have lost writes.
    doubted: bool,
    /// True if a guest must still be told of a failed flush of an earlier opening.
    is_owed: bool,
    /// True if entries found no room: the log is incomplete.
    is_incomplete: bool,
}

/// Log of an earlier opening, also needed by the next opening until the changes are durable.
#[derive(Clone)]
pub(crate) struct NeededLog {
    pub memory: Rc<dyn LastingMemory>,
    pub seal: Seal,
    pub loss: Loss,
    /// True if the log has owners: a log of an older version has none.
    pub has_owners: bool,
}

/// Opening that has read a log.
#[derive(Clone, Copy)]
pub(crate) struct LogReader {
    pub epoch: u64,
    pub owner: u64,
    /// Owner in the superblock found by the opening.
    pub found_owner: u64,
}

/// Opening that a new log belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    pub volume: Uuid,
    pub epoch: u64,
    pub owner: u64,
    /// Newest durable batch.
    pub newest: u64,
    /// True if a guest's flush must still be told of a loss.
    pub is_owed: bool,
}

impl PendingLog {
    /// Begins an empty log with room for `pending` changes. Earlier content of the memory is void.
    ///
    /// # Errors
    /// If there is not enough memory, or if the number of the opening or of its newest batch is not below
    /// [`MOST_POSITION`].
    pub fn begin(memory: Rc<dyn LastingMemory>, opening: &Opening, pending: usize) -> io::Result<PendingLog> {
        let capacity = (PER_PENDING * pending as u64).clamp(1, MOST_ENTRIES);
        clear(&*memory);
        if opening.epoch.max(opening.newest) >= MOST_POSITION {
            return Err(io::Error::other("no volume counts its openings and batches so far"));
        }
        memory.set_len(pending_log::len(capacity))?;
        let loss = if opening.is_owed { Loss::Owed } else { Loss::None };
        let Opening { volume, epoch, owner, newest, is_owed } = *opening;
        let head = Head {
            volume,
            life: memory.life(),
            epoch,
            owner: Some(owner),
            capacity,
            reader: None,
            reader_owners: [0; 2],
            first: 0,
            end: 0,
            newest,
            loss,
        };
        let bytes: [u8; HEAD_USED] = encode_head(&head);
        memory.store(Bytes(8), &bytes[8..]);
        memory.publish(Bytes::ZERO, MAGIC);
        Ok(PendingLog {
            memory,
            seal: head.seal(),
            capacity,
            first: 0,
            end: 0,
            published: 0,
            loss,
            doubted: false,
            is_owed,
            is_incomplete: false,
        })
    }

    fn append(&mut self, record: &Record) {
        if self.end - self.first >= self.capacity || self.end + 1 >= MOST_POSITION {
            // Only a burst of changes without a request in between gets here. The log is void until all
            // changes are appended again.
            self.is_incomplete = true;
            return self.tell_loss();
        }
        self.memory.store(place(self.end, self.capacity), &self.seal.encode(self.end, record));
        self.end += 1;
    }

    fn publish_position(&self, at: Bytes, value: u64) {
        self.memory.publish(at, self.seal.position(at, value));
    }

    fn publish(&mut self) {
        self.publish_position(END, self.end);
        self.published = self.end;
    }

    /// Forgets entries before `number`: journal batch `newest` is durable.
    fn forget(&mut self, number: u64, newest: u64) {
        if number > self.first {
            self.first = number;
            self.publish_position(FIRST, number);
        }
        self.publish_position(NEWEST, newest);
    }

    /// True if the pending changes should be appended again to make room.
    fn is_crowded(&self) -> bool {
        self.is_incomplete || (self.end - self.first) * 2 > self.capacity
    }

    /// Appends all pending changes again, and forgets earlier entries.
    fn renew(&mut self, pending: impl Iterator<Item = Record>) {
        if std::mem::take(&mut self.is_incomplete) {
            // The log is void so far, so all places are available.
            self.first = self.end;
            self.publish_position(FIRST, self.first);
        }
        let start = self.end;
        pending.for_each(|record| self.append(&record));
        if self.is_incomplete {
            return;
        }
        self.publish();
        self.first = start;
        self.publish_position(FIRST, start);
        self.tell_loss();
    }

    fn tell_loss(&mut self) {
        let loss = match (self.doubted, self.is_incomplete, self.is_owed) {
            (true, ..) | (false, true, true) => Loss::Possible,
            (false, true, false) => Loss::Incomplete,
            (false, false, true) => Loss::Owed,
            (false, false, false) => Loss::None,
        };
        if std::mem::replace(&mut self.loss, loss) != loss {
            self.publish_position(LOSS, loss as u64);
        }
    }
}

impl NeededLog {
    /// Records that this opening has read the log: the log also counts for the opening after.
    ///
    /// The superblock holds the found owner until a device has the reader's owner. So the found owner is
    /// stored first: if the daemon dies between two stores, the log knows the superblock's owner.
    pub fn note_reader(&self, reader: &LogReader) {
        let publish = |at, value| self.memory.publish(at, self.seal.position(at, value));
        if self.has_owners && !planted(Bug::OwnerOfReaderForgotten) {
            publish(FOUND_OWNER, in_position(reader.found_owner));
            publish(READER_OWNER, in_position(reader.owner));
        }
        publish(READER, reader.epoch);
    }

    /// Records whether a device may have lost writes since.
    fn doubt(&self, doubted: bool) {
        let loss = if doubted { Loss::Possible } else { self.loss };
        self.memory.publish(LOSS, self.seal.position(LOSS, loss as u64));
    }
}

/// Makes the log in this memory void.
pub(crate) fn clear(memory: &dyn LastingMemory) {
    if memory.len() >= pending_log::HEAD {
        memory.publish(Bytes::ZERO, 0);
    }
}

impl State {
    /// Keeps the log of an earlier opening while the volume opens: if this opening ends early, the next
    /// opening needs the log too.
    pub fn keep_left_log(&mut self, left: Option<NeededLog>) {
        self.left_log = left;
    }

    /// Begins to log changes. Pending changes are appended at once.
    pub fn begin_log(&mut self, log: PendingLog) {
        self.log = Some(log);
        self.renew_log();
    }

    /// True if changes are in a log that outlives the daemon.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Appends a change just made. The entry counts from [`State::publish`] on.
    #[inline]
    pub(super) fn log(&mut self, record: Record) {
        if let Some(log) = &mut self.log {
            log.append(&record);
        }
    }

    /// Makes all changes so far count after a crash of the daemon. Called before a reply, and before a write
    /// to a device begins.
    #[inline]
    pub fn publish(&mut self) {
        if let Some(log) = &self.log
            && (log.end != log.published || log.is_incomplete)
        {
            self.publish_log();
        }
    }

    fn publish_log(&mut self) {
        if planted(Bug::LogPublishedLate) {
            return;
        }
        let Some(log) = &mut self.log else { return };
        log.publish();
        if log.is_crowded() {
            self.renew_log();
        }
    }

    fn renew_log(&mut self) {
        let Some(mut log) = self.log.take() else { return };
        let (pending, committing) = (&self.pending, &self.committing);
        let extents = pending.extents.keys().chain(committing.extents.keys());
        let extents = extents.map(|&extent| Record::Extent(extent, self.map.get(extent)));
        let blocks = pending.blocks.keys().chain(committing.blocks.keys());
        let blocks = blocks.map(|&block| Record::Extra(block, self.extras.get(block)));
        log.renew(extents.chain(blocks));
        self.log = Some(log);
    }

    /// Begins a batch with all changes so far. Returns the number after the last entry.
    pub(super) fn begin_log_commit(&mut self) -> Option<u64> {
        let log = self.log.as_mut()?;
        log.publish();
        Some(log.end)
    }

    /// Ends a durable batch `newest`, with all changes before `number`.
    pub(super) fn end_log_commit(&mut self, number: Option<u64>, newest: u64) {
        if let (Some(log), Some(number)) = (&mut self.log, number) {
            log.forget(number, newest);
        }
    }

    /// Records whether a device may have lost writes covered by the log.
    pub fn doubt_log(&mut self, doubted: bool) {
        if let Some(log) = &mut self.log {
            log.doubted = doubted;
            log.tell_loss();
        } else if let Some(left) = &self.left_log {
            left.doubt(doubted);
        }
    }

    /// Records that a guest was told of the loss of an earlier opening.
    pub fn settle_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.is_owed = false;
            log.tell_loss();
        }
    }

    /// Ends the log at a close. After a failed close the log stays, unless data may be lost: that loss was
    /// reported then.
    pub fn end_log(&mut self, is_closed: bool) {
        if let Some(log) = self.log.take_if(|log| is_closed || log.doubted) {
            clear(&*log.memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{ExtentId, Rng};
    use braid_format::map_page::Entry;
    use braid_format::pending_log::{ENTRY, decode_head};
    use braid_format::{Invalid, SlotNumber};
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    #[derive(Debug, Default)]
    struct Plain(RefCell<Vec<u8>>);

    impl LastingMemory for Plain {
        fn life(&self) -> [u8; 16] {
            [1; 16]
        }

        fn len(&self) -> Bytes {
            Bytes::of_len(self.0.borrow().len())
        }

        fn set_len(&self, len: Bytes) -> io::Result<()> {
            self.0.borrow_mut().resize(len.as_usize(), 0);
            Ok(())
        }

        fn load(&self, at: Bytes, into: &mut [u8]) {
            into.copy_from_slice(&self.0.borrow()[at.as_usize()..at.as_usize() + into.len()]);
        }

        fn store(&self, at: Bytes, from: &[u8]) {
            self.0.borrow_mut()[at.as_usize()..at.as_usize() + from.len()].copy_from_slice(from);
        }

        fn publish(&self, at: Bytes, word: u64) {
            self.store(at, &word.to_le_bytes());
        }
    }

    const OPENING: Opening = Opening { volume: Uuid([4; 16]), epoch: 3, owner: 9, newest: 0, is_owed: false };

    fn record(extent: u32, version: u32) -> Record {
        Record::Extent(ExtentId(extent), Entry { home: SlotNumber(version), valid: 1, ..Entry::default() })
    }

    /// State found by the next daemon: the last version of each extent.
    fn left(memory: &Plain) -> std::result::Result<(BTreeMap<u32, u32>, Loss), Invalid> {
        let mut bytes = [0; HEAD_USED];
        memory.load(Bytes::ZERO, &mut bytes);
        let head = decode_head(&bytes, memory.len())?;
        let seal = head.seal();
        let mut last = BTreeMap::new();
        for number in head.first..head.end {
            let mut bytes = [0; ENTRY.as_usize()];
            memory.load(place(number, head.capacity), &mut bytes);
            let Record::Extent(extent, entry) = seal.decode(number, &bytes)? else { panic!() };
            last.insert(extent.0, entry.home.0);
        }
        Ok((last, head.loss))
    }

    /// Changes of some extents again and again, long commits, and a ring that wraps many times. After each
    /// publication, the log has the last version of each pending extent, and never an older version of any.
    #[test]
    fn log_holds_newest_version_of_every_pending_extent() {
        for seed in 0..50 {
            let (mut rng, memory) = (Rng::new(seed), Rc::new(Plain::default()));
            let mut log = PendingLog::begin(memory.clone(), &OPENING, 8).unwrap();
            let (mut now, mut pending, mut committing) = (BTreeMap::new(), BTreeMap::new(), None);
            for version in 1..3_000 {
                match rng.below(20) {
                    0 if committing.is_none() => {
                        log.publish();
                        committing = Some((log.end, std::mem::take(&mut pending)));
                    }
                    1 => {
                        if let Some((number, _)) = committing.take() {
                            log.forget(number, u64::from(version));
                        }
                    }
                    _ if pending.len() < 8 => {
                        let extent = rng.below(30) as u32;
                        log.append(&record(extent, version));
                        now.insert(extent, version);
                        pending.insert(extent, ());
                    }
                    _ => {}
                }
                if rng.chance(0.5) {
                    log.publish();
                    if log.is_crowded() {
                        let keys =
                            pending.keys().chain(committing.iter().flat_map(|(_, taken)| taken.keys()));
                        log.renew(keys.map(|extent| record(*extent, now[extent])));
                    }
                    let (last, loss) = left(&memory).unwrap();
                    assert_eq!(loss, Loss::None);
                    for (extent, version) in &last {
                        assert_eq!(version, &now[extent], "seed {seed}: extent {extent}");
                    }
                    let taken = committing.iter().flat_map(|(_, taken)| taken.keys());
                    assert!(
                        pending.keys().chain(taken).all(|extent| last.contains_key(extent)),
                        "seed {seed}"
                    );
                }
            }
        }
    }

    /// A burst of changes without a request in between may be longer than the log. The log is then void until
    /// all changes are appended again.
    #[test]
    fn overflowed_log_is_incomplete_until_renewal() {
        let memory = Rc::new(Plain::default());
        let mut log = PendingLog::begin(memory.clone(), &OPENING, 2).unwrap();
        for version in 0..100 {
            log.append(&record(version % 3, version));
        }
        assert_eq!(left(&memory).unwrap().1, Loss::Incomplete);
        log.publish();
        log.renew((0..3).map(|extent| record(extent, 97 + extent)));
        assert_eq!(left(&memory).unwrap(), (BTreeMap::from([(0, 97), (1, 98), (2, 99)]), Loss::None));
    }

    #[test]
    fn unpublished_log_entries_do_not_count() {
        let memory = Rc::new(Plain::default());
        let mut log = PendingLog::begin(memory.clone(), &OPENING, 2).unwrap();
        log.append(&record(1, 1));
        log.publish();
        log.append(&record(1, 2));
        log.append(&record(2, 2));
        assert_eq!(left(&memory).unwrap().0, BTreeMap::from([(1, 1)]));
    }
}
