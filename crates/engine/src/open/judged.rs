//! Second stage of an opening: adopted disk, dirty spans and image have been read, the journal has not.

use super::again::Attempted;
use super::{Assembled, Attempts, Found, OpenOptions};
use crate::adopted::{self, Looked};
use crate::devices::{Member, watched};
use crate::epochs::{self, Adopted};
use crate::fence::lease::refuse_served;
use crate::fence::may_be_open;
use crate::journal::{DirtySpans, refuse_dirty};
use braid_base::{Bytes, DeviceId};
use braid_runtime::{Device, Runtime};
use std::ops::Range;

/// Devices with their statements about dirty data, and image.
pub(super) struct Judged<D> {
    pub found: Found<D>,
    /// The adopted disk, compared with the known facts, until accepted.
    pub disk: Option<Looked>,
    pub dirty_spans: Option<DirtySpans>,
    /// Ranges of the dirty spans, until reported.
    pub older: Vec<Range<Bytes>>,
    /// The disk that becomes the volume, or became the volume at an earlier opening.
    pub image: Option<Adopted>,
}

impl<D: Device> Judged<D> {
    /// Reads the statements of the devices found.
    ///
    /// # Errors
    /// Refuses a volume that another host serves, a lost SSD with dirty data, a recovery without an image.
    pub async fn read<R: Runtime>(
        rt: &R,
        found: Found<D>,
        options: &OpenOptions,
        attempts: &Attempts,
    ) -> Attempted<Judged<D>, D> {
        let Found { assembled, shape, members } = &found;
        let Assembled { superblock, clean, lately, without, went_without, .. } = assembled;
        let known = superblock.adopted().map(|disk| superblock.devices[disk.index()].uuid);
        let is_vouched =
            known.zip(options.adopted).is_some_and(|(uuid, disk)| adopted::is_vouched(uuid, disk.identity));
        let is_elsewhere = attempts.taken_over.is_none() && may_be_open(superblock, options.noted);
        if is_elsewhere
            && !options.take_over
            && !attempts.watched.get()
            && members.iter().any(Member::is_shared)
        {
            watched(rt, members, refuse_served(rt, members, &superblock.name)).await?;
            attempts.watched.set(true);
        }
        let look = adopted::look_at(members, superblock, *clean, lately, is_vouched);
        let disk = watched(rt, members, look).await?;
        let dirty_spans = watched(rt, members, DirtySpans::load(members, superblock)).await?;
        let older = dirty_spans.as_ref().map_or(Vec::new(), |spans| spans.ranges(shape));
        // A device excluded earlier held no dirty data then.
        let lost: Vec<DeviceId> = without.iter().copied().filter(|device| lately.contains(device)).collect();
        refuse_dirty(superblock, &lost, &older)?;
        let asked = options.recover.then_some(*went_without);
        let judged = epochs::judge(members, superblock, shape, asked);
        let image = watched(rt, members, judged).await?;
        Ok(Judged { found, disk, dirty_spans, older, image })
    }
}
