//! A request: check, call of the export, answer.

use crate::handshake::{ALLOCATION_CONTEXT, Agreed, PAYLOAD_LARGEST};
use crate::memory::{Fit, GUARANTEE_SMALLEST, Held, lead_of};
use crate::session::Session;
use crate::wire::*;
use braid_base::{Bytes, KIB, Op};
use braid_engine::{Allocation, Durability, Error, ErrorKind, Export, Zeroing};
use braid_runtime::yield_now;
use std::cell::Cell;
use std::rc::Rc;

/// Longer reads and writes are served in pieces of this size: large enough for any device, small enough that
/// a request of 32 MiB does not need 32 MiB.
pub const PIECE: Bytes = Bytes(256 * KIB.0);

/// Longest piece at an offset. Ends at the end of a page of the export, so that memory is cut up no more than
/// by aligned pieces.
pub fn longest_piece(offset: Bytes) -> Bytes {
    PIECE - lead_of(offset)
}

/// Smallest hole inside a read with a part of its own, unless the hole reaches to the end. Shorter holes are
/// read as data: a part costs about as much as this many bytes.
const HOLE_WORTH_A_PART: Bytes = Bytes(32 * KIB.0);

/// Largest number of extents in a block status reply: they fit a page. The client asks again from the end of
/// the last extent.
const EXTENTS_AT_MOST: usize = 512;

/// Largest number of queries to the export for one block status reply, if neighbouring extents are alike.
const LOOKUPS_AT_MOST: usize = 8 * EXTENTS_AT_MOST;

/// Queries to the export in a row before the other tasks of this shard get their turn.
const LOOKUPS_AT_ONCE: usize = 16;

/// Bytes of a write, or of a piece.
pub struct Payload {
    /// The bytes.
    pub held: Held,
    /// Target offset in the export.
    pub offset: Bytes,
    /// For a piece: the whole write.
    pub whole: Option<Rc<LongWrite>>,
}

/// A write in pieces. The last piece to complete sends the reply.
pub struct LongWrite {
    /// Bytes of pieces that are not done.
    pub left: Cell<Bytes>,
    /// The first error, or 0.
    pub error: Cell<u32>,
}

/// Work on a request: any request but a write, or a write with its bytes.
pub enum Work {
    /// A request without payload.
    Plain(Request),
    /// Bytes to write.
    Write(Request, Payload),
}

/// Ok if the export may serve the request; else the error of the protocol.
pub fn check(request: &Request, size: Bytes, agreed: Agreed) -> Result<(), u32> {
    let flags = match request.command {
        NBD_CMD_READ if agreed.structured => NBD_CMD_FLAG_DF,
        NBD_CMD_WRITE_ZEROES if request.flags & NBD_CMD_FLAG_FAST_ZERO != 0 => return Err(NBD_ENOTSUP),
        NBD_CMD_WRITE_ZEROES => NBD_CMD_FLAG_NO_HOLE,
        NBD_CMD_BLOCK_STATUS if agreed.allocation => NBD_CMD_FLAG_REQ_ONE,
        NBD_CMD_READ | NBD_CMD_WRITE | NBD_CMD_FLUSH | NBD_CMD_TRIM | NBD_CMD_CACHE => 0,
        _ => return Err(NBD_EINVAL),
    };
    if request.flags & !(flags | NBD_CMD_FLAG_FUA) != 0 {
        return Err(NBD_EINVAL);
    }
    if request.command == NBD_CMD_FLUSH {
        return Ok(());
    }
    let end = Bytes(request.offset).checked_add(Bytes(u64::from(request.len)));
    if end.is_none_or(|end| end > size) {
        let grows = matches!(request.command, NBD_CMD_WRITE | NBD_CMD_WRITE_ZEROES);
        return Err(if grows { NBD_ENOSPC } else { NBD_EINVAL });
    }
    let has_payload = matches!(request.command, NBD_CMD_READ | NBD_CMD_WRITE);
    let too_long = has_payload && request.len > PAYLOAD_LARGEST;
    let no_extent = request.command == NBD_CMD_BLOCK_STATUS && request.len == 0;
    if too_long || no_extent { Err(NBD_EINVAL) } else { Ok(()) }
}

