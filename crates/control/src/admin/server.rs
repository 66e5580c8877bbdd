//! Server of the admin socket, in the daemon: a task for each connection reads a line, performs the request
//! and replies.

use crate::admin::protocol::{Envelope, LONGEST_REQUEST, PROTOCOL_VERSION, Reply, Request};
use crate::device::spec::DeviceSpec;
use crate::guard::Guard;
use crate::record::send::send_recording;
use crate::report::types::StatusReport;
use crate::served::ServedVolume;
use crate::served::via::Via;
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
pub(crate) async fn serve_admin(served: Rc<ServedVolume>, guard: Rc<Guard>, listener: Listener) {
    let open = Rc::new(());
    loop {
        let Ok(stream) = listener.accept().await else {
            served.ring().sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let (served, guard) = (served.clone(), guard.clone());
        let place = (Rc::strong_count(&open) <= MOST_CONNECTIONS).then(|| open.clone());
        served.ring().clone().spawn(async move {
            // An error means a disconnected client.
            let _ended = match (refused(&stream), place) {
                (_, None) => send(&stream, Err(too_many())).await,
                (Some(refused), Some(_place)) => refuse(&stream, refused).await,
                (None, Some(_place)) => converse(&served, &guard, &stream).await,
            };
        });
    }
}

/// Returns the refusal of a client that belongs neither to root nor to the user of the daemon. The mode of
/// the socket keeps others away; this check holds even if the mode or the owner was changed.
fn refused(stream: &Stream) -> Option<Error> {
    let (peer, own) = (stream.peer_user(), rustix::process::geteuid().as_raw());
    if peer.is_some_and(|peer| peer == 0 || peer == own) {
        return None;
    }
    let peer = peer.map_or_else(|| "an unknown user".to_owned(), |peer| format!("user {peer}"));
    tracing::warn!("{peer} ({}) was refused at the admin socket", stream.peer());
    let problem = format!("the daemon of user {own} obeys root and user {own}, not {peer}: use sudo");
    Some(Error::new(ErrorKind::Invalid, problem))
}

/// Refuses the first request. A refusal before the request would reset the connection, and the client could
/// lose the reason.
async fn refuse(stream: &Stream, refused: Error) -> std::io::Result<()> {
    next_line(stream, &mut Vec::new()).await?;
    send(stream, Err(refused)).await
}

fn too_many() -> Error {
    let problem = format!(
        "{MOST_CONNECTIONS} admin connections are open, the limit: close one, for example a status --watch"
    );
    Error::new(ErrorKind::Busy, problem)
}

/// Serves requests in turn, until the client ends or violates the protocol.
async fn converse(served: &ServedVolume, guard: &Guard, stream: &Stream) -> std::io::Result<()> {
    let mut received = Vec::new();
    while let Some(line) = next_line(stream, &mut received).await? {
        let request = match line {
            Ok(line) => request(&line),
            Err(too_long) => return send(stream, Err(too_long)).await,
        };
        let reply = match request {
            Ok(Request::Record) => match served.frontends().recorder().start() {
                Some(recording) => {
                    send(stream, Ok(nothing())).await?;
                    let (name, size) = (served.name().as_str(), served.volume().size());
                    let is_stopping = || served.end().has_begun();
                    return send_recording(served.ring(), name, size, stream, recording, is_stopping).await;
                }
                None => Err(recorded_already(served)),
            },
            Ok(request) => answer(served, guard, request).await,
            Err(error) => Err(error),
        };
        send(stream, reply).await?;
    }
    Ok(())
}

/// Sends a reply: JSON, or an error.
async fn send(stream: &Stream, reply: Result<Vec<u8>>) -> std::io::Result<()> {
    let line = match reply {
        Ok(json) => [b"{\"ok\":", &json[..], b"}\n"].concat(),
        Err(error) => {
            let mut line = serde_json::to_vec(&Reply::Error(error)).map_err(std::io::Error::other)?;
            line.push(b'\n');
            line
        }
    };
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
        let problem = format!(
            "this daemon speaks version {PROTOCOL_VERSION} of the admin protocol: use the braid program \
             of the same version"
        );
        return Err(Error::new(ErrorKind::Unsupported, problem));
    }
    let envelope: Envelope =
        serde_json::from_slice(line).map_err(|e| usage(format!("invalid request to a daemon: {e}")))?;
    Ok(envelope.request)
}

/// Performs a request, and returns its result as JSON.
async fn answer(served: &ServedVolume, guard: &Guard, request: Request) -> Result<Vec<u8>> {
    match request {
        Request::Status => value(&StatusReport { guard: guard.report(), ..served.status() }),
        Request::Explain { offset_bytes } => value(&served.explain(Bytes(offset_bytes))?),
        Request::Map { device } => served.extent_map(device).await,
        Request::Policy => value(&served.policy()),
        Request::SetPolicy { policy } => value(&served.set_policy(&policy).await?),
        Request::Attach { via, sector_bytes } => {
            value(&served.frontends().attach(via.unwrap_or(Via::Loop), sector_bytes).await?)
        }
        Request::Detach { block_device } => done(served.frontends().detach(block_device.as_ref()).await),
        Request::FailDevice { device } => done(served.fail_device(DeviceId(device)).await),
        Request::AddDevice { class, new, overwrite } => {
            let class = class.parse().map_err(|e: String| Error::new(ErrorKind::Usage, e))?;
            value(&served.add_device(&DeviceSpec::parse(class, &new)?, overwrite).await?)
        }
        Request::RemoveDevice { device } => {
            done(served.volume().remove_device(DeviceId(device)).await.map_err(Error::from))
        }
        Request::ReplaceDevice { device, new, overwrite } => {
            value(&served.replace_device(DeviceId(device), &new, overwrite).await?)
        }
        Request::KeepDevice { device } => {
            done(served.volume().cancel_removal(DeviceId(device)).await.map_err(Error::from))
        }
        Request::ReturnDevice { device, path } => value(&served.return_device(DeviceId(device), path).await?),
        Request::Resize { size_bytes } => value(&served.resize(Bytes(size_bytes)).await?),
        Request::Flush => done(served.volume().flush().await.map_err(Error::from)),
        Request::Checkpoint => {
            served.volume().flush().await?;
            done(served.volume().checkpoint().await.map_err(Error::from))
        }
        Request::Stop => done(served.end().request_and_wait().await),
        // Handled by the connection.
        Request::Record => Err(recorded_already(served)),
    }
}

fn recorded_already(served: &ServedVolume) -> Error {
    let problem = format!("volume '{}' is being recorded already: end that recording first", served.name());
    Error::new(ErrorKind::Busy, problem)
}

fn value(report: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(report)
        .map_err(|error| Error::new(ErrorKind::Io, format!("the reply cannot be written as JSON: {error}")))
}

/// Returns the empty reply.
fn done(result: Result<()>) -> Result<Vec<u8>> {
    result.map(|()| nothing())
}

fn nothing() -> Vec<u8> {
    b"{}".to_vec()
}
