//! `braid status`: one line for each volume, or one volume in full.

mod policy;
#[cfg(test)]
pub mod samples;

use crate::create::over_committed;
use crate::output::Output;
use crate::table::Table;
use crate::watch::{Rates, watch};
use braid_base::{Bytes, Nanos};
use braid_control::{
    DeviceReport, Durability, OperationReport, RestingReport, Result, StateDir, StatusReport, VolumeName,
    VolumeReport, attached_device, volume_report,
};
use clap::Args;
use std::fmt::Write;
use std::thread::ScopedJoinHandle;

/// Show all volumes, or one volume in full: devices, guests, background work
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid status
  braid status vault --watch
  braid status vault --json | jq '.devices[] | {device, requests_share, response_ns_p99}'

JSON of a served volume: name, served (true), uuid, process_id, uptime_seconds, nbd_uris,
nbd_connections, nbd_clients, attached_file, vhost_user_socket, vhost_user_guest, policy, guard, policy_lacks, size_bytes, extent_bytes, block_bytes, copies, mapped_bytes,
lost_bytes, lost (offset_bytes, length_bytes), extra_bytes, dirty_bytes, cache_bytes, cache_limit_bytes,
map_memory_bytes, journal_bytes,
behind_bytes, caught_up_bytes_per_second, behind_left_seconds, deferred_bytes, journaled_bytes, epoch, epoch_failure, unapplied_bytes, unapplied_failure,
written_lately_bytes, stale_pages, pending_changes, pending_log, pending_log_failure,
failure, over_committed_bytes,
durability (power_cut, daemon_crash or none: the worst event that flushed data survives), guests, background, devices.
  guard (of equi,mode=auto): mode, switches, switched_seconds_ago, measured_ns_mean, modes (mode, latency_ns_mean), one_in, processor_share, measured_models_off,
    problem
  guests: read, write, flush (requests, bytes, latency_ns_mean, _p50, _p95, _p99, _p999, _max),
    discard_requests, cache_hits, cache_misses, errors, latency_ns_counts (pairs: time, requests)
  background: migrations, migrations_stopped, migrated_bytes, mirrors, promotions,
    promotions_skipped, write_backs, probes, commits, checkpoints, moves_left, moves_left_bytes, moved_bytes_per_second,
    moves_left_seconds
  devices: device, path, class, state, keeps_addresses, adopted, model, uuid, size_bytes, slots_bytes, used_bytes, loss_bytes,
    data_share, requests_share, in_flight, move_share, times_slower, drain_left_bytes, drained_bytes_per_second,
    drain_left_seconds,
    guest_read_requests, guest_write_requests,
    guest_read_bytes, guest_written_bytes, background_bytes, device_written_bytes,
    device_busy_seconds,
    drive_writes_per_day, ssd_life_days, flushes, flush_response_ns_mean, errors,
    last_error, response_ns_mean, _p50, _p95, _p99, _p999, _max, lateness_requests, lateness_ns_mean,
    lateness_ns_max, policy_figures
Exit status with NAME: 3 if no flush can succeed, if a device or a copy is missing or behind, or if no epoch can end.
JSON of a volume that is not served: name, served (false), uuid, temporary, ended_unclean, cannot_end, pending_log, dead_block_devices, waiting_block_devices, dead_mounts, devices (path,
class, model, size_bytes, made, removed, adopted, outdated, missing). Exit status with NAME: 3 if its daemon left mounts behind or cannot end. Without NAME: volumes, a list of such reports; of a volume whose daemon does not
answer within 10 s: name, served (true), process_id, process_state, error (kind, message), and exit status 1.
With NAME such a daemon is an error. With --watch: a line every second.")]
pub struct Arguments {
    /// Name of the volume [default: all volumes]
    name: Option<VolumeName>,
    /// Refresh the report every second, until interrupted
    #[arg(long)]
    watch: bool,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    if arguments.watch {
        return watch(state, arguments.name.as_ref(), output);
    }
    match &arguments.name {
        Some(name) => {
            let report = volume_report(state, name)?;
            let status = match &report {
                VolumeReport::Served(status) => status.exit_status(),
                VolumeReport::Resting(resting) => resting.exit_status(),
                VolumeReport::Silent(silent) => return Err(silent.error.clone()),
            };
            output.show(&report, || describe(state, name, &report, None));
            Ok(status)
        }
        None => {
            let reports = all(state)?;
            output.show(&serde_json::json!({ "volumes": reports }), || overview(&reports));
            let is_silent = |report: &VolumeReport| matches!(report, VolumeReport::Silent(_));
            Ok(u8::from(reports.iter().any(is_silent)))
        }
    }
}

