//! Last stage of an opening: the superblocks have the number of the opening, and data may be written.

use super::again::Attempted;
use super::dirty_blocks::tell_older;
use super::{
    Accepted, Assembled, Attempts, BeforeOpen, Found, Highest, Judged, OpenOptions, Recovered, Refusal,
    Unwritten, enter, number,
};
use crate::Result;
use crate::adopted;
use crate::copies::WriteBacks;
use crate::core::{BlockSlots, Core, Durable, ExtentLocks, Extents, InCharge, Memory, Own, Store, Upkeep};
use crate::devices::{Buffers, Devices, Member, watched};
use crate::epochs::{Adopted, Epochs};
use crate::fence::{Fence, TAKEOVER};
use crate::jobs::Jobs;
use crate::journal::{Gap, Journal, Listed, Mode, Recovery, Replayed, only_journal, rings};
use crate::map::LogReader;
use crate::moves::Moves;
use crate::request::Streams;
use braid_base::{DeviceId, ExtentId};
use braid_runtime::{Device, Runtime};
use std::cell::RefCell;
use std::rc::Rc;

/// A volume that this opening owns, not served yet.
pub(super) struct Entered<R, D> {
    core: Rc<Core<R, D>>,
    clean: bool,
    mode: Mode,
    image: Option<Adopted>,
    gaps: Vec<Gap>,
    recovery: Recovery,
    /// Extents lost before the volume was built.
    lost: Vec<ExtentId>,
}

impl<R: Runtime, D: Device> Entered<R, D> {
    /// Writes the number of the opening to all devices.
    ///
    /// # Errors
    /// A device could not be written, or the devices were taken over from another daemon: the opening begins
    /// again. Refuses further lost extents, and an image or sums that cannot be written.
    pub async fn write(
        rt: &R,
        mut accepted: Accepted<D>,
        options: &OpenOptions,
        attempts: &Attempts,
    ) -> Attempted<Entered<R, D>, D> {
        let Accepted { recovered, sums, .. } = &mut accepted;
        let Recovered { judged, left_log, may_be_open, state, replayed, .. } = recovered;
        let Judged { found: Found { assembled, members, .. }, image, .. } = judged;
        let Assembled { superblock, devices, clean, highest, cut, .. } = assembled;
        let (left_log, clean, may_be_open) = (left_log.clone(), *clean, *may_be_open);
        let Replayed { recovery, found_next, .. } = replayed;
        tell_older(superblock, &recovery.older);
        // Before the takeover, the devices keep their statements.
        if let Some(image) = image.as_ref().filter(|image| image.is_all() && !may_be_open) {
            watched(rt, members, image.begin(rt, members)).await?;
        }
        if let Some(sums) = sums.as_ref().filter(|_| recovery.changed_elsewhere && !may_be_open) {
            watched(rt, members, adopted::write_unknown(rt, members, superblock.volume, sums)).await?;
        }
        let lost = state.map.lost();
        attempts.refuse_more_lost(&lost)?;
        let found_owner = std::mem::replace(&mut superblock.owner, options.owner);
        let needed = left_log.needed(options.memory.as_ref());
        number(members, superblock, highest, clean || needed.is_some());
        let reader = LogReader { epoch: superblock.epoch, owner: superblock.owner, found_owner };
        needed.iter().for_each(|log| log.note_reader(&reader));
        state.keep_left_log(needed);
        if let Some(BeforeOpen(tell)) = &options.before_open {
            let lacking = members.iter().filter(|member| member.is_lacking()).map(|member| member.id);
            tell(&lacking.collect::<Vec<_>>());
        }
        let entered = watched(rt, members, enter(rt, members, superblock, *highest, may_be_open)).await;
        // The other devices have all data that a resynchronised device lost.
        let may_lack = |member: &Member<D>| member.is_current() && member.has_lost_writes();
        state.doubt_log(members.iter().any(may_lack));
        let highest = Highest { epoch: superblock.epoch, sequence: superblock.sequence };
        let forgot = |id: &DeviceId| attempts.forgetful.iter().any(|found| found.device == *id);
        let cut: Vec<DeviceId> = cut.iter().map(|(id, _)| *id).filter(|id| !forgot(id)).collect();
        if let Err((id, error)) = entered {
            let device = devices[id.index()].clone();
            let lacks = |member: &&Member<D>| member.is_there() && !member.is_current();
            let outdated = members.iter().filter(lacks).map(|member| member.id).collect();
            let unwritten =
                Unwritten { device, id, error, clean, may_be_open, cut, highest, left_log, outdated, lost };
            return Err(Refusal::Unwritten(Box::new(unwritten)));
        }
        if may_be_open {
            // Another daemon may have written since the readings so far. The devices repeat their earlier
            // statements, with the number of this opening.
            rt.sleep(TAKEOVER).await;
            return Err(Refusal::TakenOver { found_next: *found_next, highest, left_log, cut });
        }
        Ok(Entered::build(rt, accepted, lost))
    }

