//! The SSDs are gone: the disk that is the image becomes the volume, as it was at the end of its newest epoch.

use super::Place;
use super::apply::{apply_all, flush};
use super::journal::{state_of, write_state};
use crate::copies::Member;
use crate::map::State;
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{ExtentId, Nanos};
use braid_format::SpanId;
use braid_format::epoch_journal::{self, StatePage};
use braid_format::map_page::Entry;
use braid_format::superblock::Superblock;
use braid_runtime::{Device, Runtime};

/// What a volume was at a past instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PastState {
    /// The epoch that ended then.
    pub epoch: u64,
    /// When that was, since 1970; none if the clock did not tell.
    pub ended: Option<Nanos>,
}

/// Makes the volume what the disk is, if that is asked for or has begun: all of it lies there, in its place, and nowhere else. The caller
/// writes all map pages, and then says on the disk that it is no image any more. Gives the epoch.
///
/// # Errors
/// `Degraded` if it is asked for and the disk is no state of the volume, or another device is there.
pub(crate) async fn adopt<R: Runtime, D: Device>(
    rt: &R,
    members: &[Member<D>],
    superblock: &Superblock,
    shape: &Shape,
    state: &mut State,
    is_asked: bool,
) -> Result<Option<PastState>> {
    let place = Place::of(superblock).filter(|place| members[place.device.index()].is_current());
    let Some(place) = place else {
        return match is_asked {
            true => refuse(superblock, "it has no disk that keeps epochs, or that is not there"),
            false => Ok(None),
        };
    };
    let member = &members[place.device.index()];
    let page = state_of(member, &place, superblock.volume).await?;
    let is_begun = page.state == epoch_journal::State::Adopting;
    if !is_asked && !is_begun {
        return Ok(None);
    }
    if let Some(other) = members.iter().find(|other| other.id != place.device && other.is_current()) {
        return refuse(superblock, &format!("device {} is there: serve the volume as it is", other.id));
    }
    if page.state == epoch_journal::State::Void {
        return refuse(superblock, "the disk alone is no state of it: it was still being copied");
    }
    let page = apply_all(rt, member, (&place, superblock.volume), shape, page).await?;
    let adopting = StatePage { sequence: page.sequence + 1, state: epoch_journal::State::Adopting, ..page };
    write_state(member, &place, superblock.volume, &adopting).await?;
    flush(rt, member).await?;
    *state = State::new(shape, superblock);
    for extent in (0..shape.extents()).map(ExtentId) {
        let index = state.space.place(place.device, extent);
        let home = state.space.take_at(place.device, index).ok_or_else(|| {
            let text = format!("{extent:?} has no place of its own on device {}", place.device);
            Error::new(ErrorKind::Corrupt, text)
        })?;
        state.map.set(extent, Entry { home, valid: shape.all_parts(), ..Entry::default() });
        state.mark_stale(extent);
    }
    state.mark_intents_stale((0..superblock.spans()).map(SpanId));
    state.refresh_all();
    Ok(Some(PastState { epoch: page.epoch, ended: Some(page.ended).filter(|&ended| ended > Nanos::ZERO) }))
}

fn refuse<T>(superblock: &Superblock, why: &str) -> Result<T> {
    let text = format!("volume '{}' cannot be recovered from its disk: {why}", superblock.name);
    Err(Error::new(ErrorKind::Degraded, text))
}
