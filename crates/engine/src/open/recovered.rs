//! Third stage of an opening: map, journal and pending log have been read.

use super::again::Attempted;
use super::{Assembled, Attempts, Found, Judged, LeftLog, OpenOptions, Refusal, disagrees, refuse_cached};
use crate::devices::watched;
use crate::fence::{BETWEEN_READINGS, READINGS, may_be_open};
use crate::journal::{Mode, Recovery, RecoveryInput, Replayed, recover, refuse_later, refuse_third};
use crate::map::State;
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

/// State of the volume after the last opening.
pub(super) struct Recovered<D> {
    pub judged: Judged<D>,
    pub left_log: Rc<LeftLog>,
    pub mode: Mode,
    /// True if another daemon may have the volume open: this attempt takes the devices over.
    pub may_be_open: bool,
    pub state: State,
    pub replayed: Replayed,
}

impl<D: Device> Recovered<D> {
    /// Reads map and journal.
    ///
    /// # Errors
    /// As [`recover`]; refuses devices that lack acknowledged writes, and, after a takeover, a third opening
    /// and later batches.
    pub async fn read<R: Runtime>(
        rt: &R,
        judged: Judged<D>,
        options: &OpenOptions,
        attempts: &Attempts,
    ) -> Attempted<Recovered<D>, D> {
        let Judged { found: Found { assembled, shape, members }, disk, dirty_spans, image, .. } = &judged;
        let Assembled { superblock, clean, cut, .. } = assembled;
        let new_image = image.as_ref().filter(|image| image.is_all());
        let mut state = State::new(shape, superblock);
        let mode = if options.repair || new_image.is_some() { Mode::Repair } else { Mode::Strict };
        let changed_elsewhere = disk.as_ref().is_some_and(|disk| !disk.is_as_known());
        // After a clean shutdown no log is needed. A volume recovered from its disk alone has no log.
        let left = if *clean || new_image.is_some() { None } else { options.memory.as_ref() };
        let left_log = attempts.left_log.clone().unwrap_or_else(|| Rc::new(LeftLog::read(left, superblock)));
        let noted = options.noted.map_or(0, |noted| noted.batch);
        let input = RecoveryInput {
            members,
            superblock,
            mode,
            clean: *clean,
            changed_elsewhere,
            dirty_spans: dirty_spans.as_ref(),
            log: left_log.changes.as_ref(),
            cut,
            noted,
        };
        let may_be_open = attempts.taken_over.is_none()
            && !options.recover
            && (attempts.may_be_open || may_be_open(superblock, options.noted));
        if let Some((epoch, _)) = attempts.taken_over {
            refuse_third(superblock, epoch, options.owner)?;
        }
        let recovered = watched(rt, members, recover(&input, &mut state)).await;
        if may_be_open && attempts.readings < READINGS && disagrees(&recovered) {
            rt.sleep(BETWEEN_READINGS).await;
            return Err(Refusal::Disagreeing(None));
        }
        let mut replayed = recovered?;
        if let Some((_, before)) = attempts.taken_over {
            refuse_later(superblock, before, replayed.found_next)?;
        }
        if !replayed.forgetful.is_empty() {
            return Err(Refusal::Forgetful(replayed.forgetful, replayed.recovery.warnings));
        }
        if shape.copies == 1 {
            refuse_cached(&state, cut)?;
        }
        let recovery = &mut replayed.recovery;
        let kept = cut.iter().filter(|_| shape.copies == 1);
        recovery.warnings.extend(kept.map(|(_, what)| what.clone()));
        if let Some(image) = new_image {
            // From the recovery, only the journal's numbers count.
            image.take_over(superblock, shape, &mut state)?;
            *recovery = Recovery::default();
        }
        left_log.report(recovery);
        attempts.report(recovery);
        recovery.adopted = image.as_ref().map(|image| image.past);
        Ok(Recovered { judged, left_log, mode, may_be_open, state, replayed })
    }
}
