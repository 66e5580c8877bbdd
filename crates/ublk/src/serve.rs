//! Service of one request: the operations of a block device upon the verbs of an export.

use crate::wire::{Operation, Request};
use braid_base::{Bytes, Op};
use braid_engine::{Error, ErrorKind, Export, Hints, Zeroing};
use braid_runtime::Buf;
use rustix::io::Errno;

/// Serves a request, with `memory` for its bytes. Returns the number of bytes read or written.
///
/// # Errors
/// The number of the error for the guest. `memory` must not be used again.
pub(crate) async fn serve<E: Export>(
    export: &E,
    request: Option<Request>,
    memory: &Buf,
) -> Result<i32, Errno> {
    let Some(Request { operation, offset, len, hints }) = request else { return Err(Errno::IO) };
    if len > export.size() || offset > export.size() - len {
        return Err(Errno::IO);
    }
    if hints == Hints::default() {
        return perform(export, operation, offset, len, memory).await;
    }
    perform(&export.with_hints(hints), operation, offset, len, memory).await
}

async fn perform<E: Export>(
    export: &E,
    operation: Operation,
    offset: Bytes,
    len: Bytes,
    memory: &Buf,
) -> Result<i32, Errno> {
    let asked = |op: Op| export.asked(braid_base::Request { op, offset, len });
    let has_bytes = matches!(operation, Operation::Read | Operation::Write(_));
    if has_bytes && (len == Bytes::ZERO || len > memory.len()) {
        return Err(Errno::IO);
    }
    let done = match operation {
        Operation::Read => {
            asked(Op::Read);
            export.read(offset, &memory.slice(Bytes::ZERO..len)).await
        }
        Operation::Write(durability) => {
            asked(Op::Write);
            export.write(offset, &memory.slice(Bytes::ZERO..len), durability).await
        }
        Operation::Flush => {
            export.asked(braid_base::Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO });
            export.flush().await
        }
        Operation::Discard => {
            asked(Op::Discard);
            export.discard(offset, len).await
        }
        Operation::WriteZeroes(zeroing, durability) => {
            asked(if zeroing == Zeroing::MayDiscard { Op::Discard } else { Op::Write });
            export.write_zeroes(offset, len, zeroing, durability).await
        }
        Operation::Unknown => return Err(Errno::OPNOTSUPP),
    };
    done.map(|()| if has_bytes { len.0 as i32 } else { 0 }).map_err(|error| errno_of(&error))
}

/// The kernel knows fewer kinds of failure than the engine.
fn errno_of(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Degraded | ErrorKind::Busy => {
            Errno::IO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB};
    use braid_engine::{Allocation, Durability};
    use braid_runtime::Arena;
    use std::cell::RefCell;
    use std::future::Future;
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    /// An export that notes its calls, and answers at once. Fails beyond its first half.
    #[derive(Clone, Default)]
    struct Noted {
        calls: Rc<RefCell<Vec<String>>>,
        hints: Hints,
    }

    impl Noted {
        fn note(&self, call: String, offset: Bytes) -> braid_engine::Result<()> {
            let hint = if self.hints.metadata { "metadata " } else { "" };
            self.calls.borrow_mut().push(format!("{hint}{call}"));
            match offset < Bytes(MIB.0 / 2) {
                true => Ok(()),
                false => Err(Error::new(ErrorKind::NoSpace, "full")),
            }
        }
    }

    impl Export for Noted {
        fn size(&self) -> Bytes {
            MIB
        }

        fn preferred_block(&self) -> Bytes {
            KIB
        }

        async fn read(&self, offset: Bytes, into: &Buf) -> braid_engine::Result<()> {
            self.note(format!("read {}", into.len().0), offset)
        }

        async fn write(&self, offset: Bytes, from: &Buf, how: Durability) -> braid_engine::Result<()> {
            self.note(format!("write {} {how:?}", from.len().0), offset)
        }

        async fn flush(&self) -> braid_engine::Result<()> {
            self.note("flush".to_owned(), Bytes::ZERO)
        }

        async fn discard(&self, offset: Bytes, len: Bytes) -> braid_engine::Result<()> {
            self.note(format!("discard {}", len.0), offset)
        }

        async fn write_zeroes(
            &self,
            offset: Bytes,
            len: Bytes,
            zeroing: Zeroing,
            how: Durability,
        ) -> braid_engine::Result<()> {
            self.note(format!("zero {} {zeroing:?} {how:?}", len.0), offset)
        }

        async fn prefetch(&self, _: Bytes, _: Bytes) -> braid_engine::Result<()> {
            Ok(())
        }

        fn allocation(&self, _: Bytes, limit: Bytes) -> (Allocation, Bytes) {
            (Allocation::Data, limit)
        }

        fn with_hints(&self, hints: Hints) -> Noted {
            Noted { calls: self.calls.clone(), hints }
        }
    }

    /// Serves a request at once. Returns the answer, and the calls of the export.
    fn answer(
        operation: Operation,
        offset: Bytes,
        len: Bytes,
        metadata: bool,
    ) -> (Result<i32, Errno>, Vec<String>) {
        let (export, arena) = (Noted::default(), Arena::new(MIB));
        let memory = arena.try_alloc(Bytes(128 << 10)).expect("a new arena has room");
        let hints = Hints { metadata, ..Hints::default() };
        let request = Request { operation, offset, len, hints };
        let served = pin!(serve(&export, Some(request), &memory));
        let Poll::Ready(answer) = served.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the export answers at once")
        };
        (answer, export.calls.take())
    }

    #[test]
    fn operations_become_verbs_with_hints() {
        let volatile = Durability::Volatile;
        for (operation, metadata, result, call) in [
            (Operation::Read, false, 4096, "read 4096"),
            (Operation::Read, true, 4096, "metadata read 4096"),
            (Operation::Write(volatile), true, 4096, "metadata write 4096 Volatile"),
            (Operation::Write(Durability::Fua), false, 4096, "write 4096 Fua"),
            (Operation::Flush, false, 0, "flush"),
            (Operation::Discard, false, 0, "discard 4096"),
            (
                Operation::WriteZeroes(Zeroing::MayDiscard, volatile),
                false,
                0,
                "zero 4096 MayDiscard Volatile",
            ),
            (
                Operation::WriteZeroes(Zeroing::KeepAllocated, volatile),
                false,
                0,
                "zero 4096 KeepAllocated Volatile",
            ),
        ] {
            let (answer, calls) = answer(operation, Bytes(8192), Bytes(4096), metadata);
            assert_eq!((answer, calls), (Ok(result), vec![call.to_owned()]));
        }
    }

    #[test]
    fn impossible_requests_fail_without_a_verb() {
        let longest = Bytes(128 << 10);
        for (operation, offset, len, error) in [
            (Operation::Read, MIB, Bytes(512), Errno::IO),
            (Operation::Discard, Bytes(512), MIB, Errno::IO),
            (Operation::Read, Bytes::ZERO, longest + Bytes(512), Errno::IO),
            (Operation::Write(Durability::Fua), Bytes::ZERO, Bytes::ZERO, Errno::IO),
            (Operation::Unknown, Bytes::ZERO, Bytes(512), Errno::OPNOTSUPP),
        ] {
            assert_eq!(answer(operation, offset, len, false), (Err(error), Vec::new()), "{operation:?}");
        }
    }

    #[test]
    fn full_volume_is_reported_as_full() {
        let (answer, _) = answer(Operation::Write(Durability::Volatile), Bytes(MIB.0 / 2), KIB, false);
        assert_eq!(answer, Err(Errno::NOSPC));
    }
}