/// Reports of all volumes; volumes without a report are logged. Daemons are asked in parallel: a daemon that
/// does not answer delays no other.
pub fn all(state: &StateDir) -> Result<Vec<VolumeReport>> {
    let report = |name| volume_report(state, name).inspect_err(|error| tracing::warn!("{error}")).ok();
    let mut reports = Vec::new();
    for names in state.names()?.chunks(SIDE_BY_SIDE) {
        std::thread::scope(|scope| {
            let asked: Vec<_> = names.iter().map(|name| scope.spawn(move || report(name))).collect();
            let told = |asked: ScopedJoinHandle<'_, _>| asked.join().expect("a report does not panic");
            reports.extend(asked.into_iter().filter_map(told));
        });
    }
    Ok(reports)
}

/// Daemons asked at the same time, one thread each.
const SIDE_BY_SIDE: usize = 64;

/// Table with a line for each volume.
pub fn overview(reports: &[VolumeReport]) -> String {
    if reports.is_empty() {
        return "no volumes: to create a volume: braid create --help\n".to_owned();
    }
    let mut table = Table::new(&["volume", "state", ">size", ">mapped", "policy", "nbd"]);
    for report in reports {
        table.row(match report {
            VolumeReport::Served(status) => vec![
                status.name.clone(),
                match (status.failure.is_some(), status.is_whole()) {
                    (true, _) => "FAILED".to_owned(),
                    (false, false) => "DEGRADED".to_owned(),
                    (false, true) => "served".to_owned(),
                },
                Bytes(status.size_bytes).to_string(),
                percent(status.mapped_bytes as f64 / status.size_bytes as f64),
                name_of(&status.policy).to_owned(),
                status.nbd_uris.join(" "),
            ],
            VolumeReport::Resting(resting) => {
                let state = match (resting.is_attached_dead(), resting.temporary) {
                    (true, _) => "DEAD MOUNT",
                    (false, true) => "left over",
                    (false, false) => "not served",
                };
                let none = || "-".to_owned();
                vec![resting.name.clone(), state.to_owned(), none(), none(), none(), none()]
            }
            VolumeReport::Silent(silent) => {
                let state = if silent.is_opening() { "opening" } else { "NO ANSWER" };
                let none = || "-".to_owned();
                vec![silent.name.clone(), state.to_owned(), none(), none(), none(), none()]
            }
        });
    }
    let why = |report: &VolumeReport| match report {
        VolumeReport::Silent(silent) => Some(format!("\n{}\n", silent.error)),
        VolumeReport::Served(_) | VolumeReport::Resting(_) => None,
    };
    table.render("") + &reports.iter().filter_map(why).collect::<String>()
}

/// One volume in full, with rates if the volume is watched.
pub fn describe(state: &StateDir, name: &VolumeName, report: &VolumeReport, rates: Option<&Rates>) -> String {
    match report {
        VolumeReport::Served(status) => {
            let device = status.attached_file.as_ref().and_then(|file| attached_device(state, name, file));
            let attached = device.map(|device| format!("  attached as {}\n", device.display()));
            head(status)
                + &attached.unwrap_or_default()
                + &devices(status, rates)
                + &guests(status, rates)
                + &background(status)
        }
        VolumeReport::Silent(silent) => format!("{}\n", silent.error),
        VolumeReport::Resting(resting) => {
            let mut text = match &resting.cannot_end {
                Some(problem) => format!("{problem}\n"),
                None => format!("volume '{name}' is not served: braid serve {name}\n"),
            };
            if resting.temporary {
                text = format!(
                    "volume '{name}' is left over: it was temporary, and its daemon died: braid forget {name}\n"
                );
            }
            text += &left_behind(resting);
            let mut table = Table::new(&["device", "class", "model", ">size", "path"]);
            for (place, device) in resting.devices.iter().enumerate() {
                let model = device.model.clone().unwrap_or_else(|| "-".to_owned());
                let size = Bytes(device.size_bytes).to_string();
                let mark = if device.outdated { " (outdated)" } else { "" };
                let path = device.name() + mark;
                table.row(vec![format!("d{place}"), device.class.clone(), model, size, path]);
            }
            text + &table.render("  ")
        }
    }
}

