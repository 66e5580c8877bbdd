//! Execution of the moves of a plan: sorted and in runs. A guest's write stops a single move, and a plan
//! that is revised, or yields, ends.

use crate::rig::{Rig, is_all, sound};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_policy::{Completion, Direction, Move, Occasion, Origin, Outcome, Placement, Plan, Policy, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, World};
use std::cell::RefCell;
use std::rc::Rc;

const SSD: DeviceId = DeviceId(0);
const HDD: DeviceId = DeviceId(1);
const EXTENTS: u64 = 32;

/// Calls of the policy by the engine.
#[derive(Default)]
struct Told {
    /// Requests of moves: device, direction, length.
    requests: Vec<(DeviceId, Direction, Bytes)>,
    outcomes: Vec<(u32, Outcome)>,
    plans: u32,
}

/// A policy with new extents on the disk; one plan moves these extents to the SSD, in this order.
struct Mover {
    moves: Vec<u32>,
    ends: Ends,
    told: Rc<RefCell<Told>>,
}

/// When the plan ends.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// After its last move.
    Done,
    /// By a revision after this time.
    Revised(Nanos),
    /// With the first request of a guest.
    Yields,
}

impl Policy for Mover {
    fn name(&self) -> &'static str {
        "mover"
    }

    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement::on(HDD)
    }

    fn completed(&mut self, io: &Completion) {
        if io.origin == Origin::Background {
            self.told.borrow_mut().requests.push((io.device, io.direction, io.len));
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        let migrate = |extent| Move::Migrate { extent: ExtentId(extent), target: SSD };
        plan.moves = std::mem::take(&mut self.moves).into_iter().map(migrate).collect();
        plan.yields = self.ends == Ends::Yields;
        self.told.borrow_mut().plans += 1;
        let Ends::Revised(after) = self.ends else { return view.now + Nanos::from_secs(3600) };
        plan.revise = true;
        // Slow enough that the plan cannot end in its time.
        plan.limit(HDD, 0.01);
        view.now + after
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        let Move::Migrate { extent, .. } = job else { panic!("{job:?} was not planned") };
        self.told.borrow_mut().outcomes.push((extent.0, outcome));
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

/// Runs `guest` on a volume with all extents on the disk, while a policy moves `moves` to the SSD; returns
/// the calls of the policy.
fn moving(
    moves: Vec<u32>,
    ends: Ends,
    guest: impl AsyncFnOnce(World, Rig, Arena, Rc<RefCell<Told>>) + 'static,
) -> Told {
    moving_with(Setup::default(), moves, ends, guest)
}

/// The volume of the moving extents.
#[derive(Clone, Copy)]
struct Setup {
    extent_size: Bytes,
    /// Number of extents in the memory cache, from the first.
    in_memory: usize,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { extent_size: KIB * 128, in_memory: 0 }
    }
}

/// As `moving`, on another volume.
fn moving_with(
    setup: Setup,
    moves: Vec<u32>,
    ends: Ends,
    guest: impl AsyncFnOnce(World, Rig, Arena, Rc<RefCell<Told>>) + 'static,
) -> Told {
    let Setup { extent_size, in_memory } = setup;
    let (world, arena, told) = (World::new(3), Arena::new(MIB * 2), Rc::new(RefCell::new(Told::default())));
    let disks =
        vec![Disk::new(&world, DiskOptions::ssd(MIB * 12)), Disk::new(&world, DiskOptions::hdd(MIB * 12))];
    let (rt, seen) = (world.clone(), told.clone());
    world.block_on(async move {
        let mut options = CreateOptions::new("moves", Uuid([7; 16]));
        (options.size, options.extent_size) = (Some(KIB * 128 * EXTENTS), extent_size);
        create(&sound(&disks), &options).await.expect("the devices are fit");
        let names = vec!["ssd".into(), "hdd".into()];
        let open = OpenOptions { cache_extents: in_memory, ..OpenOptions::new(names) };
        let (volume, _) = Volume::open(rt.clone(), sound(&disks), open).await.expect("it was just made");
        let policy = |moves| Box::new(Mover { moves, ends, told: seen.clone() });
        volume.replace_policy(policy(Vec::new()));
        let buf = arena.alloc(MIB).await;
        for i in 0..EXTENTS / 8 {
            buf.with_bytes_mut(|bytes| bytes.fill(i as u8 + 1));
            volume.write(MIB * i, &buf, Durability::Fua).await.expect("there is room");
        }
        drop(buf);
        volume.prefetch(Bytes::ZERO, extent_size * in_memory as u64).await.expect("no disk fails");
        rt.sleep(Nanos::from_secs(1)).await;
        *seen.borrow_mut() = Told::default();
        volume.replace_policy(policy(moves));
        guest(rt, volume.clone(), arena.clone(), seen).await;
        let buf = arena.alloc(KIB * 128).await;
        for extent in 0..EXTENTS {
            volume
                .read(KIB * 128 * extent + KIB * 4, &buf.slice(Bytes::ZERO..KIB * 4))
                .await
                .expect("it is readable");
            assert!(
                buf.with_bytes(|bytes| bytes[..4096].iter().all(|&byte| u64::from(byte) == extent / 8 + 1))
            );
        }
        volume.audit().await.expect("moves lose nothing");
        volume.close().await.expect("no disk fails");
    });
    world.halt();
    Rc::into_inner(told).expect("the volume is closed").into_inner()
}

#[test]
fn neighbouring_moves_are_merged_in_any_plan_order() {
    let shuffled: Vec<u32> = (0..16).map(|i| i * 5 % 16).collect();
    let told = moving(shuffled, Ends::Done, async |rt, _, _, told| {
        rt.sleep(Nanos::from_secs(1)).await;
        let told = told.borrow();
        let expected = [(HDD, Direction::Read, MIB), (SSD, Direction::Write, MIB)];
        for request in expected {
            assert_eq!(
                told.requests.iter().filter(|each| **each == request).count(),
                2,
                "{:?}",
                told.requests
            );
        }
        assert_eq!(told.requests.len(), 4, "{:?}", told.requests);
    });
    assert!(told.outcomes.len() == 16 && told.outcomes.iter().all(|(_, o)| *o == Outcome::Finished));
}

#[test]
fn extents_in_memory_migrate_without_device_reads() {
    for (in_memory, reads) in [(8, 0), (4, 1), (1, 1)] {
        let told = moving_with(
            Setup { in_memory, ..Setup::default() },
            (0..8).collect(),
            Ends::Done,
            async move |rt, volume, _, told| {
                rt.sleep(Nanos::from_secs(1)).await;
                let requests = &told.borrow().requests;
                let read: Vec<_> =
                    requests.iter().filter(|(_, direction, _)| *direction == Direction::Read).collect();
                let rest = KIB * 128 * (8 - in_memory as u64);
                assert!(
                    read.len() == reads && read.iter().all(|&&(device, _, len)| (device, len) == (HDD, rest))
                );
                assert!(requests.contains(&(SSD, Direction::Write, MIB)), "{requests:?}");
                let background = volume.status().background;
                assert_eq!((background.migrations, background.migrations_from_memory), (8, in_memory as u64));
            },
        );
        assert!(told.outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Finished));
    }
}

