//! One vectored send for many messages: heads and payloads go to the kernel without a copy.

use braid_runtime::Buf;
use std::io::{self, IoSlice};

/// Largest number of messages in one call of the kernel: 128 slices, below the kernel's 1024, and a stack of
/// 64 small frames.
const BATCH: usize = 64;

/// Hands slices to a socket. Returns the number of bytes taken, `None` if the socket takes nothing now.
pub type Send<'a> = &'a dyn Fn(&[IoSlice]) -> io::Result<Option<usize>>;

/// A reply or a request: a head, then a payload.
pub trait Message {
    /// Bytes before the payload.
    fn head(&self) -> &[u8];

    /// Bytes after the head.
    fn payload(&self) -> Option<&Buf>;
}

/// Calls `send` with the slices of up to [`BATCH`] messages, without their first `skip` bytes.
///
/// A buffer shows its bytes to a closure only. Each message is therefore a frame on the stack, cheaper than a
/// copy of 4 KiB and without an allocation.
pub fn gather<'a, M: Message + 'a>(
    messages: impl Iterator<Item = &'a M>,
    skip: usize,
    send: Send<'_>,
) -> io::Result<Option<usize>> {
    gather_behind(messages, skip, None, send)
}

/// Slices of all messages up to one message, as a list on the stack.
struct Gathered<'a> {
    slices: [&'a [u8]; 2],
    before: Option<&'a Gathered<'a>>,
    count: usize,
}

fn gather_behind<'a, M: Message + 'a>(
    mut messages: impl Iterator<Item = &'a M>,
    skip: usize,
    before: Option<&Gathered<'_>>,
    send: Send<'_>,
) -> io::Result<Option<usize>> {
    let count = before.map_or(0, |before| before.count);
    let Some(message) = (count < BATCH).then(|| messages.next()).flatten() else {
        return send_gathered(before, send);
    };
    let head = message.head();
    let with_payload = |payload: &[u8]| {
        let (head_skip, payload_skip) = (skip.min(head.len()), skip.saturating_sub(head.len()));
        let slices = [&head[head_skip..], &payload[payload_skip..]];
        gather_behind(messages, 0, Some(&Gathered { slices, before, count: count + 1 }), send)
    };
    match message.payload() {
        Some(buf) => Buf::with_bytes(buf, with_payload),
        None => with_payload(&[]),
    }
}

fn send_gathered(last: Option<&Gathered<'_>>, send: Send<'_>) -> io::Result<Option<usize>> {
    let mut slices = [IoSlice::new(&[]); BATCH * 2];
    let mut first = slices.len();
    let newest_first = std::iter::successors(last, |gathered| gathered.before);
    for slice in newest_first.flat_map(|gathered| gathered.slices.into_iter().rev()) {
        if !slice.is_empty() {
            first -= 1;
            slices[first] = IoSlice::new(slice);
        }
    }
    send(&slices[first..])
}
