//! The one interface of everything that stores bytes: real devices, modelled ones, and the wrappers that
//! emulate timing, inject faults or record. A wrapper has the same shape as what it wraps.

use crate::Buf;
use braid_base::{Bytes, DeviceClass, NodeId};
use std::future::Future;
use std::io;
use std::rc::Rc;

/// What a device is, fixed while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes that it stores.
    pub size: Bytes,
    /// What kind of device it is.
    pub class: DeviceClass,
    /// Offsets and lengths of reads and writes must be multiples of this power of two: 1 for memory, 512 or
    /// 4096 with direct I/O.
    pub alignment: Bytes,
    /// The address in memory of a buffer of a read or write must be a multiple of this power of two: 1 for
    /// memory and models, often 4 to 4096 with direct I/O. At most [`Buf::ALIGNMENT`].
    pub memory_alignment: Bytes,
}

impl Geometry {
    /// Refuses a read or write that every device must refuse: see [`Geometry::check`]. Refuses a buffer at an
    /// address that the device cannot use, too.
    ///
    /// # Errors
    /// `InvalidInput`, naming the limit.
    #[inline]
    pub fn check_buffer(&self, offset: Bytes, buf: &Buf) -> io::Result<()> {
        self.check(offset, buf.len())?;
        if buf.is_aligned(self.memory_alignment) { Ok(()) } else { Err(self.address_refusal()) }
    }

    /// Refuses a range that is not aligned or does not lie within the size, as every device must.
    ///
    /// # Errors
    /// `InvalidInput`, naming the range and the limit.
    #[inline]
    pub fn check(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        let is_aligned = (offset.0 | len.0) & (self.alignment.0 - 1) == 0;
        let is_within = offset.checked_add(len).is_some_and(|end| end <= self.size);
        if is_aligned && is_within { Ok(()) } else { Err(self.refusal(offset, len, is_aligned)) }
    }

    #[cold]
    fn address_refusal(&self) -> io::Error {
        let problem = format!("a buffer's address is not a multiple of {:?}", self.memory_alignment);
        io::Error::new(io::ErrorKind::InvalidInput, problem)
    }

    #[cold]
    fn refusal(&self, offset: Bytes, len: Bytes, is_aligned: bool) -> io::Error {
        let problem = match is_aligned {
            false => format!("{len:?} at {offset:?} are not multiples of {:?}", self.alignment),
            true => format!("{len:?} at {offset:?} reach beyond the device's size of {:?}", self.size),
        };
        io::Error::new(io::ErrorKind::InvalidInput, problem)
    }
}

/// A device: bytes from 0 to `geometry().size`.
///
/// Offsets and lengths are multiples of the alignment and lie within the size; anything else is
/// `InvalidInput`. A buffer whose address is not a multiple of the memory alignment is `InvalidInput`, too,
/// or else the request works. Requests may run at the same time and complete in any order; overlapping ones
/// that run at the same time leave either's bytes. A write is volatile until a flush that starts after it
/// completed has itself completed.
///
/// A future that has started must be polled to its end: the kernel may be working on its buffer. (The buffer
/// itself stays allocated in any case, so that an abandoned future is a lost result, never a memory error.)
pub trait Device: 'static {
    /// Whether every request ends in bounded time whatever happens outside of this process, as with a model
    /// or memory: then no deadlines are kept for it.
    const ALWAYS_ANSWERS: bool = false;

    /// What this device is.
    fn geometry(&self) -> Geometry;

    /// Says that a read or write at `offset` follows at once. A device that lies in memory may begin to bring
    /// what it needs for that into the processor's cache; others have nothing to do.
    fn expect(&self, offset: Bytes) {
        let _ = offset;
    }

    /// The machine that it is on; none for one of the host's own.
    fn node(&self) -> Option<NodeId> {
        None
    }

    /// Fills all of `into` with the bytes at `offset`.
    fn read(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>>;

    /// Writes all of `from` at `offset`.
    fn write(&self, offset: Bytes, from: &Buf) -> impl Future<Output = io::Result<()>>;

    /// As [`Device::read`], of bytes that [`Device::write_moved`] then writes to another device, and that the
    /// host does not look at: a device on a node leaves them there.
    fn read_to_move(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>> {
        self.read(offset, into)
    }

    /// As [`Device::write`], of bytes that lie on `node`: what [`Device::read_to_move`] of a device there has
    /// read.
    fn write_moved(
        &self,
        offset: Bytes,
        from: &Buf,
        node: Option<NodeId>,
    ) -> impl Future<Output = io::Result<()>> {
        let _ = node;
        self.write(offset, from)
    }

    /// Makes every write that completed before this call durable.
    fn flush(&self) -> impl Future<Output = io::Result<()>>;

    /// Says that a range's bytes are no longer needed: a hint that costs little. What the range reads as
    /// afterwards is not defined. A device without such a command does nothing.
    fn discard(&self, offset: Bytes, len: Bytes) -> impl Future<Output = io::Result<()>>;
}

/// A handle to a device is a device: so that the code that opened it can still ask it things while a volume
/// owns it.
impl<D: Device> Device for Rc<D> {
    const ALWAYS_ANSWERS: bool = D::ALWAYS_ANSWERS;

    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn expect(&self, offset: Bytes) {
        (**self).expect(offset);
    }

    fn node(&self) -> Option<NodeId> {
        (**self).node()
    }

    fn read(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>> {
        (**self).read(offset, into)
    }

    fn write(&self, offset: Bytes, from: &Buf) -> impl Future<Output = io::Result<()>> {
        (**self).write(offset, from)
    }

    fn read_to_move(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>> {
        (**self).read_to_move(offset, into)
    }

    fn write_moved(
        &self,
        offset: Bytes,
        from: &Buf,
        node: Option<NodeId>,
    ) -> impl Future<Output = io::Result<()>> {
        (**self).write_moved(offset, from, node)
    }

    fn flush(&self) -> impl Future<Output = io::Result<()>> {
        (**self).flush()
    }

    fn discard(&self, offset: Bytes, len: Bytes) -> impl Future<Output = io::Result<()>> {
        (**self).discard(offset, len)
    }
}
