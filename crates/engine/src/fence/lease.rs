//! Lease: proof, for other hosts, that the owner of a volume on shared devices (`Device::is_shared`) lives.
//!
//! ```text
//! owner          first superblock copy of each shared device, every 1.5 s: number 1, 2, 3, …
//! other host     watches all superblocks for 5 s ──► a change: refuses (Busy)
//!                                                └─► no change: announces itself, waits for the fence, opens
//! ```
//!
//! **Renewal.** The owner writes the first superblock copy of each shared device again, with a new sequence
//! number, also while no guest asks for anything. The content is the content of the last change of the
//! superblocks. A change leaves [`RENEWALS`] numbers free below its own number for the renewals. The other
//! copies keep the higher number of the change, and count. So a renewal is one write without a flush; a torn,
//! lost or late renewal costs one of three copies; and no table of devices is written.
//!
//! - Each shared device has a task of its own. A hung device delays no renewal on another device, and no
//!   other change of the superblocks, except on the hung device.
//! - Before each renewal the task reads all superblock copies of its device, and ends the volume if another
//!   opening has written one ([`super`]).
//! - A renewal that waits for too long counts as any late write: the watchdog decides. A device that refuses
//!   the write is excluded if all its data is elsewhere. Otherwise the failure is logged, and guests meet no
//!   error.
//! - Renewals continue until the last work of a shutdown is done, just before the superblocks say *closing*.
//!
//! **Watch.** An opening watches if the volume was not closed, the notes of the host do not prove the end of
//! the last opening ([`super::may_be_open`]), and a device is shared. Any change of an epoch, owner or
//! sequence number within [`WATCH`] proves that another host lives. Only changes count, and only the watching
//! host's clock: no host compares its clock with another. While a device does not answer, its owner cannot
//! renew either: the watch of the device begins again, for at most a minute and the repair time.
//! `OpenOptions::take_over` skips the watch, for a host that the administrator knows to be dead or
//! unreachable.
//!
//! The lease prevents a takeover by mistake. The fence protects the data: a stopped process that continues
//! after the end of its lease, or an owner that is taken over alive, is fenced. A host that reaches none of
//! the devices that the owner writes cannot see the owner's lease: two halves of a mirror, each reached by
//! one host only, can be opened apart. A later opening with both halves refuses (`open/verdict.rs`).

use crate::buffer::buffer;
use crate::core::Durable;
use crate::devices::{Deadline, Member, RENEWALS};
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, Nanos};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{self, Header, Superblock};
use braid_runtime::{Device, Runtime, join_all};
use std::cell::Cell;
use std::io;