/// Rate of resynchronisation and time left; empty if no copy is being resynchronised.
fn catch_up(status: &StatusReport) -> String {
    let Some(seconds) = status.behind_left_seconds else { return String::new() };
    let (rate, left) =
        (Bytes(status.caught_up_bytes_per_second as u64), Nanos::from_secs(seconds.ceil() as u64));
    format!(", and is being resynchronised: {rate}/s, {left} left")
}

/// How the last daemon ended, and the remains to remove; empty after a clean shutdown.
fn left_behind(resting: &RestingReport) -> String {
    let (name, mut text) = (&resting.name, String::new());
    if resting.ended_unclean && !resting.temporary {
        text +=
            "  unclean shutdown: the last daemon did not close the volume, as after kill -9 or a power cut: ";
        text += &match &resting.pending_log {
            Some(log) => format!(
                "acknowledged writes that were not flushed are kept in {} until the next start\n",
                log.display()
            ),
            None => "writes that were not flushed may be lost\n".to_owned(),
        };
    }
    for path in &resting.waiting_block_devices {
        text +=
            &format!("  {} waits: its requests continue with the next braid serve {name}\n", path.display());
    }
    for path in resting.dead_block_devices.iter().chain(&resting.dead_mounts) {
        text += &format!("  DEAD: {}: every request to this path fails\n", path.display());
    }
    if resting.is_attached_dead() {
        text += &format!("  To remove dead mounts and devices: braid detach {name}\n");
    }
    text
}

fn head(status: &StatusReport) -> String {
    let StatusReport { name, process_id, policy, copies, .. } = status;
    let uptime = match status.uptime_seconds as u64 {
        0 => "less than 1 s".to_owned(),
        seconds => Nanos::from_secs(seconds).to_string(),
    };
    let mut text = format!("volume '{name}', served for {uptime} by process {process_id}\n");
    if let Some(failure) = &status.failure {
        text += &format!(
            "  FAILED: no flush can succeed any more: {failure}\n  Check the device, stop the daemon, and serve the volume again.\n"
        );
    }
    let is_in_use = |device: &&DeviceReport| matches!(device.state.as_str(), "active" | "draining");
    for device in status.devices.iter().filter(|device| !is_in_use(device)) {
        let times = device
            .times_slower
            .map_or_else(String::new, |times| format!(": requests take {times:.0} times as long as before"));
        text += &format!("  DEGRADED: {} ({}) is {}{times}\n", device.device, device.path, device.state);
    }
    if let Some(lack) = &status.policy_lacks {
        text += &format!("  NOTE: {lack}, or add such a device: the volume uses the devices it has\n");
    }
    if let Some(why) = &status.pending_log_failure {
        text += &format!("  NOTE: a crash of the daemon loses what is not flushed: {why}\n");
    }
    if status.behind_bytes > 0 {
        text += &format!(
            "  DEGRADED: a copy of up to {} is behind{}\n",
            Bytes(status.behind_bytes),
            catch_up(status)
        );
    }
    if let Some(failure) = &status.epoch_failure {
        text +=
            &format!("  DEGRADED: no epoch can end, and the disk may lack more than max-lag: {failure}\n");
    }
    if status.lost_bytes > 0 {
        let (bytes, first) =
            (Bytes(status.lost_bytes), status.lost.first().map_or(0, |range| range.offset_bytes));
        text += &format!(
            "  LOST: {bytes}, the first at byte {first}: they read as errors until whole parts of their extents are written, or they are discarded (--json lists the ranges)\n"
        );
    }
    text += &over_committed(status.over_committed_bytes);
    let (size, extent) = (Bytes(status.size_bytes), Bytes(status.extent_bytes));
    let mapped = Bytes(status.mapped_bytes);
    let share = percent(status.mapped_bytes as f64 / status.size_bytes as f64);
    let copies = if *copies == 1 { "one copy".to_owned() } else { format!("{copies} copies") };
    text += &format!("  size    {size}, {mapped} mapped ({share}); extents of {extent}, {copies}\n");
    text += &policy::lines(status);
    text += &format!("  policy  {policy}\n");
    text += &policy::guard(status);
    for uri in &status.nbd_uris {
        text += &format!("  nbd     {uri}\n");
    }
    text += &machine(status);
    text += match status.durability {
        Durability::PowerCut => "",
        Durability::DaemonCrash => {
            "  emulated devices: a flush survives the death of the daemon, not a power cut of this machine\n"
        }
        Durability::None => "  a device is memory: nothing survives the daemon\n",
    };
    text
}

