//! `/metrics`, read by a parser of the format's text (OpenMetrics 1.0) that shares nothing with the writer.

use crate::daemons::*;
use braid_control::VolumeReport;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Labels and value.
type Sample = (String, BTreeMap<String, String>, f64);

#[derive(Default, Debug)]
struct Family {
    kind: String,
    unit: String,
    help: String,
    samples: Vec<Sample>,
}

/// Parses a whole exposition, and checks the rules of the format.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("the text ends with EOF");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in body.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let (word, rest) = meta.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
            if name != current {
                assert!(!families.contains_key(name), "the samples of {name} stand together");
                current = name.to_owned();
            }
            let family = families.entry(name.to_owned()).or_default();
            assert!(family.samples.is_empty(), "{name}: metadata stands before samples");
            match word {
                "HELP" => family.help = value.to_owned(),
                "TYPE" => family.kind = value.to_owned(),
                "UNIT" => family.unit = value.to_owned(),
                _ => panic!("{line}"),
            }
            continue;
        }
        let family = families.get_mut(&current).expect("a sample belongs to a family");
        let sample = sample(line);
        let suffixes: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_sum", "_count", "_bucket"],
            kind => panic!("{kind}"),
        };
        let suffix = sample.0.strip_prefix(&current).unwrap_or_else(|| panic!("{line} in {current}"));
        assert!(suffixes.contains(&suffix), "{line}: a {}", family.kind);
        family.samples.push(sample);
    }
    for (name, family) in &families {
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        assert!(family.unit.is_empty() || name.ends_with(&format!("_{}", family.unit)), "{name}");
        let series: BTreeSet<_> = family.samples.iter().map(|(name, labels, _)| (name, labels)).collect();
        assert_eq!(series.len(), family.samples.len(), "{name}: each series stands once");
        assert!(!family.help.is_empty() && !family.samples.is_empty(), "{name}");
    }
    families
}

fn sample(line: &str) -> Sample {
    let (name, mut rest) = line.split_at(line.find(['{', ' ']).unwrap());
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, value) = rest.trim_start_matches(',').split_once("=\"").unwrap();
            let (mut text, mut characters) = (String::new(), value.char_indices());
            let end = loop {
                match characters.next().expect("a label ends") {
                    (at, '"') => break at,
                    (_, '\\') => text.push(match characters.next().unwrap().1 {
                        'n' => '\n',
                        escaped @ ('"' | '\\') => escaped,
                        escaped => panic!("\\{escaped}"),
                    }),
                    (_, character) => text.push(character),
                }
            };
            assert!(labels.insert(label.to_owned(), text).is_none(), "{line}");
            rest = &value[end + 1..];
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').unwrap();
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("{line}")))
}

fn value(families: &BTreeMap<String, Family>, family: &str, labels: &[(&str, &str)]) -> f64 {
    let samples = &families.get(family).unwrap_or_else(|| panic!("{family} is there")).samples;
    let fits =
        |sample: &&Sample| labels.iter().all(|(k, v)| sample.1.get(*k).map(String::as_str) == Some(*v));
    samples.iter().find(fits).unwrap_or_else(|| panic!("{family} has {labels:?}: {samples:?}")).2
}

/// A volume with a value for every metric.
fn complete(name: &str) -> braid_control::StatusReport {
    let mut report = status(name);
    report.devices[0].drain_left_bytes = Some(1 << 20);
    report.devices[0].ssd_life_days = Some(10.0);
    report.devices[0].drive_writes_per_day = Some(0.25);
    report.devices[0].response.response_ns_p99 = 2_500_000;
    report.devices[0].policy_figures = BTreeMap::from([("share".to_owned(), 0.5)]);
    report
}

#[tokio::test]
async fn metrics_carry_the_figures_of_the_reports_in_base_units() {
    let resting = Told::Report(Box::new(VolumeReport::Resting(at_rest("old"))));
    let router = dashboard(Fake::with(&[("old", resting), ("vault", served(complete("vault")))]));
    let answer = get(&router, "/metrics").await;
    assert_eq!(answer.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let all = parse(&answer.body);
    let ssd = [("volume", "vault"), ("device", "d0"), ("class", "ssd")];
    assert_eq!(value(&all, "braid_device_guest_read_bytes", &ssd), 409_600.0);
    assert_eq!(value(&all, "braid_device_life_left_seconds", &ssd), 864_000.0);
    let p99 = [ssd[0], ssd[1], ssd[2], ("quantile", "0.99")];
    assert_eq!(value(&all, "braid_device_response_seconds", &p99), 0.0025);
    let state = |state| value(&all, "braid_device_state", &[ssd[0], ssd[1], ("state", state)]);
    assert_eq!((state("active"), state("failed")), (1.0, 0.0));
    assert_eq!(value(&all, "braid_volume_served", &[("volume", "old")]), 0.0);
    assert_eq!(value(&all, "braid_volume_whole", &[("volume", "old")]), 1.0);
    assert_eq!(value(&all, "braid_volume_up", &[("volume", "vault")]), 1.0);
    assert_eq!(value(&all, "braid_guest_requests", &[("volume", "vault"), ("operation", "read")]), 100.0);
    let bucket = |le| value(&all, "braid_guest_latency_seconds", &[("volume", "vault"), ("le", le)]);
    assert_eq!(
        (bucket("0.00001"), bucket("0.001"), bucket("10.0"), bucket("+Inf")),
        (60.0, 99.0, 99.0, 100.0)
    );
}

#[tokio::test]
async fn every_metric_is_documented_with_its_kind_and_no_other() {
    let router = dashboard(Fake::with(&[("vault", served(complete("vault")))]));
    let all = parse(&get(&router, "/metrics").await.body);
    let made = all.iter().map(|(name, family)| {
        let suffix = if family.kind == "counter" { "_total" } else { "" };
        (format!("{name}{suffix}"), family.kind.clone())
    });
    let made: BTreeSet<_> = made.collect();
    let page = include_str!("../../../../docs/metrics.md");
    let documented = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `braid_")?.split(" | ");
        Some((format!("braid_{}", cells.next()?.trim_end_matches('`')), cells.next()?.to_owned()))
    });
    let documented: BTreeSet<_> = documented.collect();
    assert_eq!(made, documented);
}

