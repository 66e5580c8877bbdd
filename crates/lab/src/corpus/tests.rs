//! The corpus is the same everywhere, its cells are within their ranges, and its rows serve the same
//! requests.

use super::cell::{Half, Pace, Requests};
use super::run::{Outcome, recovery};
use super::write::write;
use super::*;
use crate::{Drive, Interval};
use braid_base::Op;
use std::ops::ControlFlow;

fn corpus(seed: u64, count: usize) -> Corpus {
    Corpus::draw(seed, count, &[])
}

fn options(rows: &[&str]) -> Options {
    let rows = rows.iter().map(|name| named(name).unwrap()).collect();
    Options { rows, repetitions: 2, threads: Some(2) }
}

fn run_all(cells: &[Cell], options: &Options) -> Vec<CellOutcome> {
    run(cells, options, |_| ControlFlow::Continue(())).unwrap()
}

/// A small cell: a tenth of the requests.
fn small(name: &str) -> Cell {
    let cell = corpus(1, USUAL_CELLS).cell(name).cloned().unwrap();
    Cell { lengths: [2500, 1500], ..cell }
}

#[test]
fn a_seed_gives_the_same_cells_and_another_seed_others() {
    assert_eq!(corpus(1, USUAL_CELLS), corpus(1, USUAL_CELLS));
    assert_ne!(corpus(1, 10).cells, corpus(2, 10).cells);
    assert_eq!(corpus(1, 10).cells[..], corpus(1, USUAL_CELLS).cells[..10], "fewer cells are the first ones");
}

#[test]
fn names_are_unique_and_halves_are_halves() {
    let corpus = corpus(1, USUAL_CELLS);
    assert!(corpus.cells.len() >= 150);
    let mut names: Vec<&str> = corpus.cells.iter().map(|cell| cell.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), corpus.cells.len());
    let tuning = corpus.cells.iter().filter(|cell| cell.half == Half::Tuning).count();
    assert!((60..=100).contains(&tuning), "{tuning} of {}", corpus.cells.len());
}

#[test]
fn cells_are_within_their_ranges() {
    for seed in 0..20 {
        for cell in corpus(seed, USUAL_CELLS).cells {
            assert!((3..=115).contains(&cell.ssd_percent) && (1..=4).contains(&cell.disks), "{cell}");
            let least = if cell.ssd_percent < 12 { 80 } else { 180 };
            match cell.pace {
                Pace::Open { percent } => assert!((5..=least).contains(&percent), "{cell}"),
                Pace::Closed { clients, think_ms } => {
                    assert!((1..=32).contains(&clients), "{cell}");
                    assert!(think_ms == 0 || think_ms as usize >= clients, "at most 1,000/s: {cell}");
                }
                Pace::Recorded => assert!(matches!(cell.requests, Requests::Recorded { .. }), "{cell}"),
            }
        }
    }
}

/// Every load of the project can be written, with every change, and lies within its span.
#[test]
fn every_cell_can_be_written_down() {
    for cell in corpus(1, USUAL_CELLS).cells {
        let written = write(&cell, 0).unwrap_or_else(|error| panic!("{cell}: {error}"));
        let script = &written.script;
        script.check().unwrap();
        assert!(written.warm > 0 && written.warm < script.entries.len(), "{cell}");
        for entry in &script.entries {
            let request = entry.request;
            assert!(
                request.op == Op::Flush || request.offset + request.len <= script.span,
                "{cell}: {request:?}"
            );
        }
        let filled = script.filled.iter().map(|range| (range.end - range.start).0).sum::<u64>();
        assert!(filled <= script.span.0 && script.filled.iter().all(|r| r.end <= script.span), "{cell}");
        assert!(script.span.0 <= 3 << 30, "{cell}: {}", script.span);
    }
}

#[test]
fn a_cell_is_written_alike_each_time_and_otherwise_with_the_other_seed() {
    for name in ["zipf-1", "dbench-1", "backup-1"] {
        let cell = small(name);
        let entries = |repetition| write(&cell, repetition).unwrap().script.entries;
        assert_eq!(entries(0), entries(0));
        assert_ne!(entries(0), entries(1));
    }
}

