//! Recovery without the SSDs: the image disk becomes the volume, as of the end of its newest epoch.

use super::EpochRegion;
use super::apply::flush;
use super::index::Index;
use super::journal::{state_of, state_or_void, write_state};
use crate::devices::Member;
use crate::map::State;
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceId, ExtentId, Nanos};
use braid_format::SpanId;
use braid_format::epoch_journal::{self, StatePage};
use braid_format::map_page::Entry;
use braid_format::superblock::{Features, Superblock};
use braid_runtime::{Device, Runtime};

/// A past state of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PastState {
    /// The disk that holds the state.
    pub device: DeviceId,
    /// Number of the epoch.
    pub epoch: u64,
    /// End of the epoch, since 1970; `None` if the clock was unknown.
    pub ended: Option<Nanos>,
    /// True if an earlier opening recovered the volume: the disk then includes all guests' writes since.
    pub goes_on: bool,
}

impl PastState {
    pub(crate) fn of(device: DeviceId, page: &StatePage) -> PastState {
        let ended = Some(page.ended).filter(|&ended| ended > Nanos::ZERO);
        let goes_on = page.state == epoch_journal::State::Recovered;
        PastState { device, epoch: page.epoch, ended, goes_on }
    }
}

/// A disk that becomes the volume in this opening, or became the volume in an earlier opening.
pub(crate) struct Adopted {
    /// State of the volume at the end of the epoch.
    pub past: PastState,
    /// The verified index of the journal.
    pub(super) index: Index,
    place: EpochRegion,
    /// Newest state page of the disk.
    page: StatePage,
}

/// Decides whether a disk becomes the volume, because a recovery is asked for or has begun. The disk then
/// holds the whole volume, in place or in its journal, and no other device counts. `asked` is `None` if no
/// recovery is asked for, and else tells whether the volume was last used without one of its devices. A
/// recovery may be asked for again until the whole journal has been applied. Nothing is changed.
///
/// # Errors
/// `Degraded` if a recovery is asked for and the disk is not a state of the volume, or the volume continued
/// without the other devices. `Corrupt` for a damaged journal.
pub(crate) async fn judge<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    shape: &Shape,
    asked: Option<bool>,
) -> Result<Option<Adopted>> {
    let (place, page) = match asked {
        Some(went_without) => past_of(members, superblock, went_without).await?,
        None => match begun(members, superblock).await? {
            Some(begun) => begun,
            None => return Ok(None),
        },
    };
    let member = &members[place.device.index()];
    let end = shape.extent_size * u64::from(shape.extents());
    let index = Index::read(member, &place, page.run, end).await?;
    Ok(Some(Adopted { past: PastState::of(place.device, &page), index, place, page }))
}

impl Adopted {
    /// True if the journal holds any range.
    pub fn is_unapplied(&self) -> bool {
        self.index.ranges().next().is_some()
    }

    /// True if the disk replaces the whole map. The map of a disk that was recovered earlier counts.
    pub fn is_all(&self) -> bool {
        !self.past.goes_on
    }

    /// Replaces the map: every extent lies on the disk, in its own slot. The caller writes all map pages, and
    /// then a state page under which the map counts ([`super::recovered`]).
    ///
    /// # Errors
    /// `Corrupt` if an extent has no slot of its own on the disk.
    pub fn take_over(&self, superblock: &Superblock, shape: &Shape, state: &mut State) -> Result<()> {
        let device = self.place.device;
        let mut taken_over = State::new(shape, superblock);
        // The places of map pages on the disk stay as before.
        std::mem::swap(&mut taken_over.groups, &mut state.groups);
        *state = taken_over;
        for extent in (0..shape.extents()).map(ExtentId) {
            let index = state.space.place(device, extent);
            let home = state.space.take_at(device, index).ok_or_else(|| {
                let text = format!("{extent:?} has no place of its own on device {device}");
                Error::new(ErrorKind::Corrupt, text)
            })?;
            state.map.set(extent, Entry { home, valid: shape.all_parts(), ..Entry::default() });
            state.mark_stale(extent);
        }
        state.mark_intents_stale((0..superblock.spans()).map(SpanId));
        state.refresh_all();
        Ok(())
    }

    /// Writes state *Adopting* to the disk, durably. From here on, an opening without the other devices
    /// continues the recovery.
    pub async fn begin<R: Runtime, D: Device>(&self, rt: &R, members: &[Member<D>]) -> Result<()> {
        let member = &members[self.place.device.index()];
        let (sequence, state) = (self.page.sequence + 1, epoch_journal::State::Adopting);
        let adopting = StatePage { sequence, state, ..self.page };
        write_state(member, &self.place, &adopting, &[]).await?;
        flush(rt, member).await
    }
}

/// Returns a disk whose recovery was interrupted, if no other device is current.
///
/// # Errors
/// `Corrupt` if the disk cannot tell how far its recovery is.
async fn begun<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
) -> Result<Option<(EpochRegion, StatePage)>> {
    let is_alone = |place: &EpochRegion| {
        let mut current = members.iter().filter(|member| member.is_current());
        current.all(|member| member.id == place.device)
    };
    let place = EpochRegion::of(superblock).filter(|place| members[place.device.index()].is_current());
    let is_recovering = superblock.features.incompat & Features::UNAPPLIED != 0;
    let Some(place) = place.filter(|place| is_recovering || is_alone(place)) else { return Ok(None) };
    let page = state_or_void(&members[place.device.index()], &place, superblock).await?;
    Ok((page.state == epoch_journal::State::Adopting && is_alone(&place)).then_some((place, page)))
}

/// Returns the location of the journal on a disk that alone is a past state of the volume, and the disk's
/// state page. If the volume `went_without` a device before, guests may have changed the image since.
///
/// # Errors
/// `Degraded` if no disk is a past state.
pub(crate) async fn past_of<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    went_without: bool,
) -> Result<(EpochRegion, StatePage)> {
    let Some(place) = EpochRegion::of(superblock) else {
        return refuse(superblock, "none of its disks keeps epochs");
    };
    let member = &members[place.device.index()];
    if !member.is_current() {
        return refuse(
            superblock,
            &format!("device {}, which keeps epochs, is {}", place.device, member.state()),
        );
    }
    let page = state_of(member, &place, superblock).await?;
    match page.state {
        epoch_journal::State::Adopting | epoch_journal::State::Recovered => Ok((place, page)),
        _ if went_without => refuse(
            superblock,
            "the volume has continued without the other devices already: serve the volume without \
             recovery",
        ),
        epoch_journal::State::Image => Ok((place, page)),
        epoch_journal::State::Void => {
            refuse(superblock, "the disk alone is not an image: the copy to the disk was incomplete")
        }
    }
}

/// Extends the error of an opening that lacks a device: names `braid recover` if a disk alone is a past
/// state. An opening that excludes the missing device instead ends this possibility.
pub(crate) async fn or_recover<D: Device>(
    error: Error,
    members: &[Member<D>],
    superblock: &Superblock,
    went_without: bool,
) -> Error {
    match past_of(members, superblock, went_without).await {
        Ok((place, page)) if page.state == epoch_journal::State::Image => {
            let text = format!(
                "{error}; or continue with the state of device {} alone at the end of epoch {}, which the \
                 exclusion would undo: braid recover {}",
                place.device, page.epoch, superblock.name
            );
            Error::new(error.kind(), text)
        }
        _ => error,
    }
}

fn refuse<T>(superblock: &Superblock, why: &str) -> Result<T> {
    let text = format!("volume '{}' cannot be recovered from its disk: {why}", superblock.name);
    Err(Error::new(ErrorKind::Degraded, text))
}
