//! What makes changes durable: requests to devices behind the fence, the journal, the superblocks. The policy
//! and the statistics learn of each request.

use super::{ExtentLocks, InCharge, Own, Store};
use crate::adopted::DiskSums;
use crate::devices::{Deadline, Member, within};
use crate::fence::Fence;
use crate::jobs::Jobs;
use crate::journal::{DirtySpans, Journal};
use crate::request::Guests;
use crate::stats::BackgroundStats;
use crate::{Error, Result};
use braid_base::{Bytes, Nanos, NodeId};
use braid_policy::{Completion, Direction, Origin};
use braid_runtime::{Buf, Device, Runtime};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

/// Devices, journal and superblocks of a volume, and the exclusion of failing devices. Places no extent:
/// guests' requests and moves come from above.
pub(crate) struct Durable<R, D> {
    pub own: Own<Durable<R, D>>,
    pub rt: R,
    pub store: Store<D>,
    pub journal: Journal,
    pub fence: Fence,
    pub locks: ExtentLocks,
    pub guests: Guests,
    pub block_slots: BlockSlots,
    pub policy: InCharge,
    pub jobs: Jobs,
    pub background: RefCell<BackgroundStats>,
    /// Dirty spans of a volume on an adopted disk: data that the loss of the SSDs would cost.
    pub dirty_spans: Option<DirtySpans>,
    /// Samples and marks of an adopted disk, for its fingerprint.
    pub sums: Option<DiskSums>,
}

/// What the background task of block slots has to do.
#[derive(Default)]
pub(crate) struct BlockSlots {
    /// Set if free block slots run out, or the journal has no room for changes of clean copies: a batch is
    /// due.
    pub runs_out: Cell<bool>,
    /// Set if a device with extra copies was excluded.
    pub any_lost: Cell<bool>,
}

