//! A request: calls of the export, and copies between guest memory and buffers.

use crate::budget::Budget;
use crate::chain::Chain;
use crate::decode::{Order, Span};
use crate::memory::{Cursor, Outside};
use crate::wire::{BlkHead, BlkStatus, ID_LEN};
use braid_base::{Bytes, Op, Request};
use braid_engine::{Durability, Error, Export, Zeroing};
use braid_runtime::yield_now;
use std::cell::Cell;
use vm_memory::GuestMemoryMmap;

/// What requests of a queue share.
pub struct Service<E> {
    /// The disk.
    pub export: E,
    /// Memory for requests.
    pub budget: Budget,
    /// The disk's name, filled up with zeros.
    pub id: [u8; ID_LEN],
}

/// The guest's side of a request.
pub struct Guest<'a> {
    /// The guest's memory.
    pub memory: &'a GuestMemoryMmap,
    /// The request's places there.
    pub chain: &'a Chain,
    /// True once the memory must not be touched: the guest may use it for other things.
    pub is_gone: &'a Cell<bool>,
}

impl Guest<'_> {
    fn check(&self) -> Result<(), Failure> {
        if self.is_gone.get() { Err(Failure) } else { Ok(()) }
    }
}

impl<E: Export> Service<E> {
    /// Serves a request. Returns the status for the guest.
    pub async fn serve(&self, guest: &Guest<'_>, order: Order, durability: Durability) -> BlkStatus {
        self.announce(&order);
        let done = match order {
            Order::Read(span) => self.read(guest, span).await,
            Order::Write(span) => self.write(guest, span, durability).await,
            Order::Flush => self.export.flush().await.map_err(Failure::from),
            Order::Id(len) => {
                let id = &self.id[..len.as_usize()];
                Cursor::new(guest.chain.to_write()).write(guest.memory, id).map_err(Failure::from)
            }
            Order::Discard(spans) => self.discard(spans, durability).await,
            Order::WriteZeroes(spans) => self.write_zeroes(spans, durability).await,
        };
        match done {
            Ok(()) => BlkStatus::Ok,
            Err(Failure) => BlkStatus::IoError,
        }
    }

    async fn read(&self, guest: &Guest<'_>, span: Span) -> Result<(), Failure> {
        let mut to = Cursor::new(guest.chain.to_write());
        let (mut at, end) = (span.offset, span.offset + span.len);
        while at < end {
            let held = self.budget.alloc(at, end - at).await;
            self.export.read(at, &held.buf).await?;
            guest.check()?;
            held.buf.with_bytes(|bytes| to.write(guest.memory, bytes))?;
            at += held.buf.len();
            drop(held);
            take_turns(at < end).await;
        }
        Ok(())
    }

    async fn write(&self, guest: &Guest<'_>, span: Span, durability: Durability) -> Result<(), Failure> {
        let mut from = Cursor::new(guest.chain.to_read());
        from.read(guest.memory, &mut [0; BlkHead::LEN])?;
        let (mut at, end) = (span.offset, span.offset + span.len);
        while at < end {
            let held = self.budget.alloc(at, end - at).await;
            guest.check()?;
            held.buf.with_bytes_mut(|bytes| from.read(guest.memory, bytes))?;
            self.export.write(at, &held.buf, durability).await?;
            at += held.buf.len();
            drop(held);
            take_turns(at < end).await;
        }
        Ok(())
    }

    async fn discard(&self, spans: Vec<Span>, durability: Durability) -> Result<(), Failure> {
        for Span { offset, len } in spans.into_iter().filter(|span| span.len > Bytes::ZERO) {
            self.export.discard(offset, len).await?;
        }
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Fua => Ok(self.export.flush().await?),
        }
    }

    async fn write_zeroes(&self, spans: Vec<(Span, Zeroing)>, durability: Durability) -> Result<(), Failure> {
        for (Span { offset, len }, zeroing) in spans.into_iter().filter(|(span, _)| span.len > Bytes::ZERO) {
            self.export.write_zeroes(offset, len, zeroing, durability).await?;
        }
        Ok(())
    }

    /// Announces the guest's request to the export, for a recording.
    fn announce(&self, order: &Order) {
        let asked = |op: Op, span: &Span| {
            if span.len > Bytes::ZERO || op == Op::Flush {
                self.export.asked(Request { op, offset: span.offset, len: span.len });
            }
        };
        match order {
            Order::Read(span) => asked(Op::Read, span),
            Order::Write(span) => asked(Op::Write, span),
            Order::Flush => asked(Op::Flush, &Span { offset: Bytes::ZERO, len: Bytes::ZERO }),
            Order::Id(_) => {}
            Order::Discard(spans) => spans.iter().for_each(|span| asked(Op::Discard, span)),
            Order::WriteZeroes(spans) => spans.iter().for_each(|(span, zeroing)| match zeroing {
                Zeroing::MayDiscard => asked(Op::Discard, span),
                Zeroing::KeepAllocated => asked(Op::Write, span),
            }),
        }
    }
}

/// The request failed: the guest learns no more.
struct Failure;

impl From<Error> for Failure {
    fn from(_: Error) -> Failure {
        Failure
    }
}

impl From<Outside> for Failure {
    fn from(_: Outside) -> Failure {
        Failure
    }
}

/// Between two pieces the other tasks get their turn: a long request of an export in memory never waits.
async fn take_turns(more: bool) {
    if more {
        yield_now().await;
    }
}