/// A copy from memory is as old as the beginning of the move: a later write must not be lost with the copy.
#[test]
fn guest_write_stops_only_memory_move_of_written_extent() {
    let told = moving_with(
        Setup { in_memory: 8, ..Setup::default() },
        (0..8).collect(),
        Ends::Done,
        async |rt, volume, arena, _| {
            let buf = arena.alloc(KIB * 4).await;
            buf.with_bytes_mut(|bytes| bytes.fill(9));
            rt.sleep(Nanos::from_micros(10)).await;
            volume.write(KIB * 128 * 3, &buf, Durability::Volatile).await.expect("no disk fails");
            rt.sleep(Nanos::from_secs(1)).await;
            // The memory cache would answer, so it is filled with other extents first.
            volume.prefetch(MIB, MIB).await.expect("no disk fails");
            volume.read(KIB * 128 * 3, &buf).await.expect("no disk fails");
            assert!(is_all(&buf, 9));
        },
    );
    let mut outcomes = told.outcomes;
    outcomes.sort_by_key(|(extent, _)| *extent);
    let expected = |extent| if extent == 3 { Outcome::Stopped } else { Outcome::Finished };
    assert_eq!(outcomes, (0..8).map(|extent| (extent, expected(extent))).collect::<Vec<_>>());
}