/// True if a request changes bytes of the export.
pub fn is_change(request: &Request) -> bool {
    matches!(request.command, NBD_CMD_WRITE | NBD_CMD_TRIM | NBD_CMD_WRITE_ZEROES)
}

/// Serves a request that has passed [`check`], up to its last reply.
pub async fn serve<E: Export>(session: Rc<Session>, export: Rc<E>, work: Work) {
    if let Some(asked) = asked(&work) {
        export.asked(asked);
    }
    match work {
        Work::Write(request, payload) => write(&session, &*export, &request, payload).await,
        Work::Plain(request) if request.len == 0 && request.command != NBD_CMD_FLUSH => {
            succeed(&session, &request)
        }
        Work::Plain(request) => match request.command {
            NBD_CMD_READ if session.agreed.get().structured => read_parts(&session, &*export, &request).await,
            NBD_CMD_READ => read_whole(&session, &*export, &request).await,
            NBD_CMD_BLOCK_STATUS => block_status(&session, &*export, &request).await,
            _ => match change(&*export, &request).await {
                Ok(()) => succeed(&session, &request),
                Err(error) => fail(&session, &request, number_of(&error)),
            },
        },
    }
}

/// The guest's access to the disk. None for a query about the disk, and for a later piece of a long write.
fn asked(work: &Work) -> Option<braid_base::Request> {
    let request = match work {
        Work::Write(request, payload) if payload.offset.0 == request.offset => request,
        Work::Write(..) => return None,
        Work::Plain(request) => request,
    };
    let op = match request.command {
        NBD_CMD_FLUSH => {
            return Some(braid_base::Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO });
        }
        _ if request.len == 0 => return None,
        NBD_CMD_READ => Op::Read,
        NBD_CMD_WRITE => Op::Write,
        NBD_CMD_WRITE_ZEROES if request.flags & NBD_CMD_FLAG_NO_HOLE != 0 => Op::Write,
        NBD_CMD_WRITE_ZEROES | NBD_CMD_TRIM => Op::Discard,
        _ => return None,
    };
    Some(braid_base::Request { op, offset: Bytes(request.offset), len: Bytes(request.len.into()) })
}

/// Answers a refused or failed request.
pub fn fail(session: &Session, request: &Request, error: u32) {
    session.count(|counters| counters.errors += 1);
    let has_parts = matches!(request.command, NBD_CMD_READ | NBD_CMD_BLOCK_STATUS);
    let head = match has_parts && session.agreed.get().structured {
        true => Head::error(request.cookie, error),
        false => Head::simple(request.cookie, error),
    };
    session.reply(head, None);
}

fn succeed(session: &Session, request: &Request) {
    let head = match request.command == NBD_CMD_READ && session.agreed.get().structured {
        true => Head::done(request.cookie),
        false => Head::simple(request.cookie, 0),
    };
    session.reply(head, None);
}

/// A read with structured replies: a part for each piece and for each hole.
async fn read_parts<E: Export>(session: &Session, export: &E, request: &Request) {
    let whole = request.flags & NBD_CMD_FLAG_DF != 0;
    if whole && Bytes(u64::from(request.len)) > GUARANTEE_SMALLEST {
        return fail(session, request, NBD_EOVERFLOW);
    }
    let (mut at, len) = range_of(request);
    let end = at + len;
    loop {
        let next = if whole { (Allocation::Data, len) } else { next_run(export, at, end).await };
        let (allocation, run) = next;
        let (run, payload) = match allocation {
            Allocation::Hole => (run, None),
            Allocation::Data => {
                let fit = if whole { Fit::Exact } else { Fit::AtMost };
                let held = session.share.alloc(at, run, fit).await;
                if let Err(error) = export.read(at, &held.buf).await {
                    return fail(session, request, number_of(&error));
                }
                (held.buf.len(), Some(held))
            }
        };
        let part = if at + run == end { Part::Last } else { Part::More };
        let head = match allocation {
            Allocation::Hole => Head::offset_hole(request.cookie, part, at.0, run.0 as u32),
            Allocation::Data => Head::offset_data(request.cookie, part, at.0, run.0 as u32),
        };
        if part == Part::Last {
            return session.reply(head, payload);
        }
        if !session.reply_part(head, payload).await {
            return session.end(1);
        }
        at += run;
    }
}

