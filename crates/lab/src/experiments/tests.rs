//! Every declaration is complete and consistent.

use super::*;
use crate::experiment::{Axis, Bound, Origin, Published, Quantity};
use crate::judge::is_single_device;
use crate::study::{How, Seeds, plan};
use braid_base::Bytes;

const HOW: How = How { seed: 1, seeds: Seeds::Fixed(1), quick: false, threads: None };

#[test]
fn ids_are_unique_and_start_with_the_system_name() {
    let mut ids: Vec<&str> = all().iter().map(|experiment| experiment.id).collect();
    assert!(all().iter().all(|e| e.id.split_once('/').is_some_and(|(system, _)| system == e.paper.system)));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn experiments_cover_wu_and_reddy() {
    for figure in ["fig1", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "table3"] {
        assert_eq!(find(&[format!("wardrop/{figure}")]).unwrap().len(), 1, "{figure}");
    }
    // Two further experiments are not from the paper.
    assert_eq!(find(&["wardrop".to_owned()]).unwrap().len(), 11);
}

#[test]
fn experiments_cover_xiao_et_al() {
    for part in ["table1", "fig1", "fig2", "fig3", "fig4", "table2", "fig5"] {
        assert_eq!(find(&[format!("pass/{part}")]).unwrap().len(), 1, "{part}");
    }
    // Two further experiments are not from the paper.
    assert_eq!(find(&["pass".to_owned()]).unwrap().len(), 9);
}

/// The workloads are made from figure 4; tests of the workloads compare them with the figure.
#[test]
fn experiments_cover_hayashi_and_komoda() {
    for figure in ["fig5", "fig6", "fig7", "fig8", "fig9", "fig10"] {
        assert_eq!(find(&[format!("exclusive/{figure}")]).unwrap().len(), 1, "{figure}");
    }
    let fig10 = plan(find(&["exclusive/fig10".to_owned()]).unwrap()[0], HOW).unwrap();
    assert!(fig10.iter().all(|setup| setup.block_size == Bytes(8192)));
    let large = fig10.iter().filter(|setup| setup.policy.contains("page=100MiB")).count();
    // Two series with pages of 10 MB give a reason, at three places.
    assert_eq!(large + 2 * 3, fig10.len());
    assert!(fig10.iter().any(|setup| setup.policy.starts_with("inclusive,as-published,cache=40%")));
}

#[test]
fn experiments_cover_the_hystor_study() {
    for part in ["patterns", "postmark", "email", "tpch", "metadata", "scrub", "chunk"] {
        assert_eq!(find(&[format!("hystor/{part}")]).unwrap().len(), 1, "{part}");
    }
    // And indicator metrics of five loads.
    assert_eq!(find(&["hystor".to_owned()]).unwrap().len(), 12);
}

/// The place is the size of the SSD. Data is on the disk beforehand, placed by a policy other than the
/// learning policy.
#[test]
fn axis_sets_device_size_and_series_sets_block_size() {
    let chunk = find(&["hystor/chunk".to_owned()]).unwrap()[0];
    let setups = plan(chunk, HOW).unwrap();
    let size = |setup: &crate::Setup| setup.devices[0].size;
    assert_eq!((size(&setups[0]), size(&setups[4])), (crate::Size::Share(0.2), crate::Size::Share(1.0)));
    assert_eq!((setups[0].block_size, setups[5].block_size), (Bytes(4096), Bytes(16_384)));
    assert!(setups.iter().all(|setup| setup.duration.is_none() && setup.prefill_policy.is_none()));
}

#[test]
fn experiments_cover_chen_et_al() {
    for part in ["fig1-writes", "fig1-reads", "model", "fig3-db2", "fig4-web", "fig5-db2", "wear"] {
        assert_eq!(find(&[format!("working-set/{part}")]).unwrap().len(), 1, "{part}");
    }
    let fig3 = plan(find(&["working-set/fig3-web".to_owned()]).unwrap()[0], HOW).unwrap();
    assert!(
        fig3.iter().all(|setup| setup.duration.is_none() && setup.prefill_policy.as_deref() == Some("own"))
    );
    assert!(fig3.iter().all(|setup| setup.devices.iter().all(|device| device.count == 4)));
}

/// The paper's 30 GB with two copies, its windows in sectors, and no memory cache above its block device.
#[test]
fn a_place_is_filled_in_and_a_mirror_begins_with_both_copies() {
    let fig2 = find(&["pass/fig2".to_owned()]).unwrap()[0];
    let setups = plan(fig2, HOW).unwrap();
    let last = setups.iter().rfind(|setup| setup.policy.starts_with("raid1,write-behind")).unwrap();
    assert_eq!(last.policy, "raid1,write-behind,limit=8388608");
    assert_eq!((last.size, last.copies, last.cache_extents), (Some(Bytes(30_000_000_000)), 2, 0));
    assert_eq!(last.prefill_policy.as_deref(), Some("raid1"));
    assert!(setups.iter().any(|setup| setup.policy == "pass,as-published,window=16384sectors"));
    let alone = setups.iter().find(|setup| setup.policy == "hdd-only").unwrap();
    assert_eq!((alone.copies, alone.devices.len(), alone.prefill_policy.as_deref()), (1, 1, Some("own")));
}

#[test]
fn declarations_state_published_results_and_differences() {
    for e in all() {
        assert!(!e.title.is_empty() && !e.place.is_empty() && !e.published.is_empty(), "{}", e.id);
        assert!(!e.paper.differs.is_empty() && !e.measures.is_empty(), "{}", e.id);
        // Runs without a paper's claim are not judged.
        assert_eq!(e.claims.is_empty(), e.paper.system == "matrix", "{}", e.id);
        let places = e.axis.places();
        assert!(places.len() > 1 && places.is_sorted_by(|a, b| a < b), "{}", e.id);
        for claim in e.claims {
            assert!(
                !claim.sentence.is_empty() && !claim.place.is_empty() && !claim.tests.is_empty(),
                "{}",
                e.id
            );
        }
        // Numbers without a claim are the paper's; otherwise there is no reason to show them.
        let shown = e.claims.iter().flat_map(|claim| claim.tests).filter(|test| test.bound == Bound::Shown);
        assert!(shown.into_iter().all(|test| test.published != Published::Words), "{}", e.id);
    }
}

/// A bound that the paper's own number does not meet is not the paper's claim.
#[test]
fn the_papers_own_numbers_hold() {
    for e in all() {
        for test in e.claims.iter().flat_map(|claim| claim.tests) {
            let (low, high) = match test.published {
                Published::Number(number) => (number, number),
                Published::Range(low, high) => (low, high),
                Published::Words => continue,
            };
            let Some((least, most)) = test.limits() else { continue };
            assert!(least <= low && high <= most, "{}: {test:?}", e.id);
        }
        for test in e.claims.iter().flat_map(|claim| claim.tests) {
            let (least, most) = test.limits().unwrap_or_default();
            assert!(least <= most, "{}: no number is near to words, or between these: {test:?}", e.id);
        }
    }
}

#[test]
fn baselines_are_of_single_devices() {
    for e in all() {
        for baseline in e.baselines {
            let named = baseline.quantity.series();
            let rows = || e.series.iter().filter(|series| named.contains(&series.label));
            assert!(rows().count() > 0 && rows().all(is_single_device), "{}: {baseline:?}", e.id);
            assert!(baseline.published > 0.0, "{}: {baseline:?}", e.id);
        }
        // Without a policy, baselines are meaningless.
        let judges_policy = e.series.iter().any(|series| !is_single_device(series));
        assert!(judges_policy || e.baselines.is_empty(), "{}", e.id);
    }
    let of = |id: &str| find(&[id.to_owned()]).unwrap()[0].baselines.len();
    for id in ["wardrop/fig6", "wardrop/table3", "pass/fig1", "pass/table2", "hystor/email", "hystor/tpch"] {
        assert!(of(id) > 0, "{id}");
    }
}

/// The first steps of a load.
fn beginning(load: &str, seed: u64) -> Vec<String> {
    match braid_workload::parse(load, seed).unwrap().start() {
        braid_workload::Load::Open(arrivals) => arrivals.take(200).map(|a| format!("{a:?}")).collect(),
        braid_workload::Load::Closed(clients) => clients
            .into_iter()
            .take(2)
            .flat_map(|client| client.take(500).map(|step| format!("{step:?}")).collect::<Vec<_>>())
            .collect(),
    }
}

/// Ten runs of a load that ignores its seed are one sample: the seed draws the assumed parameters.
#[test]
fn every_load_depends_on_the_seed() {
    for e in all() {
        let loads = |seed: u64| -> Vec<String> {
            let setups = plan(e, How { seed, ..HOW }).unwrap();
            let load = |setup: &crate::Setup| match &setup.load {
                crate::Load::Workload(load) => load.clone(),
                _ => panic!("{}: a trace", e.id),
            };
            setups.iter().map(load).collect()
        };
        // With one value of ten, two seeds may draw the same.
        let (first, others) = (loads(1), [loads(2), loads(3), loads(4)]);
        for (place, load) in first.iter().enumerate() {
            let differs = others.iter().enumerate().any(|(number, other)| {
                other[place] != *load || beginning(load, 1) != beginning(&other[place], number as u64 + 2)
            });
            assert!(differs, "{}: {load}", e.id);
        }
    }
}

/// The run in `instead` measures something other than the claim.
#[test]
fn alternative_run_differs_from_the_claim() {
    for claim in all().iter().flat_map(|e| e.claims) {
        let of_claim: Vec<&str> = claim.tests.iter().flat_map(|test| test.quantity.series()).collect();
        let is_other = |quantity: &Quantity| {
            quantity.series().iter().any(|series| !of_claim.contains(series))
                || claim.tests.iter().all(|test| test.quantity.measure() != quantity.measure())
        };
        assert!(claim.instead.iter().all(is_other), "{}: {:?}", claim.sentence, claim.instead);
    }
}

#[test]
fn drawn_parameters_stay_in_range_and_are_used() {
    for e in all() {
        for jitter in e.jitter {
            assert!(jitter.low < jitter.high, "{}: {jitter:?}", e.id);
            let word = format!("{{{}}}", jitter.name);
            assert!(e.series.iter().any(|series| series.load.contains(&word)), "{}: {jitter:?}", e.id);
        }
    }
    let tpch = find(&["hystor/tpch".to_owned()]).unwrap()[0];
    let rate = |seed| {
        let setups = plan(tpch, How { seed, ..HOW }).unwrap();
        let rate = |setup: &crate::Setup| match &setup.load {
            crate::Load::Workload(load) => {
                let (_, rate) = load.split_once("cpu=").unwrap();
                rate.split(',').next().unwrap().parse::<u32>().unwrap()
            }
            _ => panic!("a trace"),
        };
        let rates: Vec<u32> = setups.iter().map(rate).collect();
        assert!(rates.iter().all(|rate| *rate == rates[0]), "the same for all series");
        rates[0]
    };
    let drawn: std::collections::BTreeSet<u32> = (1..=40).map(rate).collect();
    assert!(drawn.len() > 8 && drawn.iter().all(|rate| (50..=62).contains(rate)), "{drawn:?}");
    assert_eq!(rate(3), rate(3));
}

#[test]
fn claims_of_papers_and_of_ours_are_told_apart() {
    let origins = |id: &str| -> Vec<Origin> {
        find(&[id.to_owned()]).unwrap()[0].claims.iter().map(|claim| claim.origin).collect()
    };
    assert!(origins("wardrop/fig6").iter().all(|origin| *origin == Origin::Paper));
    for id in
        ["pass/span50", "working-set/nodes-fig1-reads", "working-set/nodes-fig5-web", "wardrop/page-cache"]
    {
        assert!(origins(id).iter().all(|origin| *origin == Origin::Repeat), "{id}");
    }
    assert!(
        origins("hystor/email").contains(&Origin::Aim) && origins("hystor/tpch").contains(&Origin::Fitted)
    );
    // Rows of the three tables of results are ruled on.
    for id in ["wardrop/table3", "pass/table1", "pass/table2"] {
        let tests = || find(&[id.to_owned()]).unwrap()[0].claims.iter().flat_map(|claim| claim.tests);
        assert!(tests().all(|test| test.bound != Bound::Shown), "{id}");
        assert!(tests().filter(|test| matches!(test.bound, Bound::Near(_))).count() >= 8, "{id}");
    }
}

#[test]
fn claims_refer_to_existing_series_places_and_measures() {
    for e in all() {
        let labels: Vec<&str> = e.series.iter().map(|series| series.label).collect();
        for (place, label) in labels.iter().enumerate() {
            assert!(!labels[..place].contains(label), "{}: {label} twice", e.id);
        }
        assert!(e.series.iter().filter_map(|s| s.variant_of).all(|of| labels.contains(&of)), "{}", e.id);
        let of_claims = e.claims.iter().flat_map(|claim| claim.tests).map(|test| test.quantity);
        let instead = e.claims.iter().flat_map(|claim| claim.instead).copied();
        for test in of_claims.chain(e.baselines.iter().map(|baseline| baseline.quantity)).chain(instead) {
            assert!(e.measures.contains(&test.measure()), "{}: {test:?}", e.id);
            assert!(test.series().iter().all(|series| labels.contains(series)), "{}: {test:?}", e.id);
            let at = match test {
                Quantity::Value { at, .. } | Quantity::Ratio { at, .. } | Quantity::RatioToSum { at, .. } => {
                    vec![at]
                }
                Quantity::WorstRatio { from, .. } => vec![from],
                Quantity::Change { at, from, .. } => vec![at, from],
                Quantity::Peak { from, to, .. }
                | Quantity::Rise { from, to, .. }
                | Quantity::Fall { from, to, .. } => vec![from, to],
                Quantity::Best { .. }
                | Quantity::Most { .. }
                | Quantity::BestPlace { .. }
                | Quantity::BestRatio { .. }
                | Quantity::RatioOfBests { .. } => Vec::new(),
            };
            assert!(at.iter().all(|at| e.axis.places().contains(at)), "{}: {test:?}", e.id);
        }
    }
}

/// Devices, policies and workloads are texts: each is known to simulations.
#[test]
fn every_simulation_can_be_set_up() {
    for e in all() {
        for setup in plan(e, HOW).unwrap() {
            let crate::Load::Workload(load) = &setup.load else { panic!("{}: a trace", e.id) };
            braid_workload::parse(load, 1).unwrap_or_else(|error| panic!("{}: {error}", e.id));
            assert!(
                setup.devices.iter().all(|device| braid_model::by_name(&device.model).is_some()),
                "{}",
                e.id
            );
        }
        if let Axis::Phases { phases, .. } = e.axis {
            assert!(phases.iter().all(|phase| 0.0 <= phase.from && phase.from < phase.to && phase.to <= 1.0));
        }
    }
}

#[test]
fn unknown_experiment_is_rejected_with_known_names() {
    let error = find(&["wardrop/fig99".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("'wardrop/fig99'") && error.contains("wardrop/fig6"), "{error}");
}

/// A file has the same fields as a constant, and the same meaning.
#[test]
fn declarations_survive_a_toml_round_trip() {
    for e in all() {
        let text = e.to_toml();
        let back = Experiment::from_toml(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", e.id));
        assert_eq!(format!("{back:?}"), format!("{e:?}"), "{}", e.id);
    }
}

const MINE: &str = r#"
id = "mine/clients"
title = "Throughput by clients"
measures = ["throughput", { active = "ssd" }]
paper = { title = "Nobody, \"Nothing\"", year = 2026, system = "mine" }
times = { warm_up = 1, measured = 4 }

[axis.numbers]
label = "clients"
places = [1, 4]

[[series]]
label = "stripe"
devices = ["ssd 1GiB,model=x25-m", "hdd 4GiB,model=mba3073"]
policy = "stripe"
load = "zipf,span=256MiB,clients={x},requests=endless"

[[series]]
label = "disk"
devices = ["hdd 4GiB,model=mba3073"]
policy = "hdd-only"
load = "zipf,span=256MiB,clients={x},requests=endless"

[[claims]]
sentence = "Stripes are faster."
origin = "aim"
tests = [{ quantity = { number = "ratio", measure = "throughput", of = "stripe", to = ["disk"], at = 4 }, bound = { more-than = 1 } }]
"#;

#[test]
fn experiment_file_runs_beside_built_in_experiments() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, MINE).unwrap();
    let name = path.display().to_string();
    let found = find(&[name.clone(), "wardrop/table3".to_owned()]).unwrap();
    assert_eq!(found.iter().map(|e| e.id).collect::<Vec<_>>(), ["wardrop/table3", "mine/clients"]);
    assert_eq!(
        (found[1].paper.cache_extents, found[1].series[0].copies),
        (100, 1),
        "as braid simulate has them"
    );
    let how = How { seeds: Seeds::Fixed(2), ..HOW };
    let study = crate::study::study(&found[1..], how, &crate::study::Folder::none(), |_| {
        std::ops::ControlFlow::Continue(())
    })
    .unwrap()
    .remove(0);
    let number = &study.claims[0].verdicts[0].numbers[0];
    assert_eq!((study.series.len(), study.tables.len(), study.seeds), (2, 2, 2));
    assert!(number.ours > 0.0 && number.needed == "more than 1", "{number:?}");
    // An id in use is refused.
    std::fs::write(
        &path,
        MINE.replace("\"mine/clients\"", "\"wardrop/fig1\"")
            .replace("system = \"mine\"", "system = \"wardrop\""),
    )
    .unwrap();
    assert!(find(&[name]).unwrap_err().to_string().contains("wardrop/fig1"));
}

#[test]
fn invalid_experiment_file_is_rejected_with_the_cause() {
    let wrong = |from: &str, to: &str, named: &[&str]| {
        assert!(MINE.contains(from), "{from}");
        let error = Experiment::from_toml(&MINE.replace(from, to)).expect_err(to).to_string();
        named.iter().for_each(|name| assert!(error.contains(name), "'{name}' is not in {error}"));
    };
    wrong("title = \"Throughput", "titel = \"Throughput", &["titel"]);
    wrong("\"mine/clients\"", "\"clients\"", &["'mine'"]);
    wrong("\"mine/clients\"", "\"mine/../clients\"", &["'mine'"]);
    wrong("places = [1, 4]", "places = [4, 1]", &["axis"]);
    wrong("at = 4", "at = 5", &["place 5", "[1, 4]"]);
    wrong("of = \"stripe\"", "of = \"strip\"", &["'strip'", "stripe, disk"]);
    wrong("label = \"disk\"", "label = \"stripe\"", &["'stripe'"]);
    wrong("measure = \"throughput\"", "measure = \"latency\"", &["latency"]);
    wrong("more-than = 1", "more = 1", &["more", "more-than"]);
    wrong("\"hdd 4GiB,model=mba3073\"]", "\"hdd 4GiB,model=none\"]", &["none"]);
    wrong("\"hdd 4GiB,model=mba3073\"]", "\"hdd\"]", &["'hdd'"]);
    wrong(
        "\"zipf,span=256MiB,clients={x},requests=endless\"\n\n[[series]]",
        "\"zipff\"\n\n[[series]]",
        &["zipff"],
    );
}
