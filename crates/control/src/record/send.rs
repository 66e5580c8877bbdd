//! The daemon's part of `braid trace record`: after the reply to the request, the admin connection carries a
//! trace in the compact format, until the client ends its side of the connection or the daemon stops.
//!
//! The daemon opens no file and starts no thread. Every 20 ms the daemon encodes the notes as blocks and
//! sends the blocks; guests get turns in between. If a client does not read, notes fill the queue and are
//! then dropped. The end of the trace has the number of dropped notes. Nothing else waits for the client.

use crate::record::notes::Note;
use crate::record::recorded::ActiveRecording;
use braid_base::{Bytes, Nanos};
use braid_runtime::{Runtime, yield_now};
use braid_trace::{BlockCompression, CompactWriter, Header};
use braid_uring::{Ring, Stream};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// Time between two looks at the notes: long enough to cost nothing, short enough for the queue.
const INTERVAL: Nanos = Nanos::from_millis(20);
/// Largest age of notes outside a block: a dying daemon loses them.
const LONGEST_WAIT: Nanos = Nanos::from_millis(500);
/// Notes encoded before guests get a turn: about 10 µs.
const AT_ONCE: usize = 256;

/// Sends a recording to its end, or until `is_stopping`.
pub(crate) async fn send_recording(
    ring: &Ring,
    name: &str,
    size: Bytes,
    stream: &Stream,
    recording: ActiveRecording<Ring>,
    is_stopping: impl Fn() -> bool,
) -> io::Result<()> {
    let start = ring.now();
    let header = Header {
        name: name.to_owned(),
        span: Some(size),
        unix_ns: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_nanos() as u64),
        ..Header::default()
    };
    let mut writer = CompactWriter::open(Vec::new(), &header, BlockCompression::None)?;
    let (mut refused, mut last_block) = (0, start);
    loop {
        ring.sleep(INTERVAL).await;
        let ends = is_stopping() || client_ended(stream)?;
        if ends {
            recording.stop();
        }
        refused += write_notes(stream, &recording, &mut writer, start).await?;
        if ends {
            break;
        }
        let now = ring.now();
        if now.saturating_sub(last_block) >= LONGEST_WAIT {
            last_block = now;
            writer.end_block()?;
        }
        send(stream, &mut writer).await?;
    }
    let (dropped, records) = (recording.dropped() + refused, writer.records());
    stream.send_all(&writer.finish(dropped)?).await?;
    tracing::info!("recorded {records} requests, dropped {dropped}");
    Ok(())
}

/// Encodes all notes. Returns the number of notes that a trace cannot hold, which should be 0.
async fn write_notes(
    stream: &Stream,
    recording: &ActiveRecording<Ring>,
    writer: &mut CompactWriter<Vec<u8>>,
    start: Nanos,
) -> io::Result<u64> {
    let mut notes = [Note::default(); AT_ONCE];
    let mut refused = 0;
    loop {
        let taken = recording.take(&mut notes);
        for note in &notes[..taken] {
            refused += u64::from(writer.push(&note.arrival(start)).is_err());
        }
        if taken < AT_ONCE {
            return Ok(refused);
        }
        send(stream, writer).await?;
        yield_now().await;
    }
}

/// Sends the complete blocks.
async fn send(stream: &Stream, writer: &mut CompactWriter<Vec<u8>>) -> io::Result<()> {
    let out = writer.out();
    if !out.is_empty() {
        stream.send_all(out).await?;
        out.clear();
    }
    Ok(())
}

/// True if the client has ended its side. Other bytes from the client are ignored.
fn client_ended(stream: &Stream) -> io::Result<bool> {
    let mut said = [0; 64];
    Ok(stream.try_recv(&mut said)? == Some(0))
}