#[test]
fn guest_write_stops_only_move_of_written_extent() {
    let told = moving((0..8).collect(), Ends::Done, async |rt, volume, arena, _| {
        let buf = arena.alloc(KIB * 4).await;
        buf.with_bytes_mut(|bytes| bytes.fill(1));
        rt.sleep(Nanos::from_micros(10)).await;
        volume.write(KIB * 128 * 3, &buf, Durability::Volatile).await.expect("no disk fails");
        rt.sleep(Nanos::from_secs(1)).await;
    });
    let mut outcomes = told.outcomes;
    outcomes.sort_by_key(|(extent, _)| *extent);
    let expected = |extent| if extent == 3 { Outcome::Stopped } else { Outcome::Finished };
    assert_eq!(outcomes, (0..8).map(|extent| (extent, expected(extent))).collect::<Vec<_>>());
}

#[test]
fn revised_plan_ends_and_status_reports_remaining_moves() {
    let every_second: Vec<u32> = (0..EXTENTS as u32).step_by(2).collect();
    let told = moving(every_second, Ends::Revised(Nanos::from_secs(2)), async |rt, volume, _, told| {
        rt.sleep(Nanos::from_secs(1)).await;
        let moves = volume.status().moves;
        assert!((1..16).contains(&moves.left) && moves.bytes_per_second > 0.0, "{moves:?}");
        assert_eq!(moves.left_bytes, KIB * 128 * moves.left as u64);
        assert_eq!(volume.status().devices[1].move_share, 0.01);
        rt.sleep(Nanos::from_secs(4)).await;
        assert!(told.borrow().plans > 1);
        assert_eq!(volume.status().moves.left, 0);
    });
    let stopped = told.outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Stopped).count();
    assert!(told.outcomes.len() == 16 && (1..16).contains(&stopped), "{:?}", told.outcomes);
}

#[test]
fn yielding_plan_makes_one_short_request_at_a_time() {
    let told = moving((0..16).collect(), Ends::Yields, async |rt, _, _, told| {
        rt.sleep(Nanos::from_secs(1)).await;
        let turn = [(HDD, Direction::Read, KIB * 256), (SSD, Direction::Write, KIB * 256)];
        assert_eq!(told.borrow().requests, turn.repeat(8));
    });
    assert!(told.outcomes.len() == 16 && told.outcomes.iter().all(|(_, o)| *o == Outcome::Finished));
}

/// A guest returns at some moment of the plan: data already read is still written, and nothing else begins.
#[test]
fn guest_request_ends_yielding_plan_at_any_moment() {
    for extent_size in [KIB * 128, MIB] {
        let extents = (KIB * 128 * EXTENTS / extent_size) as u32;
        let mut stopped = 0;
        for moment in 1..40 {
            let setup = Setup { extent_size, ..Setup::default() };
            let all = (0..extents).collect();
            let told = moving_with(setup, all, Ends::Yields, async move |rt, volume, arena, told| {
                let buf = arena.alloc(KIB * 4).await;
                rt.sleep(Nanos::from_micros(moment * 331)).await;
                let before = told.borrow().requests.len();
                // Long enough for every move, unless a guest stays.
                for _ in 0..100 {
                    volume.read(KIB * 128 * (EXTENTS - 1), &buf).await.expect("no disk fails");
                    rt.sleep(Nanos::from_millis(20)).await;
                }
                let requests = &told.borrow().requests;
                let after = &requests[before..];
                assert!(requests.iter().all(|(_, _, len)| *len <= KIB * 256), "{requests:?}");
                let reads = after.iter().filter(|(_, direction, _)| *direction == Direction::Read).count();
                assert!(reads <= 1 && after.len() <= 2, "at moment {moment}: {after:?}");
                assert_eq!(volume.status().moves.left, 0, "the plan is over");
            });
            assert_eq!(told.outcomes.len() as u32, extents);
            stopped += told.outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Stopped).count();
        }
        assert!(stopped > 0, "extents of {extent_size}");
    }
}
