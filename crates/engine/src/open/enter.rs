//! The phases of an opening, and the last reasons to refuse one.

use super::assemble::Highest;
use super::superblock::{Written, write_superblocks};
use crate::copies::Member;
use crate::core::Core;
use crate::journal::is_journal_lost;
use crate::map::State;
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceId, ExtentId};
use braid_format::map_page::Entry;
use braid_format::superblock::{Features, Phase, RegionKind, Superblock};
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};

/// The extents of which a device that is not there or was cut, and was current until now, holds the only
/// current copy.
pub(crate) fn only_copies<D: Device>(
    members: &[Member<D>],
    shape: &Shape,
    state: &State,
    (lately, cut): (&[DeviceId], &[(DeviceId, String)]),
) -> Vec<(DeviceId, ExtentId)> {
    let on = |slot| state.space.locate(slot).map(|s| s.device);
    let is_current = |d: Option<DeviceId>| d.is_some_and(|d| members[d.index()].is_current());
    let mut only = Vec::new();
    // What was given up by name is not looked for. A device that was cut was given up by nobody.
    let is_asked =
        |device: &&DeviceId| !members[device.index()].lacks_all() || cut.iter().any(|(id, _)| id == *device);
    for &device in lately.iter().filter(is_asked) {
        let is_only = |(extent, entry): (ExtentId, Entry)| {
            let (home, second) = (on(entry.home), on(entry.second));
            // Before this opening, the home was current and its other copy lacked something.
            let behind = state.behind.was_behind(shape.span_of(extent));
            home == Some(device) && (behind || !is_current(second))
                || second == Some(device) && !is_current(home)
        };
        let extents = state.map.iter().filter(|&it| is_only(it));
        only.extend(extents.map(|(extent, _)| (device, extent)));
    }
    only
}

/// Refuses to go on without a device that holds the only current copy of something, and was current until
/// now.
pub(crate) fn refuse_only_copies<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    shape: &Shape,
    state: &State,
    (lately, cut): (&[DeviceId], &[(DeviceId, String)]),
) -> Result<()> {
    let only = only_copies(members, shape, state, (lately, cut));
    let Some(&(device, _)) = only.first() else { return Ok(()) };
    let count = only.iter().filter(|(of, _)| *of == device).count();
    let text = format!(
        "volume '{}' lacks device {device} ({}), which alone may hold what was written last to {count} extent(s): bring it back, or give \
         that up (--distrust {device})",
        superblock.name,
        members[device.index()].entry.uuid
    );
    // A device that is there was cut, or forgot what it had acknowledged.
    let text = match cut.iter().find(|(id, _)| *id == device) {
        Some((_, what)) => format!("{what}; {text}"),
        None => text,
    };
    Err(Error::new(ErrorKind::Degraded, text))
}

/// Gives the opening its number. `knows_log` says whether this opening has read all that daemons which died
/// may have left in memory.
pub(crate) fn number<D: Device>(
    members: &[Member<D>],
    superblock: &mut Superblock,
    highest: &Highest,
    knows_log: bool,
) {
    let last = superblock.epoch.max(highest.epoch);
    if !knows_log && !planted(Bug::NumberOfReaderTaken) {
        // An opening that has read a pending log notes its number in the log before a device has that number:
        // the last one, or the next. If that opening ended early, this one must not pass for it, since what
        // is written now is newer than the log.
        superblock.epoch = last + 2;
    } else if superblock.phase != Phase::Opening || members.iter().any(Member::is_lacking) {
        // An opening that was interrupted wrote no data, so its number serves again. But not without a device
        // that may have taken part: what that knows of this number must not pass for what is written now.
        superblock.epoch = last + 1;
    }
}

/// Enters a new epoch, which [`number`] has given: `Opening` on all devices, then `Open` on all. Data is
/// written after that. An opening that only `announces` itself ends after the first phase, as if interrupted:
/// the devices have its number, and say all that they said before.
///
/// # Errors
/// The device that could not be written. No device got anything but tables and superblocks.
pub(crate) async fn enter<R: Runtime, D: Device>(
    rt: &R,
    members: &[Member<D>],
    superblock: &mut Superblock,
    (highest, announces): (Highest, bool),
) -> std::result::Result<(), (DeviceId, Error)> {
    // By an even number: the next table must not go over the one that counts.
    superblock.sequence += highest.sequence.saturating_sub(superblock.sequence).next_multiple_of(2);
    let phases = [Phase::Opening, Phase::Open];
    let phases = match announces {
        true => &phases[..1],
        false if planted(Bug::OpeningNotAnnounced) => &phases[1..],
        false => &phases[..],
    };
    for &phase in phases {
        superblock.phase = phase;
        superblock.sequence += 1;
        let epoch = superblock.epoch;
        for (entry, member) in superblock.devices.iter_mut().zip(members) {
            if phase == Phase::Open && member.is_in_step() {
                entry.in_step = epoch;
            }
        }
        let written = write_superblocks(rt, members.iter(), superblock).await;
        if let Written::Failed { device, error, .. } = written {
            return Err((device, error));
        }
    }
    Ok(())
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Whether extra copies may lie on any device.
    pub fn has_cache_table(&self) -> bool {
        self.devices.superblock().regions.iter().any(|region| region.kind == RegionKind::CacheTable)
    }

    /// After an unclean stop the journal says first that this opening has begun: a batch of the last one that
    /// reaches the device only now counts for nothing. With it goes which copies count as behind from now on.
    pub async fn begin_epoch(&self, clean: bool) -> Result<()> {
        // No job makes room yet. Slots that only the journal calls free must not be used before the other map
        // image does. And what recovery forgets of clean extra copies no record says: no image of a page and
        // no record may name it when its block slot is used again. And a ring that was out of use must not be
        // followed by a batch that does not follow: the ones between would be looked for. And if the journal
        // is lost, the batches overwrite what the devices know instead of it.
        let is_lost = is_journal_lost(&self.devices.superblock(), |device| self.member(device).is_current());
        let is_ahead = {
            let state = self.state.borrow();
            state.is_ahead_of_images()
                || state.tables.stale_pages() > 0
                || self.journal.is_behind_pages()
                || is_lost && state.stale_pages() > 0
        };
        if !self.journal.has_room() || is_ahead {
            self.checkpoint().await?;
        }
        let records_extras =
            |superblock: &Superblock| superblock.features.incompat & Features::CLEAN_EXTRAS != 0;
        if self.has_cache_table() && !records_extras(&self.devices.superblock()) {
            // Nothing that an older version left in the tables counts from here on.
            self.change_superblock(|superblock| superblock.features.incompat |= Features::CLEAN_EXTRAS)
                .await?;
        }
        self.record_spans().await?;
        if !clean && !planted(Bug::OpeningNotRecorded) {
            let epoch = self.devices.superblock().epoch;
            drop(self.append(&[braid_format::journal::Record::Epoch(epoch)]).await?);
        }
        if self.devices.iter().any(Member::lacks_all) {
            self.commit(Origin::Background).await?;
            // What they lack is durable: from now on they are in step.
            self.devices.iter().for_each(Member::note_recorded);
            self.change_superblock(|_| ()).await?;
        }
        Ok(())
    }
}
