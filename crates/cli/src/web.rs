//! `braid web`: a dashboard of all volumes in the browser, with their metrics.

use crate::output::Output;
use braid_control::{Result, StateDir};
use braid_web::{Access, Token, serve};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Show all volumes in a browser, with metrics for Prometheus, until SIGTERM, SIGINT or SIGHUP
///
/// Asks the daemons of the volumes, and is no part of them: the end of the dashboard changes nothing. Prints
/// the page's address when ready.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid web
  curl --silent http://127.0.0.1:7070/metrics
  braid web --listen 0.0.0.0:7070 --host nas.local --token /etc/braid/web.token

Addresses: / (the page), /api/volumes and /api/volumes/NAME (as braid status --json), /api/events (a report
each second), /healthz (200 if all volumes are whole, else 503), /metrics (OpenMetrics), and below
/api/volumes/NAME: /history?range=day, /map?device=1, /explain?offset_bytes=0 (as braid explain --json),
/alerts (as braid alert --json), /advice.
With --token, requests carry the token (Authorization: Bearer TOKEN), or browsers log in. The connection is
not encrypted: between machines, use a proxy with TLS or an SSH tunnel.

JSON, one line when ready: url.
/history: range (hour, day), interval_seconds, since_unix_seconds, devices (device, class, and lists:
unix_seconds, response_ns_mean, requests_per_second, bytes_per_second, requests_share, in_flight_mean,
utilisation).
/alerts: since_unix_seconds, lasting_count, alerts (unix_seconds, and as braid alert --json; the latest 100, the latest
first).
/advice: is_running, recording_left_seconds, unix_seconds, advice (as braid advise --json), error.
/map: name, size_bytes, cell_bytes, examined_one_in, examined_seconds_ago, on_device, map_cells (lists:
mapped_share, ssd_share, on_device_share, extra_share, lost_share, main_device, first_mapped_bytes,
cell_requests_per_second).")]
pub struct Arguments {
    /// Address and port of the page; port 0 lets the system choose. Other addresses than those of this
    /// machine alone need --token
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// File whose first line is the token: 16 to 1,024 letters, digits and marks
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Name under which browsers reach the page, beside localhost and the address. Repeat the option for
    /// more names
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Allow to change policies, to fail, return, remove and keep devices, and to ask for advice, on the page
    #[arg(long)]
    allow_changes: bool,
}

/// Runs the command.
pub fn run(state: &StateDir, arguments: &Arguments, output: Output) -> Result<u8> {
    let token = arguments.token.as_deref().map(Token::read).transpose()?;
    let access = Access::new(arguments.listen, token, &arguments.host, arguments.allow_changes)?;
    let ready = |address: SocketAddr| {
        let url = format!("http://{address}/");
        output.announce(&serde_json::json!({ "url": url }), || url.clone());
    };
    // The program may be replaced while it runs: the file of this process stays the same program.
    let program = PathBuf::from("/proc/self/exe");
    serve(Arc::new(state.clone()), arguments.listen, access, Some(program), ready)?;
    Ok(0)
}
