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

fn run<T: 'static>(seed: u64, test: impl AsyncFnOnce(World) -> T + 'static) -> T {
    let world = World::new(seed);
    let rt = world.clone();
    let result = world.block_on(async move { test(rt).await });
    world.halt();
    result
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
        let loss = |device: DeviceId| volume.status().devices[device.index()].loss;
        assert_eq!([SSD, OTHER].map(loss), [KIB * 128 * 16, KIB * 4 * 4 * 16], "spans, and dirty blocks");
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

/// All bytes that guests ever wrote to a volume.
struct Written {
    /// Bytes before the first write.
    first: Vec<u8>,
    expected: Vec<u8>,
    writes: Vec<(Range<usize>, u8)>,
    /// Expected bytes, and number of writes, at the last flush.
    flushed: (Vec<u8>, usize),
}

impl Written {
    async fn scribble(&mut self, volume: &Adopted, rng: &mut Rng) {
        let arena = Arena::new(MIB);
        for i in 0..60 {
            let len = 1 + rng.below(KIB.0 * 20);
            let at = if i % 6 == 0 { SIZE.0 - len } else { rng.below(SIZE.0 - len) };
            let value = rng.below(256) as u8;
            let bytes = filled(&arena, Bytes(len), value);
            volume.write(Bytes(at), &bytes, Durability::Volatile).await.expect("the devices are sound");
            let range = at as usize..(at + len) as usize;
            self.expected[range.clone()].fill(value);
            self.writes.push((range, value));
        }
    }

    async fn overwrite(&mut self, volume: &Adopted, value: u8) {
        overwrite(volume, &mut self.expected, value).await;
        self.writes.push((0..SIZE.align_down(MIB).as_usize(), value));
    }

    async fn flush(&mut self, volume: &Adopted) {
        volume.flush().await.expect("the devices are sound");
        self.flushed = (self.expected.clone(), self.writes.len());
    }

    /// For each byte: true if flushed last, or written later.
    fn is_promised(&self, now: &[u8]) -> Vec<bool> {
        let (flushed, count) = &self.flushed;
        had(now, flushed, &self.writes[*count..])
    }

    /// For each byte: true if its address had this value at any time.
    fn was_written(&self, now: &[u8]) -> Vec<bool> {
        had(now, &self.first, &self.writes)
    }
}

/// For each byte: true if its address had this value at first, or by one of the writes.
fn had(now: &[u8], first: &[u8], writes: &[(Range<usize>, u8)]) -> Vec<bool> {
    let mut had: Vec<bool> = now.iter().zip(first).map(|(now, first)| now == first).collect();
    for (range, value) in writes {
        range.clone().for_each(|at| had[at] |= now[at] == *value);
    }
    had
}

/// Writes back some of the dirty blocks, and writes past the caches.
async fn write_past(world: &World, volume: &Adopted, written: &mut Written, rng: &mut Rng) {
    let past = Chosen::default();
    volume.replace_policy(Box::new(past.clone()));
    for _ in 0..rng.below(100) {
        let range = ByteRange::new(Bytes(rng.below(SIZE.0)), Bytes(rng.below(KIB.0 * 100)));
        past.written_back.borrow_mut().push(Move::WriteBack { range });
    }
    world.sleep(Nanos::from_millis(100 + rng.below(15_000))).await;
    written.scribble(volume, rng).await;
}

/// A random life of such a volume, with unflushed writes at the end: returns the disks and the bytes.
async fn live(world: &World, rng: &mut Rng) -> (Vec<Disk>, Written) {
    let disks = four_disks(world);
    let first = raw(&disks[DISK]).await;
    let flushed = (first.clone(), 0);
    let mut written = Written { expected: first.clone(), first, writes: Vec::new(), flushed };
    let mut volume = make(world, &disks).await;
    for round in 0..1 + rng.below(4) {
        match rng.below(7) {
            0 => dirty(world, &volume),
            1 => volume.replace_policy(Box::new(Chaos::new(world.fork_rng()))),
            2..5 => volume.replace_policy(Box::new(Chosen { on: Some(OTHER), ..Chosen::default() })),
            _ => volume.set_policy(WRITE_BACK).await.expect("both SSDs are there"),
        }
        written.scribble(&volume, rng).await;
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
            write_past(world, &volume, &mut written, rng).await;
        }
        if rng.chance(0.3) {
            let policy = "cache,mode=write-back,dirty-high=2%,dirty-low=0%";
            volume.set_policy(policy).await.expect("both SSDs are there");
            until_clean(world, &volume).await;
            world.sleep(Nanos::from_secs(rng.below(25))).await;
        }
        if rng.chance(0.3) {
            volume.set_policy("hdd-only").await.expect("all are there");
            written.overwrite(&volume, 100 + round as u8).await;
        }
    }
    if rng.chance(0.5) {
        volume.replace_policy(Box::new(Chosen { on: Some(OTHER), ..Chosen::default() }));
        written.scribble(&volume, rng).await;
        volume.checkpoint().await.expect("the devices are sound");
        write_past(world, &volume, &mut written, rng).await;
    }
    written.flush(&volume).await;
    if rng.chance(0.5) {
        write_past(world, &volume, &mut written, rng).await;
    }
    let left = copies_of(world, &disks).await;
    left.iter().for_each(Disk::lose_cache);
    (left, written)
}

/// Draws a life, a crash, and the lost SSD. All bytes older than their flush are named before anything is
/// changed, and are bytes of the same address. Returns the number of bytes that the disk had as flushed, and
/// that an entry of the other SSD made older.
fn lose_one(seed: u64) -> usize {
    run(seed, async move |world| {
        let mut rng = Rng::new(seed);
        let (disks, written) = live(&world, &mut rng).await;
        let (whole, _) =
            try_open(&world, &copies_of(&world, &disks).await, |_| ()).await.expect("all are there");
        let is_kept = written.is_promised(&seen(&whole).await);
        assert_eq!(is_kept.iter().position(|kept| !kept), None, "seed {seed}: with both SSDs");
        let lost = if rng.chance(0.7) { SSD } else { OTHER };
        let left = devices_but(&disks, lost);
        let was_on_disk = written.is_promised(&raw(&disks[DISK].fork(&world)).await);
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
        let check = |now: &[u8], when: &str| {
            let (is_promised, was_written) = (written.is_promised(now), written.was_written(now));
            let is_right = |at: usize| is_promised[at] || was_written[at] && is_named(at);
            let wrong = (0..now.len()).find(|&at| !is_right(at));
            assert_eq!(wrong, None, "seed {seed}: without {lost}, {when}: {:?} may be older", recovery.older);
            is_promised
        };
        let is_kept = check(&seen(&volume).await, "at the opening");
        volume.set_policy("cache,mode=write-back,dirty-high=2%,dirty-low=0%").await.expect("an SSD is there");
        until_clean(&world, &volume).await;
        check(&seen(&volume).await, "after what was dirty was written back");
        volume.close().await.expect("the devices are sound");
        (0..is_kept.len()).filter(|&at| was_on_disk[at] && !is_kept[at]).count()
    })
}

pub fn lose_one_of_two_ssds(seed: u64) {
    lose_one(seed);
}

#[test]
fn losing_either_of_two_ssds_costs_only_reported_ranges() {
    let reverted = (0..30).map(lose_one).filter(|&bytes| bytes > 0).count();
    assert!(reverted > 0, "lives overwrite written-back blocks of spans that stay named");
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
