//! Path of a guest's request to the volume: through the controller's memory, in parts of a buffer's length,
//! verified or not.

use super::Guests;
use crate::dram::Dram;
use crate::memory::Memory;
use crate::verify::Verifier;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, Op, Request, SECTOR};
use braid_engine::{Durability, Export, Volume};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::World;
use std::cell::RefCell;

impl<D: Device> Guests<D> {
    /// Sends a request to the volume, unless the controller's memory answers.
    pub(super) async fn ask_through(&self, dram: &Dram, request: Request) -> Result<()> {
        let answered = dram.takes(&request).await?;
        if !answered {
            self.ask_volume(request).await?;
        }
        let Memory::Shared(views) = &self.memory else { unreachable!("what is verified has no such memory") };
        dram.leaves(&request, answered, &self.volume, &views[views.len() - 1]);
        Ok(())
    }

    /// Sends a request to the volume.
    #[inline]
    pub(super) async fn ask_volume(&self, request: Request) -> Result<()> {
        let (begun, Request { op, offset, len }) = (self.rt.now(), request);
        if let Some(watch) = &mut *self.watch.borrow_mut() {
            watch.asks(begun, request);
            watch.begins();
        }
        match (&self.memory, op) {
            (Memory::Shared(views), Op::Read) if len <= Arena::LARGEST => {
                self.volume_at(offset).read(offset, &views[sectors(len)]).await?;
            }
            (Memory::Shared(views), Op::Write) if len <= Arena::LARGEST => {
                self.volume_at(offset).write(offset, &views[sectors(len)], Durability::Volatile).await?;
            }
            (_, Op::Flush) => Box::pin(self.volume.flush()).await?,
            _ => Box::pin(self.in_parts(request)).await?,
        }
        if let Some(watch) = &mut *self.watch.borrow_mut() {
            watch.ends(Some(self.rt.now() - begun));
        }
        Ok(())
    }

    /// Handle of the volume for a request at this address: metadata has its own.
    #[inline]
    fn volume_at(&self, offset: Bytes) -> &Volume<World, D> {
        let is_metadata = !self.metadata.is_empty() && {
            let next = self.metadata.partition_point(|range| range.start <= offset);
            next > 0 && offset < self.metadata[next - 1].end
        };
        if is_metadata { &self.for_metadata } else { &self.volume }
    }

    async fn in_parts(&self, request: Request) -> Result<()> {
        let (mut at, end) = (request.offset, request.offset + request.len);
        while at < end {
            let len = (end - at).min(Arena::LARGEST);
            self.part(Request { op: request.op, offset: at, len }).await?;
            at += len;
        }
        Ok(())
    }

    /// Makes a request of at most a buffer's length.
    async fn part(&self, request: Request) -> Result<()> {
        let Request { op, offset, len } = request;
        match &self.verifier {
            None => self.unverified(op, offset, len).await,
            Some(verifier) => self.verified(op, offset, len, verifier).await,
        }
    }

    async fn unverified(&self, op: Op, offset: Bytes, len: Bytes) -> Result<()> {
        let Memory::Shared(views) = &self.memory else {
            unreachable!("without a verifier the memory is shared")
        };
        match op {
            Op::Read => self.volume_at(offset).read(offset, &views[sectors(len)]).await?,
            Op::Write => {
                self.volume_at(offset).write(offset, &views[sectors(len)], Durability::Volatile).await?
            }
            Op::Discard => self.volume_at(offset).discard(offset, len).await?,
            Op::Flush => {}
        }
        Ok(())
    }

    async fn verified(&self, op: Op, offset: Bytes, len: Bytes, verifier: &RefCell<Verifier>) -> Result<()> {
        let Memory::Own(buffers) = &self.memory else {
            unreachable!("with a verifier each request has memory")
        };
        match op {
            Op::Read => {
                let buf = buffers.take(len).await;
                let read = verifier.borrow_mut().begin_read(offset, len);
                self.volume_at(offset).read(offset, &buf).await?;
                let right = verifier.borrow_mut().end_read(&read, &buf);
                right.map_err(|mismatch| self.wrong_data(&mismatch))?;
                buffers.give_back(buf);
            }
            Op::Write => {
                let buf = buffers.take(len).await;
                let write = verifier.borrow_mut().begin_write(offset, &buf);
                self.volume_at(offset).write(offset, &buf, Durability::Volatile).await?;
                verifier.borrow_mut().end_write(write);
                buffers.give_back(buf);
            }
            Op::Discard => {
                let write = verifier.borrow_mut().begin_discard(offset, len);
                self.volume_at(offset).discard(offset, len).await?;
                verifier.borrow_mut().end_write(write);
            }
            Op::Flush => {}
        }
        Ok(())
    }

    fn wrong_data(&self, mismatch: &crate::verify::Mismatch) -> Error {
        let message = format!("wrong data after {} of simulated time: {mismatch}", self.rt.now());
        Error::new(ErrorKind::WrongData, message)
    }
}

/// Index of a length among the views of shared memory.
fn sectors(len: Bytes) -> usize {
    (len / SECTOR) as usize
}
