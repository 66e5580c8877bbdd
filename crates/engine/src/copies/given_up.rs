//! Marks on failed devices: a failed device that still takes writes is told of its failure in its own
//! superblock.
//!
//! The survivors' superblocks name the failed device; the failed device's own superblock says that all
//! devices were current. At the next opening the survivors may be absent, and the host's volume record absent
//! or restored from an old backup. Without a mark, the older half would then be served. The mark
//! ([`Header::mark_given_up`]) makes the opening fail without the survivors, unless `--distrust` names them.
//! An opening with a survivor removes the mark.
//!
//! The mark is written after the survivors' record, beside guests' requests, and nothing depends on the mark:
//! a device that refuses the write stays without one. During the write the device cannot return
//! ([`crate::devices::Devices::life`]).

use crate::buffer::buffer;
use crate::core::Extents;
use crate::devices::{Deadline, Devices, Member};
use braid_base::DeviceId;
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{self, DeviceState, Header};
use braid_runtime::{Device, Runtime};
use std::collections::BTreeSet;
use std::io;

impl<D: Device> Devices<D> {
    fn is_own(&self, header: &Header, member: &Member<D>) -> bool {
        header.volume == self.superblock().volume && header.device.uuid == member.entry.uuid
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Background task: marks failed devices until the volume closes.
    pub async fn mark_given_up(&self) {
        let (mut seen, mut told) = (0, BTreeSet::new());
        loop {
            let recorded = || self.store.devices.states_recorded.get();
            let is_new = || recorded() != seen && recorded() == self.store.devices.states_changed.get();
            self.jobs.wait_for(|| (self.jobs.are_ending() || is_new()).then_some(())).await;
            if is_new() {
                seen = recorded();
                let is_failed = |member: &&Member<D>| self.store.devices.is_to_be_marked(member);
                let failed: BTreeSet<DeviceId> =
                    self.store.devices.iter().filter(is_failed).map(|member| member.id).collect();
                for &device in failed.difference(&told) {
                    if let Err(error) = self.mark(self.store.member(device)).await {
                        let device = self.store.member(device).describe();
                        tracing::warn!(
                            %device, %error,
                            "the device's own superblock does not record the exclusion"
                        );
                    }
                }
                told = failed;
            }
            if self.jobs.are_ending() {
                return;
            }
        }
    }

    async fn mark(&self, member: &Member<D>) -> io::Result<()> {
        let _alone = self.store.devices.life.acquire(1).await;
        let buf = buffer(superblock::SIZE).await;
        for offset in superblock_offsets(member.entry.size, member.entry.layout) {
            if !self.store.devices.is_to_be_marked(member) {
                return Ok(());
            }
            member.read(offset, &buf, Deadline::Brief).await?;
            // A damaged superblock copy is left alone, and so is the copy of another opening.
            let is_marked = buf.with_bytes_mut(|bytes| {
                let is_own = |header: Header| {
                    self.store.devices.is_own(&header, member)
                        && !self.store.devices.is_of_another(&header, member)
                };
                Header::decode(bytes).is_ok_and(is_own) && Header::mark_given_up(bytes).is_ok()
            });
            if is_marked {
                self.durable.confirm_own().await.map_err(io::Error::other)?;
                member.write(offset, &buf, Deadline::Brief).await?;
            }
        }
        member.flush_mark().await
    }
}

impl<D: Device> Devices<D> {
    fn is_to_be_marked(&self, member: &Member<D>) -> bool {
        member.state() == DeviceState::Failed
            && member.is_there()
            && member.has_superblock()
            && !member.is_late()
            && !self.is_leaving(member.id)
    }
}
