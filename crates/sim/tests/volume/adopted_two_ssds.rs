//! An adopted disk behind two SSDs, the first with the journal; one SSD is lost. Without the journal, the
//! cache table of the other SSD describes the last checkpoint.

use crate::adopted::{
    Adopted, DISK, SIZE, SSD, copies_of, dirty, disks, make, raw, scribble, seen, try_open,
};
use crate::chaos::Chaos;
use crate::rig::filled;
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, KIB, MIB, Nanos, Rng};
use braid_engine::{Durability, ErrorKind, Export, OpenOptions};
use braid_policy::{ByteRange, DeviceView, Move, Occasion, Placement, Plan, Policy, View};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, DiskOptions, World};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

const RECORD: DeviceId = DeviceId(2);
const OTHER: DeviceId = DeviceId(3);
const WRITE_BACK: &str = "cache,mode=write-back,dirty-high=90%,dirty-low=80%";

/// The disks of a volume with one SSD, and another SSD.
fn four_disks(world: &World) -> Vec<Disk> {
    let mut four = disks(world, SIZE);
    four.push(Disk::new(world, DiskOptions::ssd(MIB * 8)));
    four
}

fn run(seed: u64, test: impl AsyncFnOnce(World) + 'static) {
    let world = World::new(seed);
    let rt = world.clone();
    world.block_on(async move { test(rt).await });
    world.halt();
}

async fn overwrite(volume: &Adopted, expected: &mut [u8], value: u8) {
    let bytes = filled(&Arena::new(MIB), MIB, value);
    for at in (0..SIZE / MIB).map(|i| MIB * i) {
        volume.write(at, &bytes, Durability::Volatile).await.expect("the devices are sound");
        expected[at.as_usize()..(at + MIB).as_usize()].fill(value);
    }
    volume.flush().await.expect("the devices are sound");
}

async fn until_clean(world: &World, volume: &Adopted) {
    while volume.status().extra_blocks.1 > 0 {
        world.sleep(Nanos::from_millis(100)).await;
    }
}

fn devices_but(disks: &[Disk], lost: DeviceId) -> Vec<Disk> {
    disks.iter().enumerate().filter(|(i, _)| *i != lost.index()).map(|(_, disk)| disk.clone()).collect()
}

/// Blocks were dirty at the shutdown, then written back, and their spans were no longer named. A stream
/// overwrote the range past the cache, and was flushed. The daemon died before the next checkpoint, and the
/// SSD with the journal was lost. Stale dirty entries of the other SSD were served, and overwrote flushed
/// data.
#[test]
pub fn entries_that_were_dirty_at_the_last_checkpoint_do_not_count_in_a_span_that_is_not_named() {
    run(1, async |world| {
        let disks = four_disks(&world);
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        volume.set_policy(WRITE_BACK).await.expect("both SSDs are there");
        for at in (0..MIB * 4 / (KIB * 16)).map(|i| KIB * 16 * i) {
            let bytes = filled(&Arena::new(MIB), KIB * 16, 1);
            volume.write(at, &bytes, Durability::Volatile).await.expect("the devices are sound");
            expected[at.as_usize()..][..16 << 10].fill(1);
        }
        volume.close().await.expect("the devices are sound");
        assert!(volume.status().extra_blocks.1 > 0, "something is dirty at the checkpoint");
        let (volume, _) = try_open(&world, &disks, |_| ()).await.expect("all are there");
        volume
            .set_policy("cache,mode=write-back,dirty-high=2%,dirty-low=0%")
            .await
            .expect("both SSDs are there");
        until_clean(&world, &volume).await;
        world.sleep(Nanos::from_secs(11)).await;
        volume.set_policy("hdd-only").await.expect("all are there");
        overwrite(&volume, &mut expected, 2).await;
        let left = devices_but(&copies_of(&world, &disks).await, SSD);
        left.iter().for_each(Disk::lose_cache);
        let (volume, recovery) =
            try_open(&world, &left, |_| ()).await.expect("nothing lies on the SSD alone");
        assert_eq!(recovery.older, Vec::new());
        assert!(seen(&volume).await == expected);
        volume.set_policy("cache,mode=write-back").await.expect("an SSD is there");
        world.sleep(Nanos::from_secs(20)).await;
        assert!(seen(&volume).await == expected);
        volume.close().await.expect("the devices are sound");
        assert!(raw(&left[0]).await == expected, "nothing older was written to the disk");
    });
}

/// A policy whose writes go to one SSD alone, or past the caches. Writes back the ranges of the test.
#[derive(Clone, Default)]
struct Chosen {
    on: Option<DeviceId>,
    written_back: Rc<RefCell<Vec<Move>>>,
}