#[test]
fn a_surge_is_ten_times_the_load() {
    let open = corpus(3, 600).cells.into_iter();
    let mut surges = open.filter(|cell| cell.change == Change::Surge);
    let is_open = |cell: &Cell| matches!(cell.pace, Pace::Open { .. });
    let cell = surges.by_ref().find(|cell| is_open(cell)).unwrap();
    let written = write(&cell, 0).unwrap();
    let entries = &written.script.entries;
    let at = |place: usize| entries[place].wait.as_secs_f64();
    let before = written.warm as f64 / at(written.warm);
    let after = (entries.len() - 1 - written.warm) as f64 / (at(entries.len() - 1) - at(written.warm));
    assert!((8.0..12.5).contains(&(after / before)), "{before}, {after}");
    let cell = surges.find(|cell| !is_open(cell)).unwrap();
    let Drive::Closed(stages) = write(&cell, 0).unwrap().script.drive else { panic!("{cell}") };
    assert_eq!(stages[1].clients, stages[0].clients * 10);
}

/// The judge would be none if a policy could be asked for less than another.
#[test]
fn all_rows_serve_the_same_requests_and_threads_change_nothing() {
    let cells: Vec<Cell> = ["zipf-1", "surge-1", "financial2-1"].map(small).to_vec();
    let two = options(&["equi", "stripe", "hdd-only", "untouched", "static-heat", "clairvoyant"]);
    let outcomes = run_all(&cells, &two);
    for CellOutcome { cell, rows, .. } in &outcomes {
        let counts: Vec<Vec<u64>> = rows
            .iter()
            .map(|of| match of {
                Outcome::Measured(values) => values.iter().map(|value| value.requests).collect(),
                other => panic!("{cell}: {other:?}"),
            })
            .collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{cell}: {counts:?}");
    }
    let of = |outcomes: &[CellOutcome]| outcomes.iter().map(|o| o.rows.clone()).collect::<Vec<_>>();
    let one = run_all(&cells, &Options { threads: Some(1), ..two.clone() });
    assert_eq!(of(&outcomes), of(&one));
    let scored = |outcomes: &[CellOutcome]| {
        let totals = totals(&two.rows, outcomes, None);
        (page("test", &totals, &two.rows, outcomes), text(&totals))
    };
    assert_eq!(scored(&outcomes), scored(&one));
}

#[test]
fn the_clairvoyant_cache_is_no_worse_than_caches_that_do_not_know() {
    let caches = ["cache,evict=lru", "cache,mode=write-back,evict=s3-fifo", "hdd-only", "clairvoyant"];
    let rows = options(&caches);
    let cells: Vec<Cell> =
        ["zipf-1", "zipf-2", "hot-cold-1", "random-1", "financial1-1", "moved-1"].map(small).to_vec();
    for CellOutcome { cell, rows, .. } in run_all(&cells, &rows) {
        let mean = |row: usize| match &rows[row] {
            Outcome::Measured(values) => values.iter().map(|value| value.mean_ns).sum::<f64>(),
            other => panic!("{cell}: {other:?}"),
        };
        for row in 0..3 {
            // What its definition allows: a greedy choice of devices, other places on the disk.
            assert!(mean(3) <= mean(row) * 1.05, "{cell}: {} against {}", mean(3), mean(row));
        }
    }
}

#[test]
fn what_a_cell_has_no_room_for_neither_wins_nor_loses() {
    let cell = Cell { ssd_percent: 20, ..small("zipf-1") };
    let rows = options(&["equi", "stripe", "raid1", "static,ssd=50%", "static,ssd=10%"]);
    let outcomes = run_all(&[cell.clone(), Cell { ssd_percent: 115, name: "other".into(), ..cell }], &rows);
    assert!(matches!(outcomes[0].rows[2..4], [Outcome::NotApplicable(_), Outcome::NotApplicable(_)]));
    let totals = totals(&rows.rows, &outcomes, None);
    assert_eq!((totals.cells, totals.failed.len()), (2, 0), "{totals:?}");
    let names: Vec<&str> = totals.lines.iter().map(|line| line.name.as_str()).collect();
    assert!(!names.contains(&"raid1") && names.contains(&"best static split"), "{names:?}");
    let raid1 = totals.partial.iter().find(|pair| pair.line.name == "raid1").unwrap();
    assert_eq!((raid1.line.cells, raid1.beside.cells, raid1.beside.name.as_str()), (1, 1, "equi"));
}