/// Words of a query: names of metrics, labels and functions.
fn words(query: &str) -> impl Iterator<Item = &str> {
    query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[tokio::test]
async fn board_of_grafana_names_only_metrics_and_labels_that_exist() {
    let router = dashboard(Fake::with(&[("vault", served(complete("vault")))]));
    let all = parse(&get(&router, "/metrics").await.body);
    let board: serde_json::Value =
        serde_json::from_str(include_str!("../../../../packaging/grafana.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let queries: Vec<_> = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()).collect();
    assert!(queries.len() >= panels.len());
    for query in queries {
        let expression = query["expr"].as_str().unwrap();
        let mut labels = BTreeSet::new();
        for name in words(expression).filter(|word| word.starts_with("braid_")) {
            let plain = name.trim_end_matches("_total").trim_end_matches("_bucket");
            let family = all.get(plain).unwrap_or_else(|| panic!("{name} in {expression}"));
            assert_eq!(family.kind == "counter", name.ends_with("_total"), "{name} in {expression}");
            labels.extend(family.samples.iter().flat_map(|(_, labels, _)| labels.keys().map(String::as_str)));
        }
        assert!(!labels.is_empty(), "{expression}");
        let legend = query["legendFormat"].as_str().unwrap();
        let named = legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap());
        let grouped =
            expression.split("by (").skip(1).flat_map(|rest| words(rest.split(')').next().unwrap()));
        for label in named.chain(grouped) {
            assert!(labels.contains(label), "{label} in {expression}");
        }
    }
}

#[tokio::test]
async fn hostile_names_stay_inside_their_labels() {
    let hostile = "</script>\"} 1\nbraid_forged{a=\"\\";
    let mut report = complete("vault");
    report.name = hostile.to_owned();
    report.devices[0].device = hostile.to_owned();
    report.devices[1].class = hostile.to_owned();
    report.devices[0].policy_figures = BTreeMap::from([(hostile.to_owned(), 1.0)]);
    let router = dashboard(Fake::with(&[("vault", served(report))]));
    let all = parse(&get(&router, "/metrics").await.body);
    assert!(!all.keys().any(|name| name.contains("forged")));
    assert_eq!(value(&all, "braid_device_size_bytes", &[("device", hostile)]), (1u64 << 30) as f64);
    assert_eq!(value(&all, "braid_policy_figure", &[("figure", hostile)]), 1.0);
}

#[tokio::test]
async fn silent_daemon_costs_a_scrape_its_volume_only() {
    let fake = Fake::with(&[("good", healthy("good")), ("mute", Told::Nothing(Duration::from_secs(6)))]);
    let all = parse(&get(&dashboard(fake), "/metrics").await.body);
    assert_eq!(value(&all, "braid_volume_up", &[("volume", "mute")]), 0.0);
    assert_eq!(value(&all, "braid_volume_whole", &[("volume", "mute")]), 0.0);
    assert_eq!(value(&all, "braid_volume_size_bytes", &[("volume", "good")]), (1u64 << 31) as f64);
}

#[tokio::test]
async fn machine_without_volumes_has_no_metrics() {
    assert_eq!(get(&dashboard(Fake::with(&[])), "/metrics").await.body, "# EOF\n");
}

/// A second parser: the client library of Prometheus for Python.
#[tokio::test]
async fn pythons_client_reads_the_metrics() {
    const SCRIPT: &str = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
        print(len(list(parse(sys.stdin.read()))))";
    let python = |interpreter: &str, script: &str| {
        let mut command = Command::new(interpreter);
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    // Debian's package is for Debian's interpreter, which may come later in the path.
    let has_client = |interpreter: &&str| {
        let found = python(interpreter, "import prometheus_client").output();
        found.is_ok_and(|found| found.status.success())
    };
    let Some(interpreter) = ["python3", "/usr/bin/python3"].into_iter().find(has_client) else {
        // Written past the capture of tests.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: pythons_client_reads_the_metrics: no prometheus_client: scripts/install-tools"
        );
        return;
    };
    let router = dashboard(Fake::with(&[("a", served(complete("a"))), ("b", served(complete("b")))]));
    let text = get(&router, "/metrics").await.body;
    let mut child = python(interpreter, SCRIPT).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let read = child.wait_with_output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let families: usize = String::from_utf8(read.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(families, parse(&text).len());
}