/// Next part of a read: a hole worth a part, or up to a piece of data and short holes.
async fn next_run<E: Export>(export: &E, at: Bytes, end: Bytes) -> (Allocation, Bytes) {
    let (mut len, mut lookups) = (Bytes::ZERO, Lookups::default());
    let longest = longest_piece(at);
    while len < longest.min(end - at) {
        let left = end - at - len;
        let (allocation, run) = lookups.allocation(export, at + len, left).await;
        if allocation == Allocation::Hole && run >= HOLE_WORTH_A_PART.min(left) {
            if len == Bytes::ZERO {
                return (Allocation::Hole, run);
            }
            break;
        }
        len += run;
    }
    (Allocation::Data, len.min(longest))
}

/// A read with a simple reply: one head, then all the bytes. A read of more than one piece runs alone on the
/// connection (see [`needs_quiet`]): no other reply may come between its pieces.
async fn read_whole<E: Export>(session: &Session, export: &E, request: &Request) {
    let (mut at, len) = range_of(request);
    let end = at + len;
    let mut head = Head::simple(request.cookie, 0);
    loop {
        let longest = session.share.guarantee() - lead_of(at);
        let held = session.share.alloc(at, (end - at).min(longest), Fit::Exact).await;
        let run = held.buf.len();
        if let Err(error) = export.read(at, &held.buf).await {
            if head.as_bytes().is_empty() {
                // The head has promised all the bytes. Only the end of the connection can report the error.
                session.count(|counters| counters.errors += 1);
                session.abandon();
                return session.end(1);
            }
            return fail(session, request, number_of(&error));
        }
        if at + run == end {
            return session.reply(head, Some(held));
        }
        if !session.reply_part(head, Some(held)).await {
            return session.end(1);
        }
        (head, at) = (Head::NONE, at + run);
    }
}

/// True if the request must run with no other request in flight.
pub fn needs_quiet(session: &Session, request: &Request) -> bool {
    let (offset, len) = range_of(request);
    let long = lead_of(offset) + len > session.share.guarantee();
    request.command == NBD_CMD_READ && long && !session.agreed.get().structured
}

async fn write<E: Export>(session: &Session, export: &E, request: &Request, payload: Payload) {
    let Payload { held, offset, whole } = payload;
    let written = export.write(offset, &held.buf, durability_of(request)).await;
    let len = held.buf.len();
    drop(held);
    let mut error = written.err().map_or(0, |error| number_of(&error));
    if let Some(whole) = whole {
        if whole.error.get() == 0 {
            whole.error.set(error);
        }
        whole.left.set(whole.left.get() - len);
        if whole.left.get() > Bytes::ZERO {
            return session.end(1);
        }
        error = whole.error.get();
    }
    match error {
        0 => succeed(session, request),
        error => fail(session, request, error),
    }
}

async fn change<E: Export>(export: &E, request: &Request) -> braid_engine::Result<()> {
    let (offset, len) = range_of(request);
    match request.command {
        NBD_CMD_FLUSH => export.flush().await,
        NBD_CMD_CACHE => export.prefetch(offset, len).await,
        NBD_CMD_TRIM => {
            export.discard(offset, len).await?;
            match durability_of(request) {
                Durability::Volatile => Ok(()),
                Durability::Fua => export.flush().await,
            }
        }
        NBD_CMD_WRITE_ZEROES => {
            let keep = request.flags & NBD_CMD_FLAG_NO_HOLE != 0;
            let zeroing = if keep { Zeroing::KeepAllocated } else { Zeroing::MayDiscard };
            export.write_zeroes(offset, len, zeroing, durability_of(request)).await
        }
        other => panic!("command {other} was let through by `check`, but is not served"),
    }
}

