//! MIN on small loads, and the bound compared with static splits on small cells.

use super::future::NOT_HELD;
use super::*;
use crate::corpus::{Cell, CorpusOptions, InitialLayout, Kept, Length, chosen, rows};
use crate::{DeviceSetup, Load, Recorded, WarmUp};
use braid_base::{Arrival, DeviceClass, KIB, MIB};
use std::sync::Arc;

/// Requests of 4 KiB, 1 ms apart: reads of blocks, and writes of blocks for negative numbers, on a volume of
/// 128 MiB.
fn setup(blocks: &[i64]) -> Setup {
    let request = |block: i64| {
        let op = if block < 0 { Op::Write } else { Op::Read };
        Request { op, offset: KIB * 4 * block.unsigned_abs(), len: KIB * 4 }
    };
    let arrivals = blocks.iter().zip(1..);
    let arrivals =
        arrivals.map(|(&block, at)| Arrival { at: Nanos::from_millis(at), request: request(block) });
    let span = MIB * 128;
    let recorded = Recorded {
        name: "by hand".to_owned(),
        arrivals: arrivals.collect(),
        span,
        filled: vec![Bytes::ZERO..span],
    };
    let device = |class, text| DeviceSetup::parse(class, text).unwrap();
    let devices = vec![
        device(DeviceClass::Ssd, "10%,model=sata-ssd"),
        device(DeviceClass::Hdd, "70%,model=barracuda-7200.12,count=2"),
    ];
    let load = Load::Recorded(Arc::new(recorded));
    Setup { warm_up: WarmUp::NONE, cache_extents: 0, ..Setup::new(devices, "hdd-only", load) }
}

const BLOCKS: usize = 128 << 8;

/// Hits of the reads, with room for `room` blocks; with `choose_at`, blocks are chosen anew at this request.
fn hits(blocks: &[i64], room: usize, choose_at: Option<usize>) -> Vec<bool> {
    let uses = Uses::of(&setup(blocks), BLOCKS, &|_| Nanos(1000), Worth::Every).unwrap();
    let (mut future, mut content) = (Future::new(&uses), Content::new(room, BLOCKS));
    let mut hits = Vec::new();
    for (number, &block) in blocks.iter().enumerate() {
        if choose_at == Some(number) {
            content.choose(&mut future);
        }
        future.make(Place { stream: 0, number });
        let block = block.unsigned_abs() as usize;
        hits.push(content.holds(block));
        let next = future.next(block);
        content.offer(block, next);
        assert!(
            content.held <= room
                && content.next.iter().filter(|next| **next != NOT_HELD).count() == content.held
        );
    }
    hits
}

#[test]
fn min_keeps_nearest_next_use_and_bypasses_farthest() {
    // With room for 2: of 10, 20, 30 the last has the farthest next use, and is not held; 20 then evicts
    // nothing.
    let blocks = [10, 20, 30, 10, 20, 10, 30, 20];
    let expected = [false, false, false, true, true, true, false, true];
    assert_eq!(hits(&blocks, 2, None), expected);
    // A block without further use is evicted: 30 is held from its first read on.
    assert_eq!(hits(&[10, 20, 10, 30, 20, 30], 2, None), [false, false, true, false, true, true]);
    assert_eq!(hits(&[10, 10], 0, None), [false, false]);
    // A write leaves a copy, but is no use of one: 20 is read before 10.
    assert_eq!(hits(&[-10, -20, -10, 20, 10], 1, None), [false, false, false, true, false]);
    // Chosen at the beginning: 10 and 20 are read first.
    assert_eq!(hits(&[10, 20, 30, 10], 2, Some(0)), [true, true, false, true]);
    assert_eq!(hits(&[10, 30, 20, 30, 20], 2, Some(2)), [false, false, true, true, true]);
}

/// Tries every choice of held blocks.
#[test]
fn no_choice_of_copies_has_more_hits_than_min() {
    fn best(blocks: &[i64], held: &mut Vec<i64>, room: usize) -> usize {
        let Some((&block, rest)) = blocks.split_first() else { return 0 };
        let hit = usize::from(held.contains(&block));
        let mut most = best(rest, held, room);
        if hit == 0 {
            let choices = if held.len() < room { vec![None] } else { (0..room).map(Some).collect() };
            for choice in choices {
                let mut other = held.clone();
                match choice {
                    Some(place) => other[place] = block,
                    None => other.push(block),
                }
                most = most.max(best(rest, &mut other, room));
            }
        }
        hit + most
    }
    let mut rng = Rng::new(3);
    for _ in 0..40 {
        let blocks: Vec<i64> = (0..11).map(|_| 1 + rng.below(5) as i64).collect();
        for room in 1..=3 {
            let found = hits(&blocks, room, None).into_iter().filter(|hit| *hit).count();
            assert_eq!(found, best(&blocks, &mut Vec::new(), room), "{blocks:?} with room for {room}");
        }
    }
}