impl Policy for Chosen {
    fn name(&self) -> &'static str {
        "chosen"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match (occasion, self.on) {
            (Occasion::Write(_), Some(ssd)) => Placement::write_back(ssd),
            (Occasion::Write(_), None) => Placement::ALONE,
            _ => Placement::KEEP,
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.class == DeviceClass::Ssd { device.slots } else { 0 }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.written_back.take();
        view.now + Nanos::from_millis(1)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "a test".to_owned()
    }
}

/// The start and the end of each span are dirty on the SSD without the journal, as of a checkpoint. Starts
/// are written back, and overwritten past the cache; the ends of odd spans stay dirty, so the record names
/// these spans. The SSD with the journal is lost. The entries of the other SSD count in named spans: starts
/// there may be older than their flush. The opening names these spans, and no others.
#[test]
fn overwritten_blocks_are_older_in_named_spans_alone() {
    run(1, async |world| {
        const PART: Bytes = Bytes(16 << 10);
        let (disks, arena) = (four_disks(&world), Arena::new(MIB));
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        let span = |i: u64| KIB * 128 * i..KIB * 128 * (i + 1);
        let put = async |at: Bytes, value: u8, expected: &mut [u8]| {
            let bytes = filled(&arena, PART, value);
            volume.write(at, &bytes, Durability::Volatile).await.expect("the devices are sound");
            expected[at.as_usize()..(at + PART).as_usize()].fill(value);
        };
        volume.replace_policy(Box::new(Chosen { on: Some(OTHER), ..Chosen::default() }));
        for span in (0..32).map(span) {
            put(span.start, 1, &mut expected).await;
            put(span.end - PART, 1, &mut expected).await;
        }
        volume.flush().await.expect("the devices are sound");
        assert_eq!(volume.status().extra_blocks.1, 32 * 8, "all is dirty at the checkpoint");
        volume.checkpoint().await.expect("the devices are sound");
        let past = Chosen::default();
        volume.replace_policy(Box::new(past.clone()));
        for i in 0..32 {
            let end = if i % 2 == 1 { span(i).end - PART } else { span(i).end };
            let range = ByteRange { start: span(i).start, end };
            past.written_back.borrow_mut().push(Move::WriteBack { range });
        }
        while volume.status().extra_blocks.1 > 16 * 4 {
            world.sleep(Nanos::from_millis(10)).await;
        }
        // Until the record has dropped the names of the even spans.
        world.sleep(Nanos::from_secs(11)).await;
        for span in (0..32).map(span) {
            put(span.start, 2, &mut expected).await;
        }
        volume.flush().await.expect("the devices are sound");
        assert!(volume.status().extra_blocks.1 == 16 * 4 && seen(&volume).await == expected);
        let left = devices_but(&copies_of(&world, &disks).await, SSD);
        left.iter().for_each(Disk::lose_cache);
        let unasked = try_open(&world, &copies_of(&world, &left).await, |_| ()).await;
        assert_eq!(unasked.err().map(|error| error.kind()), Some(ErrorKind::Degraded));
        let give_up = |options: &mut OpenOptions| options.distrust = vec![SSD];
        let (volume, recovery) = try_open(&world, &left, give_up).await.expect("the SSD is given up");
        let odd: Vec<Range<Bytes>> = (0..16).map(|i| span(2 * i + 1)).collect();
        assert_eq!(recovery.older, odd);
        let check = |now: &[u8], when: &str| {
            let is_start = |at: usize| at % (128 << 10) < PART.as_usize();
            let is_old = |at: usize| odd.iter().any(|span| span.contains(&Bytes::of_len(at))) && is_start(at);
            let is_wrong = |&at: &usize| now[at] != expected[at] && !(is_old(at) && now[at] == 1);
            assert_eq!((0..now.len()).find(is_wrong), None, "{when}");
        };
        let first = seen(&volume).await;
        check(&first, "at the opening");
        assert!(first != expected, "starts of named spans are as at the checkpoint");
        let killed = copies_of(&world, &left).await;
        killed.iter().for_each(Disk::lose_cache);
        let (again, recovery) = try_open(&world, &killed, |_| ()).await.expect("the SSD was given up");
        assert!(recovery.older.is_empty() && seen(&again).await == first, "the state is final");
        volume.set_policy("cache,mode=write-back,dirty-high=2%,dirty-low=0%").await.expect("an SSD is there");
        until_clean(&world, &volume).await;
        check(&seen(&volume).await, "after dirty blocks are written back");
        volume.close().await.expect("the devices are sound");
        check(&raw(&left[0]).await, "on the disk");
    });
}

