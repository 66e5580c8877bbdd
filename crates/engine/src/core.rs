//! State and helpers shared by all operations of a volume. Each operation is in the file of its name.

use crate::adopted::DiskSums;
use crate::copies::{BlockSlots, WriteBacks};
use crate::devices::{Buffers, Deadline, Devices, Member};
use crate::epochs::Epochs;
use crate::fence::Fence;
use crate::jobs::Jobs;
use crate::journal::{DirtySpans, Journal};
use crate::map::State;
use crate::moves::Moves;
use crate::policy::{InCharge, Places};
use crate::request::Guests;
use crate::shape::{Piece, Shape};
use crate::stats::BackgroundStats;
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos, NodeId, Op};
use braid_format::SlotNumber;
use braid_policy::{ByteRange, Completion, Direction, Flags, Origin, Policy, Request, View, WholeInMemory};
use braid_runtime::{Buf, Device, LockTable, Runtime};
use std::cell::RefCell;
use std::fmt;
use std::io;

/// The components of a volume. Each component owns its state; operations are methods of `Core`, because a
/// request passes through several components.
pub(crate) struct Core<R, D> {
    pub rt: R,
    pub shape: Shape,
    /// Map and related state. Never borrowed across an await.
    pub state: RefCell<State>,
    pub journal: Journal,
    pub fence: Fence,
    pub devices: Devices<D>,
    pub buffers: Buffers,
    /// Locks by extent.
    pub locks: LockTable,
    pub guests: Guests,
    pub moves: Moves,
    pub block_slots: BlockSlots,
    pub write_backs: WriteBacks,
    pub policy: InCharge,
    pub jobs: Jobs,
    pub background: RefCell<BackgroundStats>,
    /// None for a volume without an epoch journal.
    pub epochs: Option<Epochs>,
    /// Dirty spans of a volume on an adopted disk: data that the loss of the SSDs would cost.
    pub dirty_spans: Option<DirtySpans>,
    /// Samples and marks of an adopted disk, for its fingerprint.
    pub sums: Option<DiskSums>,
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

impl<R: Runtime, D: Device> Core<R, D> {
    /// Returns a device of the volume.
    #[inline]
    pub fn member(&self, device: DeviceId) -> &Member<D> {
        &self.devices[device]
    }

    /// Returns the device of a slot and the slot's offset on the device.
    #[inline]
    pub fn locate(&self, slot: SlotNumber) -> (&Member<D>, Bytes) {
        let slot = self.state.borrow().space.locate(slot).expect("the map names slots that exist");
        let member = self.member(slot.device);
        (member, member.slot_offset(slot.index, self.shape.extent_size))
    }

    /// Returns the device of a slot.
    pub fn device_of(&self, slot: SlotNumber) -> DeviceId {
        self.locate(slot).0.id
    }

    /// Asks the policy for a decision, with a view of the volume's present state.
    #[inline]
    pub fn with_policy<T>(&self, decide: impl FnOnce(&mut dyn Policy, &View) -> T) -> T {
        self.with_policy_at(self.rt.now(), decide)
    }

    #[inline]
    fn with_policy_at<T>(&self, now: Nanos, decide: impl FnOnce(&mut dyn Policy, &View) -> T) -> T {
        let state = self.state.borrow();
        let view = View {
            now,
            extent_size: self.shape.extent_size,
            block_size: self.shape.block_size,
            devices: &state.views,
            homes: &Places {
                state: &state,
                cache: &self.guests.cache,
                epochs: self.active_epochs(),
                can_resync: &|| self.devices.can_resync(),
            },
        };
        decide(&mut **self.policy.borrow_mut(), &view)
    }

    /// Tells the policy about a guest's request. Returns the delay that the policy asks for. A request beyond
    /// the end of the volume is not told: an error is about to follow. Called only for policies that observe
    /// requests.
    #[inline(never)]
    pub fn arrived(&self, op: Op, offset: Bytes, len: Bytes, flags: Flags, now: Nanos) -> Nanos {
        let end = offset.checked_add(len).filter(|&end| end <= self.shape.volume_size);
        let Some(end) = end else { return Nanos::ZERO };
        let request = Request { op, range: ByteRange { start: offset, end }, flags };
        self.with_policy_at(now, |policy, view| policy.arrived(&request, view))
    }

    /// Number of guest requests in flight on a device.
    pub fn guests_of(&self, member: &Member<D>) -> u32 {
        self.state.borrow().views[member.id.index()].in_flight
    }

    /// Reads from a device bytes without another copy; the policy learns the duration. `origin` says for
    /// whom.
    pub async fn device_read(&self, member: &Member<D>, at: Bytes, into: &Buf, origin: Origin) -> Result<()> {
        self.device_read_by(member, at, into, origin, Deadline::Only).await
    }

    /// Like [`Core::device_read`], with a deadline.
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

    /// Like [`Core::device_write`], with a deadline.
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
            .map_err(|e| Error::io(format_args!("{} could not flush {what}", self.describe(member.id)), &e))
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

    /// Like [`Core::begin`], for a caller that knows the time.
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
            let mut state = self.state.borrow_mut();
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

    /// Like [`Core::end`], but does not tell the policy.
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
            self.state.borrow_mut().views[member.id.index()].in_flight -= 1;
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
            self.state.borrow_mut().views[device.index()].measure_read(latency);
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
        let device = self.describe(member.id);
        // A burst of errors gives few lines in the log; the device's statistics count each error.
        if member.stats.borrow().errors.is_power_of_two() {
            let errors = member.stats.borrow().errors;
            tracing::warn!(device = %device, errors, %error, "{verb} of {len} at byte {} failed", at.0);
        }
        Error::io(format_args!("{device} could not {verb} {len} at byte {}", at.0), error)
    }

    /// Name of a device for messages.
    pub fn describe(&self, device: DeviceId) -> impl fmt::Display + use<R, D> {
        let entry = &self.devices[device].entry;
        let model =
            if entry.model.is_empty() { String::new() } else { format!(", emulated {}", entry.model) };
        format!("device {device} ({}{model})", entry.class)
    }

    /// Returns a piece of a request as a policy sees it. `whole` is set if the memory cache holds all of the
    /// extent.
    #[inline]
    pub fn shown<'a>(&self, piece: &Piece, request: ByteRange, whole: bool) -> braid_policy::Piece<'a> {
        braid_policy::Piece {
            extent: piece.extent,
            range: piece.range.clone(),
            first_block: self.shape.block_of(piece.extent, piece.range.start),
            blocks: self.shape.blocks_touched(piece) as u32,
            request,
            whole: whole.then(WholeInMemory::vouched_by_the_engine),
        }
    }

    /// Number of an extent's lock.
    pub fn lock_number(extent: ExtentId) -> u64 {
        u64::from(extent.0)
    }
}
