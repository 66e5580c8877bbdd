//! All steps of an opening.

use super::dirty_blocks::{dirty_blocks, newly_lost, older_without, refuse_lost_homes, tell_older};
use super::{
    AdoptedDisk, Assembled, Attempts, Highest, Lacking, LeftLog, Refusal, Unwritten, assemble, disagrees,
    enter, number, refuse_cached, refuse_only_copies, refuse_outdated,
};
use crate::adopted;
use crate::copies::WriteBacks;
use crate::core::{BlockSlots, Core, Durable, ExtentLocks, Extents, InCharge, Own, Store, Upkeep};
use crate::devices::{Buffers, Devices, Member, watched};
use crate::epochs::{self, Adopted, Epochs};
use crate::fence::lease::refuse_served;
use crate::fence::{BETWEEN_READINGS, Fence, Noted, READINGS, TAKEOVER, may_be_open, may_change};
use crate::jobs::Jobs;
use crate::journal::{DirtySpans, refuse_dirty};
use crate::journal::{
    Journal, Listed, Mode, Recovered, Recovery, RecoveryInput, only_journal, recover, refuse_later,
    refuse_third, rings,
};
use crate::map::{LogReader, State};
use crate::moves::Moves;
use crate::policy::PolicyStates;
use crate::request::{Guests, Readahead};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId};
use braid_format::superblock::{DirtyBlocks, Features};
use braid_runtime::{Device, LastingMemory, Runtime};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// Options of an opening.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Names of the devices in messages: their paths.
    pub names: Vec<String>,
    /// Extents in the memory cache; 0 for none.
    pub cache_extents: usize,
    /// Condition for a read to bring its whole extent into the memory cache.
    pub readahead: Readahead,
    /// Memory for reading ahead of streams (guests' reads in order or by a stride). Zero, [`Readahead::Off`],
    /// or extents of more than 1 MiB turn reading ahead off.
    pub ahead: Bytes,
    /// Repairs a damaged volume: keeps proved data, declares the rest lost ([`Recovery::lost`]), and writes
    /// all map pages again.
    pub repair: bool,
    /// Devices whose data is discarded: they are resynchronised from the other devices.
    pub distrust: Vec<DeviceId>,
    /// Devices known to be outdated, from [`crate::Volume::outdated_devices`] of the last opening. If no
    /// other device would count as current, the rest must be present or be excluded by name. The list may be
    /// a moment older than the truth. A recovery ignores the list and follows its disk.
    pub outdated: Vec<DeviceId>,
    /// Receives the outdated devices before the other devices record them: a crash of the opening must not
    /// lose the caller's note.
    pub before_open: Option<BeforeOpen>,
    /// Recovers the volume from the disk that keeps epochs alone: without the excluded devices, and without
    /// later writes.
    pub recover: bool,
    /// Random number of this opening. It distinguishes two openings begun at the same time.
    pub owner: u64,
    /// The caller's last note of the volume ([`crate::Volume::noted`]), or an empty note; none if no other
    /// host can reach the devices. If the volume is in use by another opening than the note's, the opening
    /// takes 2 s more, and with a shared device (`Device::is_shared`) 5 s before that, to see whether the
    /// other opening lives. A recovery does not wait: later writes of other daemons are discarded.
    pub noted: Option<Noted>,
    /// Opens the volume although another host may serve it: the opening does not watch for the lease of the
    /// other host, and takes the devices over at once. A living owner is fenced: within a second nothing of
    /// it is acknowledged or written any more. Unflushed writes of its guests may be lost.
    pub take_over: bool,
    /// The adopted disk, if the volume has one.
    pub adopted: Option<AdoptedDisk>,
    /// Memory that outlives this process. A log there keeps acknowledged, unflushed changes for the next
    /// opening, if this process dies. The log of an earlier process is read.
    pub memory: Option<Rc<dyn LastingMemory>>,
}

/// Callback of a host before a volume is open: notes the devices that this opening counts as outdated
/// ([`OpenOptions::outdated`]).
#[derive(Clone)]
pub struct BeforeOpen(pub Rc<Note>);

/// Notes devices.
type Note = dyn Fn(&[DeviceId]);

impl fmt::Debug for BeforeOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeOpen")
    }
}

impl OpenOptions {
    /// Options for devices with these names: no memory cache, no repair.
    pub fn new(names: Vec<String>) -> OpenOptions {
        let readahead = Readahead::default();
        OpenOptions {
            names,
            cache_extents: 0,
            readahead,
            ahead: Bytes::ZERO,
            repair: false,
            distrust: Vec::new(),
            outdated: Vec::new(),
            before_open: None,
            recover: false,
            owner: 0,
            noted: None,
            take_over: false,
            adopted: None,
            memory: None,
        }
    }
}

/// Opens a volume as [`Volume::open`](crate::Volume::open) does: in attempts, until a complete set of devices
/// is found.
pub(crate) async fn open<R: Runtime, D: Device>(
    rt: R,
    devices: Vec<Rc<D>>,
    mut options: OpenOptions,
) -> Result<(Rc<Core<R, D>>, Recovery)> {
    let mut given = devices;
    let mut attempts = Attempts::default();
    loop {
        match attempt(&rt, given.clone(), &options, &attempts).await {
            Ok(opened) => return Ok(opened),
            // Each attempt has one device less, or resynchronises one more.
            Err(refusal) => attempts.begin_again(refusal, &mut given, &mut options)?,
        }
    }
}

