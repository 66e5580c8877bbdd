//! Kept values are reused to the last bit, and never if a dependency has changed. No further seeds run once
//! verdicts are decided.

use super::*;
use crate::ErrorKind;
use crate::experiment::{Axis, Bound, Claim, Origin};
use crate::experiments::find;
use std::ops::ControlFlow;
use std::path::Path;
use tempfile::TempDir;

const GO: ControlFlow<()> = ControlFlow::Continue(());

/// Two disks and SSDs under a load of about a second.
fn small() -> Experiment {
    let tpch = find(&["hystor/tpch".to_owned()]).unwrap()[0];
    Experiment {
        series: tpch.series.split_at(2).0,
        axis: Axis::Numbers { label: "SSD, %", places: &[20, 40] },
        claims: &tpch.claims[..1],
        ..*tpch
    }
}

fn how(seeds: u32) -> How {
    How { seed: 1, seeds: Seeds::Fixed(seeds), quick: false, threads: None }
}

fn run(experiment: &Experiment, how: How, folder: &Folder) -> Study {
    study(&[experiment], how, folder, |_| GO).unwrap().remove(0)
}

fn open(folder: &TempDir) -> Folder {
    Folder::open(folder.path(), false).unwrap()
}

/// Doubles all values of a kept seed, so that reuse is visible.
fn double(file: &Path) {
    let mut kept: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for table in kept["values"].as_array_mut().unwrap() {
        for value in table.as_array_mut().unwrap().iter_mut().flat_map(|row| row.as_array_mut().unwrap()) {
            let number: f64 = value.as_str().unwrap().parse().unwrap();
            *value = (number * 2.0).to_string().into();
        }
    }
    std::fs::write(file, kept.to_string()).unwrap();
}

#[test]
fn kept_seeds_reproduce_study_and_only_missing_seeds_run() {
    let (experiment, directory) = (small(), TempDir::new().unwrap());
    let fresh = run(&experiment, how(3), &Folder::none());
    // Stopped after two seeds, and continued.
    run(&experiment, how(2), &open(&directory));
    let left = work(&[&experiment], how(3), &open(&directory)).unwrap();
    assert_eq!(left.kept, 2);
    assert!(left.least_seconds > 0.0 && left.least_seconds == left.most_seconds);
    assert_eq!(run(&experiment, how(3), &open(&directory)), fresh);
    let left = work(&[&experiment], how(3), &open(&directory)).unwrap();
    assert_eq!((left.kept, left.most_seconds), (3, 0.0));
    // Kept values are used.
    double(&directory.path().join("hystor-tpch-seed1.json"));
    let doubled = run(&experiment, how(1), &open(&directory));
    let single = run(&experiment, how(1), &Folder::none());
    assert_eq!(doubled.tables[0].values[0][0], single.tables[0].values[0][0].map(|value| value * 2.0));
    // Unless everything runs again.
    assert_eq!(run(&experiment, how(1), &Folder::open(directory.path(), true).unwrap()), single);
    assert_eq!(run(&experiment, how(1), &open(&directory)), single, "and what was kept is replaced");
}

/// Results of another program, of another declaration or of shortened runs were a danger: a page would show
/// stale results as current.
#[test]
fn stale_kept_seeds_are_run_again() {
    let (experiment, directory) = (small(), TempDir::new().unwrap());
    let file = directory.path().join("hystor-tpch-seed1.json");
    let kept = |of: &Experiment, how: How| work(&[of], how, &open(&directory)).unwrap().kept;
    run(&experiment, how(1), &open(&directory));
    assert_eq!(kept(&experiment, how(1)), 1);
    let other_load = Experiment { jitter: &[], ..experiment };
    assert_ne!(plan(&experiment, how(1)).unwrap(), plan(&other_load, how(1)).unwrap());
    assert_eq!(kept(&other_load, how(1)), 0);
    let other_places =
        Experiment { axis: Axis::Numbers { label: "SSD, %", places: &[20, 60] }, ..experiment };
    assert_eq!(kept(&other_places, how(1)), 0);
    let fewer_measures = Experiment { measures: &experiment.measures[..1], ..experiment };
    assert_eq!(kept(&fewer_measures, how(1)), 0);
    assert_eq!(kept(&experiment, How { quick: true, ..how(1) }), 0);
    assert_eq!(kept(&experiment, How { seed: 2, ..how(1) }), 0);
    // Claims are judged anew each time, and change no simulation.
    assert_eq!(kept(&Experiment { claims: &[], ..experiment }, how(1)), 1);
    // Of another build.
    let text = std::fs::read_to_string(&file).unwrap();
    let key = serde_json::from_str::<serde_json::Value>(&text).unwrap()["key"].as_str().unwrap().to_owned();
    std::fs::write(&file, text.replace(&key, "0123456789abcdef")).unwrap();
    assert_eq!(kept(&experiment, how(1)), 0);
    run(&experiment, how(1), &open(&directory));
    assert!(std::fs::read_to_string(&file).unwrap().contains(&key), "what is stale is replaced");
}

