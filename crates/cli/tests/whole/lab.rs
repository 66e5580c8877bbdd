//! `braid lab`: a list, a quick run of an experiment from end to end, a page, and errors with a remedy.

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
    let text = machine.ok(&["lab", "list"]);
    assert!(text.contains("wardrop/table3") && text.contains("Wu and Reddy 2012, table III"), "{text}");
    // Two papers are by a first author of the same name.
    assert!(text.contains("Chen, Koufaty and Zhang 2011") && text.contains("Chen, Liu, Roth and Chen 2014"));
    let table3 = experiments.iter().find(|e| e["id"] == "wardrop/table3").unwrap();
    assert_eq!((&table3["authors"], &table3["year"]), (&Value::from("Wu and Reddy"), &Value::from(2012)));
    assert!(
        table3["claims_of_paper"].as_u64().unwrap() >= 5
            && table3["seconds_per_seed"].as_f64().unwrap() > 0.0
    );
}

#[test]
fn claims_and_bounds_are_shown_without_a_run() {
    let machine = Machine::new();
    let shown = machine.json(&["lab", "show", "wardrop/table3"]);
    let claims = shown["experiments"][0]["claims"].as_array().unwrap();
    let tests = || claims.iter().flat_map(|claim| claim["tests"].as_array().unwrap());
    let of_disk =
        tests().find(|test| test["quantity"] == "throughput of disk only, processes 10, MB/s").unwrap();
    assert_eq!((&of_disk["claimed"], &of_disk["needed"]), (&"25.9799".into(), &"within 15 % of it".into()));
    let text = machine.ok(&["lab", "show", "wardrop/table3"]);
    for expected in
        ["CLAIM", "25.9799", "within 15 % of it", "--policy wardrop,as-published", "processes: 1, 10"]
    {
        assert!(text.contains(expected), "'{expected}' is not in {text}");
    }
    assert!(!machine.path("lab-results").exists(), "nothing has run");
    machine.refused(&["lab", "show", "wardrop/fig2"], "usage", &["'wardrop/fig2'", "wardrop/fig1"]);
}

#[test]
fn an_experiment_is_declared_in_a_file() {
    let machine = Machine::new();
    let toml = machine.ok(&["lab", "show", "wardrop/fig9", "--toml"]);
    std::fs::write(machine.path("mine.toml"), &toml).unwrap();
    machine.refused(&["lab", "run", "mine.toml", "--quick"], "usage", &["mine.toml", "wardrop/fig9"]);
    let mine = toml
        .replace("id = \"wardrop/fig9\"", "id = \"mine/fig9\"")
        .replace("system = \"wardrop\"", "system = \"mine\"");
    std::fs::write(machine.path("mine.toml"), mine).unwrap();
    let studies = |name: &str| machine.json(&["lab", "run", name, "--quick"])["studies"][0].clone();
    let (mine, built_in) = (studies("mine.toml"), studies("wardrop/fig9"));
    assert_eq!((&mine["id"], &mine["tables"]), (&"mine/fig9".into(), &built_in["tables"]));
    std::fs::write(machine.path("mine.toml"), "id = 3\n").unwrap();
    machine.refused(&["lab", "show", "mine.toml"], "usage", &["mine.toml", "id = 3"]);
    machine.refused(&["lab", "show", "none.toml"], "usage", &["none.toml"]);
    machine.refused(&["lab", "show", "pass", "--toml"], "usage", &["--toml"]);
}

#[test]
fn finished_experiments_are_kept_and_not_run_again() {
    let machine = Machine::new();
    let run = |more: &[&str]| {
        let words = [&["lab", "run", "wardrop/fig9", "--quick", "--json"], more].concat();
        let ended = machine.braid(&words);
        let ran: Value = serde_json::from_str(&ended.stdout).unwrap();
        (ran["studies"].clone(), ended.stderr)
    };
    let (fresh, told) = run(&[]);
    assert!(told.contains("1 experiment: about") && told.contains("seeds kept in lab-results: 0"), "{told}");
    assert!(machine.path("lab-results/wardrop-fig9-quick-seed1.json").is_file());
    let (kept, told) = run(&[]);
    assert_eq!(kept, fresh);
    assert!(told.contains("all seeds are kept in lab-results"), "{told}");
    let (_, told) = run(&["--seeds", "2"]);
    assert!(told.contains("lab-results: 1"), "one more seed runs: {told}");
    let (again, told) = run(&["--fresh"]);
    assert!(told.contains("lab-results: 0"), "{told}");
    assert_eq!(again, fresh);
    let (_, told) = run(&["--results", "elsewhere"]);
    assert!(told.contains("seeds kept in elsewhere: 0") && machine.path("elsewhere").is_dir(), "{told}");
    std::fs::write(machine.path("file"), "mine").unwrap();
    machine.refused(
        &["lab", "run", "wardrop/fig9", "--results", "file"],
        "usage",
        &["--results file", "folder"],
    );
    assert_eq!(std::fs::read_to_string(machine.path("file")).unwrap(), "mine");
    machine.refused(&["lab", "run", "corpus", "--fresh"], "usage", &["--fresh"]);
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
fn study_is_deterministic_per_seed_on_any_thread_count() {
    let machine = Machine::new();
    let studies = |threads: &str| {
        machine.json(&["lab", "run", "wardrop/fig9", "--quick", "--threads", threads])["studies"].clone()
    };
    assert_eq!(studies("1"), studies("2"));
}

#[test]
fn lab_report_is_one_html_page_with_svg_plots() {
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
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<table id=\"papers\">"));
    assert_eq!(page.matches("<figure data-chart=").count(), 3);
    let plots = written["svg_paths"].as_array().unwrap();
    assert_eq!(plots.len(), 3, "the share on the SSD, the time to equilibrium, and throughput");
    for plot in plots {
        assert!(std::fs::read_to_string(plot.as_str().unwrap()).unwrap().starts_with("<svg "));
    }
}

