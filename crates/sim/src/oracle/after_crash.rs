//! After a crash: what is found is compared piece by piece, and each piece is the truth from then on.

use super::history::Kind;
use super::{Mismatch, Moment, Oracle, Outcome, Write};
use braid_base::Bytes;
use std::ops::Range;
use std::rc::Rc;

/// What is found is compared with what was known in units of this.
const UNIT: usize = 4096;

impl Oracle {
    /// The power was cut: whatever was in flight may have happened. May be told again before all was looked
    /// at: a crash during recovery.
    pub fn crash(&mut self) {
        self.flushes.clear();
        self.reads.clear();
        (self.doubted, self.lost) = (None, None);
        self.is_crashed = true;
        self.history.add(self.now, None, Kind::Crash);
    }

    /// The software was killed, and no device lost power. What was in flight may have happened; what is not
    /// flushed may be lost, because it may have lain in the software's memory; and what is found is not
    /// durable by being found.
    pub fn kill(&mut self) {
        if self.is_crashed {
            return self.crash();
        }
        self.flushes.clear();
        self.reads.clear();
        (self.doubted, self.lost) = (None, None);
        self.history.add(self.now, None, Kind::Kill);
        self.unprove();
    }

    /// The software died, and left in memory what no device has yet: all that was acknowledged is read again.
    /// What was in flight may have happened. Nothing is durable that was not. After a failed flush that is a
    /// kill: the content of the device is unknown, so no memory of the software may call the content good.
    pub fn die(&mut self) {
        if self.is_crashed || self.lost.is_some() {
            return self.kill();
        }
        self.flushes.clear();
        self.reads.clear();
        self.history.add(self.now, None, Kind::Death);
        let now = self.tick();
        for write in self.writes.iter_mut().filter(|write| write.acknowledged.is_none()) {
            write.acknowledged = Some(now);
            write.outcome = Outcome::Failed;
        }
    }

    /// A device lost what it had accepted and not yet made durable.
    pub fn doubt(&mut self) {
        let now = self.tick();
        (self.doubted, self.lost) = (Some(now), self.lost.max(Some(now)));
        self.history.add(now, None, Kind::Doubt);
    }

    /// From now on a device may be too late with a flush at any time, which is a flush that failed: until the
    /// end of this life nothing but what is durable outlives the software.
    pub fn suspect_for_good(&mut self) {
        self.lost = Some(Moment::MAX);
        self.history.add(self.now, None, Kind::Suspicion);
    }

    /// Whether a flush of a device has failed in this life, or may have.
    pub fn may_have_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// A device failed to flush, and keeps what it had accepted. The software cannot know that.
    pub fn suspect(&mut self) {
        let now = self.tick();
        self.lost = self.lost.max(Some(now));
        self.history.add(now, None, Kind::Suspicion);
    }

    /// After a crash, `found` was read at `offset`. That is the truth there from now on, also after another
    /// crash. After a kill it is a read like any other; once a device has lost what it had accepted, it
    /// proves nothing.
    ///
    /// # Errors
    /// If some byte is not what it may be; nothing changes then.
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
            // An equal part stays shared with the oracles that this one was cloned from.
            if self.base[place.clone()] != found[part.clone()] {
                Rc::make_mut(&mut self.base)[place].copy_from_slice(&found[part]);
            }
        }
        self.writes.iter_mut().for_each(|write| write.forget(&range));
        Ok(())
    }

    /// All that can be read after a crash was looked at. Of the rest, what is not durable may have happened
    /// or not.
    pub fn resume(&mut self) {
        if !self.is_crashed {
            return;
        }
        self.writes.retain(|write| !write.parts.is_empty());
        self.unprove();
        self.is_crashed = false;
        self.history.add(self.now, None, Kind::Verified);
    }

    /// What is not durable may have happened or not.
    fn unprove(&mut self) {
        let now = self.tick();
        for write in self.writes.iter_mut().filter(|write| !write.is_durable) {
            write.acknowledged.get_or_insert(now);
            write.outcome = Outcome::Failed;
        }
    }

    /// All bytes of the volume after a crash were `found`: [`Oracle::find_after_crash`] and
    /// [`Oracle::resume`].
    ///
    /// # Errors
    /// If some byte is not what it may be; nothing changes then.
    pub fn verify_after_crash(&mut self, found: &[u8]) -> Result<(), Mismatch> {
        assert_eq!(found.len(), self.base.len(), "all bytes are verified at once");
        self.find_after_crash(Bytes::ZERO, found)?;
        self.resume();
        Ok(())
    }
}

impl Write {
    /// This write decides nothing in `range` any more.
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
