//! The expressive power of the policy interface: a write-back cache and PASS, as toys of about sixty lines
//! each.

use crate::rig::{Rig, is_all, seeds, sound};
use crate::toy_policies::{HDD, Pass, SSD, WriteBackCache};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, KIB, MIB, Nanos, Op, Rng};
use braid_engine::{CreateOptions, Durability, Export, Hints, OpenOptions, Result, Volume, Zeroing, create};
use braid_format::Uuid;
use braid_policy::{
    ByteRange, Completion, CopyKind, CurrentCopy, DeviceView, Flags, Homes, Move, Occasion, Origin, Outcome,
    Placement, Plan, Policy, Request, Second, View,
};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Blank, Campaign, Disk, DiskOptions, States, Subject, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The engine under a toy.
#[derive(Clone)]
struct Toy {
    policy: fn() -> Box<dyn Policy>,
    copies: u8,
}

const CACHE: Toy = Toy { policy: || Box::new(WriteBackCache::default()), copies: 1 };
const PASS: Toy = Toy { policy: || Box::new(Pass::new(KIB * 64)), copies: 2 };

impl Subject for Toy {
    type Export = Rig;

    async fn create(self, world: World, disks: Vec<Disk>) -> Result<Rig> {
        let mut identity = [0; 16];
        Rng::new(world.seed()).fill(&mut identity);
        let mut options = CreateOptions::new("toy", Uuid(identity));
        options.size = Some(MIB + KIB * 200);
        options.extent_size = KIB * 32;
        options.copies = self.copies;
        options.overwrite = true;
        create(&sound(&disks), &options).await?;
        self.open(world, disks).await
    }

    async fn open(self, world: World, disks: Vec<Disk>) -> Result<Rig> {
        let names = (0..disks.len()).map(|i| format!("disk {i}")).collect();
        let options = OpenOptions { cache_extents: 6, ..OpenOptions::new(names) };
        let (volume, _) = Volume::open(world, sound(&disks), options).await?;
        volume.replace_policy((self.policy)());
        Ok(volume)
    }
}

fn run(name: &'static str, test: &str, toy: &Toy) {
    let disks = vec![
        DiskOptions::ssd(MIB * 5).with_blank(Blank::Garbage(1)),
        DiskOptions::hdd(MIB * 6).with_blank(Blank::Garbage(1)),
    ];
    let command =
        format!("cargo test -p braid-sim --test volume -- --exact policy_interface::{test} --nocapture");
    let campaign = Campaign {
        seeds: 0..seeds("BRAID_CRASH_SEEDS", 16),
        states: States { every: 40, ..States::default() },
        ..Campaign::new(name, command, disks)
    };
    if let Err(failure) = campaign.run(toy) {
        panic!("{failure}");
    }
}

#[test]
fn toy_write_back_cache_keeps_flushed_data() {
    run("toy-cache", "toy_write_back_cache_keeps_flushed_data", &CACHE);
}

#[test]
fn toy_pass_keeps_flushed_data() {
    run("toy-pass", "toy_pass_keeps_flushed_data", &PASS);
}

#[test]
fn a_toy_write_back_cache_writes_to_the_ssd_alone_until_the_disk_has_time() {
    let (world, arena) = (World::new(5), Arena::new(MIB));
    let disks =
        vec![Disk::new(&world, DiskOptions::ssd(MIB * 5)), Disk::new(&world, DiskOptions::hdd(MIB * 6))];
    let rt = world.clone();
    world.block_on(async move {
        let volume = CACHE.create(rt.clone(), disks).await.unwrap();
        let buf = arena.alloc(KIB * 32).await;
        let on_disk = |volume: &Rig| volume.status().devices[HDD.index()].stats.guest_writes;
        let before = on_disk(&volume);
        // The first write to an extent allocates its home, and bypasses the home, too.
        volume.write(Bytes::ZERO, &buf, Durability::Volatile).await.unwrap();
        let block = arena.alloc(KIB * 4).await;
        block.with_bytes_mut(|bytes| bytes.fill(7));
        for i in 0..4 {
            volume.write(KIB * 4 * i, &block, Durability::Volatile).await.unwrap();
        }
        assert_eq!((on_disk(&volume), volume.status().extra_blocks), (before, (8, 8)));
        rt.sleep(Nanos::from_millis(500)).await;
        assert_eq!(volume.status().extra_blocks, (8, 0), "written back, and cached still");
        let reads = volume.status().devices[HDD.index()].stats.guest_reads;
        volume.read(KIB * 4, &block).await.unwrap();
        assert_eq!(volume.status().devices[HDD.index()].stats.guest_reads, reads);
        assert!(is_all(&block, 7));
    });
    world.halt();
}

