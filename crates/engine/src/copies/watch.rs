//! The watchdog: looks at unanswered requests once a second.
//!
//! A late read is answered by another current copy. If a write or a flush is late and all data of the device
//! is elsewhere, the device is excluded until its return. A device that has been late for a minute is
//! excluded likewise, even if only reads are late. A discard has no deadline: a device with nothing but
//! discards in flight is asked for a sign of life like an idle device.
//!
//! A device that cannot be excluded becomes `Slow`. Its requests get 60 s if no other copy has the bytes, and
//! no new requests are sent while some are late. So a late request is carried out before any newer one.
//!
//! If several devices do not answer, none of them is excluded for silence: a shared controller or cable may
//! be the reason, and the last device would have to answer alone. A device counts as answering if, in time,
//! the device has answered a request begun since the other device became conspicuous. A device without
//! requests is sent a probe.
//!
//! A device that answers in time but far slower than before (`devices/speed.rs`) is `Slow`, too, until its
//! former speed is back. Meanwhile reads go to the copy with the shortest expected wait, whatever the policy
//! prefers, and new extents go to other devices if possible. An idle slow device gets a probe once a second.
//!
//! With two copies, a device without a sign of life for 5 s gets a probe: otherwise an absent device would be
//! noticed only by the next write. With one copy nothing could be done, and a device may sleep.
//!
//! A device that repairs itself (`Device::repair_time`) fails, or becomes `Slow`, later by this time.
//! Meanwhile its writes wait, and reads with another copy go there after 5 s, as with any device.
//!
//! `Slow` counts as current, so nothing depends on the state: the next write of the superblocks records the
//! change.

use crate::Error;
use crate::core::Durable;
use crate::devices::{Deadline, Devices, LARGEST_ALIGNMENT, Member, TICK, Watch, finish_abandoned};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::DeviceState;
use braid_policy::Origin;
use braid_runtime::{Arena, Device, LockGuard, Runtime};
use std::io;

/// An odd number with scattered multiples (Knuth).
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