/// A request in flight to a device.
pub(crate) struct Attempt<'a, D> {
    member: &'a Member<D>,
    direction: Direction,
    at: Bytes,
    len: Bytes,
    origin: Origin,
    start: Nanos,
    /// Requests in flight on the device at the start, the request included.
    of: u32,
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Reads from a device bytes without another copy; the policy learns the duration. `origin` says for
    /// whom.
    pub async fn device_read(&self, member: &Member<D>, at: Bytes, into: &Buf, origin: Origin) -> Result<()> {
        self.device_read_by(member, at, into, origin, Deadline::Only).await
    }

    /// Like [`Durable::device_read`], with a deadline.
    pub async fn device_read_by(
        &self,
        member: &Member<D>,
        at: Bytes,
        into: &Buf,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        let attempt = self.begin(member, Direction::Read, at, into.len(), origin);
        self.end(&attempt, member.read(at, into, deadline).await)
    }

    /// Writes to a device bytes without another copy; the policy learns the duration. `origin` says for whom.
    pub async fn device_write(
        &self,
        member: &Member<D>,
        at: Bytes,
        from: &Buf,
        origin: Origin,
    ) -> Result<()> {
        self.device_write_by(member, at, from, origin, Deadline::Only).await
    }

    /// Like [`Durable::device_write`], with a deadline.
    pub async fn device_write_by(
        &self,
        member: &Member<D>,
        at: Bytes,
        from: &Buf,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        let _noted = self.begin_disk_write(member.id, at, from.len(), Some(from)).await;
        let start = self.confirm_before_write().await?;
        let attempt = self.begin_at(start, member, Direction::Write, at, from.len(), origin);
        self.end(&attempt, member.write(at, from, deadline).await)
    }

    /// Reads from a device for a move to another device. The bytes stay on the device's node.
    pub async fn device_read_to_move(&self, member: &Member<D>, at: Bytes, into: &Buf) -> Result<()> {
        let attempt = self.begin(member, Direction::Read, at, into.len(), Origin::Background);
        self.end(&attempt, member.read_to_move(at, into).await)
    }

    /// Writes to a device bytes read by a move, from `node`.
    pub async fn device_write_moved(
        &self,
        member: &Member<D>,
        at: Bytes,
        from: &Buf,
        node: Option<NodeId>,
    ) -> Result<()> {
        let start = self.confirm_before_write().await?;
        let attempt = self.begin_at(start, member, Direction::Write, at, from.len(), Origin::Background);
        self.end(&attempt, member.write_moved(at, from, node).await)
    }

    /// Flushes a device. `what` names the flushed data in the error.
    pub async fn flush_member(&self, member: &Member<D>, what: &str) -> Result<()> {
        let flushed = member.flush(&self.rt).await.inspect_err(|_| self.note_loss());
        flushed
            .map(drop)
            .map_err(|e| Error::io(format_args!("{} could not flush {what}", member.describe()), &e))
    }

    /// Notes the start of a request to a device.
    #[inline]
    pub fn begin<'a>(
        &self,
        member: &'a Member<D>,
        direction: Direction,
        at: Bytes,
        len: Bytes,
        origin: Origin,
    ) -> Attempt<'a, D> {
        self.begin_at(self.rt.now(), member, direction, at, len, origin)
    }

    /// Like [`Durable::begin`], for a caller that knows the time.
    #[inline]
    pub fn begin_at<'a>(
        &self,
        start: Nanos,
        member: &'a Member<D>,
        direction: Direction,
        at: Bytes,
        len: Bytes,
        origin: Origin,
    ) -> Attempt<'a, D> {
        {
            let mut state = self.store.state.borrow_mut();
            if direction != Direction::Read {
                state.publish();
            }
            if origin == Origin::Guest {
                state.views[member.id.index()].in_flight += 1;
                member.last_guest.set(start);
            }
        }
        let of = if D::ALWAYS_ANSWERS {
            1
        } else {
            member.busy.begin(start);
            member.speed.begin()
        };
        Attempt { member, direction, at, len, origin, start, of }
    }

    /// Notes the end of a request to a device, and tells the policy about a success.
    #[inline]
    pub fn end(&self, attempt: &Attempt<D>, result: io::Result<()>) -> Result<()> {
        let completion = self.end_untold(attempt, result)?;
        if attempt.origin == Origin::Probe {
            self.background.borrow_mut().probed_bytes += attempt.len.0;
        }
        self.tell(&completion);
        Ok(())
    }

    /// Like [`Durable::end`], but does not tell the policy.
    #[inline]
    pub fn end_untold(&self, attempt: &Attempt<D>, result: io::Result<()>) -> Result<Completion> {
        let &Attempt { member, direction, len, origin, start, of, .. } = attempt;
        let now = self.rt.now();
        let latency = now.saturating_sub(start);
        if !D::ALWAYS_ANSWERS {
            member.busy.end(now);
            member.speed.end(member.entry.class, direction, len, latency, of);
        }
        if origin == Origin::Guest {
            self.store.state.borrow_mut().views[member.id.index()].in_flight -= 1;
        }
        let completion = Completion { device: member.id, direction, len, latency, origin };
        member.record(&completion, &result);
        match result {
            Ok(()) => Ok(completion),
            Err(error) => Err(self.failed(attempt, &error)),
        }
    }

    /// Tells the policy about a completed request.
    #[inline]
    pub fn tell(&self, completion: &Completion) {
        let &Completion { device, direction, origin, latency, .. } = completion;
        if direction == Direction::Read && origin != Origin::Background {
            self.store.state.borrow_mut().views[device.index()].measure_read(latency);
        }
        self.policy.borrow_mut().completed(completion);
    }

    #[cold]
    fn failed(&self, attempt: &Attempt<D>, error: &io::Error) -> Error {
        let Attempt { member, direction, at, len, .. } = attempt;
        let verb = match direction {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Flush => "flush",
        };
        let device = member.describe();
        // A burst of errors gives few lines in the log; the device's statistics count each error.
        if member.stats.borrow().errors.is_power_of_two() {
            let errors = member.stats.borrow().errors;
            tracing::warn!(device = %device, errors, %error, "{verb} of {len} at byte {} failed", at.0);
        }
        Error::io(format_args!("{device} could not {verb} {len} at byte {}", at.0), error)
    }

    /// Like the function [`within`], with the volume's runtime.
    pub async fn within<T>(&self, limit: Nanos, work: impl Future<Output = T>) -> Option<T> {
        within(&self.rt, limit, work).await
    }

    /// Waits until `deadline`, until the volume closes, or until `interrupt` becomes true at a notification.
    pub async fn pause(&self, deadline: Nanos, interrupt: impl Fn() -> bool) {
        let mut sleep = pin!(self.rt.sleep_until(deadline));
        let mut notified = pin!(self.jobs.wait_for(|| (self.jobs.are_ending() || interrupt()).then_some(())));
        poll_fn(|cx| {
            let over = sleep.as_mut().poll(cx).is_ready() || notified.as_mut().poll(cx).is_ready();
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