/// A window as the engine would show it.
struct Window(Vec<ByteRange>);

impl Homes for Window {
    fn extents(&self) -> u32 {
        1_000
    }

    fn home(&self, _: ExtentId) -> Option<DeviceId> {
        Some(SSD)
    }

    fn behind(&self) -> Bytes {
        self.0.iter().map(ByteRange::len).sum()
    }

    fn next_behind(&self, from: Bytes) -> Option<ByteRange> {
        self.0.iter().copied().find(|range| range.start >= from)
    }
}

/// A window with this number of stale blocks, every second block.
fn window(blocks: u64) -> Window {
    Window((0..blocks).map(|i| ByteRange::new(KIB * 8 * i, KIB * 4)).collect())
}

/// The answer of a policy under this window, while the disk has `busy` guest requests in flight.
fn ask<T>(homes: &Window, busy: u32, question: impl FnOnce(&View) -> T) -> T {
    let mut devices = [
        DeviceView::empty(SSD, DeviceClass::Ssd, 100),
        DeviceView { in_flight: busy, ..DeviceView::empty(HDD, DeviceClass::Hdd, 100) },
    ];
    devices[SSD.index()].read_latency = Some(Nanos::from_secs(1));
    let (extent_size, block_size) = (KIB * 128, KIB * 4);
    question(&View { now: Nanos::ZERO, extent_size, block_size, devices: &devices, homes })
}

/// A pass with a window of 16 blocks.
fn pass() -> Pass {
    Pass::new(KIB * 64)
}

fn planned(policy: &mut Pass, homes: &Window, busy: u32) -> Plan {
    let mut plan = Plan::default();
    ask(homes, busy, |view| policy.plan(view, &mut plan));
    plan
}

#[test]
fn pass_places_homes_on_the_ssd_and_second_copies_behind_on_the_disk_as_far_as_the_window_reaches() {
    let new = Occasion::New { extent: ExtentId(3), write: None };
    let placed = ask(&window(0), 0, |view| pass().place(&new, view));
    let behind = Second::Behind { device: HDD, most: KIB * 64 };
    assert_eq!((placed.new_home(), placed.second), (Some(SSD), behind));
}

#[test]
fn pass_duplicates_full_window_and_parts_when_idle() {
    let mut policy = pass();
    assert_eq!(planned(&mut policy, &window(10), 1).moves, [], "guests use the disk");
    let idle = planned(&mut policy, &window(10), 0);
    assert!(idle.moves.len() == 4 && idle.revise, "{idle:?}");
    let full = planned(&mut policy, &window(16), 1);
    let expected: Vec<Move> =
        window(16).0.into_iter().map(|range| Move::Resync { range, gap: Move::GAP }).collect();
    assert!(full.moves == expected && !full.revise, "{full:?}");
}

