//! Simulations as text: a table of guests' requests and a table of devices, with policies side by side.

use super::bar::clock;
use super::{Ended, Report, Row};
use crate::status::time;
use crate::table::Table;
use braid_base::Bytes;
use braid_lab::{DeviceOutcome, LinkOutcome, NetworkOutcome, Operation, Outcome, Run, Setup, Size};

/// Returns the whole report.
pub fn describe(report: &Report, setup: &Setup) -> String {
    let done: Vec<(&Row, &Run)> = report
        .runs
        .iter()
        .filter_map(|row| match &row.result {
            Ended::Done(run) => Some((row, &**run)),
            Ended::Failed { .. } => None,
        })
        .collect();
    let Some((first, run)) = done.first() else { return String::new() };
    let loads = done.iter().any(|(row, _)| row.given.load != first.given.load);
    let clients = done.iter().any(|(row, _)| row.given.clients != first.given.clients);
    let columns = Columns { loads, clients };
    let mut text = heading(setup, &run.outcome, !loads);
    text += &traces(&done);
    text += &fills(&done);
    text += "\n";
    text += &guests(&done, columns);
    if let [(_, run)] = done.as_slice() {
        text += &kinds(&run.outcome);
    }
    text += &devices(&done, columns);
    if let [(_, run)] = done.as_slice() {
        text += &behind_the_scenes(&run.outcome);
    }
    text += &notes(&done);
    text + &closing(&done, report)
}

/// Columns, beside the policy, in which rows differ.
#[derive(Clone, Copy)]
struct Columns {
    loads: bool,
    clients: bool,
}

impl Columns {
    fn names(self) -> Vec<&'static str> {
        let mut names = vec!["policy"];
        names.extend(self.loads.then_some("load"));
        names.extend(self.clients.then_some(">clients"));
        names
    }

    fn cells(self, row: &Row) -> Vec<String> {
        let mut cells = vec![row.policy()];
        cells.extend(self.loads.then(|| row.given.load.clone()));
        cells.extend(self.clients.then(|| row.given.clients.map_or("-".to_owned(), |n| n.to_string())));
        cells
    }
}

/// Lines about the simulated devices and the load; models by their own names.
fn heading(setup: &Setup, outcome: &Outcome, one_load: bool) -> String {
    let mut place = 0;
    let kinds = setup.devices.iter().map(|kind| {
        let DeviceOutcome { class, model, size_bytes, .. } = &outcome.devices[place];
        place += kind.count;
        let size = match kind.size {
            Size::Bytes(bytes) => bytes.to_string(),
            share @ Size::Share(_) => format!("{share} of the data ({})", Bytes(*size_bytes)),
        };
        match kind.count {
            1 => format!("{class} {model} of {size}"),
            count => format!("{count} × {class} {model} of {size}"),
        }
    });
    let mut text = format!("simulated: {}\n", kinds.collect::<Vec<_>>().join(", "));
    if one_load {
        let volume = Bytes(outcome.volume_bytes);
        text += &format!("  load {}, seed {}, on a volume of {volume}\n", outcome.load, outcome.seed);
    }
    text
}

/// Policy that placed the filled data, for each simulation if the policies differ.
fn fills(done: &[(&Row, &Run)]) -> String {
    let mut named: Vec<(&str, Vec<&str>)> = Vec::new();
    for (row, Run { outcome, .. }) in done {
        let by = outcome.prefill_policy.as_deref().unwrap_or("no policy: the volume is empty");
        let policy = row.given.policy.as_str();
        match named.iter_mut().find(|(known, _)| *known == by) {
            Some((_, policies)) if policies.contains(&policy) => {}
            Some((_, policies)) => policies.push(policy),
            None => named.push((by, vec![policy])),
        }
    }
    let line = |(by, policies): &(&str, Vec<&str>)| match named.len() {
        1 => format!("  filled before by {by}\n"),
        _ => format!("  filled before by {by} for {}\n", policies.join(", ")),
    };
    named.iter().map(line).collect()
}

