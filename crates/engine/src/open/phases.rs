//! Phases of an opening, and the last reasons for a refusal.

use super::Highest;
use crate::core::Durable;
use crate::devices::{Devices, Member, SuperblockWrite, number_next, write_superblocks};
use crate::journal::is_journal_lost;
use crate::map::State;
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceId, ExtentId};
use braid_format::intent_page::Difference;
use braid_format::map_page::Entry;
use braid_format::superblock::{Features, Phase, RegionKind, Superblock};
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};

/// Extents with their only current copy on a device that was current until now, and is absent or was cut.
pub(crate) fn only_copies<D: Device>(
    members: &[Member<D>],
    shape: &Shape,
    state: &State,
    lately: &[DeviceId],
    cut: &[(DeviceId, String)],
) -> Vec<(DeviceId, ExtentId)> {
    let on = |slot| state.space.locate(slot).map(|s| s.device);
    let is_current = |d: Option<DeviceId>| d.is_some_and(|d| members[d.index()].is_current());
    let mut only = Vec::new();
    // The copies on a device excluded by name are not looked for. Nobody excluded a device that was cut.
    let is_asked =
        |device: &&DeviceId| !members[device.index()].lacks_all() || cut.iter().any(|(id, _)| id == *device);
    for &device in lately.iter().filter(is_asked) {
        let is_only = |(extent, entry): (ExtentId, Entry)| {
            let (home, second) = (on(entry.home), on(entry.second));
            // Before this opening, the home was current and the second copy lacked something.
            let behind = state.behind.durable(shape.span_of(extent)) == Difference::Behind;
            home == Some(device) && (behind || !is_current(second))
                || second == Some(device) && !is_current(home)
        };
        let extents = state.map.iter().filter(|&it| is_only(it));
        only.extend(extents.map(|(extent, _)| (device, extent)));
    }
    only
}

/// Refuses to continue without a device that was current until now and holds the only current copy of an
/// extent.
pub(crate) fn refuse_only_copies<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    shape: &Shape,
    state: &State,
    lately: &[DeviceId],
    cut: &[(DeviceId, String)],
) -> Result<()> {
    let only = only_copies(members, shape, state, lately, cut);
    let Some(&(device, _)) = only.first() else { return Ok(()) };
    let count = only.iter().filter(|(of, _)| *of == device).count();
    let text = format!(
        "volume '{}' lacks device {device} ({}), which alone may hold the last writes to {count} extent(s): \
         bring the device back, or discard these writes (--distrust {device})",
        superblock.name,
        members[device.index()].entry.uuid
    );
    // A present device was cut, or lost acknowledged writes.
    let text = match cut.iter().find(|(id, _)| *id == device) {
        Some((_, what)) => format!("{what}; {text}"),
        None => text,
    };
    Err(Error::new(ErrorKind::Degraded, text))
}

/// Sets the generation of the opening. `knows_log` is true if this opening has read everything that dead
/// daemons may have left in memory.
pub(crate) fn number<D: Device>(
    members: &[Member<D>],
    superblock: &mut Superblock,
    highest: &Highest,
    knows_log: bool,
) {
    let last = superblock.epoch.max(highest.epoch);
    if !knows_log && !planted(Bug::NumberOfReaderTaken) {
        // An opening that has read a pending log notes its number in the log before any device has the
        // number: the last number or the next. If that opening ended early, the present opening must not be
        // taken for it, since data written now is newer than the log.
        superblock.epoch = last + 2;
    } else if superblock.phase != Phase::Opening || members.iter().any(Member::is_lacking) {
        // An interrupted opening wrote no data, so its number serves again, unless a device is lacking that
        // may have taken part: data written now must not pass for the state known to that device under the
        // same number.
        superblock.epoch = last + 1;
    }
}

/// Enters the new generation set by [`number`]: `Opening` on all devices, then `Open` on all. Data is written
/// afterwards. An opening that only `announces` itself ends after the first phase, as if interrupted: the
/// devices have its number, and otherwise say the same as before.
///
/// # Errors
/// The device that could not be written. The devices got only tables and superblocks.
pub(crate) async fn enter<R: Runtime, D: Device>(
    rt: &R,
    members: &[Member<D>],
    superblock: &mut Superblock,
    highest: Highest,
    announces: bool,
) -> std::result::Result<(), (DeviceId, Error)> {
    // Advances by an even number: the next table must not overwrite the table that counts.
    superblock.sequence += highest.sequence.saturating_sub(superblock.sequence).next_multiple_of(2);
    let phases = [Phase::Opening, Phase::Open];
    let phases = match announces {
        true => &phases[..1],
        false if planted(Bug::OpeningNotAnnounced) => &phases[1..],
        false => &phases[..],
    };
    for &phase in phases {
        superblock.phase = phase;
        let is_renewed = number_next(superblock, members.iter());
        let epoch = superblock.epoch;
        for (entry, member) in superblock.devices.iter_mut().zip(members) {
            if phase == Phase::Open && member.is_in_step() {
                entry.in_step = epoch;
            }
        }
        let written = write_superblocks(rt, members.iter(), superblock, is_renewed).await;
        if let SuperblockWrite::Failed { device, error, .. } = written {
            return Err((device, error));
        }
    }
    Ok(())
}

impl<D: Device> Devices<D> {
    /// True if cached copies may lie on any device.
    pub fn has_cache_table(&self) -> bool {
        self.superblock().regions.iter().any(|region| region.kind == RegionKind::CacheTable)
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// After an unclean stop, records the beginning of this opening in the journal: a batch of the last
    /// opening that reaches a device only now counts for nothing. The copies that count as behind from now on
    /// are recorded, too.
    pub async fn record_opening(&self, clean: bool) -> Result<()> {
        // A checkpoint comes first for any of five reasons. No job makes room in the journal yet. Slots that
        // only the journal calls free must not be used before the older map image agrees. No record names the
        // clean cached copies that recovery forgets: no page image and no record may name such a copy when
        // its block slot is used again. A batch must not follow a gap in a ring that was out of use: recovery
        // would look for the batches between. If the journal is lost, new batches overwrite its substitutes
        // on the devices.
        let is_lost = is_journal_lost(&self.store.devices.superblock(), |device| {
            self.store.member(device).is_current()
        });
        let is_ahead = {
            let state = self.store.state.borrow();
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
        if self.store.devices.has_cache_table() && !records_extras(&self.store.devices.superblock()) {
            // Entries of the cache tables from an older version are void from here on.
            self.change_superblock(|superblock| superblock.features.incompat |= Features::CLEAN_EXTRAS)
                .await?;
        }
        self.record_spans().await?;
        if !clean && !planted(Bug::OpeningNotRecorded) {
            let epoch = self.store.devices.superblock().epoch;
            drop(self.append(&[braid_format::journal::Record::Epoch(epoch)]).await?);
        }
        if self.store.devices.iter().any(Member::lacks_all) {
            self.commit(Origin::Background).await?;
            // The differences of these devices are durable: from now on the devices are in step.
            self.store.devices.iter().for_each(Member::note_recorded);
            self.change_superblock(|_| ()).await?;
        }
        Ok(())
    }
}
