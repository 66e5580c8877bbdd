//! Changes of policy, and explanations of the placement of data.

use crate::machine::{Machine, have, number, qemu_io_ok};
use crate::replace::wait_until;
use serde_json::{Value, json};

#[test]
fn policy_change_migrates_nothing_and_survives_restart() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--policy", "hdd-only"]);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 8M", "flush"]);
    let before = machine.json(&["status", "vault"]);
    assert_eq!(number(&before, "devices.1.data_share"), 1.0);
    assert_eq!(machine.ok(&["policy", "vault"]).trim(), "hdd-only");

    let changed = machine.json(&["policy", "vault", "ssd-only"]);
    assert_eq!(changed["policy"], "ssd-only");
    let after = machine.json(&["status", "vault"]);
    assert_eq!(number(&after, "background.migrations"), 0.0);
    assert_eq!(after["devices"][1]["used_bytes"], before["devices"][1]["used_bytes"]);
    qemu_io_ok(&daemon.uri, &["write -P 2 32M 8M", "flush", "read -P 1 0 8M"]);
    let home = |offset: &str| machine.json(&["explain", "vault", offset])["home"]["class"].clone();
    assert_eq!((home("0"), home("32MiB")), ("hdd".into(), "ssd".into()));
    assert_eq!(daemon.terminate().status, 0);

    assert_eq!(machine.ok(&["policy", "vault"]).trim(), "ssd-only");
    // Also while the volume is not served.
    assert!(machine.ok(&["policy", "vault", "static,ssd=50%"]).starts_with("static,d0=50%,d1=50%"));
    let daemon = machine.serve(&["vault"]);
    assert!(machine.ok(&["policy", "vault"]).starts_with("static,"));
    qemu_io_ok(&daemon.uri, &["read -P 1 0 8M", "read -P 2 32M 8M"]);
    machine.refused(&["policy", "vault", "wardrop,period=1"], "usage", &["period", "2s"]);
    assert!(
        machine.ok(&["policy", "vault"]).starts_with("static,"),
        "a policy that is none changed something"
    );
}

#[test]
fn wear_and_latency_limits_survive_restart_with_wear_debt() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--policy", "equi,slo=p99<5ms,wear=0.001DWPD"]);
    let shown = machine.ok(&["policy", "vault"]).trim().to_owned();
    assert!(shown.ends_with(",wear=0.001DWPD,slo=p99<5ms"), "{shown}");
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 8M", "flush", "write -P 2 32M 1M", "flush"]);
    let left = || {
        let status = machine.json(&["status", "vault"]);
        assert_eq!(status["devices"][1]["policy_figures"]["wear_left_bytes"], serde_json::Value::Null);
        number(&status, "devices.0.policy_figures.wear_left_bytes")
    };
    let before = left();
    assert!(before < 0.0, "{before}");
    let explained = machine.json(&["explain", "vault", "32MiB"]);
    assert_eq!(explained["home"]["class"], "hdd", "{explained}");
    assert!(explained["reason"].as_str().is_some_and(|why| why.contains("wear=0.001DWPD")), "{explained}");
    assert_eq!(daemon.terminate().status, 0);
    let daemon = machine.serve(&["vault"]);
    assert_eq!(machine.ok(&["policy", "vault"]).trim(), shown);
    qemu_io_ok(&daemon.uri, &["read -P 1 0 8M", "read -P 2 32M 1M"]);
    let after = left();
    assert!(after < before / 2.0, "{before}, after a restart {after}");
}

/// `braid policy` printed `bypass=4 MiB`, but refused the same text as input.
#[test]
fn shown_policy_is_accepted_as_input() {
    let machine = Machine::new();
    machine.create("vault", &["--policy", "cache,bypass=4MiB"]);
    let shown = machine.ok(&["policy", "vault"]).trim().to_owned();
    assert!(shown.ends_with("bypass=4MiB"), "{shown}");
    assert_eq!(machine.ok(&["policy", "vault", &shown]).trim(), shown);
}