impl<D: Device> Devices<D> {
    /// Time after which every device has answered or counts as silent.
    pub fn longest_silence(&self) -> Nanos {
        let repair_time = self.iter().map(Member::repair_time).max();
        Deadline::LONGEST + repair_time.unwrap_or(Nanos::ZERO)
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Starts the watchdog, until [`Durable::end_watch`].
    pub fn start_watch(&self) {
        let durable = self.own.handle();
        self.rt.spawn(async move {
            while durable.store.devices.watch.get() == Watch::Runs {
                let ends = durable
                    .jobs
                    .wait_for(|| (durable.store.devices.watch.get() != Watch::Runs).then_some(()));
                durable.within(TICK, ends).await;
                durable.store.devices.iter().for_each(|member| member.requests.tick());
                durable.store.devices.iter().for_each(|member| durable.look_at(member));
                let now = durable.rt.now();
                durable.store.reopen_full(|member| member.full_until.get().is_some_and(|until| until <= now));
            }
            durable.store.devices.watch.set(Watch::Ended);
            durable.jobs.wake();
        });
    }

    /// Ends the watchdog. Tasks keep waiting for late requests.
    pub async fn end_watch(&self) {
        self.store.devices.watch.set(Watch::Ending);
        self.jobs.wake();
        self.jobs.wait_for(|| (self.store.devices.watch.get() == Watch::Ended).then_some(())).await;
    }

    fn look_at(&self, member: &Member<D>) {
        let requests = &member.requests;
        if self.jobs.are_ending() {
            requests.expire_discards();
        }
        finish_abandoned(&self.rt, member);
        let others = || self.store.devices.iter().filter(|other| other.id != member.id && other.is_current());
        let is_silent = requests.is_silent();
        let since = if is_silent { requests.late_since() } else { requests.waits_since() };
        let answers = |other: &&Member<D>| other.requests.has_answered_after(since);
        let others_answer = others().count() > 0 && others().all(|other| answers(&other));
        if requests.is_conspicuous() || is_silent {
            others().filter(|other| !answers(other)).for_each(|other| self.ask_for_sign(other));
        }
        if !D::ALWAYS_ANSWERS && self.store.shape.copies > 1 && member.is_written() && requests.is_quiet() {
            self.ask_quiet(member);
        }
        if member.is_slow() && member.speed.is_idle() {
            self.ask_for_speed(member);
        }
        if member.speed.tick(requests.repair_seconds()) {
            self.store.devices.tell_speed(member);
        }
        if !requests.is_stuck() {
            self.clear_slow(member);
        } else if !member.is_written() {
            requests.expire_all();
        } else if (requests.has_overdue_change() || is_silent) && others_answer && self.survives(member.id) {
            self.give_up_stuck(member);
        } else {
            requests.expire(others_answer);
            if requests.is_stuck_beyond_repair() && member.set_slow() {
                let limit = Deadline::BRIEFEST + member.repair_time();
                let device = member.describe();
                tracing::warn!(%device, "device is slow: a request waits for more than {limit}");
            }
        }
    }

    /// Probes an idle slow device, to measure its speed. The probes' places vary over the whole device, so
    /// the device's own cache cannot answer.
    fn ask_for_speed(&self, member: &Member<D>) {
        let (durable, device) = (self.own.handle(), member.id);
        self.rt.spawn(async move {
            let (member, len) = (durable.store.member(device), LARGEST_ALIGNMENT);
            let into = Arena::new(len).alloc(len).await;
            let places = (member.entry.size.0 / len.0).max(1);
            let at = len * (durable.rt.now().0.wrapping_mul(SCATTER) % places);
            // Only the duration counts, not the bytes.
            let _answer = durable.device_read_by(member, at, &into, Origin::Probe, Deadline::Copied).await;
        });
    }

    /// Sends a small read to a device without requests, for a sign of life.
    fn ask_for_sign(&self, member: &Member<D>) {
        let can_give_up = self.store.shape.copies > 1 || self.store.devices.superblock().adopted().is_some();
        if D::ALWAYS_ANSWERS || !can_give_up || member.requests.is_awaited() {
            return;
        }
        let (durable, device) = (self.own.handle(), member.id);
        self.rt.spawn(async move {
            let len = durable.store.member(device).alignment;
            let into = Arena::new(len).alloc(len).await;
            // Only the answer counts, not the bytes.
            let _answer = durable.store.member(device).read(Bytes::ZERO, &into, Deadline::Copied).await;
        });
    }

    /// Reads a superblock copy of a device without a recent sign of life. If the device cannot read any copy,
    /// and no other device fails in the same way, the device is excluded.
    fn ask_quiet(&self, member: &Member<D>) {
        member.requests.note_sign();
        let (durable, device) = (self.own.handle(), member.id);
        self.rt.spawn(async move {
            let Some(error) = durable.store.devices.error_of_quiet(device).await else { return };
            let others =
                durable.store.devices.iter().filter(|other| other.id != device && other.is_written());
            for other in others {
                if durable.store.devices.error_of_quiet(other.id).await.is_some() {
                    // A shared component may be the reason.
                    return;
                }
            }
            let error =
                Error::io(format_args!("{} cannot be read", durable.store.member(device).describe()), &error);
            durable.store.member(device).stats.borrow_mut().last_error = Some(error.to_string());
            if durable.jobs.are_ending() || !durable.survives(device) {
                return;
            }
            durable.jobs.begin();
            // The journal remembers a failure and fails every later flush.
            let _told = durable.give_up(device, error).await;
            durable.jobs.end();
        });
    }

    /// Excludes a device without answers. Its callers continue with other devices, and wait until the
    /// superblocks record the failure.
    fn give_up_stuck(&self, member: &Member<D>) {
        self.exclude(member.id, DeviceState::Failed);
        member.requests.expire_all();
        member.stats.borrow_mut().last_error = Some("no answer to a request in time".to_owned());
        tracing::error!(device = %member.describe(), "device does not answer: continuing without it");
        let durable = self.own.handle();
        self.jobs.begin();
        self.rt.spawn(async move {
            // The journal remembers a failure and fails every later flush.
            let _told = durable.record_states().await;
            durable.jobs.end();
        });
    }

    fn clear_slow(&self, member: &Member<D>) {
        if member.is_slow() && !member.speed.is_slow() {
            member.set_state(DeviceState::Active);
            tracing::info!(device = %member.describe(), "device is as fast as before again");
        }
    }

    /// Takes an extent's exclusive lock for a task that no guest waits for; `None` after `limit`. The limit
    /// is short because new guests queue behind the waiting task, perhaps for bytes on a healthy device.
    pub async fn lock_briefly(&self, extent: ExtentId, limit: Nanos) -> Option<LockGuard> {
        match self.locks.try_exclusive(extent) {
            Some(guard) => Some(guard),
            None => self.within(limit, self.locks.exclusive(extent)).await,
        }
    }
}

impl<D: Device> Devices<D> {
    /// Marks and reports a device that has become slow, after a change of its speed.
    fn tell_speed(&self, member: &Member<D>) {
        if let Some(times) = member.speed.times_slower() {
            member.set_slow();
            let device = member.describe();
            tracing::warn!(%device, "device is slow: requests take {times:.0} times as long as before");
        }
    }

    /// Returns the last error if a device can read none of its superblock copies. Returns `None` for a device
    /// without an answer: requests have a deadline of their own.
    async fn error_of_quiet(&self, device: DeviceId) -> Option<io::Error> {
        let member = &self[device];
        let into = Arena::new(member.alignment).alloc(member.alignment).await;
        let mut places = superblock_offsets(member.entry.size, member.entry.layout);
        if places.is_empty() {
            places.push(Bytes::ZERO);
        }
        let mut last = None;
        for place in places {
            match member.read(place, &into, Deadline::Copied).await {
                Ok(()) => return None,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return None,
                Err(error) => last = Some(error),
            }
        }
        last
    }

    /// Returns an error that names a device with late requests, if there is one.
    pub fn refuse_late(&self) -> crate::Result<()> {
        let late = self.iter().find(|member| member.is_late());
        late.map_or(Ok(()), |member| Err(member.error_of_late()))
    }
}