/// A random life of such a volume: returns the disks and the flushed bytes.
async fn live(world: &World, rng: &mut Rng) -> (Vec<Disk>, Vec<u8>) {
    let disks = four_disks(world);
    let mut expected = raw(&disks[DISK]).await;
    let mut volume = make(world, &disks).await;
    for round in 0..2 + rng.below(4) {
        match rng.below(4) {
            0 => dirty(world, &volume),
            1 => volume.replace_policy(Box::new(Chaos::new(world.fork_rng()))),
            _ => volume.set_policy(WRITE_BACK).await.expect("both SSDs are there"),
        }
        scribble(&volume, &mut expected, rng.below(1 << 40)).await;
        if rng.chance(0.5) {
            volume.flush().await.expect("the devices are sound");
        }
        match rng.below(3) {
            0 => volume.checkpoint().await.expect("the devices are sound"),
            1 => {
                volume.close().await.expect("the devices are sound");
                volume = try_open(world, &disks, |_| ()).await.expect("all are there").0;
            }
            _ => {}
        }
        if rng.chance(0.6) {
            let policy = "cache,mode=write-back,dirty-high=2%,dirty-low=0%";
            volume.set_policy(policy).await.expect("both SSDs are there");
            until_clean(world, &volume).await;
            world.sleep(Nanos::from_secs(rng.below(25))).await;
        }
        if rng.chance(0.5) {
            volume.set_policy("hdd-only").await.expect("all are there");
            overwrite(&volume, &mut expected, 100 + round as u8).await;
        }
    }
    volume.flush().await.expect("the devices are sound");
    let left = copies_of(world, &disks).await;
    left.iter().for_each(Disk::lose_cache);
    (left, expected)
}

/// Draws a life, a crash, and the lost SSD. All differences from the flushed bytes are named before anything
/// is changed.
pub fn lose_one_of_two_ssds(seed: u64) {
    run(seed, async move |world| {
        let mut rng = Rng::new(seed);
        let (disks, expected) = live(&world, &mut rng).await;
        let (whole, _) =
            try_open(&world, &copies_of(&world, &disks).await, |_| ()).await.expect("all are there");
        assert!(seen(&whole).await == expected, "seed {seed}: with both SSDs");
        let lost = if rng.chance(0.7) { SSD } else { OTHER };
        let left = devices_but(&disks, lost);
        let unasked = try_open(&world, &copies_of(&world, &left).await, |_| ()).await;
        let give_up = |options: &mut OpenOptions| options.distrust = vec![lost];
        let (volume, recovery) = match unasked {
            Ok(opened) => opened,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
                try_open(&world, &left, give_up).await.expect("it is given up")
            }
        };
        let is_named = |at: usize| recovery.older.iter().any(|range| range.contains(&Bytes::of_len(at)));
        let check = |now: Vec<u8>, when: &str| {
            let wrong = (0..now.len()).find(|&at| now[at] != expected[at] && !is_named(at));
            assert_eq!(wrong, None, "seed {seed}: without {lost}, {when}: {:?} may be older", recovery.older);
        };
        check(seen(&volume).await, "at the opening");
        volume.set_policy("cache,mode=write-back,dirty-high=2%,dirty-low=0%").await.expect("an SSD is there");
        until_clean(&world, &volume).await;
        check(seen(&volume).await, "after what was dirty was written back");
        volume.close().await.expect("the devices are sound");
    });
}

#[test]
fn losing_either_of_two_ssds_costs_only_reported_ranges() {
    (0..40).for_each(lose_one_of_two_ssds);
}

/// The SSD with the journal was removed, so the record has the only journal, and the record is lost. The
/// dirty blocks of the other SSD are then unknown.
#[test]
fn no_dirty_block_is_written_back_without_journal() {
    run(3, async |world| {
        let disks = four_disks(&world);
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        volume.set_policy(WRITE_BACK).await.expect("both SSDs are there");
        volume.remove_device(SSD).await.expect("the record has the journal then");
        while volume.removed_devices() != [SSD] {
            world.sleep(Nanos::from_millis(1)).await;
        }
        scribble(&volume, &mut expected, 4).await;
        volume.checkpoint().await.expect("the devices are sound");
        volume.set_policy("hdd-only").await.expect("all are there");
        overwrite(&volume, &mut expected, 2).await;
        let left = copies_of(&world, &[disks[1].clone(), disks[3].clone()]).await;
        for give_up in [vec![], vec![RECORD]] {
            let opened = try_open(&world, &left, |options| {
                options.distrust = give_up;
                options.adopted.as_mut().expect("the disk is there").force = true;
            });
            assert!(opened.await.is_err(), "nothing says which blocks are dirty");
        }
        assert_eq!(left[0].geometry().size, SIZE);
        let before = raw(&left[0]).await;
        assert!(before == raw(&disks[DISK].fork(&world)).await, "nothing was written back");
    });
}