#[test]
fn pass_delays_writes_by_outstanding_duplication_but_not_reads() {
    let mut policy = pass();
    let wait = |policy: &mut Pass, op| {
        let request = Request { op, range: ByteRange::new(Bytes::ZERO, KIB * 4), flags: Flags::default() };
        ask(&window(0), 0, |view| policy.arrived(&request, view))
    };
    assert_eq!(wait(&mut policy, Op::Write), Nanos::ZERO);
    let plan = planned(&mut policy, &window(16), 0);
    assert_eq!([Op::Write, Op::Read, Op::Flush].map(|op| wait(&mut policy, op).0), [2_000_000, 0, 0]);
    plan.moves.iter().take(12).for_each(|job| policy.done(job, Outcome::Finished));
    assert_eq!(wait(&mut policy, Op::Write), Nanos::from_micros(500));
    planned(&mut policy, &window(1_000), 0);
    assert_eq!(wait(&mut policy, Op::Write), Nanos::from_millis(4), "N times the base time at most");
}

#[test]
fn pass_reads_home_before_possibly_stale_copy() {
    let copy = |(device, kind)| CurrentCopy { device, kind };
    let mut copies = [(HDD, CopyKind::Second), (SSD, CopyKind::Home)].map(copy);
    ask(&window(0), 0, |view| pass().rank_reads(&mut copies, view));
    assert_eq!(copies[0].device, SSD);
}

/// A policy that moves without end, and counts each device's working time for moves.
struct Restless {
    /// The next moves.
    moves: fn(&View) -> Vec<Move>,
    /// The share of the disk's time for moves.
    share: Option<f64>,
    seen: Rc<Seen>,
}

#[derive(Default)]
struct Seen {
    /// By device.
    worked: [Cell<Nanos>; 2],
    plans: Cell<u64>,
    finished: Cell<u64>,
}

impl Policy for Restless {
    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement::on(SSD)
    }

    fn completed(&mut self, io: &Completion) {
        // Single pages are metadata.
        if io.origin == Origin::Background && io.len > KIB * 4 {
            let worked = &self.seen.worked[io.device.index()];
            worked.set(worked.get() + io.latency);
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        self.seen.plans.set(self.seen.plans.get() + 1);
        plan.moves = (self.moves)(view);
        if let Some(share) = self.share {
            plan.limit(HDD, share);
        }
        view.now
    }

    fn done(&mut self, _: &Move, outcome: Outcome) {
        self.seen.finished.set(self.seen.finished.get() + u64::from(outcome == Outcome::Finished));
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots / 4 } else { 0 }
    }

    fn name(&self) -> &'static str {
        "toy-restless"
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "everything moves all the time".to_owned()
    }
}

/// Moves every second extent to the other device: neighbours would form one run, and the disk would have too
/// little to do.
fn to_and_fro(view: &View) -> Vec<Move> {
    let every_second = (0..view.homes.extents()).step_by(2);
    let homes = every_second.filter_map(|i| Some((ExtentId(i), view.homes.home(ExtentId(i))?)));
    homes
        .map(|(extent, home)| Move::Migrate { extent, target: if home == SSD { HDD } else { SSD } })
        .collect()
}

/// Makes and drops extra copies of extents on the disk; extents on the SSD move to the disk first.
fn in_and_out(view: &View) -> Vec<Move> {
    let homes = (0..view.homes.extents()).filter_map(|i| Some((ExtentId(i), view.homes.home(ExtentId(i))?)));
    let moves = homes.flat_map(|(extent, home)| {
        let range = ByteRange::new(view.extent_size * u64::from(extent.0), view.extent_size);
        match home {
            SSD => vec![Move::Migrate { extent, target: HDD }],
            _ => vec![Move::Demote { range }, Move::Promote { range, target: SSD }],
        }
    });
    moves.collect()
}