/// How the addresses of each trace were mapped.
fn traces(done: &[(&Row, &Run)]) -> String {
    let (mut text, mut named) = (String::new(), Vec::new());
    for (row, Run { outcome, .. }) in done {
        let Some(trace) = &outcome.trace else { continue };
        if named.contains(&&row.given.load) {
            continue;
        }
        named.push(&row.given.load);
        let (span, extent) = (Bytes(trace.span_bytes), Bytes(outcome.extent_bytes));
        text += &match trace.compacted_bytes.map(Bytes) {
            Some(touched) => format!(
                "  {}: compacted: touches {touched} in extents of {extent}, of {span}\n",
                outcome.load
            ),
            None => format!("  {}: not compacted: addresses up to {span}\n", outcome.load),
        };
    }
    text
}

fn guests(done: &[(&Row, &Run)], columns: Columns) -> String {
    let mut names = columns.names();
    names.extend([
        ">MB/s",
        ">requests/s",
        ">mean",
        ">p50",
        ">p95",
        ">p99",
        ">p99.9",
        ">max",
        ">queue",
        ">cache",
        ">moved",
        ">measured",
    ]);
    let mut table = Table::new(&names);
    for (row, Run { outcome, .. }) in done {
        let latency = &outcome.all.latency;
        let mut cells = columns.cells(row);
        cells.extend([
            format!("{:.2}", outcome.throughput_bytes_per_second / 1e6),
            format!("{:.0}", outcome.requests_per_second),
            time(latency.mean as u64),
            time(latency.p50),
            time(latency.p95),
            time(latency.p99),
            time(latency.p999),
            time(latency.max),
            time(outcome.all.queue.mean as u64),
            percent(outcome.cache_hit_ratio),
            Bytes(moved(outcome)).to_string(),
            clock(outcome.measured_seconds),
        ]);
        table.row(cells);
    }
    table.render("  ")
}

/// Reads and writes of a single simulation separately, with the queue time outside the volume.
fn kinds(outcome: &Outcome) -> String {
    let mut table = Table::new(&[
        "guests",
        ">requests",
        ">bytes",
        ">mean",
        ">p50",
        ">p95",
        ">p99",
        ">p99.9",
        ">max",
        ">queue mean",
        ">queue p99",
        ">service mean",
        ">service p99",
    ]);
    let kinds = [
        ("read", &outcome.read),
        ("write", &outcome.write),
        ("flush", &outcome.flush),
        ("discard", &outcome.discard),
    ];
    for (name, kind) in kinds.into_iter().filter(|(_, kind)| kind.requests > 0) {
        let Operation { requests, bytes, latency, queue, service } = kind;
        table.row(vec![
            name.to_owned(),
            requests.to_string(),
            Bytes(*bytes).to_string(),
            time(latency.mean as u64),
            time(latency.p50),
            time(latency.p95),
            time(latency.p99),
            time(latency.p999),
            time(latency.max),
            time(queue.mean as u64),
            time(queue.p99),
            time(service.mean as u64),
            time(service.p99),
        ]);
    }
    format!("\n{}", table.render("  "))
}

fn devices(done: &[(&Row, &Run)], columns: Columns) -> String {
    let mut names = columns.names();
    names.extend([
        "device",
        "class",
        "model",
        ">requests",
        ">data",
        ">mean",
        ">p99",
        ">busy",
        ">depth",
        ">read",
        ">written",
        ">background",
        ">writes/day",
    ]);
    let mut table = Table::new(&names);
    for (row, Run { outcome, .. }) in done {
        let mut lead = columns.cells(row);
        for device in &outcome.devices {
            let mut cells = lead.clone();
            cells.extend(device_cells(device));
            table.row(cells);
            // The leading cells stand only in the row of a simulation's first device.
            lead.iter_mut().for_each(String::clear);
        }
    }
    format!("\n{}", table.render("  "))
}