#[test]
fn a_policy_as_published_is_spelled_out_and_taken_again() {
    let machine = Machine::new();
    for (name, copies, published) in [
        ("wardrop", "1", "weight=0.01"),
        ("working-set", "1", "cold=marked"),
        ("pass", "2", "max-lag=none"),
        ("hystor", "1", "part-writes=cache"),
        ("exclusive", "1", "dirty-until=purge"),
        ("inclusive", "1", "fill=all"),
    ] {
        machine.create(
            name,
            &["--size", "32MiB", "--copies", copies, "--policy", &format!("{name},as-published")],
        );
        let shown = machine.ok(&["policy", name]).trim().to_owned();
        assert!(shown.split(',').any(|setting| setting == published), "{shown}");
        assert!(!shown.contains("as-published"), "{shown}");
        assert_eq!(machine.ok(&["policy", name, &shown]).trim(), shown);
        let ours = machine.ok(&["policy", name, name]).trim().to_owned();
        assert_eq!(machine.ok(&["policy", name, &format!("{name},as-published")]).trim(), shown);
        assert!(name == "wardrop" || ours != shown, "what is ours stays the default: {ours}");
    }
}

/// The message said "keep less of the devices for extra copies", which does not help if the volume fills its
/// devices.
#[test]
fn policy_without_room_is_refused_with_a_sufficient_size() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let policy = "exclusive,cache=40%";
    let problem = machine.refused(&["policy", "vault", policy], "usage", &["--size", "braid device add"]);
    let size = problem.split("--size ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let other = Machine::new();
    other.create("vault", &["--size", size]);
    assert!(other.ok(&["policy", "vault", policy]).starts_with("exclusive,cache=40%"));
}

/// A volume filled its devices, so no cache policy could fit later, and `create` did not warn.
#[test]
fn policies_listed_as_fitting_by_create_are_accepted_later() {
    let machine = Machine::new();
    let devices = |name: &str, hdd: &str| {
        [
            "--ssd".to_owned(),
            format!("{name}.ssd,size=64MiB"),
            "--hdd".to_owned(),
            format!("{name}.hdd,size={hdd}"),
        ]
    };
    let create = |name: &str, hdd: &str, more: &[&str]| {
        let devices = devices(name, hdd);
        let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        machine.json(&[&["create", name], &devices[..], more].concat())
    };
    let text =
        |policy: &str| if policy == "static" { "static,ssd=50%".to_owned() } else { policy.to_owned() };
    let names = |list: &serde_json::Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    for (name, hdd) in [("pair", "128MiB"), ("small", "768MiB")] {
        let made = create(name, hdd, &[]);
        let fitting = names(&made["fitting_policies"]);
        assert!(
            ["exclusive", "inclusive", "ssd-first", "stripe"]
                .iter()
                .all(|p| fitting.contains(&(*p).to_owned()))
        );
        assert_eq!(fitting.contains(&"cache".to_owned()), name == "small", "{made}");
        assert!(number(&made, "left_bytes") > 0.0);
        for policy in &fitting {
            machine.ok(&["policy", name, &text(policy)]);
        }
        for unfitting in made["unfitting_policies"].as_array().unwrap() {
            let policy = unfitting["policy"].as_str().unwrap();
            machine.refused(&["policy", name, policy], "usage", &[]);
            let size = unfitting["fitting_bytes"].as_u64().map(|size| format!("{size}B"));
            let copies = unfitting["needed_copies"].as_u64().map(|copies| copies.to_string());
            assert!(size.is_some() != copies.is_some(), "{unfitting}");
            let other = format!("{name}-{policy}");
            match (&size, &copies) {
                (Some(size), _) => create(&other, hdd, &["--size", size]),
                (_, Some(copies)) => create(&other, hdd, &["--copies", copies]),
                _ => unreachable!("one of them is said"),
            };
            machine.ok(&["policy", &other, policy]);
        }
    }
    // An explicit size stays unchanged.
    let made = create("given", "128MiB", &["--size", "160MiB"]);
    assert_eq!(number(&made, "size_bytes"), f64::from(160 << 20));
    let text = machine.ok(&["create", "told", "--ssd", "t.ssd,size=64MiB", "--hdd", "t.hdd,size=128MiB"]);
    assert!(text.contains("exclusive") && text.contains("--copies 2") && text.contains("--size"), "{text}");
}