/// Returns the share of the disk's time spent on moves, and the other observations, after this time without
/// guests.
fn restless(moves: fn(&View) -> Vec<Move>, share: Option<f64>, time: Nanos) -> (f64, Rc<Seen>) {
    let (world, arena, seen) = (World::new(8), Arena::new(MIB), Rc::new(Seen::default()));
    let disks =
        vec![Disk::new(&world, DiskOptions::ssd(MIB * 5)), Disk::new(&world, DiskOptions::hdd(MIB * 6))];
    let (rt, told) = (world.clone(), seen.clone());
    let worked = world.block_on(async move {
        let volume = CACHE.create(rt.clone(), disks).await.expect("the disks are fit");
        let buf = arena.alloc(MIB).await;
        let policy = |share| Box::new(Restless { moves, share, seen: told.clone() });
        volume.replace_policy(policy(Some(Plan::LEAST_SHARE)));
        volume.write(Bytes::ZERO, &buf, Durability::Fua).await.expect("there is room");
        // Rests under the limits of the previous policy must not count for this policy.
        rt.sleep(Nanos::from_millis(200)).await;
        volume.replace_policy(policy(share));
        told.worked.iter().for_each(|worked| worked.set(Nanos::ZERO));
        let end = rt.now() + time;
        while rt.now() < end {
            // A flush frees the slots that moves have left: otherwise no room is left for more moves.
            rt.sleep_until((rt.now() + Nanos::from_millis(100)).min(end)).await;
            volume.flush().await.expect("no disk fails");
        }
        // The audit reads, too.
        let worked = told.worked[HDD.index()].get();
        volume.audit().await.expect("moves lose nothing");
        volume.close().await.expect("no disk fails");
        worked
    });
    world.halt();
    (worked.as_millis_f64() / time.as_millis_f64(), seen)
}

#[test]
fn moves_stay_within_device_time_share_of_plan() {
    let time = Nanos::from_secs(30);
    for moves in [to_and_fro, in_and_out] {
        for share in [0.1, 0.3] {
            let (worked, seen) = restless(moves, Some(share), time);
            assert!((share * 0.7..share * 1.05).contains(&worked), "{worked} of {share}");
            assert!(seen.finished.get() > 100 && seen.plans.get() > 3);
        }
        let (worked, _) = restless(moves, None, time);
        assert!(worked > 0.35, "{worked}");
    }
}

#[test]
fn limited_moves_are_deterministic() {
    let run = || {
        let (_, seen) = restless(to_and_fro, Some(0.1), Nanos::from_secs(5));
        (seen.worked.clone(), seen.plans.get(), seen.finished.get())
    };
    assert_eq!(run(), run());
}

/// A policy that records every request reported by the engine.
struct Observer(Rc<RefCell<Vec<(Op, Flags)>>>);

impl Policy for Observer {
    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, request: &Request, _: &View) {
        self.0.borrow_mut().push((request.op, request.flags));
    }

    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement::on(SSD)
    }

    fn plan(&mut self, view: &View, _: &mut Plan) -> Nanos {
        view.now + Nanos::from_secs(3600)
    }

    fn name(&self) -> &'static str {
        "toy-observer"
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it only listens".to_owned()
    }
}

#[test]
fn request_hints_and_flags_reach_policy() {
    let (world, arena, seen) = (World::new(5), Arena::new(MIB), Rc::new(RefCell::default()));
    let disks =
        vec![Disk::new(&world, DiskOptions::ssd(MIB * 5)), Disk::new(&world, DiskOptions::hdd(MIB * 6))];
    let (rt, told) = (world.clone(), seen.clone());
    world.block_on(async move {
        let volume = CACHE.create(rt, disks).await.unwrap();
        volume.replace_policy(Box::new(Observer(told)));
        let (buf, len) = (arena.alloc(KIB * 4).await, KIB * 4);
        let metadata = volume.with_hints(Hints { metadata: true, sequential: false });
        let sequential = volume.with_hints(Hints { metadata: false, sequential: true });
        metadata.write(Bytes::ZERO, &buf, Durability::Fua).await.unwrap();
        sequential.clone().read(Bytes::ZERO, &buf).await.unwrap();
        volume.read(Bytes::ZERO, &buf).await.unwrap();
        let zeroed = metadata.write_zeroes(Bytes::ZERO, len, Zeroing::KeepAllocated, Durability::Volatile);
        zeroed.await.unwrap();
        sequential.discard(Bytes::ZERO, len).await.unwrap();
    });
    world.halt();
    let none = Flags::default();
    let expected = [
        (Op::Write, Flags { metadata: true, fua: true, ..none }),
        (Op::Read, Flags { sequential: true, ..none }),
        (Op::Read, none),
        (Op::Write, Flags { metadata: true, zeros: true, ..none }),
        (Op::Discard, Flags { sequential: true, ..none }),
    ];
    assert_eq!(*seen.borrow(), expected);
}

