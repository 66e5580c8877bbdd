//! First stage of an opening: the superblocks have been read, and each device has its place.

use super::again::Attempted;
use super::{Assembled, Attempts, Lacking, OpenOptions, Refusal, assemble, refuse_outdated};
use crate::devices::Member;
use crate::fence::{BETWEEN_READINGS, READINGS, may_change};
use crate::shape::Shape;
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

/// Devices that are enough for the volume, by their superblocks.
pub(super) struct Found<D> {
    pub assembled: Assembled<D>,
    pub shape: Shape,
    pub members: Vec<Member<D>>,
}

impl<D: Device> Found<D> {
    /// Puts the given devices in order.
    ///
    /// # Errors
    /// As [`assemble`], and if all current devices are known to be outdated.
    pub async fn read<R: Runtime>(
        rt: &R,
        devices: Vec<Rc<D>>,
        options: &OpenOptions,
        attempts: &Attempts,
    ) -> Attempted<Found<D>, D> {
        let OpenOptions { names, distrust, outdated, adopted, recover, .. } = options;
        let lacking = match (recover, options.repair) {
            (true, _) => Lacking::Recovered,
            (false, true) => Lacking::Repaired,
            (false, false) => Lacking::Refused,
        };
        let assembled = assemble(rt, devices, names, distrust, *adopted, lacking, attempts).await;
        if let Err(error) = &assembled
            && options.noted.is_some()
            && may_change(error)
            && attempts.readings < READINGS
            && attempts.refused.as_ref() != Some(error)
        {
            // Another daemon may have been opening or closing the volume.
            rt.sleep(BETWEEN_READINGS).await;
            return Err(Refusal::Disagreeing(Some(error.clone())));
        }
        let mut assembled = assembled?;
        assembled.highest = assembled.highest.beyond(attempts.highest);
        let Assembled { superblock, devices, away, told, anew, .. } = &assembled;
        if lacking != Lacking::Recovered {
            refuse_outdated(superblock, away, &[&outdated[..], told].concat())?;
        }
        let shape = Shape::of(superblock);
        let members = Member::all(superblock, devices.clone(), anew);
        Ok(Found { assembled, shape, members })
    }
}
