//! Server of the admin socket, in the daemon: a task for each connection reads a line, performs the request
//! and replies.

use crate::admin::protocol::{Envelope, LONGEST_REQUEST, PROTOCOL_VERSION, Reply, Request};
use crate::device::spec::DeviceSpec;
use crate::record::send::send_recording;
use crate::report::changes::PolicyReport;
use crate::serve::daemon::Daemon;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, Nanos};
use braid_engine::Export;
use braid_runtime::Runtime;
use braid_uring::{Listener, Stream};
use serde::Serialize;
use serde_json::Value;
use std::rc::Rc;

/// Limit of connections; further connections are refused.
const MOST_CONNECTIONS: usize = 16;
/// Delay after a connection could not be accepted.
const ACCEPT_AGAIN: Nanos = Nanos::from_millis(100);

/// Accepts connections for as long as the daemon runs.
pub(crate) async fn serve_admin(daemon: Rc<Daemon>, listener: Listener) {
    let open = Rc::new(());
    loop {
        let Ok(stream) = listener.accept().await else {
            daemon.ring.sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let daemon = daemon.clone();
        let place = (Rc::strong_count(&open) <= MOST_CONNECTIONS).then(|| open.clone());
        daemon.ring.clone().spawn(async move {
            // An error means a disconnected client.
            let _ended = match place {
                Some(_place) => converse(&daemon, &stream).await,
                None => send(&stream, &Reply::Error(too_many())).await,
            };
        });
    }
}

fn too_many() -> Error {
    let problem = format!("{MOST_CONNECTIONS} admin connections are open: close one, as of a status --watch");
    Error::new(ErrorKind::Busy, problem)
}

/// Serves requests in turn, until the client ends or violates the protocol.
async fn converse(daemon: &Rc<Daemon>, stream: &Stream) -> std::io::Result<()> {
    let mut received = Vec::new();
    while let Some(line) = next_line(stream, &mut received).await? {
        let request = match line {
            Ok(line) => request(&line),
            Err(too_long) => return send(stream, &Reply::Error(too_long)).await,
        };
        let reply = match request {
            Ok(Request::Record) => match daemon.recorder.start() {
                Some(recording) => {
                    send(stream, &Reply::Ok(nothing())).await?;
                    return send_recording(daemon, stream, recording).await;
                }
                None => Err(recorded_already(daemon)),
            },
            Ok(request) => answer(daemon, request).await,
            Err(error) => Err(error),
        };
        send(stream, &reply.map_or_else(Reply::Error, Reply::Ok)).await?;
    }
    Ok(())
}

async fn send(stream: &Stream, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply).map_err(std::io::Error::other)?;
    line.push(b'\n');
    stream.send_all(&line).await
}

/// Returns the next line, without its newline; `None` if the client has ended. Later bytes stay in
/// `received`.
async fn next_line(stream: &Stream, received: &mut Vec<u8>) -> std::io::Result<Option<Result<Vec<u8>>>> {
    let mut searched = 0;
    loop {
        if let Some(end) = received[searched..].iter().position(|&byte| byte == b'\n') {
            let rest = received.split_off(searched + end + 1);
            let mut line = std::mem::replace(received, rest);
            line.pop();
            return Ok(Some(Ok(line)));
        }
        searched = received.len();
        if searched >= LONGEST_REQUEST {
            let problem = format!("a request is longer than {LONGEST_REQUEST} bytes");
            return Ok(Some(Err(Error::new(ErrorKind::Usage, problem))));
        }
        let mut piece = [0; 4096];
        match stream.try_recv(&mut piece)? {
            None => stream.readable().await?,
            Some(0) => return Ok(None),
            Some(count) => received.extend_from_slice(&piece[..count]),
        }
    }
}