type Shown = Vec<(ByteRange, Vec<u8>)>;

/// A policy that asks to see ranges, and records the answers.
struct Looker {
    wanted: Vec<ByteRange>,
    shown: Rc<RefCell<Shown>>,
    outcomes: Rc<RefCell<Vec<Outcome>>>,
}

impl Policy for Looker {
    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => Placement::on(HDD),
            Occasion::Write(_) => Placement::write_back(SSD),
            _ => Placement::KEEP,
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.wanted.drain(..).map(|range| Move::Inspect { range }).collect();
        view.now + Nanos::from_millis(10)
    }

    fn inspected(&mut self, range: ByteRange, bytes: &[u8], _: &View) {
        self.shown.borrow_mut().push((range, bytes.to_vec()));
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        assert!(matches!(job, Move::Inspect { .. }));
        self.outcomes.borrow_mut().push(outcome);
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots } else { 0 }
    }

    fn name(&self) -> &'static str {
        "toy-looker"
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        String::new()
    }
}

#[test]
fn policy_reads_same_bytes_as_guest() {
    let (world, arena) = (World::new(6), Arena::new(MIB));
    let disks =
        vec![Disk::new(&world, DiskOptions::ssd(MIB * 5)), Disk::new(&world, DiskOptions::hdd(MIB * 6))];
    let rt = world.clone();
    world.block_on(async move {
        let volume = CACHE.create(rt.clone(), disks).await.unwrap();
        let size = MIB + KIB * 200;
        let (shown, outcomes) = (Rc::default(), Rc::default());
        // Across extents, at odd places, never written, beyond the end, and too long.
        let ranges =
            [(100, 70_000), (KIB.0 * 500, 512), (size.0 - 1000, 5000), (size.0 + 4096, 10), (0, 1 << 20)];
        let wanted: Vec<ByteRange> =
            ranges.iter().map(|&(start, len)| ByteRange::new(Bytes(start), Bytes(len))).collect();
        let policy = |wanted| Looker { wanted, shown: Rc::clone(&shown), outcomes: Rc::clone(&outcomes) };
        volume.replace_policy(Box::new(policy(Vec::new())));
        let buf = arena.alloc(KIB * 128).await;
        // Twice: the second time to extra copies alone.
        for round in 1..=2u8 {
            buf.with_bytes_mut(|bytes| {
                (0..).zip(bytes).for_each(|(i, byte)| *byte = (i % 251) as u8 ^ round)
            });
            volume.write(Bytes::ZERO, &buf, Durability::Volatile).await.unwrap();
        }
        let written = buf.with_bytes(<[u8]>::to_vec);
        volume.replace_policy(Box::new(policy(wanted.clone())));
        rt.sleep(Nanos::from_millis(500)).await;
        let shown: Shown = shown.borrow().clone();
        let of = |number: usize| {
            shown.iter().find(|(range, _)| *range == wanted[number]).map(|(_, bytes)| &bytes[..])
        };
        assert_eq!(of(0), Some(&written[100..70_100]));
        assert_eq!(of(1), Some(&[0; 512][..]));
        assert_eq!(of(2), Some(&[0; 1000][..]));
        assert_eq!(of(3), Some(&[][..]));
        assert_eq!(of(4), None);
        let finished = outcomes.borrow().iter().filter(|&&outcome| outcome == Outcome::Finished).count();
        assert_eq!((finished, outcomes.borrow().len()), (4, 5));
    });
    world.halt();
}