async fn block_status<E: Export>(session: &Session, export: &E, request: &Request) {
    let Held { buf, permit } =
        session.share.alloc(Bytes::ZERO, Bytes::of_len(EXTENTS_AT_MOST * EXTENT_LEN), Fit::Exact).await;
    let most = if request.flags & NBD_CMD_FLAG_REQ_ONE != 0 { 1 } else { EXTENTS_AT_MOST };
    let (mut at, len) = range_of(request);
    let end = at + len;
    let (mut extents, mut extent) = (0, Extent { allocation: Allocation::Data, len: Bytes::ZERO });
    let mut lookups = Lookups::default();
    while at < end && lookups.count < LOOKUPS_AT_MOST {
        let (allocation, run) = lookups.allocation(export, at, end - at).await;
        let run = run.min(end - at);
        if allocation != extent.allocation && extent.len > Bytes::ZERO {
            put_extent_at(&buf, extents, extent);
            extents += 1;
            extent.len = Bytes::ZERO;
            if extents == most {
                break;
            }
        }
        extent = Extent { allocation, len: extent.len + run };
        at += run;
    }
    if extent.len > Bytes::ZERO {
        put_extent_at(&buf, extents, extent);
        extents += 1;
    }
    let buf = buf.slice(Bytes::ZERO..Bytes::of_len(extents * EXTENT_LEN));
    let head = Head::block_status(request.cookie, ALLOCATION_CONTEXT, extents as u32);
    session.reply(head, Some(Held { buf, permit }));
}

/// Queries to the export about one range. An answer may be short, and a range long.
#[derive(Default)]
struct Lookups {
    count: usize,
}

impl Lookups {
    /// Returns [`Export::allocation`]. Yields to other tasks after many queries.
    async fn allocation<E: Export>(&mut self, export: &E, at: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        self.count += 1;
        if self.count.is_multiple_of(LOOKUPS_AT_ONCE) {
            yield_now().await;
        }
        export.allocation(at, limit)
    }
}

/// A range of one allocation, as a descriptor of the reply.
#[derive(Clone, Copy)]
struct Extent {
    allocation: Allocation,
    len: Bytes,
}

fn put_extent_at(buf: &braid_runtime::Buf, extents: usize, extent: Extent) {
    let state = match extent.allocation {
        Allocation::Data => 0,
        Allocation::Hole => NBD_STATE_HOLE | NBD_STATE_ZERO,
    };
    buf.copy_from_slice(Bytes::of_len(extents * EXTENT_LEN), &encode_extent(extent.len.0 as u32, state));
}

fn range_of(request: &Request) -> (Bytes, Bytes) {
    (Bytes(request.offset), Bytes(u64::from(request.len)))
}

fn durability_of(request: &Request) -> Durability {
    match request.flags & NBD_CMD_FLAG_FUA {
        0 => Durability::Volatile,
        _ => Durability::Fua,
    }
}

