//! The SSDs are gone: the disk that is the image becomes the volume, as it was at the end of its newest
//! epoch.

use super::Place;
use super::apply::flush;
use super::index::Index;
use super::journal::{state_of, state_or_void, write_state};
use crate::copies::Member;
use crate::map::State;
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceId, ExtentId, Nanos};
use braid_format::SpanId;
use braid_format::epoch_journal::{self, StatePage};
use braid_format::map_page::Entry;
use braid_format::superblock::{Features, Superblock};
use braid_runtime::{Device, Runtime};

/// What a volume was at a past instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PastState {
    /// The disk that has it.
    pub device: DeviceId,
    /// The epoch that ended then.
    pub epoch: u64,
    /// When that was, since 1970; none if the clock did not tell.
    pub ended: Option<Nanos>,
    /// Whether it was recovered before, in an earlier opening: then it is that with all that guests have
    /// written since.
    pub goes_on: bool,
}

impl PastState {
    pub(super) fn of(device: DeviceId, page: &StatePage) -> PastState {
        let ended = Some(page.ended).filter(|&ended| ended > Nanos::ZERO);
        let goes_on = page.state == epoch_journal::State::Recovered;
        PastState { device, epoch: page.epoch, ended, goes_on }
    }
}

/// A disk that is the volume from now on, or has been since an earlier opening.
pub(crate) struct Adopted {
    /// What the volume was then.
    pub past: PastState,
    /// What is in the journal, which has been verified.
    pub(super) index: Index,
    place: Place,
    /// What the disk says now.
    page: StatePage,
}

/// Whether the volume is to be what a disk is, because that is asked for or has begun: all of it lies there,
/// in its place or in the journal, and nowhere else. `asked` says, if that is asked for, whether the volume
/// was used last without one of its devices. It may be asked for again, as long as not all of the journal has
/// been applied. Nothing is changed.
///
/// # Errors
/// `Degraded` if it is asked for and the disk is not a state of the volume, or the volume went on without the
/// others; `Corrupt` for a damaged journal.
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
    let index = Index::read(member, (&place, superblock.volume), page.run, end).await?;
    Ok(Some(Adopted { past: PastState::of(place.device, &page), index, place, page }))
}

impl Adopted {
    /// Whether something of it is in the journal alone.
    pub fn is_unapplied(&self) -> bool {
        self.index.ranges().next().is_some()
    }

    /// Whether nothing counts that the map says: only of a disk that was recovered before, its map counts.
    pub fn is_all(&self) -> bool {
        !self.past.goes_on
    }

    /// Has all of the volume lie on the disk, whatever was known of it. The caller writes all map pages, and
    /// then says on the disk that these count ([`super::recovered`]).
    pub fn take_over(&self, superblock: &Superblock, shape: &Shape, state: &mut State) -> Result<()> {
        let device = self.place.device;
        let mut taken_over = State::new(shape, superblock);
        // Which pages of the map lie on the disk stays as it was.
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

    /// Has the disk say, durably, that it is being made the volume: from here on an opening without the
    /// others goes on with that.
    pub async fn begin<R: Runtime, D: Device>(
        &self,
        rt: &R,
        members: &[Member<D>],
        superblock: &Superblock,
    ) -> Result<()> {
        let member = &members[self.place.device.index()];
        let (sequence, state) = (self.page.sequence + 1, epoch_journal::State::Adopting);
        let adopting = StatePage { sequence, state, ..self.page };
        write_state(member, &self.place, superblock.volume, (&adopting, &[])).await?;
        flush(rt, member).await
    }
}

/// A disk that began to be the volume and was interrupted, if there is nothing else.
///
/// # Errors
/// `Corrupt` if the disk cannot say how far its recovery is.
async fn begun<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
) -> Result<Option<(Place, StatePage)>> {
    let is_alone = |place: &Place| {
        let mut current = members.iter().filter(|member| member.is_current());
        current.all(|member| member.id == place.device)
    };
    let place = Place::of(superblock).filter(|place| members[place.device.index()].is_current());
    let is_recovering = superblock.features.incompat & Features::UNAPPLIED != 0;
    let Some(place) = place.filter(|place| is_recovering || is_alone(place)) else { return Ok(None) };
    let page = state_or_void(&members[place.device.index()], &place, superblock).await?;
    Ok((page.state == epoch_journal::State::Adopting && is_alone(&place)).then_some((place, page)))
}

/// The disk that alone is the volume as it was, and what it says of that. If the volume `went_without` a
/// device before, it may have gone on with what lies in the image.
///
/// # Errors
/// `Degraded` if there is none.
pub(super) async fn past_of<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    went_without: bool,
) -> Result<(Place, StatePage)> {
    let Some(place) = Place::of(superblock) else {
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
        _ if went_without => {
            refuse(superblock, "it has gone on without the others already: serve the volume as it is")
        }
        epoch_journal::State::Image => Ok((place, page)),
        epoch_journal::State::Void => {
            refuse(superblock, "the disk alone is not a state of it: it was still being copied")
        }
    }
}

/// Why an opening is refused that lacks a device, with the way out if a disk alone is the volume as it was.
/// An opening that gives the device up instead ends that.
pub(crate) async fn or_recover<D: Device>(
    error: Error,
    members: &[Member<D>],
    superblock: &Superblock,
    went_without: bool,
) -> Error {
    match past_of(members, superblock, went_without).await {
        Ok((place, page)) if page.state == epoch_journal::State::Image => {
            let text = format!(
                "{error}; or go on with what device {} alone was when epoch {} ended, which giving up would undo: braid recover {}",
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
