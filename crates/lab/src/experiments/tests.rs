//! Every declaration is complete, and speaks of what it has.

use super::*;
use crate::experiment::{Axis, Bound, Published, Quantity};
use crate::study::{How, plan};
use braid_base::Bytes;

const HOW: How = How { seed: 1, seeds: 1, quick: false, threads: None };

#[test]
fn ids_are_unique_and_begin_with_their_system() {
    let mut ids: Vec<&str> = all().iter().map(|experiment| experiment.id).collect();
    assert!(all().iter().all(|e| e.id.split_once('/').is_some_and(|(system, _)| system == e.paper.system)));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn all_of_wu_and_reddy_is_there() {
    for figure in ["fig1", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "table3"] {
        assert_eq!(find(&[format!("wardrop/{figure}")]).unwrap().len(), 1, "{figure}");
    }
    // One more is ours.
    assert_eq!(find(&["wardrop".to_owned()]).unwrap().len(), 10);
}

#[test]
fn all_of_xiao_and_others_is_there() {
    for part in ["table1", "fig1", "fig2", "fig3", "fig4", "table2", "fig5"] {
        assert_eq!(find(&[format!("pass/{part}")]).unwrap().len(), 1, "{part}");
    }
    // Two more are ours.
    assert_eq!(find(&["pass".to_owned()]).unwrap().len(), 9);
}

/// Figure 4 is what the workloads are made from, and tests of these hold it.
#[test]
fn all_of_hayashi_and_komoda_is_there() {
    for figure in ["fig5", "fig6", "fig7", "fig8", "fig9", "fig10"] {
        assert_eq!(find(&[format!("exclusive/{figure}")]).unwrap().len(), 1, "{figure}");
    }
    let fig10 = plan(find(&["exclusive/fig10".to_owned()]).unwrap()[0], HOW).unwrap();
    assert!(
        fig10.iter().all(|setup| setup.block_size == Bytes(8192) && setup.policy.contains("page=100MiB"))
    );
    assert!(fig10.iter().any(|setup| setup.policy.starts_with("inclusive,as-published,cache=40%")));
}

#[test]
fn all_of_the_hystor_study_is_there() {
    for part in ["patterns", "postmark", "email", "tpch", "metadata", "scrub", "chunk"] {
        assert_eq!(find(&[format!("hystor/{part}")]).unwrap().len(), 1, "{part}");
    }
    // And indicator metrics of five loads.
    assert_eq!(find(&["hystor".to_owned()]).unwrap().len(), 12);
}

/// The size of the SSD is the place; data lies on the disk before, under another policy than the one that learns.
#[test]
fn a_place_is_filled_in_for_devices_and_blocks_have_the_size_of_their_series() {
    let chunk = find(&["hystor/chunk".to_owned()]).unwrap()[0];
    let setups = plan(chunk, HOW).unwrap();
    let size = |setup: &crate::Setup| setup.devices[0].size;
    assert_eq!((size(&setups[0]), size(&setups[4])), (crate::Size::Share(0.2), crate::Size::Share(1.0)));
    assert_eq!((setups[0].block_size, setups[5].block_size), (Bytes(4096), Bytes(16_384)));
    assert!(setups.iter().all(|setup| setup.duration.is_none() && setup.prefill_policy.is_none()));
}

#[test]
fn all_of_chen_and_others_is_there() {
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
fn every_declaration_says_what_is_published_and_what_differs() {
    for e in all() {
        assert!(!e.title.is_empty() && !e.place.is_empty() && !e.published.is_empty(), "{}", e.id);
        assert!(!e.paper.differs.is_empty() && !e.claims.is_empty() && !e.measures.is_empty(), "{}", e.id);
        let places = e.axis.places();
        assert!(places.len() > 1 && places.is_sorted_by(|a, b| a < b), "{}", e.id);
        for claim in e.claims {
            assert!(
                !claim.sentence.is_empty() && !claim.place.is_empty() && !claim.tests.is_empty(),
                "{}",
                e.id
            );
        }
        // Numbers without a claim are the paper's, or there would be no reason to show them.
        let shown = e.claims.iter().flat_map(|claim| claim.tests).filter(|test| test.bound == Bound::Shown);
        assert!(shown.into_iter().all(|test| test.published != Published::Words), "{}", e.id);
    }
}

#[test]
fn claims_speak_of_series_places_and_measures_that_are_there() {
    for e in all() {
        let labels: Vec<&str> = e.series.iter().map(|series| series.label).collect();
        for (place, label) in labels.iter().enumerate() {
            assert!(!labels[..place].contains(label), "{}: {label} twice", e.id);
        }
        assert!(e.series.iter().filter_map(|s| s.variant_of).all(|of| labels.contains(&of)), "{}", e.id);
        for test in e.claims.iter().flat_map(|claim| claim.tests) {
            assert!(e.measures.contains(&test.quantity.measure()), "{}: {test:?}", e.id);
            assert!(
                test.quantity.series().iter().all(|series| labels.contains(series)),
                "{}: {test:?}",
                e.id
            );
            let at = match test.quantity {
                Quantity::Value { at, .. } | Quantity::Ratio { at, .. } | Quantity::RatioToSum { at, .. } => {
                    vec![at]
                }
                Quantity::WorstRatio { from, .. } => vec![from],
                Quantity::Change { at, from, .. } => vec![at, from],
                Quantity::Peak { from, to, .. } => vec![from, to],
                Quantity::Best { .. }
                | Quantity::BestPlace { .. }
                | Quantity::BestRatio { .. }
                | Quantity::RatioOfBests { .. } => Vec::new(),
            };
            assert!(at.iter().all(|at| e.axis.places().contains(at)), "{}: {test:?}", e.id);
        }
    }
}

/// Devices, policies and workloads are texts: each is one that simulations know.
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
fn an_unknown_name_is_answered_with_those_that_are_known() {
    let error = find(&["wardrop/fig99".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("'wardrop/fig99'") && error.contains("wardrop/fig6"), "{error}");
}