#[test]
fn guard_chooses_a_mode_with_given_or_measured_models() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--size", "96MiB"]);
    machine.refused(&["serve", "vault", "--hdd-model", "x25-m"], "usage", &["x25-m"]);
    let guard = |until: &dyn Fn(&Value) -> bool| {
        let mut guard = Value::Null;
        wait_until("the guard is so", || {
            guard = machine.json(&["status", "vault"])["guard"].clone();
            until(&guard)
        });
        guard
    };
    let daemon = machine.serve(&["vault", "--cache", "0"]);
    let commands: Vec<String> = (0..768).map(|n| format!("write {}k 4k", n * 128)).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let idle = guard(&|guard| guard["problem"].is_string());
    assert!(idle["problem"].as_str().unwrap().contains("d0"), "{idle}");
    assert_eq!(
        (&idle["one_in"], &idle["switches"], &idle["measured_models_off"]),
        (&0.into(), &0.into(), &json!({}))
    );
    // A file has the timing of this machine: a measured model fits, or the status names `device calibrate`.
    let measured = guard(&|guard| {
        qemu_io_ok(&daemon.uri, &commands);
        let devices = guard["measured_models_off"].as_object().map_or(0, |measured| measured.len());
        devices == 2 || guard["problem"].as_str().is_some_and(|told| told.contains("braid device calibrate"))
    });
    for (device, off) in measured["measured_models_off"].as_object().unwrap() {
        assert!(
            ["d0", "d1"].contains(&&**device) && (1.0..=1.5).contains(&off.as_f64().unwrap()),
            "{measured}"
        );
    }
    daemon.terminate();
    let _daemon = machine.serve(&["vault", "--ssd-model", "x25-m", "--hdd-model", "mba3073"]);
    let uri = machine.json(&["status", "vault"])["nbd_uris"][0].as_str().unwrap().to_owned();
    guard(&|guard| guard["one_in"] == 1);
    let known = |guard: &Value| {
        let commands: Vec<String> = (0..60).map(|n| format!("write {}k 4k", n * 1024)).collect();
        qemu_io_ok(&uri, &commands.iter().map(String::as_str).collect::<Vec<_>>());
        let modes = guard["modes"].as_array().unwrap();
        modes.len() == 3 && modes.iter().all(|mode| mode["latency_ns_mean"].is_u64())
    };
    let judged = guard(&known);
    assert!(judged["measured_ns_mean"].is_u64(), "{judged}");
    assert!(judged["problem"].is_null() && judged["processor_share"].is_f64(), "{judged}");
    assert!(judged["mode"].as_str().unwrap().starts_with("equi"), "{judged}");
    machine.ok(&["policy", "vault", "equi,mode=cache"]);
    guard(&Value::is_null);
}

#[test]
fn explain_reports_location_and_reason_of_a_byte() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    machine.refused(&["explain", "vault", "0"], "not_served", &["braid serve vault"]);
    let daemon = machine.serve(&["vault", "--cache", "0"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 1M 128k", "flush"]);
    let report = machine.json(&["explain", "vault", "1049600"]);
    assert_eq!((report["extent"].as_u64(), report["written"].as_bool()), (Some(8), Some(true)));
    let (home, path) = (&report["home"], report["home"]["path"].as_str().unwrap());
    let at = home["device_offset_bytes"].as_u64().unwrap();
    let device = std::fs::read(path).unwrap();
    assert_eq!(device[at as usize], 1, "the byte does not lie where explain says");
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("d0") && reason.contains("d1"), "{report}");
    let text = machine.ok(&["explain", "vault", "1MiB"]);
    assert!(text.contains(path) && text.contains(report["policy"].as_str().unwrap()), "{text}");
    let unwritten = machine.json(&["explain", "vault", "100MiB"]);
    assert_eq!((unwritten["home"].is_null(), unwritten["written"].as_bool()), (true, Some(false)));
    machine.refused(&["explain", "vault", "1TiB"], "invalid", &["1099511627776"]);
}
