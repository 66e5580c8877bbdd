//! The dashboard in a browser: headless Chromium, driven by `tests/browser/scenarios.mjs`. Real daemons for
//! what happens to volumes, and reports made up from theirs for machines that no test has.

use crate::advise::{DEVICES, record_reads};
use crate::machine::{Daemon, Machine, have, qemu_io, qemu_io_ok, skip};
use braid_control::{
    CellsReport, DeviceReport, Error, ErrorKind, ExplainReport, MapReport, Request, Result, StatusReport,
    VolumeName, VolumeReport,
};
use braid_web::{Access, Daemons, serve};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Scenarios that must pass.
const SCENARIOS: usize = 12;

/// Volumes made up from reports.
struct MadeUp {
    reports: BTreeMap<VolumeName, StatusReport>,
    map: MapReport,
    explanation: ExplainReport,
}

impl Daemons for MadeUp {
    fn names(&self) -> Result<Vec<VolumeName>> {
        Ok(self.reports.keys().cloned().collect())
    }

    fn report(&self, name: &VolumeName) -> Result<VolumeReport> {
        Ok(VolumeReport::Served(Box::new(self.reports[name].clone())))
    }

    fn call(&self, _: &VolumeName, request: Request) -> Result<Value> {
        let json = match request {
            Request::Map { device } => serde_json::to_value(MapReport {
                on_device: device.map(|device| format!("d{device}")),
                map_cells: CellsReport {
                    on_device_share: vec![0.5; if device.is_some() { CELLS } else { 0 }],
                    ..self.map.map_cells.clone()
                },
                ..self.map.clone()
            }),
            Request::Explain { offset_bytes } => {
                serde_json::to_value(ExplainReport { offset_bytes, ..self.explanation.clone() })
            }
            _ => return Err(Error::new(ErrorKind::Unsupported, "made up")),
        };
        Ok(json.unwrap())
    }
}

/// Cells of a made-up map.
const CELLS: usize = 4096;

fn made_up(status: &StatusReport, explanation: &ExplainReport, main: &str) -> MadeUp {
    let each = |value: fn(usize) -> f64| (0..CELLS).map(value).collect::<Vec<_>>();
    let map = MapReport {
        name: status.name.clone(),
        size_bytes: (CELLS as u64) << 20,
        cell_bytes: 1 << 20,
        examined_one_in: 1,
        examined_seconds_ago: 0.5,
        on_device: None,
        map_cells: CellsReport {
            mapped_share: each(|cell| if cell < 3000 { 1.0 } else { 0.0 }),
            ssd_share: each(|cell| if cell % 7 == 0 { 1.0 } else { 0.0 }),
            on_device_share: Vec::new(),
            extra_share: each(|cell| if cell % 5 == 0 { 0.5 } else { 0.0 }),
            lost_share: each(|cell| if cell == 77 { 0.1 } else { 0.0 }),
            main_device: (0..CELLS).map(|cell| (cell < 3000).then(|| main.to_owned())).collect(),
            first_mapped_bytes: (0..CELLS as u64).map(|cell| (cell < 3000).then_some(cell << 20)).collect(),
            cell_requests_per_second: (0..CELLS).map(|cell| Some((CELLS - cell) as f64 / 100.0)).collect(),
        },
    };
    MadeUp { reports: BTreeMap::new(), map, explanation: explanation.clone() }
}

/// 64 volumes, of which one has lost a device.
fn many(status: &StatusReport, explanation: &ExplainReport) -> MadeUp {
    volumes(status, explanation, 64, 37)
}

/// Three volumes, of which one has lost a device.
fn few(status: &StatusReport, explanation: &ExplainReport) -> MadeUp {
    volumes(status, explanation, 3, 1)
}

fn volumes(status: &StatusReport, explanation: &ExplainReport, count: usize, degraded: usize) -> MadeUp {
    let mut all = made_up(status, explanation, "d0");
    for number in 0..count {
        let mut status = StatusReport { name: format!("v{number:02}"), ..status.clone() };
        if number == degraded {
            status.devices[1].state = "failed".to_owned();
        }
        all.reports.insert(status.name.parse().unwrap(), status);
    }
    all
}

/// A volume of 1,024 devices, the last of which failed.
fn wide(status: &StatusReport, explanation: &ExplainReport) -> MadeUp {
    let mut all = made_up(status, explanation, "d1000");
    let mut status = StatusReport { name: "wide".to_owned(), ..status.clone() };
    let devices = (0..1024).map(|number| {
        let like = &status.devices[usize::from(number >= 24)];
        let (device, path) = (format!("d{number}"), format!("/dev/disk/by-id/{}-{number}", like.class));
        let state = if number == 1023 { "failed" } else { "active" }.to_owned();
        DeviceReport { device, path, state, ..like.clone() }
    });
    status.devices = devices.collect();
    all.reports.insert("wide".parse().unwrap(), status);
    all
}