#[test]
fn a_document_needs_no_page() {
    let machine = Machine::new();
    let written = machine.json(&["lab", "report", "wardrop/fig9", "--quick", "--markdown", "papers.md"]);
    assert_eq!((&written["output_path"], &written["markdown_path"]), (&Value::Null, &"papers.md".into()));
    let document = std::fs::read_to_string(machine.path("papers.md")).unwrap();
    assert!(document.contains("| Wu and Reddy 2012 (`wardrop`) |") && document.contains("`wardrop/fig9`"));
    assert!(!machine.path("lab-report.html").exists());
}

#[test]
fn lab_errors_name_valid_experiments_and_leave_the_page() {
    let machine = Machine::new();
    machine.refused(
        &["lab", "run", "wardrop/fig2"],
        "usage",
        &["'wardrop/fig2'", "wardrop/fig1", "wardrop/table3"],
    );
    // Once, the page was emptied before the work began, and stayed empty after a failure.
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

/// A cell with a simulation of a few seconds, without a trace.
const ONE: [&str; 10] =
    ["lab", "run", "corpus", "--quick", "--half", "published", "--seed", "9", "--cells", "1"];

#[test]
fn corpus_scores_are_reproduced_from_stored_results() {
    let machine = Machine::new();
    let results = machine.path("results").display().to_string();
    let judged = |more: &[&str]| {
        let mut judged = machine.json(&[&ONE[..], more].concat());
        judged["wall_seconds"].take();
        judged
    };
    let fresh = judged(&["--threads", "1"]);
    assert_eq!(judged(&["--threads", "2", "--results", &results]), fresh);
    assert_eq!(judged(&["--results", &results]), fresh);
    let scores = fresh["scores"].as_array().unwrap();
    assert_eq!((scores.len(), &scores[0]["half"]), (1, &Value::from("published")));
    assert_eq!((&scores[0]["cell_count"], fresh["cells"].as_array().unwrap().len()), (&Value::from(1), 1));
    let row =
        |name: &str| scores[0]["rows"].as_array().unwrap().iter().find(|row| row["row"] == name).unwrap();
    for policy in ["equi", "wardrop", "cache,mode=write-back", "untouched layout"] {
        assert!(row(policy)["mean_ratio"].as_f64().unwrap() >= 1.0, "{policy}: {}", row(policy));
    }
    // Text output names the half; standard error counts the cells of this run.
    let ended = machine.braid(&[&ONE[..], &["--results", &results]].concat());
    assert!(ended.stdout.contains("published half") && ended.stderr.contains("1 of 1"), "{}", ended.stderr);
}

#[test]
fn corpus_selects_rows_and_cells_and_refuses_unknown_names() {
    let machine = Machine::new();
    let words = ["--row", "wardrop", "--row", "equi", "--row", "equi,mode=cache", "--cell", ";"];
    let judged = machine.json(&[&ONE[..], &words].concat());
    let runs = judged["cells"][0]["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["row"].as_str().unwrap()).collect();
    assert_eq!(names, ["equi", "wardrop", "equi,mode=cache"]);
    assert_eq!(judged["scores"][0]["rows"].as_array().unwrap().len(), 3);
    let refused = |words: &[&str], told: &str| machine.refused(&[&ONE[..], words].concat(), "usage", &[told]);
    refused(&["--row", "equii"], "--row equii");
    refused(&["--row", "pass"], "--row equi");
    refused(&["--cell", "no such cell"], "--cell no such cell");
    machine.refused(&["lab", "run", "pass", "--row", "equi"], "usage", &["braid lab run corpus"]);
}

#[test]
fn corpus_reports_missing_traces_and_refuses_foreign_options() {
    let machine = Machine::new();
    let folder = machine.path("none").display().to_string();
    let words = [
        "lab",
        "run",
        "corpus",
        "--quick",
        "--half",
        "published",
        "--cells",
        "1",
        "--traces",
        &folder,
        "--json",
    ];
    let ended = machine.braid(&words);
    let judged: Value = serde_json::from_str(&ended.stdout).unwrap();
    let (missing, ran) = (judged["missing_cells"].as_array().unwrap(), judged["cells"].as_array().unwrap());
    assert_eq!((missing.len(), ran.len()), (1, 0));
    assert!(ended.stderr.contains("MISSING") && ended.stderr.contains(&folder), "{}", ended.stderr);
    machine.refused(&["lab", "run", "corpus", "pass"], "usage", &["braid lab run corpus"]);
    machine.refused(&["lab", "run", "pass", "--cells", "3"], "usage", &["braid lab run corpus"]);
    machine.refused(&["lab", "run", "corpus", "--seeds", "3"], "usage", &["--seed"]);
    machine.refused(&["lab", "run", "corpus", "--trace", "none.csv"], "io", &["none.csv"]);
    std::fs::write(machine.path("mine"), "not results\n").unwrap();
    let mine = machine.path("mine").display().to_string();
    machine.refused(&["lab", "run", "corpus", "--results", &mine], "usage", &["--results"]);
    assert_eq!(std::fs::read_to_string(&mine).unwrap(), "not results\n");
}