fn number_of(error: &Error) -> u32 {
    match error.kind() {
        ErrorKind::Invalid => NBD_EINVAL,
        ErrorKind::NoSpace => NBD_ENOSPC,
        _ => NBD_EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::GIB;
    use braid_runtime::{Buf, Executor, Order};

    const SIZE: Bytes = Bytes(1 << 40);
    /// Answers for one block at a time.
    #[derive(Clone)]
    struct Fragmented {
        lookups: Cell<usize>,
    }

    impl Export for Fragmented {
        fn size(&self) -> Bytes {
            GIB
        }

        fn preferred_block(&self) -> Bytes {
            KIB * 4
        }

        async fn read(&self, _: Bytes, _: &Buf) -> Result<(), Error> {
            Ok(())
        }

        async fn write(&self, _: Bytes, _: &Buf, _: Durability) -> Result<(), Error> {
            Ok(())
        }

        async fn flush(&self) -> Result<(), Error> {
            Ok(())
        }

        async fn discard(&self, _: Bytes, _: Bytes) -> Result<(), Error> {
            Ok(())
        }

        async fn write_zeroes(&self, _: Bytes, _: Bytes, _: Zeroing, _: Durability) -> Result<(), Error> {
            Ok(())
        }

        async fn prefetch(&self, _: Bytes, _: Bytes) -> Result<(), Error> {
            Ok(())
        }

        fn allocation(&self, _: Bytes, limit: Bytes) -> (Allocation, Bytes) {
            self.lookups.set(self.lookups.get() + 1);
            (Allocation::Data, limit.min(KIB * 4))
        }
    }

    /// Story: a query about a large range kept the shard for a second.
    #[test]
    fn long_map_walk_yields_to_the_executor() {
        let export = Rc::new(Fragmented { lookups: Cell::new(0) });
        let executor = Executor::new(Order::Fifo);
        let (walked, found) = (export.clone(), Rc::new(Cell::new(None)));
        let into = found.clone();
        executor.spawn(async move { into.set(Some(next_run(&*walked, Bytes::ZERO, GIB).await)) });
        let mut before = 0;
        while found.get().is_none() {
            assert_eq!(executor.run_round(), 1);
            let lookups = export.lookups.replace(0);
            assert!(lookups <= LOOKUPS_AT_ONCE, "{lookups} in a row");
            before += lookups;
        }
        assert_eq!(found.get(), Some((Allocation::Data, PIECE)));
        assert_eq!(before as u64, PIECE / (KIB * 4));
    }

    const MODERN: Agreed = Agreed { structured: true, allocation: true, read_only: false };

    fn request(command: u16, flags: u16, offset: u64, len: u32) -> Request {
        Request { flags, command, cookie: 0, offset, len }
    }

    #[test]
    fn a_write_beyond_the_end_has_no_space_and_a_read_is_wrong() {
        for (command, error) in [
            (NBD_CMD_READ, NBD_EINVAL),
            (NBD_CMD_WRITE, NBD_ENOSPC),
            (NBD_CMD_WRITE_ZEROES, NBD_ENOSPC),
            (NBD_CMD_TRIM, NBD_EINVAL),
            (NBD_CMD_CACHE, NBD_EINVAL),
            (NBD_CMD_BLOCK_STATUS, NBD_EINVAL),
        ] {
            assert_eq!(check(&request(command, 0, SIZE.0 - 1, 1), SIZE, MODERN), Ok(()));
            for (offset, len) in [(SIZE.0 - 1, 2), (SIZE.0, 1), (u64::MAX, u32::MAX), (1 << 63, 1)] {
                assert_eq!(
                    check(&request(command, 0, offset, len), SIZE, MODERN),
                    Err(error),
                    "command {command}"
                );
            }
        }
    }

    #[test]
    fn flags_and_commands_outside_the_agreement_are_refused() {
        let checked = |command, flags, agreed| check(&request(command, flags, 0, 512), SIZE, agreed);
        assert_eq!(checked(NBD_CMD_READ, NBD_CMD_FLAG_DF, MODERN), Ok(()));
        assert_eq!(checked(NBD_CMD_READ, NBD_CMD_FLAG_DF, Agreed::default()), Err(NBD_EINVAL));
        assert_eq!(checked(NBD_CMD_BLOCK_STATUS, NBD_CMD_FLAG_REQ_ONE, MODERN), Ok(()));
        assert_eq!(checked(NBD_CMD_BLOCK_STATUS, 0, Agreed::default()), Err(NBD_EINVAL));
        assert_eq!(checked(NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FUA, MODERN), Ok(()));
        assert_eq!(checked(NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, MODERN), Err(NBD_ENOTSUP));
        assert_eq!(checked(NBD_CMD_WRITE, NBD_CMD_FLAG_NO_HOLE, MODERN), Err(NBD_EINVAL));
        assert_eq!(checked(NBD_CMD_FLUSH, 0, MODERN), Ok(()));
        assert_eq!(checked(8, 0, MODERN), Err(NBD_EINVAL));
    }

    #[test]
    fn payloads_beyond_the_announced_maximum_are_refused() {
        for command in [NBD_CMD_READ, NBD_CMD_WRITE] {
            assert_eq!(check(&request(command, 0, 0, PAYLOAD_LARGEST), SIZE, MODERN), Ok(()));
            assert_eq!(check(&request(command, 0, 0, PAYLOAD_LARGEST + 1), SIZE, MODERN), Err(NBD_EINVAL));
        }
        assert_eq!(check(&request(NBD_CMD_TRIM, 0, 0, u32::MAX), SIZE, MODERN), Ok(()));
    }
}