/// A volume whose texts try to be scripts.
fn hostile(status: &StatusReport, explanation: &ExplainReport) -> MadeUp {
    const TEXT: &str = "\"'><img src=x onerror=\"window.hacked=1;document.title='hacked'\">\
                        <script>window.hacked=1</script>&lt;{{1}}\u{202e}";
    let mut all = made_up(status, explanation, TEXT);
    let mut status = StatusReport { name: "hostile".to_owned(), policy: TEXT.to_owned(), ..status.clone() };
    for (number, device) in status.devices.iter_mut().enumerate() {
        device.device = format!("d{number}{TEXT}");
        device.path = TEXT.to_owned();
        device.model = Some(TEXT.to_owned());
        device.last_error = Some(TEXT.to_owned());
    }
    status.devices[0].class = TEXT.to_owned();
    status.pending_log_failure = Some(TEXT.to_owned());
    all.explanation.reason = TEXT.to_owned();
    let home = all.explanation.home.as_mut().unwrap();
    (home.path, home.class, home.device) = (TEXT.to_owned(), TEXT.to_owned(), TEXT.to_owned());
    all.reports.insert("hostile".parse().unwrap(), status);
    all
}

/// Serves made-up volumes until the end of the process, and returns the address. `program` gives advice, and
/// changes are allowed then.
fn dashboard(volumes: MadeUp, program: Option<PathBuf>) -> String {
    let (sender, receiver) = channel();
    let local = "127.0.0.1:0".parse().unwrap();
    let access = Access::new(local, None, &[], program.is_some()).unwrap();
    std::thread::spawn(move || {
        serve(Arc::new(volumes), local, access, program, move |address| sender.send(address).unwrap())
    });
    format!("http://{}/", receiver.recv().unwrap())
}

/// A program that gives a real advice about another load at once.
fn adviser(machine: &Machine) -> PathBuf {
    record_reads(machine, 1000);
    let words = ["--present", "hdd-only", "--policy", "ssd-first", "--policies-only"];
    let advice = machine.json(&[&["advise", "--trace", "t.spc"], DEVICES, &words].concat());
    std::fs::write(machine.path("advice.json"), advice.to_string()).unwrap();
    let path = machine.path("adviser");
    std::fs::write(&path, format!("#!/bin/sh\ncat '{}'\n", machine.path("advice.json").display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The folder of Playwright, which `scripts/install-tools` fills.
fn modules() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("browser/node_modules");
    folder.join("playwright-core").exists().then_some(folder)
}

/// Writes and reads the volume until told to stop. Without a daemon nothing happens.
fn load(uri: &str, is_over: &AtomicBool) {
    let mut words: Vec<String> = (0..20).map(|n| format!("write -P 5 {}k 64k", 16_384 + n * 64)).collect();
    words.extend((0..200).map(|_| "read 16M 4k".to_owned()));
    words.push("flush".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    while !is_over.load(Ordering::Relaxed) {
        let (_, _) = qemu_io(uri, &words);
        std::thread::sleep(Duration::from_millis(400));
    }
}

/// Ends the load, also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn dashboard_in_a_browser_passes_its_scenarios() {
    if !have(&["node", "chromium", "qemu-io"]) {
        return;
    }
    let Some(modules) = modules() else {
        skip("playwright-core is not installed below target/browser: scripts/install-tools");
        return;
    };
    let machine = Machine::new();
    let devices = ["--ssd", "a.img,size=96MiB", "--hdd", "b.img,size=96MiB", "--copies", "2"];
    machine.ok(&[&["create", "vault"], &devices[..]].concat());
    let mut daemon = Some(machine.serve(&["vault"]));
    let uri = daemon.as_ref().unwrap().uri.clone();
    qemu_io_ok(&uri, &["write -P 1 16M 8M", "flush"]);
    let web = Daemon::start(machine.command(&["web", "--listen", "127.0.0.1:0", "--allow-changes"]));
    let status: StatusReport = serde_json::from_value(machine.json(&["status", "vault"])).unwrap();
    let explanation: ExplainReport =
        serde_json::from_value(machine.json(&["explain", "vault", "16MiB"])).unwrap();
    let (is_over, loaded) = (AtomicBool::new(false), uri.clone());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/scenarios.mjs");
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    std::fs::create_dir_all(&pictures).unwrap();
    let mut command = Command::new("node");
    command.arg(script).arg(modules).arg(&pictures).arg(&web.uri);
    let made = |make: fn(&StatusReport, &ExplainReport) -> MadeUp, program| {
        dashboard(make(&status, &explanation), program)
    };
    let few = made(few, Some(adviser(&machine)));
    command.args([made(many, None), few, made(wide, None), made(hostile, None)]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let said = std::thread::scope(|scope| {
        scope.spawn(|| load(&loaded, &is_over));
        let _over = Over(&is_over);
        let mut browser = command.spawn().unwrap();
        let mut answers = browser.stdin.take().unwrap();
        let mut said = Vec::new();
        for line in BufReader::new(browser.stdout.take().unwrap()).lines().map_while(std::io::Result::ok) {
            match line.strip_prefix("do ") {
                Some("fail") => {
                    machine.ok(&["device", "fail", "vault", "d1"]);
                }
                Some("kill") => daemon.take().unwrap().kill(),
                Some("serve") => daemon = Some(machine.serve(&["vault"])),
                Some(unknown) => panic!("the browser asks for {unknown}"),
                None => {
                    said.push(line);
                    continue;
                }
            }
            writeln!(answers, "done").unwrap();
        }
        let ended = browser.wait().unwrap();
        said.push(format!("node: {ended}"));
        said
    });
    let passed = said.iter().filter(|line| line.starts_with("passed ")).count();
    let report = said.join("\n");
    assert_eq!(passed, SCENARIOS, "pictures of failures are in {}:\n{report}", pictures.display());
    assert!(!report.contains("failed "), "{report}");
    assert_eq!(web.terminate().status, 0);
    assert_eq!(daemon.unwrap().terminate().status, 0);
}