#[test]
fn streams_are_not_worth_a_copy_if_only_scattered_reads_are() {
    let blocks: Vec<i64> = (0..50).chain([7000, 9000]).chain(0..50).chain([7000]).collect();
    let uses = |worth| Uses::of(&setup(&blocks), BLOCKS, &|_| Nanos(1000), worth).unwrap();
    let (every, scattered) = (uses(Worth::Every), uses(Worth::Scattered));
    let next = |uses: &Uses, block| Future::new(uses).next(block);
    assert_eq!((next(&every, 30), next(&scattered, 30)), (Some(30), None));
    assert_eq!((next(&scattered, 7000), next(&scattered, 9000)), (Some(50), Some(51)));
}

/// 10 % of 128 MiB are 103 extents.
#[test]
fn only_fitting_data_is_read_at_ssd_speed() {
    let mean = |blocks: &[i64]| figures(&setup(blocks), None, 2).unwrap().latency_ns_mean;
    let fits: Vec<i64> = (0..400).map(|n| n * 7919 % 3000).collect();
    assert!(mean(&fits) < 200_000, "{} ns", mean(&fits));
    let all: Vec<i64> = (0..BLOCKS as i64).map(|n| n * 7919 % BLOCKS as i64).collect();
    assert!(mean(&all) > 5_000_000, "{} ns", mean(&all));
}

#[test]
fn a_memory_cache_and_requests_beyond_the_end_have_no_bound() {
    let kind = |setup: &Setup| figures(setup, None, 1).err().map(|error| error.kind());
    let cached = Setup { cache_extents: 100, ..setup(&[1]) };
    assert_eq!(kind(&cached), Some(crate::ErrorKind::Setup));
    assert_eq!(kind(&setup(&[1, -(BLOCKS as i64)])), Some(crate::ErrorKind::Setup));
    let late = Setup { warm_up: WarmUp::Time(Nanos::from_secs(9)), duration: Some(Nanos(1)), ..setup(&[1]) };
    assert_eq!(kind(&late), Some(crate::ErrorKind::Setup));
}

fn cell(load: &str, ssd: &str, ssd_percent: u32, disks: usize) -> Cell {
    Cell {
        name: load.to_owned(),
        load: Load::Workload(load.to_owned()),
        speed: 1.0,
        ssd: ssd.to_owned(),
        ssd_percent,
        disk: "barracuda-7200.12".to_owned(),
        disks,
        beginning: InitialLayout::OnDisks,
        cache_extents: 0,
        length: Length::Times { warm_up: Nanos::from_secs(10), measured: Nanos::from_secs(10) },
        recovery_from: None,
        seed: 5,
    }
}

#[test]
fn the_bound_is_never_slower_than_static_splits_and_an_untouched_layout() {
    let names =
        ["static,ssd=20%", "static,ssd=50%", "static,ssd=90%", rows::UNTOUCHED, rows::ORACLE, rows::BOUND];
    let rows = chosen(&names.map(str::to_owned)).unwrap();
    let cells = [
        cell(
            "zipf,theta=1.0,unit=64KiB,clients=4,think=2ms,size=4KiB,read=70%,span=128MiB,requests=endless",
            "sata-ssd",
            25,
            1,
        ),
        cell("random,rate=300,size=4KiB,read=50%,span=128MiB,requests=endless", "x25-m", 95, 2),
        cell(
            "random,clients=8,think=1ms,size=16KiB,read=100%,span=128MiB,requests=endless",
            "memoright-gt",
            50,
            4,
        ),
        cell(
            "sequential,clients=2,think=1ms,size=128KiB,read=50%,span=128MiB,requests=endless",
            "x25-e",
            105,
            2,
        ),
        cell(
            "zipf,theta=0.8,unit=128KiB,rate=500,size=8KiB,read=0%,span=128MiB,requests=endless",
            "memoright-gt",
            65,
            2,
        ),
        cell("postmark-like,clients=2,files=500,high=64KB,transactions=100M", "nvme-ssd", 25, 2),
    ];
    let how = CorpusOptions { quick: false, threads: Some(2) };
    let run = || crate::corpus::run(&cells, &rows, how, &mut Kept::nothing(), |_| (), |_| ()).unwrap();
    let ran = run();
    for cell in &ran.cells {
        let mean = |run: &crate::corpus::RowRun| run.figures.map(|figures| figures.latency_ns_mean);
        let (bound, others) = cell.runs.split_last().unwrap();
        let bound = mean(bound).unwrap_or_else(|| panic!("{}: {:?}", cell.cell, bound.unfit));
        for other in others {
            assert!(mean(other).is_none_or(|mean| mean >= bound), "{}: {bound} ns, and {other:?}", cell.cell);
        }
    }
    let of_bound =
        |ran: &crate::corpus::Ran| ran.cells.iter().map(|cell| cell.runs[5].clone()).collect::<Vec<_>>();
    assert_eq!(of_bound(&ran), of_bound(&run()), "the same each time");
}