/// The line of the socket for a virtual machine.
fn machine(status: &StatusReport) -> String {
    let Some(socket) = &status.vhost_user_socket else { return String::new() };
    let guest = status.vhost_user_guest.as_deref().unwrap_or("no virtual machine");
    format!("  vhost   {}, {guest}\n", socket.display())
}

fn devices(status: &StatusReport, rates: Option<&Rates>) -> String {
    let mut columns = vec![
        "device",
        "class",
        "model",
        ">used",
        ">loss costs",
        ">data",
        ">requests",
        ">mean",
        ">p99",
        ">in flight",
    ];
    columns.push(">errors");
    if rates.is_some() {
        columns.extend([">now/s", ">now mean"]);
    }
    columns.push("path");
    let mut table = Table::new(&columns);
    for (place, device) in status.devices.iter().enumerate() {
        let mut cells = vec![
            device.device.clone(),
            device.class.clone(),
            device.model.clone().unwrap_or_else(|| "-".to_owned()),
            match is_lost(device) {
                true => device.state.clone(),
                false => format!("{} of {}", Bytes(device.used_bytes), Bytes(device.slots_bytes)),
            },
            match device.loss_bytes {
                0 => "nothing".to_owned(),
                bytes => Bytes(bytes).to_string(),
            },
            percent(device.data_share),
            percent(device.requests_share),
            time(device.response.response_ns_mean),
            time(device.response.response_ns_p99),
            device.in_flight.to_string(),
            device.errors.to_string(),
        ];
        cells.extend(rates.into_iter().flat_map(|rates| rates.device(place)));
        let kept = match (device.adopted, device.keeps_addresses) {
            (true, _) => " (adopted)",
            (false, true) => " (layout=tail)",
            (false, false) => "",
        };
        cells.push(format!("{}{kept}", device.path));
        table.row(cells);
    }
    let mut text = "\n".to_owned() + &table.render("  ");
    for device in &status.devices {
        text += &drain(device);
        text += &wear(device);
        if let Some(error) = &device.last_error {
            text += &format!("  {}: last error: {error}\n", device.device);
        }
    }
    text
}

/// True if a device is missing or failed.
fn is_lost(device: &DeviceReport) -> bool {
    matches!(device.state.as_str(), "missing" | "failed")
}

/// Bytes written to an SSD, and drive writes per day at this rate; empty for a hard disk, which does not
/// wear.
fn wear(device: &DeviceReport) -> String {
    if device.class != "ssd" || is_lost(device) {
        return String::new();
    }
    let (name, written) = (&device.device, Bytes(device.device_written_bytes));
    let per_day = device.drive_writes_per_day;
    let rate = per_day.map(|writes| format!(", {writes:.2} drive writes per day at this rate"));
    let life = device.ssd_life_days.map(|days| {
        let rating = device.policy_figures.get("wear_drive_writes_per_day").copied().unwrap_or_default();
        format!(", {:.1} years if rated for {rating} over five", days / 365.0)
    });
    let (rate, life) = (rate.unwrap_or_default(), life.unwrap_or_default());
    format!("  {name}: {written} written since the daemon started{rate}{life}\n")
}