fn device_cells(device: &DeviceOutcome) -> Vec<String> {
    let wear =
        if device.class == "ssd" { format!("{:.2}", device.drive_writes_per_day) } else { "-".to_owned() };
    vec![
        device.device.clone(),
        device.class.clone(),
        device.model.clone(),
        percent(device.requests_share),
        percent(device.data_share),
        time(device.response.mean as u64),
        time(device.response.p99),
        percent(device.utilisation),
        format!("{:.2}", device.queue_depth_mean),
        Bytes(device.device_read_bytes).to_string(),
        Bytes(device.device_written_bytes).to_string(),
        Bytes(device.background_bytes).to_string(),
        wear,
    ]
}

fn behind_the_scenes(outcome: &Outcome) -> String {
    let background = &outcome.background;
    let moved = [
        ("migrated", background.migrated_bytes),
        ("mirrored", background.mirrored_bytes),
        ("promoted", background.promoted_bytes),
        ("written back", background.written_back_bytes),
        ("probes", background.probed_bytes),
        ("journal", background.journal_written_bytes),
        ("map", background.map_written_bytes),
    ];
    let moved =
        moved.iter().filter(|(_, bytes)| *bytes > 0).map(|(what, bytes)| format!("{what} {}", Bytes(*bytes)));
    let moved = moved.collect::<Vec<_>>().join(", ");
    let moved = if moved.is_empty() { "nothing".to_owned() } else { moved };
    let mut text = format!(
        "\n  policy      {}\n  background  {moved}; {} migrations, {} stopped, {} probes\n  memory      map {}, policy {}\n",
        outcome.policy,
        background.migrations,
        background.migrations_stopped,
        background.probes,
        Bytes(outcome.map_memory_bytes),
        Bytes(outcome.policy_memory_bytes),
    );
    text += &outcome.network.as_ref().map_or_else(String::new, network);
    if outcome.verified_bytes > 0 {
        text += &format!("  verified    {} read, all as last written\n", Bytes(outcome.verified_bytes));
    }
    if outcome.dropped_requests + outcome.bad_records > 0 {
        let (dropped, bad) = (outcome.dropped_requests, outcome.bad_records);
        text +=
            &format!("  left out    {dropped} requests beyond the end, {bad} lines that could not be read\n");
    }
    text
}

/// Traffic between machines.
fn network(network: &NetworkOutcome) -> String {
    let busiest = |share: fn(&LinkOutcome) -> f64| network.links.iter().map(share).fold(0.0, f64::max);
    format!(
        "  network     moves {}; the busiest link sends {} and receives {} of the time\n",
        Bytes(network.moved_bytes),
        percent(busiest(|link| link.send_utilisation)),
        percent(busiest(|link| link.receive_utilisation)),
    )
}

/// Notes about the results: each sentence once, with its policies unless it applies to all.
fn notes(done: &[(&Row, &Run)]) -> String {
    let mut said: Vec<(&str, Vec<String>)> = Vec::new();
    for (row, Run { outcome, .. }) in done {
        for note in &outcome.notes {
            match said.iter_mut().find(|(known, _)| known == note) {
                Some((_, policies)) => policies.push(row.policy()),
                None => said.push((note, vec![row.policy()])),
            }
        }
    }
    let line = |(note, policies): &(&str, Vec<String>)| match policies.len() == done.len() {
        true => format!("  note: {note}\n"),
        false => format!("  note: under {}: {note}\n", policies.join(", ")),
    };
    let lines: String = said.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn closing(done: &[(&Row, &Run)], report: &Report) -> String {
    let requests: f64 = done.iter().map(|(_, run)| run.outcome.all.requests as f64).sum();
    format!("\n{:.2} M requests in {} of this machine's time\n", requests / 1e6, clock(report.wall_seconds),)
}

fn moved(outcome: &Outcome) -> u64 {
    let b = &outcome.background;
    b.migrated_bytes + b.mirrored_bytes + b.promoted_bytes + b.written_back_bytes
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