/// Parses a line as a request.
fn request(line: &[u8]) -> Result<Request> {
    let usage = |problem: String| Error::new(ErrorKind::Usage, problem);
    let version = serde_json::from_slice::<Value>(line).ok().and_then(|value| value.get("version")?.as_u64());
    if version.is_some_and(|version| version != u64::from(PROTOCOL_VERSION)) {
        let problem =
            format!("this daemon speaks version {PROTOCOL_VERSION} of the admin protocol: use its braid");
        return Err(Error::new(ErrorKind::Unsupported, problem));
    }
    let envelope: Envelope =
        serde_json::from_slice(line).map_err(|e| usage(format!("invalid request to a daemon: {e}")))?;
    Ok(envelope.request)
}

async fn answer(daemon: &Rc<Daemon>, request: Request) -> Result<Value> {
    match request {
        Request::Status => value(&daemon.status()),
        Request::Explain { offset_bytes } => value(&daemon.explain(Bytes(offset_bytes))?),
        Request::Policy => value(&policy(daemon)),
        Request::SetPolicy { policy: text } => {
            daemon.volume.set_policy(&text).await.map_err(Error::of_policy)?;
            tracing::info!("policy {}", daemon.volume.policy());
            value(&policy(daemon))
        }
        Request::Attach => value(&daemon.attachment.attach(&daemon.export).await?),
        Request::Detach => done(daemon.attachment.detach().await),
        Request::FailDevice { device } => done(fail_device(daemon, DeviceId(device)).await),
        Request::AddDevice { class, new, overwrite } => {
            let class = class.parse().map_err(|e: String| Error::new(ErrorKind::Usage, e))?;
            value(&daemon.add_device(&DeviceSpec::parse(class, &new)?, overwrite).await?)
        }
        Request::RemoveDevice { device } => {
            done(daemon.volume.remove_device(DeviceId(device)).await.map_err(Error::from))
        }
        Request::ReplaceDevice { device, new, overwrite } => {
            value(&daemon.replace_device(DeviceId(device), &new, overwrite).await?)
        }
        Request::KeepDevice { device } => {
            done(daemon.volume.cancel_removal(DeviceId(device)).await.map_err(Error::from))
        }
        Request::ReturnDevice { device, path } => value(&daemon.return_device(DeviceId(device), path).await?),
        Request::Flush => done(daemon.volume.flush().await.map_err(Error::from)),
        Request::Checkpoint => {
            daemon.volume.flush().await?;
            done(daemon.volume.checkpoint().await.map_err(Error::from))
        }
        Request::Stop => done(daemon.stop_and_wait().await),
        // Handled by the connection.
        Request::Record => Err(recorded_already(daemon)),
    }
}

async fn fail_device(daemon: &Daemon, device: DeviceId) -> Result<()> {
    let failed = daemon.volume.fail_device(device).await.map_err(Error::from);
    failed.map_err(|error| match (error.kind(), daemon.status().copies) {
        // No second copy will ever come: name the remedy.
        (ErrorKind::Degraded, 1) => {
            let name = &daemon.name;
            let problem = format!(
                "{device} of volume '{name}' alone holds something, and the volume has one copy of everything: braid device remove {name} {device} \
                 moves it to the others"
            );
            Error::new(ErrorKind::Degraded, problem)
        }
        _ => error,
    })?;
    tracing::warn!("device {device} of volume '{}' was taken out of use by the administrator", daemon.name);
    Ok(())
}

fn recorded_already(daemon: &Daemon) -> Error {
    let problem = format!("volume '{}' is recorded already: end that recording first", daemon.name);
    Error::new(ErrorKind::Busy, problem)
}

fn policy(daemon: &Daemon) -> PolicyReport {
    PolicyReport { name: daemon.name.to_string(), policy: daemon.volume.policy() }
}

fn value(report: &impl Serialize) -> Result<Value> {
    serde_json::to_value(report)
        .map_err(|error| Error::new(ErrorKind::Io, format!("the reply cannot be written as JSON: {error}")))
}

/// Returns the empty reply.
fn done(result: Result<()>) -> Result<Value> {
    result.map(|()| nothing())
}

fn nothing() -> Value {
    Value::Object(serde_json::Map::new())
}