fn value(mean_ns: f64) -> Value {
    Value {
        mean_ns,
        p99_ns: mean_ns as u64 * 2,
        requests: 10,
        requests_per_second: 1e9 / mean_ns,
        bytes_per_second: 4096e9 / mean_ns,
        ssd_written_bytes: 100,
        recovery_seconds: None,
        is_overloaded: false,
        measured_seconds: 1.0,
    }
}

#[test]
fn totals_are_ratios_to_the_best_and_a_loss_needs_both_seeds() {
    let rows = options(&["equi", "stripe", "clairvoyant"]).rows;
    let cells = corpus(1, 3).cells;
    let of = |means: [[f64; 2]; 3]| means.map(|of| Outcome::Measured(of.map(value).to_vec())).to_vec();
    let table = [
        [[100.0, 100.0], [200.0, 200.0], [50.0, 50.0]],
        [[400.0, 400.0], [100.0, 100.0], [90.0, 90.0]],
        [[104.0, 120.0], [100.0, 100.0], [200.0, 200.0]],
    ];
    let outcome = |(cell, means): (&Cell, _)| CellOutcome {
        cell: cell.clone(),
        rows: of(means),
        wall: Default::default(),
    };
    let outcomes: Vec<CellOutcome> = cells.iter().zip(table).map(outcome).collect();
    let totals = totals(&rows, &outcomes, None);
    let line = |name: &str| totals.lines.iter().find(|line| line.name == name).unwrap();
    let equi = line("equi");
    assert_eq!((equi.worst, equi.worst_cell.as_str()), (4.0, cells[1].name.as_str()));
    assert_eq!((equi.lost, equi.unsure), (1, 1));
    assert_eq!(equi.geometric_mean, 1.6485, "the cube root of 1 × 4 × 1.12");
    assert_eq!(line("stripe").geometric_mean, 1.2599, "the cube root of 2");
    assert_eq!((line("clairvoyant").competes, totals.better_than_clairvoyant), (false, 1));
}

#[test]
fn recovery_is_when_the_speed_has_come_back() {
    let interval = |place: usize, rate: f64| Interval {
        start_seconds: place as f64 * 0.25,
        length_seconds: 0.25,
        requests: (rate * 0.25) as u64,
        requests_per_second: rate,
        throughput_bytes_per_second: 0.0,
        latency_ns_mean: 1e9 / rate,
        migrated_bytes: 0,
        devices: Vec::new(),
    };
    let slow_for = |count: usize| {
        let rate = |place: usize| if place < count { 200.0 } else { 1000.0 };
        (0..60).map(|place| interval(place, rate(place))).collect::<Vec<_>>()
    };
    assert_eq!(recovery(&slow_for(0), false), Some(0.0));
    assert_eq!(recovery(&slow_for(12), false), Some(3.0));
    assert_eq!(recovery(&slow_for(12), true), Some(3.0));
    assert_eq!(recovery(&[], false), None);
}

#[test]
fn an_earlier_run_stands_in_for_rows_that_do_not_run_again() {
    let cells: Vec<Cell> = ["zipf-1", "surge-1"].map(small).to_vec();
    let (both, one) = (options(&["equi", "stripe", "raid1"]), options(&["equi"]));
    let whole = run_all(&cells, &both);
    let (mut rows, mut outcomes) = (one.rows.clone(), run_all(&cells, &one));
    add_earlier(&table(&both.rows, &whole), &mut rows, &mut outcomes).unwrap();
    assert_eq!(rows, both.rows);
    assert_eq!(totals(&rows, &outcomes, None), totals(&both.rows, &whole, None));
    for wrong in ["", "cell;half", &table(&both.rows, &whole[..1])] {
        assert!(add_earlier(wrong, &mut one.rows.clone(), &mut run_all(&cells, &one)).is_err(), "{wrong}");
    }
    assert!(named("nosuch").is_err() && named("equi,nosuch=1").is_err());
}