/// Opens the volume, with the findings of earlier attempts.
async fn attempt<R: Runtime, D: Device>(
    rt: &R,
    devices: Vec<Rc<D>>,
    options: &OpenOptions,
    attempts: &Attempts,
) -> std::result::Result<(Rc<Core<R, D>>, Recovery), Refusal<D>> {
    // Each step may refuse the volume. Nothing is changed before a disk records that it becomes the
    // volume, or before `enter`.
    let OpenOptions { names, distrust, outdated, adopted, recover: recovery, .. } = options;
    let lacking = match (recovery, options.repair) {
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
    let Assembled {
        mut superblock,
        devices,
        clean,
        lately,
        without,
        away,
        went_without,
        told,
        anew,
        cut,
        highest,
    } = assembled?;
    let highest = highest.beyond(attempts.highest);
    let given = devices.clone();
    if lacking != Lacking::Recovered {
        refuse_outdated(&superblock, &away, &[&outdated[..], &told].concat())?;
    }
    let shape = Shape::of(&superblock);
    let members = Member::all(&superblock, devices, &anew);
    let known = superblock.adopted().map(|disk| superblock.devices[disk.index()].uuid);
    let is_vouched = known.zip(*adopted).is_some_and(|(uuid, disk)| adopted::is_vouched(uuid, disk.identity));
    let is_elsewhere = attempts.taken_over.is_none() && may_be_open(&superblock, options.noted);
    if is_elsewhere && !options.take_over && !attempts.watched.get() && members.iter().any(Member::is_shared)
    {
        watched(rt, &members, refuse_served(rt, &members, &superblock.name)).await?;
        attempts.watched.set(true);
    }
    let look = adopted::look_at(&members, &superblock, clean, &lately, is_vouched);
    let disk = watched(rt, &members, look).await?;
    let dirty_spans = watched(rt, &members, DirtySpans::load(&members, &superblock)).await?;
    let older = dirty_spans.as_ref().map_or(Vec::new(), |spans| spans.ranges(&shape));
    // A device excluded earlier held no dirty data then.
    let lost: Vec<DeviceId> = without.iter().copied().filter(|device| lately.contains(device)).collect();
    refuse_dirty(&superblock, &lost, &older)?;
    let asked = options.recover.then_some(went_without);
    let judged = epochs::judge(&members, &superblock, &shape, asked);
    let adopted_image = watched(rt, &members, judged).await?;
    let new_image = adopted_image.as_ref().filter(|image| image.is_all());
    let mut state = State::new(&shape, &superblock);
    let mode = if options.repair || new_image.is_some() { Mode::Repair } else { Mode::Strict };
    let changed_elsewhere = disk.as_ref().is_some_and(|disk| !disk.is_as_known());
    // After a clean shutdown no log is needed. A volume recovered from its disk alone has no log.
    let memory = options.memory.as_ref();
    let left = if clean || new_image.is_some() { None } else { memory };
    let left_log = attempts.left_log.clone().unwrap_or_else(|| Rc::new(LeftLog::read(left, &superblock)));
    let log = left_log.changes.as_ref();
    let dirty = dirty_spans.as_ref();
    let noted = options.noted.map_or(0, |noted| noted.batch);
    let input = RecoveryInput {
        members: &members,
        superblock: &superblock,
        mode,
        clean,
        changed_elsewhere,
        dirty_spans: dirty,
        log,
        cut: &cut,
        noted,
    };
    let may_be_open = attempts.taken_over.is_none()
        && !options.recover
        && (attempts.may_be_open || may_be_open(&superblock, options.noted));
    if let Some((epoch, _)) = attempts.taken_over {
        refuse_third(&superblock, epoch, options.owner)?;
    }
    let recovered = watched(rt, &members, recover(&input, &mut state)).await;
    if may_be_open && attempts.readings < READINGS && disagrees(&recovered) {
        rt.sleep(BETWEEN_READINGS).await;
        return Err(Refusal::Disagreeing(None));
    }
    let Recovered { ring, gaps, mut recovery, found_next, next_batch, changed, forgetful: found } =
        recovered?;
    if let Some((_, before)) = attempts.taken_over {
        refuse_later(&superblock, before, found_next)?;
    }
    if !found.is_empty() {
        return Err(Refusal::Forgetful(found, recovery.warnings));
    }
    if shape.copies == 1 {
        refuse_cached(&state, &cut)?;
    }
    let kept = cut.iter().filter(|_| shape.copies == 1);
    recovery.warnings.extend(kept.map(|(_, what)| what.clone()));
    if let Some(image) = new_image {
        // From the recovery, only the journal's numbers count.
        image.take_over(&superblock, &shape, &mut state)?;
        recovery = Recovery::default();
    }
    left_log.report(&mut recovery);
    attempts.report(&mut recovery);
    recovery.adopted = adopted_image.as_ref().map(|image| image.past);
    if adopted_image.as_ref().is_some_and(Adopted::is_unapplied) {
        superblock.features.incompat |= Features::UNAPPLIED;
    }
    if let Err(error) = refuse_only_copies(&members, &superblock, &shape, &state, &lately, &cut) {
        let refused = async {
            let error = epochs::or_recover(error, &members, &superblock, went_without).await;
            Err::<(), Error>(error)
        };
        watched(rt, &members, refused).await?;
    }
    let is_ssd = |device: &DeviceId| superblock.devices[device.index()].class == DeviceClass::Ssd;
    if newly_lost(&superblock, &lately).iter().any(is_ssd) {
        recovery.older.extend(older);
    }
    let without_ssd = older_without(&superblock, &lately, clean);
    superblock.dirty_blocks = match without_ssd {
        // If this opening is interrupted, the next opening reports the same.
        Some(_) => DirtyBlocks::Possible,
        None => dirty_blocks(state.extras.dirty()),
    };
    recovery.older.extend(without_ssd.map(|(_, range)| range));
    let is_forced = adopted.is_some_and(|adopted| adopted.force);
    let sums = adopted::accept(disk, &mut superblock, &state, &mut recovery, distrust, is_forced)?;
    state.count_all_dirty();
    state.count_all_exposed();
    for member in &members {
        state.views[member.id.index()].node = member.node();
        if !member.is_filled() {
            state.set_open(member.id, false);
        }
    }
    let (policy, lack) = braid_policy::parse_in_charge(&superblock.policy, &state.views).map_err(|e| {
        let text = format!("the last policy of volume '{}': {e}", superblock.name);
        Error::new(ErrorKind::Unsupported, text)
    })?;
    refuse_lost_homes(&superblock, &without, &recovery.given_up, policy.keeps_homes())?;
    let policy_states = watched(rt, &members, PolicyStates::read(&members, &superblock)).await;
    let guests = Guests::new(options.cache_extents, options.readahead, options.ahead, shape.extent_size)?;
    if options.repair {
        state.mark_all_stale(superblock.spans());
    }
    tell_older(&superblock, &recovery.older);
    // Before the takeover, the devices keep their statements.
    if let Some(image) = new_image.filter(|_| !may_be_open) {
        watched(rt, &members, image.begin(rt, &members)).await?;
    }
    if let Some(sums) = sums.as_ref().filter(|_| recovery.changed_elsewhere && !may_be_open) {
        watched(rt, &members, adopted::write_unknown(rt, &members, superblock.volume, sums)).await?;
    }
    let lost = state.map.lost();
    attempts.refuse_more_lost(&lost)?;
    let found_owner = std::mem::replace(&mut superblock.owner, options.owner);
    let needed = left_log.needed(memory);
    number(&members, &mut superblock, &highest, clean || needed.is_some());
    let reader = LogReader { epoch: superblock.epoch, owner: superblock.owner, found_owner };
    needed.iter().for_each(|log| log.note_reader(&reader));
    state.keep_left_log(needed);
    if let Some(BeforeOpen(tell)) = &options.before_open {
        let lacking = members.iter().filter(|member| member.is_lacking()).map(|member| member.id);
        tell(&lacking.collect::<Vec<_>>());
    }
    let entered = watched(rt, &members, enter(rt, &members, &mut superblock, highest, may_be_open)).await;
    // The other devices have all data that a resynchronised device lost.
    let may_lack = |member: &Member<D>| member.is_current() && member.has_lost_writes();
    state.doubt_log(members.iter().any(may_lack));
    let highest = Highest { epoch: superblock.epoch, sequence: superblock.sequence };
    let forgot = |id: &DeviceId| attempts.forgetful.iter().any(|found| found.device == *id);
    let cut: Vec<DeviceId> = cut.iter().map(|(id, _)| *id).filter(|id| !forgot(id)).collect();
    if let Err((id, error)) = entered {
        let device = given[id.index()].clone();
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
        return Err(Refusal::TakenOver { found_next, highest, left_log, cut });
    }
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
        Core { own: Own::within(volume), upkeep: Upkeep { own: Own::within(volume), extents, moves } }
    });
    core.upkeep.note_lack(lack);
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
        core.durable.journal.begin_pending_log(&core.store, memory, &recovery);
        if adopted_image.is_some() || options.repair {
            core.durable.checkpoint().await?;
        }
        if mode == Mode::Repair {
            core.durable.write_unreadable().await;
        }
        core.extents.open_epochs(adopted_image, options.repair).await
    }
    .await;
    if let Err(error) = begun {
        core.jobs.stop();
        core.durable.end_leases().await;
        core.durable.end_watch().await;
        return Err(error.into());
    }
    let is_new = |extent: &ExtentId| lost.binary_search(extent).is_err();
    recovery.lost.extend(core.store.state.borrow().map.lost().into_iter().filter(is_new));
    core.upkeep.start_background();
    core.upkeep.adopt_extras();
    core.extents.restore_policy();
    Ok((core, recovery))
}