/// Interval between two renewals on a device.
const PERIOD: Nanos = Nanos::from_millis(1500);
/// Duration of the watch: three renewals may be late or lost. Together with the announcement of an opening
/// (`TAKEOVER`), a takeover takes less than 8 s.
const WATCH: Nanos = Nanos::from_secs(5);
/// Pause between two readings of the watch.
const BETWEEN: Nanos = Nanos::from_millis(500);
/// Duration of a reading after which the watch of the device begins again.
const SILENCE: Nanos = Nanos::from_secs(1);

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Starts the renewals on all shared devices without renewals. A volume without shared devices starts
    /// nothing.
    pub fn start_leases(&self) {
        for member in self.store.devices.iter().filter(|member| member.is_shared()) {
            if D::ALWAYS_ANSWERS || planted(Bug::LeaseNotRenewed) || member.has_lease.replace(true) {
                continue;
            }
            let (durable, device) = (self.own.handle(), member.id);
            self.rt.spawn(async move {
                let member = durable.store.member(device);
                durable.keep_lease(member).await;
                member.has_lease.set(false);
                durable.jobs.wake();
            });
        }
    }

    /// Ends all renewals. No renewal is in flight when the function returns, except on a device with late
    /// requests.
    pub async fn end_leases(&self) {
        self.store.devices.leases_end.set(true);
        self.jobs.wake();
        let any_runs = || self.store.devices.iter().any(|member| member.has_lease.get());
        self.jobs.wait_for(|| (!any_runs()).then_some(())).await;
    }

    async fn keep_lease(&self, member: &Member<D>) {
        let is_over = || (self.store.devices.leases_end.get() || self.fence.is_taken()).then_some(());
        let (mut next, mut renewals, mut failed) = (self.rt.now() + PERIOD, 0, 0u64);
        loop {
            let rest = next.saturating_sub(self.rt.now());
            if self.within(rest, self.jobs.wait_for(is_over)).await.is_some() || is_over().is_some() {
                return;
            }
            next = self.rt.now() + PERIOD;
            if !member.is_written() || !member.is_shared() {
                continue;
            }
            if let Some(header) = self.store.devices.header_of_another(member, Deadline::Only).await {
                return self.end_for(&header);
            }
            if is_over().is_some() {
                return;
            }
            renewals = (renewals + 1) % RENEWALS;
            match self.renew_lease(member, renewals).await {
                Ok(()) => failed = 0,
                Err(error) => {
                    failed += 1;
                    self.renewal_failed(member, &error, failed).await;
                }
            }
        }
    }

    /// Writes the first superblock copy again, or the second if the first cannot be written.
    async fn renew_lease(&self, member: &Member<D>, renewals: u64) -> io::Result<()> {
        let _alone = member.superblocks.acquire(1).await;
        let Some(last) = member.renewable().filter(|_| member.is_written()) else { return Ok(()) };
        let sequence = last.sequence - RENEWALS + renewals;
        let renewed = Superblock { sequence, ..(*last).clone() };
        let buf = buffer(superblock::SIZE).await;
        buf.copy_from_slice(Bytes::ZERO, &renewed.encode(member.id));
        let places = superblock_offsets(member.entry.size, member.entry.layout);
        let mut written = Ok(());
        // The last copy is never touched.
        for place in &places[..places.len() - 1] {
            // Not counted as a write to flush: the loss of a renewal loses nothing.
            written = member.write(*place, &buf, Deadline::Only).await;
            let is_late = written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
            if written.is_ok() || is_late {
                break;
            }
        }
        written
    }

    /// Excludes a device that refused a renewal, if all its data is elsewhere.
    async fn renewal_failed(&self, member: &Member<D>, error: &io::Error, failed: u64) {
        let device = member.describe();
        if failed.is_power_of_two() {
            tracing::warn!(%device, %error, failed, "the lease could not be renewed");
        }
        let is_late = error.kind() == io::ErrorKind::TimedOut;
        if is_late || self.fence.is_taken() || self.jobs.are_ending() || !self.survives(member.id) {
            return;
        }
        let error = Error::io(format_args!("the lease could not be renewed on {device}"), error);
        self.jobs.begin();
        // The journal remembers a failure and fails every later flush.
        let _told = self.give_up(member.id, error).await;
        self.jobs.end();
    }
}

/// Watches the superblocks of a volume that another host may serve.
///
/// # Errors
/// `Busy` if a superblock changed within [`WATCH`]: another host serves the volume.
pub(crate) async fn refuse_served<R: Runtime, D: Device>(
    rt: &R,
    members: &[Member<D>],
    volume: &str,
) -> Result<()> {
    if planted(Bug::LeaseNotWatched) {
        return Ok(());
    }
    let changed = Cell::new(None);
    let watched = members.iter().filter(|member| member.is_there() && member.has_superblock());
    join_all(watched.map(async |member| {
        let limit = rt.now() + Deadline::LONGEST + member.repair_time();
        let mut known = numbers(member).await;
        let mut end = rt.now() + WATCH;
        while rt.now() < end.min(limit) && changed.get().is_none() {
            rt.sleep(BETWEEN.min(end - rt.now())).await;
            let start = rt.now();
            let now = numbers(member).await;
            if rt.now() > start + SILENCE {
                end = rt.now() + WATCH;
            }
            for (known, now) in known.iter_mut().zip(now).filter(|(_, now)| now.is_some()) {
                if let Some(epoch) = now.filter(|_| known.is_some() && *known != now).map(|now| now.epoch) {
                    changed.set(Some(epoch));
                }
                *known = now;
            }
        }
    }))
    .await;
    let Some(epoch) = changed.get() else { return Ok(()) };
    let text = format!(
        "volume '{volume}': another host serves the volume (opening {epoch}): its superblocks changed within \
         {WATCH}: stop the volume on that host, or, if the host cannot be reached, take the volume over \
         (--take-over): the other host then writes nothing more, and loses its unflushed writes"
    );
    Err(Error::new(ErrorKind::Busy, text))
}

/// Numbers of a superblock copy that a living owner changes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Numbers {
    epoch: u64,
    owner: u64,
    sequence: u64,
}

/// Numbers of all superblock copies of a device; `None` for an unreadable copy.
async fn numbers<D: Device>(member: &Member<D>) -> Vec<Option<Numbers>> {
    let buf = buffer(superblock::SIZE).await;
    let mut all = Vec::new();
    for offset in superblock_offsets(member.entry.size, member.entry.layout) {
        let read = member.read(offset, &buf, Deadline::Brief).await;
        let header = read.ok().and_then(|()| buf.with_bytes(Header::decode).ok());
        all.push(header.map(|Header { epoch, owner, sequence, .. }| Numbers { epoch, owner, sequence }));
    }
    all
}