    /// Builds the owners of the volume.
    fn build(rt: &R, accepted: Accepted<D>, lost: Vec<ExtentId>) -> Entered<R, D> {
        let Accepted { recovered, sums, policy, lack, policy_states, guests } = accepted;
        let Recovered { judged, mode, mut state, replayed, .. } = recovered;
        let Judged { found, dirty_spans, image, .. } = judged;
        let Found { assembled: Assembled { superblock, clean, .. }, shape, members } = found;
        let Replayed { ring, gaps, recovery, next_batch, changed, .. } = replayed;
        let replicas = rings(&superblock, |device| members[device.index()].is_current());
        let is_contained = state.stale_pages() == 0;
        let listed = Listed::new(changed, next_batch - 1, is_contained);
        state.set_only_journal(only_journal(&superblock, |device| members[device.index()].is_current()));
        let (moves, epochs) = (Moves::new(&superblock), Epochs::of(&superblock));
        let journal = Journal::new(replicas, superblock.epoch, ring, listed);
        let store = Store::new(shape, state, Devices::new(members, superblock));
        let core = Rc::new_cyclic(|volume| {
            let durable = Durable {
                own: Own::within(volume),
                rt: rt.clone(),
                store,
                journal,
                fence: Fence::new(rt.now()),
                locks: ExtentLocks::default(),
                guests,
                block_slots: BlockSlots::default(),
                policy: InCharge::new(policy, policy_states),
                jobs: Jobs::default(),
                background: RefCell::default(),
                dirty_spans,
                sums,
            };
            let extents = Extents {
                own: Own::within(volume),
                durable,
                buffers: Buffers::default(),
                write_backs: WriteBacks::default(),
                epochs,
            };
            let streams = Streams::new(extents.store.shape.extent_size, extents.guests.ahead.borrow().most);
            let streams = RefCell::new(streams);
            let upkeep = Upkeep { own: Own::within(volume), extents, moves };
            Core { memory: Memory { own: Own::within(volume), upkeep, streams } }
        });
        core.upkeep.note_lack(lack);
        Entered { core, clean, mode, image, gaps, recovery, lost }
    }

    /// Starts the volume: the journal records the opening, then background work begins.
    pub async fn start(self, options: &OpenOptions) -> Result<(Rc<Core<R, D>>, Recovery)> {
        let Entered { core, clean, mode, image, gaps, mut recovery, lost } = self;
        if !clean {
            // The flushed superblocks lie on all devices except an adopted disk. The disk may have unflushed
            // writes of a dead daemon.
            core.store.devices.iter().filter(|member| !member.has_superblock()).for_each(Member::note_write);
        }
        core.durable.start_watch();
        core.upkeep.start_fence();
        core.durable.start_leases();
        let begun: Result<()> = async {
            if options.noted.is_some() {
                // Another opening may have begun at the same time.
                core.durable.look_for_others().await?;
            }
            core.durable.fill_gaps(&gaps).await?;
            core.durable.record_opening(clean).await?;
            core.durable.settle_left_log(&recovery).await?;
            core.durable.journal.begin_pending_log(&core.store, options.memory.as_ref(), &recovery);
            if image.is_some() || options.repair {
                core.durable.checkpoint().await?;
            }
            if mode == Mode::Repair {
                core.durable.write_unreadable().await;
            }
            core.extents.open_epochs(image, options.repair).await
        }
        .await;
        if let Err(error) = begun {
            core.jobs.stop();
            core.durable.end_leases().await;
            core.durable.end_watch().await;
            return Err(error);
        }
        let is_new = |extent: &ExtentId| lost.binary_search(extent).is_err();
        recovery.lost.extend(core.store.state.borrow().map.lost().into_iter().filter(is_new));
        core.upkeep.start_background();
        core.upkeep.adopt_extras();
        core.extents.restore_policy();
        Ok((core, recovery))
    }
}
