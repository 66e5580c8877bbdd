//! The oracle after a crash: the bytes found are compared piece by piece, and become the truth.

use super::history::EventKind;
use super::{Mismatch, Moment, Oracle, Write, WriteOutcome};
use braid_base::Bytes;
use std::ops::Range;
use std::rc::Rc;

/// Unit of comparison of found bytes with known bytes.
const UNIT: usize = 4096;

impl Oracle {
    /// The power was cut: every write in flight may have happened. A second call before all bytes were read
    /// stands for a crash during recovery.
    pub fn crash(&mut self) {
        self.flushes.clear();
        self.reads.clear();
        (self.doubted, self.lost) = (None, None);
        self.is_crashed = true;
        self.history.add(self.now, None, EventKind::Crash);
    }

    /// The software was killed, and no device lost power. Writes in flight may have happened. Unflushed
    /// writes may be lost, because they may have lain in the memory of the software. Bytes found later do
    /// not become durable by being found.
    pub fn kill(&mut self) {
        if self.is_crashed {
            return self.crash();
        }
        self.flushes.clear();
        self.reads.clear();
        (self.doubted, self.lost) = (None, None);
        self.history.add(self.now, None, EventKind::Kill);
        self.unprove();
    }

    /// The software died, and left undurable data in memory: all acknowledged writes must be read again.
    /// Writes in flight may have happened. No write becomes durable. After a failed flush a death counts as
    /// a kill: the content of the device is unknown, so no memory of the software may call the content good.
    pub fn die(&mut self) {
        if self.is_crashed || self.lost.is_some() {
            return self.kill();
        }
        self.flushes.clear();
        self.reads.clear();
        self.history.add(self.now, None, EventKind::Death);
        let now = self.tick();
        for write in self.writes.iter_mut().filter(|write| write.acknowledged.is_none()) {
            write.acknowledged = Some(now);
            write.outcome = WriteOutcome::Failed;
        }
    }

    /// A device lost writes that were accepted and not yet durable.
    pub fn doubt(&mut self) {
        let now = self.tick();
        (self.doubted, self.lost) = (Some(now), self.lost.max(Some(now)));
        self.history.add(now, None, EventKind::Doubt);
    }

    /// From now on, a device may exceed the deadline of a flush at any time, and a late flush is a failed
    /// flush. Until the end of this life only durable writes outlive the software.
    pub fn suspect_for_good(&mut self) {
        self.lost = Some(Moment::MAX);
        self.history.add(self.now, None, EventKind::Suspicion);
    }

    /// True if a flush of a device has failed in this life, or may have failed.
    pub fn may_have_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// A device failed to flush, but keeps the accepted writes. The software cannot know that nothing was
    /// lost.
    pub fn suspect(&mut self) {
        let now = self.tick();
        self.lost = self.lost.max(Some(now));
        self.history.add(now, None, EventKind::Suspicion);
    }

    /// Checks `found`, read at `offset` after a crash. The bytes are the truth from now on, also after
    /// another crash. After a kill the read is an ordinary read. Once a device has lost accepted writes, the
    /// read proves nothing.
    ///
    /// # Errors
    /// If some byte has no legal value; nothing changes then.
    pub fn find_after_crash(&mut self, offset: Bytes, found: &[u8]) -> Result<(), Mismatch> {
        if !self.is_crashed {
            return self.expect_read(offset, found);
        }
        if self.doubted.is_some() {
            return Ok(());
        }
        let range = offset.as_usize()..offset.as_usize() + found.len();
        self.check_after_crash(range.start, found)?;
        for start in (0..found.len()).step_by(UNIT) {
            let part = start..(start + UNIT).min(found.len());
            let place = range.start + part.start..range.start + part.end;
            // An equal part stays shared with the originals of this clone.
            if self.base[place.clone()] != found[part.clone()] {
                Rc::make_mut(&mut self.base)[place].copy_from_slice(&found[part]);
            }
        }
        self.writes.iter_mut().for_each(|write| write.forget(&range));
        Ok(())
    }

    /// All readable bytes were read after a crash. For the rest, writes that are not durable may or may not
    /// have happened.
    pub fn resume(&mut self) {
        if !self.is_crashed {
            return;
        }
        self.writes.retain(|write| !write.parts.is_empty());
        self.unprove();
        self.is_crashed = false;
        self.history.add(self.now, None, EventKind::Verified);
    }

    /// Writes that are not durable may or may not have happened.
    fn unprove(&mut self) {
        let now = self.tick();
        for write in self.writes.iter_mut().filter(|write| !write.is_durable) {
            write.acknowledged.get_or_insert(now);
            write.outcome = WriteOutcome::Failed;
        }
    }

    /// Checks `found`, all bytes of the volume after a crash: [`Oracle::find_after_crash`] and
    /// [`Oracle::resume`].
    ///
    /// # Errors
    /// If some byte has no legal value; nothing changes then.
    pub fn verify_after_crash(&mut self, found: &[u8]) -> Result<(), Mismatch> {
        assert_eq!(found.len(), self.base.len(), "all bytes are verified at once");
        self.find_after_crash(Bytes::ZERO, found)?;
        self.resume();
        Ok(())
    }
}

impl Write {
    /// Drops `range` from the parts that this write decides.
    fn forget(&mut self, range: &Range<usize>) {
        if !self.parts.iter().any(|part| part.start < range.end && range.start < part.end) {
            return;
        }
        let parts = std::mem::take(&mut self.parts).into_iter();
        let outside = parts.flat_map(|part| {
            let before = part.start..part.end.min(range.start);
            let behind = part.start.max(range.end)..part.end;
            [before, behind]
        });
        self.parts = outside.filter(|part| part.start < part.end).collect();
    }
}
