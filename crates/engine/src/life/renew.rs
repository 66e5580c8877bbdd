//! Reproduces void regions ([`Durable::spare_region`]): in place if the place can be written again, else in
//! free slots of the same device.
//!
//! Until then, the volume has one copy of the structure. The unwritable place stays void in the table of
//! devices, and therefore reserved.

use super::metadata::Relocation;
use crate::core::Upkeep;
use crate::{Error, ErrorKind, Result};
use braid_base::Nanos;
use braid_format::superblock::Region;
use braid_runtime::{Device, Runtime};

/// Pause before another attempt for a region that could not be reproduced.
const REST: Nanos = Nanos::from_secs(600);

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Reproduces void regions until the volume closes.
    pub async fn renew_regions(&self) {
        while !self.jobs.are_ending() {
            let void = || self.store.devices.superblock().void_regions().copied().collect::<Vec<Region>>();
            self.durable.pause(Nanos::MAX, || !void().is_empty()).await;
            for region in void() {
                if self.jobs.are_ending() {
                    return;
                }
                if let Err(error) = self.renew(region).await {
                    tracing::warn!(%error, "{region} stays void");
                }
            }
            let rest = if void().is_empty() { Nanos::ZERO } else { REST };
            self.durable.pause(self.rt.now() + rest, || false).await;
        }
    }

    async fn renew(&self, void: Region) -> Result<()> {
        let _alone = self.store.devices.life.acquire(1).await;
        self.refuse_closing()?;
        let is_void = self.store.devices.superblock().regions.contains(&void);
        if !is_void
            || self.store.devices.is_leaving(void.device)
            || !self.store.member(void.device).is_filled()
        {
            return Ok(());
        }
        // The region counts until all superblocks say void. The task that found the bad place may still be
        // writing the superblocks, or may have failed to.
        self.durable.change_superblock(|_| ()).await?;
        let here = Region { void: false, ..void };
        let (from, to) = (void.device, void.device);
        // The region has its slots already.
        let in_place = Relocation { from, to, old: vec![void], new: vec![here], table: None, slots: (0, 0) };
        let renewed = match self.relocate_or_stay(&in_place).await {
            Ok(()) => here,
            Err(_) => {
                self.refuse_closing()?;
                let count = void.len.0.div_ceil(self.store.shape.extent_size.0) as u32;
                let taken = self.store.state.borrow_mut().reserve_run(to, count, self.store.shape.extents());
                let Some(first) = taken else {
                    let text = format!(
                        "{} has no {count} free extents side by side for a rebuilt copy: discard unused \
                         data (fstrim)",
                        self.store.member(to).describe()
                    );
                    return Err(Error::new(ErrorKind::NoSpace, text));
                };
                let offset = self.store.member(to).slot_offset(first, self.store.shape.extent_size);
                let there = Region { offset, ..here };
                let slots = (first, count);
                let elsewhere =
                    Relocation { from, to, old: Vec::new(), new: vec![there], table: None, slots };
                self.relocate_or_stay(&elsewhere).await?;
                there
            }
        };
        tracing::info!("rebuilt: {renewed}");
        Ok(())
    }
}