#[test]
fn a_damaged_file_is_named() {
    let (experiment, directory) = (small(), TempDir::new().unwrap());
    let file = directory.path().join("hystor-tpch-seed1.json");
    run(&experiment, how(1), &open(&directory));
    let whole = std::fs::read_to_string(&file).unwrap();
    for damaged in [&whole[..whole.len() / 2], "", "not results", &whole.replace("[[[", "[[[\"x\",")] {
        std::fs::write(&file, damaged).unwrap();
        let error = study(&[&experiment], how(1), &open(&directory), |_| GO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup);
        assert!(error.to_string().contains("hystor-tpch-seed1.json"), "{error}");
    }
    assert!(Folder::open(&file, false).unwrap_err().to_string().contains("hystor-tpch-seed1.json"));
}

/// A claim with the mean of three seeds as its bound stays undecided; a claim far from its bound is decided
/// at once.
#[test]
fn seeds_are_drawn_until_verdicts_are_decided() {
    let experiment = small();
    let measure = experiment.measures[0];
    let quantity = crate::experiment::Quantity::Value { measure, series: experiment.series[0].label, at: 20 };
    let claim = |bound: Bound| {
        let tests: &'static [Test] =
            Box::leak(Box::new([Test { quantity, published: Published::Words, bound }]));
        let sentence = "It takes so long.";
        let claims: &'static [Claim] = Box::leak(Box::new([Claim {
            sentence,
            place: "here",
            origin: Origin::Aim,
            tests,
            why: "",
            instead: &[],
        }]));
        Experiment { claims, ..experiment }
    };
    let mean = run(&experiment, how(3), &Folder::none()).tables[0].values[0][0].unwrap();
    let as_needed = How { seeds: Seeds::AsNeeded, ..how(1) };
    let seeds_of = |bound: Bound| {
        let mut told = Vec::new();
        let study = study(&[&claim(bound)], as_needed, &Folder::none(), |news| {
            if let News::Ended { seeds, undecided, .. } = news {
                told.push((*seeds, *undecided));
            }
            GO
        });
        (study.unwrap().remove(0).seeds, told)
    };
    assert_eq!(seeds_of(Bound::AtLeast(mean / 2.0)), (3, vec![(3, false)]));
    let (seeds, told) = seeds_of(Bound::AtLeast(mean));
    assert!(seeds > 3 && told[0] == (3, true), "{told:?}");
    assert_eq!(told.last(), Some(&(seeds, false)), "{told:?}");
}

/// Ten minutes of one processor for an experiment, but at least three seeds.
#[test]
fn long_experiment_gets_fewer_seeds() {
    let as_needed = How { seeds: Seeds::AsNeeded, ..how(1) };
    for experiment in crate::experiments::all() {
        let seconds =
            crate::experiments::seconds(experiment.id).expect("every experiment has a declared time");
        let most = most_seeds(experiment, as_needed);
        assert!(most == 3 || f64::from(most) * seconds <= 600.0, "{}: {most}", experiment.id);
        assert!(most == 10 || seconds > 60.0, "{}: {most}", experiment.id);
    }
    assert_eq!(most_seeds(&small(), how(7)), 7);
}

fn table(values: [Option<f64>; 2]) -> Vec<Table> {
    vec![Table {
        measure: "time to equilibrium".to_owned(),
        unit: "s".to_owned(),
        more_is_better: false,
        values: vec![values.to_vec()],
        half_widths: vec![vec![0.0; 2]],
        seeds_without: vec![vec![0; 2]],
        paper_values: Vec::new(),
        of: Some(Measure::Settling),
    }]
}

#[test]
fn seeds_without_a_value_are_told_and_not_averaged() {
    let seeds = [table([Some(20.0), None]), table([None, None]), table([Some(30.0), None])];
    let mean = &means(&seeds)[0];
    assert_eq!(mean.values, [[Some(25.0), None]]);
    assert_eq!(mean.seeds_without, [[1, 3]]);
    assert!(mean.half_widths[0][0] > 60.0, "two seeds say little: {:?}", mean.half_widths);
    assert!(
        mean.shown(0, 0).starts_with("25.0 ± ") && mean.shown(0, 0).contains('1'),
        "{}",
        mean.shown(0, 0)
    );
    assert_eq!(mean.shown(0, 1), "not reached");
}