/// Progress of draining a device; empty if the device does not drain.
fn drain(device: &DeviceReport) -> String {
    let Some(left) = device.drain_left_bytes else { return String::new() };
    let rate = Bytes(device.drained_bytes_per_second.unwrap_or_default() as u64);
    let time = match device.drain_left_seconds {
        Some(seconds) => format!("{} left", Nanos::from_secs(seconds.ceil() as u64)),
        None => "time left unknown".to_owned(),
    };
    format!("  {} drains, to be removed: {} to move, {rate}/s, {time}\n", device.device, Bytes(left))
}

fn guests(status: &StatusReport, rates: Option<&Rates>) -> String {
    let guests = &status.guests;
    let mut columns =
        vec!["guests", ">requests", ">bytes", ">mean", ">p50", ">p95", ">p99", ">p99.9", ">max"];
    if rates.is_some() {
        columns.extend([">now/s", ">now bytes/s", ">now mean"]);
    }
    let mut table = Table::new(&columns);
    for (name, operation) in [("read", &guests.read), ("write", &guests.write), ("flush", &guests.flush)] {
        let OperationReport { requests, bytes, latency } = operation;
        let mut cells = vec![
            name.to_owned(),
            requests.to_string(),
            Bytes(*bytes).to_string(),
            time(latency.latency_ns_mean),
            time(latency.latency_ns_p50),
            time(latency.latency_ns_p95),
            time(latency.latency_ns_p99),
            time(latency.latency_ns_p999),
            time(latency.latency_ns_max),
        ];
        cells.extend(rates.into_iter().flat_map(|rates| rates.operation(name)));
        table.row(cells);
    }
    let (hits, pieces) = (guests.cache_hits, guests.cache_hits + guests.cache_misses);
    let hit_share = if pieces == 0 { 0.0 } else { hits as f64 / pieces as f64 };
    format!(
        "\n{}  {} NBD connections, {} discards, {} errors; memory cache {} of {}, {} of reads\n",
        table.render("  "),
        status.nbd_connections,
        guests.discard_requests,
        guests.errors,
        Bytes(status.cache_bytes),
        Bytes(status.cache_limit_bytes),
        percent(hit_share),
    )
}

fn background(status: &StatusReport) -> String {
    let background = &status.background;
    let mut text = format!(
        "  background: {} migrations ({}), {} stopped, {} probes, {} commits, {} checkpoints, journal {}",
        background.migrations,
        Bytes(background.migrated_bytes),
        background.migrations_stopped,
        background.probes,
        background.commits,
        background.checkpoints,
        Bytes(status.journal_bytes),
    );
    if status.extra_bytes > 0 || background.promotions > 0 {
        let (extra, dirty) = (Bytes(status.extra_bytes), Bytes(status.dirty_bytes));
        let (promotions, write_backs) = (background.promotions, background.write_backs);
        write!(text, ", extra copies {extra} ({dirty} dirty), {promotions} made, {write_backs} written back")
            .expect("a string takes all that is written to it");
    }
    text + "\n" + &plan(status)
}

/// Progress of the policy's moves: work left, rate, and the budgets of devices; empty if there is nothing to
/// move.
fn plan(status: &StatusReport) -> String {
    let background = &status.background;
    if background.moves_left == 0 && background.moved_bytes_per_second == 0.0 {
        return String::new();
    }
    let left = match background.moves_left_seconds {
        Some(seconds) => format!("{} left", Nanos::from_secs(seconds.ceil() as u64)),
        None => "time left unknown".to_owned(),
    };
    let giving = status.devices.iter().filter(|device| device.move_share > 0.0);
    let budget =
        giving.take(BUDGETS_SHOWN).map(|device| format!("{} {}", device.device, percent(device.move_share)));
    format!(
        "  moves: {} to do ({}), {}/s, {left}; budget of {}\n",
        background.moves_left,
        Bytes(background.moves_left_bytes),
        Bytes(background.moved_bytes_per_second as u64),
        budget.collect::<Vec<_>>().join(", "),
    )
}

/// Most devices whose budget is shown; --json lists all.
const BUDGETS_SHOWN: usize = 16;

fn name_of(policy: &str) -> &str {
    policy.split(',').next().unwrap_or_default()
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A time, or `-` if nothing was measured.
pub fn time(ns: u64) -> String {
    if ns == 0 { "-".to_owned() } else { short(ns) }
}

fn short(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.0} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}
