//! A device that was given up and still takes writes is told so, in its own superblock.
//!
//! The superblocks of the survivors say that a device was given up; its own says that all were current. If
//! the survivors are away at the next opening, and the host has no note of what is older, or an old note from
//! a backup, the older half would be served. The mark prevents that ([`Header::mark_given_up`]). An opening
//! without the survivors is refused then, unless these are given up by name; an opening with one of them
//! takes the mark away.
//!
//! The mark comes after the record of the survivors, beside the guests, and nothing depends on it: a device
//! that does not take it goes without. While it is written the device does not come back
//! ([`super::Devices::life`]).

use super::{Deadline, Member};
use crate::core::Core;
use crate::create::buffer;
use braid_base::DeviceId;
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{self, DeviceState, Header};
use braid_runtime::{Device, Runtime};
use std::collections::BTreeSet;
use std::io;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Marks devices that were given up, until the volume closes.
    pub async fn mark_given_up(&self) {
        let (mut seen, mut told) = (0, BTreeSet::new());
        loop {
            let recorded = || self.devices.states_recorded.get();
            let is_new = || recorded() != seen && recorded() == self.devices.states_changed.get();
            self.jobs.wait_for(|| (self.jobs.are_ending() || is_new()).then_some(())).await;
            if is_new() {
                seen = recorded();
                let is_failed = |member: &&Member<D>| self.is_to_be_marked(member);
                let failed: BTreeSet<DeviceId> =
                    self.devices.iter().filter(is_failed).map(|member| member.id).collect();
                for &device in failed.difference(&told) {
                    if let Err(error) = self.mark(self.member(device)).await {
                        let device = self.describe(device);
                        tracing::warn!(%device, %error, "its own superblock does not say that it was given up");
                    }
                }
                told = failed;
            }
            if self.jobs.are_ending() {
                return;
            }
        }
    }

    fn is_to_be_marked(&self, member: &Member<D>) -> bool {
        member.state() == DeviceState::Failed
            && member.is_there()
            && member.has_superblock()
            && !member.is_late()
            && !self.is_leaving(member.id)
    }

    async fn mark(&self, member: &Member<D>) -> io::Result<()> {
        let _alone = self.devices.life.acquire(1).await;
        let buf = buffer(superblock::SIZE).await;
        for offset in superblock_offsets(member.entry.size, member.entry.layout) {
            if !self.is_to_be_marked(member) {
                return Ok(());
            }
            member.read(offset, &buf, Deadline::Brief).await?;
            // A copy that is damaged says nothing, and one of another opening is not for this one to change.
            let is_marked = buf.with_bytes_mut(|bytes| {
                let is_own =
                    |header: Header| self.is_own(&header, member) && !self.is_of_another(&header, member);
                Header::decode(bytes).is_ok_and(is_own) && Header::mark_given_up(bytes).is_ok()
            });
            if is_marked {
                self.confirm_own().await.map_err(io::Error::other)?;
                member.write(offset, &buf, Deadline::Brief).await?;
            }
        }
        member.flush_mark().await
    }

    fn is_own(&self, header: &Header, member: &Member<D>) -> bool {
        header.volume == self.devices.superblock().volume && header.device.uuid == member.entry.uuid
    }
}
