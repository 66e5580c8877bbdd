//! `braid lab`: a list, a quick run of an experiment from end to end, a page, and errors that say what would be right.

use crate::machine::Machine;
use serde_json::Value;

#[test]
fn every_figure_of_wu_and_reddy_is_listed() {
    let machine = Machine::new();
    let listed = machine.json(&["lab", "list"]);
    let experiments = listed["experiments"].as_array().unwrap();
    let ids: Vec<&str> = experiments.iter().map(|e| e["id"].as_str().unwrap()).collect();
    for figure in ["fig1", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "table3"] {
        assert!(ids.contains(&format!("wardrop/{figure}").as_str()), "{figure} is not in {ids:?}");
    }
    assert!(machine.ok(&["lab", "list"]).contains("wardrop/table3"));
}

#[test]
fn an_experiment_comes_out_beside_the_papers_values() {
    let machine = Machine::new();
    let ran = machine.json(&["lab", "run", "wardrop/table3", "--quick"]);
    let study = &ran["studies"][0];
    assert_eq!((study["id"].as_str(), study["quick"].as_bool()), (Some("wardrop/table3"), Some(true)));
    assert_eq!(study["axis_values"], serde_json::json!([1, 10]));
    let numbers: Vec<&Value> = study["claims"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|claim| claim["verdicts"].as_array().unwrap())
        .flat_map(|verdict| verdict["numbers"].as_array().unwrap())
        .collect();
    let of_disk = "throughput of disk only, processes 10, MB/s";
    let number = numbers.iter().find(|number| number["quantity"] == of_disk).unwrap();
    assert_eq!(number["claimed"], "25.9799");
    assert!(number["ours"].as_f64().unwrap() > 0.0 && number["ratio"].as_f64().unwrap() > 0.0);
    let text = machine.ok(&["lab", "run", "wardrop/table3", "--quick"]);
    for expected in ["ours/paper", "CLAIM", "25.9799", "quick"] {
        assert!(text.contains(expected), "'{expected}' is not in {text}");
    }
}

#[test]
fn the_same_seed_gives_the_same_study_on_any_number_of_threads() {
    let machine = Machine::new();
    let studies = |threads: &str| {
        machine.json(&["lab", "run", "wardrop/fig9", "--quick", "--threads", threads])["studies"].clone()
    };
    assert_eq!(studies("1"), studies("2"));
}

#[test]
fn a_report_is_one_page_and_its_plots() {
    let machine = Machine::new();
    let path = |name| machine.path(name).display().to_string();
    let (page, plots) = (path("lab.html"), path("plots"));
    let words = ["lab", "report", "wardrop/fig9", "--quick", "--output", &page, "--svg", &plots];
    std::fs::write(&page, "an earlier page").unwrap();
    let ended = machine.braid(&[&words[..], &["--json"]].concat());
    assert!(ended.stderr.contains("wardrop/fig9"), "it says which experiment has ended: {}", ended.stderr);
    let written: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(written["experiment_count"], 1);
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg ") && !page.contains("<script"));
    let plots = written["svg_paths"].as_array().unwrap();
    assert_eq!(plots.len(), 2, "throughput, and the time to equilibrium");
    for plot in plots {
        assert!(std::fs::read_to_string(plot.as_str().unwrap()).unwrap().starts_with("<svg "));
    }
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    let machine = Machine::new();
    machine.refused(
        &["lab", "run", "wardrop/fig2"],
        "usage",
        &["'wardrop/fig2'", "wardrop/fig1", "wardrop/table3"],
    );
    // It was emptied before the work began, and stayed so if nothing came of that.
    let page = machine.path("lab.html");
    std::fs::write(&page, "an earlier page").unwrap();
    let words = ["lab", "report", "wardrop/fig2", "--output", "lab.html"];
    machine.refused(&words, "usage", &["wardrop/fig1"]);
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "an earlier page");
    let others = std::fs::read_dir(page.parent().unwrap()).unwrap();
    let left =
        others.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".lab"));
    assert_eq!(left.count(), 0, "nothing is left beside it");
    machine.refused(
        &["lab", "report", "wardrop/fig9", "--output", "/nowhere/at/all.html"],
        "io",
        &["/nowhere/at/all.html"],
    );
}

/// `make test` runs a handful of cells from end to end.
#[test]
fn the_corpus_comes_out_alike_each_time_with_a_page_and_a_table() {
    let machine = Machine::new();
    let words = ["lab", "run", "corpus", "--quick", "--cells", "4", "--page", "c.html", "--table", "c.csv"];
    let rows = ["--policy", "equi", "--policy", "stripe", "--policy", "clairvoyant"];
    let words = [&words[..], &rows].concat();
    let read = || ["c.html", "c.csv"].map(|name| std::fs::read_to_string(machine.path(name)).unwrap());
    let ran = machine.json(&words);
    let first = read();
    assert_eq!(ran["corpus"]["cell_count"], 4, "{ran}");
    assert_eq!(ran["corpus"]["trace_count"], 0);
    let text = machine.ok(&[&words[..], &["--threads", "1"]].concat());
    assert!(text.contains("no traces were found") && text.contains("(clairvoyant)"), "{text}");
    assert_eq!(first, read());
    assert!(first[0].contains("<svg") && first[1].lines().count() == 1 + 4 * 3, "{}", first[1]);
    let alone = ["lab", "run", "corpus", "--quick", "--cell", "random-1", "--policy", "hdd-only"];
    let alone = machine.ok(&[&alone[..], &["--beside", "c.csv"]].concat());
    assert!(alone.contains("random,span=") && alone.contains("random-1"), "{alone}");
}

#[test]
fn the_corpus_runs_alone_and_refuses_what_it_has_not() {
    let machine = Machine::new();
    let refused = |words: &[&str]| {
        let ended = machine.braid(&[&["lab", "run"][..], words].concat());
        assert_ne!(ended.status, 0, "{words:?}");
        ended.stderr
    };
    assert!(refused(&["corpus", "--cell", "nosuch-1"]).contains("zipf-1"));
    assert!(refused(&["corpus", "--policy", "nosuch"]).contains("nosuch"));
    assert!(refused(&["corpus", "--seeds", "3"]).contains("use 1 or 2"));
    assert!(refused(&["wardrop/fig9", "--cells", "3"]).contains("corpus"));
}
