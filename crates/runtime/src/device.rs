//! Common interface of all byte storage: real devices, modelled devices, and the wrappers that emulate
//! timing, inject faults or record. A wrapper has the same interface as the wrapped device.

use crate::Buf;
use braid_base::{Bytes, DeviceClass, Nanos, NodeId};
use std::future::Future;
use std::io;
use std::rc::Rc;

/// Properties of a device, fixed while open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes.
    pub size: Bytes,
    /// Class of the device.
    pub class: DeviceClass,
    /// Offsets and lengths of reads and writes must be multiples of this power of two: 1 for memory, 512 or
    /// 4096 with direct I/O.
    pub alignment: Bytes,
    /// The address in memory of a buffer of a read or write must be a multiple of this power of two: 1 for
    /// memory and models, often 4 to 4096 with direct I/O. At most [`Buf::ALIGNMENT`].
    pub memory_alignment: Bytes,
}

impl Geometry {
    /// Refuses a read or write that every device must refuse: see [`Geometry::check`]. Also refuses a buffer
    /// at an address that the device cannot use.
    ///
    /// # Errors
    /// `InvalidInput`, naming the limit.
    #[inline]
    pub fn check_buffer(&self, offset: Bytes, buf: &Buf) -> io::Result<()> {
        self.check(offset, buf.len())?;
        if buf.is_aligned(self.memory_alignment) { Ok(()) } else { Err(self.address_refusal()) }
    }

    /// Refuses an unaligned range, or a range beyond the size, as every device must.
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
/// `InvalidInput`. A buffer whose address is not a multiple of the memory alignment works, or is
/// `InvalidInput`, too. Requests may run at the same time and complete in any order. Overlapping requests at
/// the same time leave either's bytes. A write is volatile until a later flush, started after the write
/// completed, has itself completed.
///
/// A started future must be polled to its end: the kernel may be working on its buffer. (The buffer itself
/// stays allocated in any case, so an abandoned future is a lost result, never a memory error.)
pub trait Device: 'static {
    /// True if every request ends in bounded time, regardless of events outside this process, as with a model
    /// or memory. No deadlines are then kept for the device.
    const ALWAYS_ANSWERS: bool = false;

    /// Properties of this device.
    fn geometry(&self) -> Geometry;

    /// Announces a read or write at `offset`. A device in memory may begin to bring the needed bytes into the
    /// processor's cache; other devices do nothing.
    fn expect(&self, offset: Bytes) {
        let _ = offset;
    }

    /// Node of the device; none for a device of the host itself.
    fn node(&self) -> Option<NodeId> {
        None
    }

    /// True if other hosts reach the device too: an export over a network, an image in a cluster. The owner
    /// of a volume with such a device renews a lease on the device, and an opening on another host looks for
    /// the renewals.
    fn is_shared(&self) -> bool {
        false
    }

    /// Longest time for which the device may hang and then answer by itself, because the device repairs
    /// itself. Waits for the device are longer by this time.
    fn repair_time(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Fills all of `into` with the bytes at `offset`.
    fn read(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>>;

    /// Writes all of `from` at `offset`.
    fn write(&self, offset: Bytes, from: &Buf) -> impl Future<Output = io::Result<()>>;

    /// As [`Device::read`], for bytes that [`Device::write_moved`] then writes to another device, and that
    /// the host does not look at: a device on a node keeps the bytes there.
    fn read_to_move(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>> {
        self.read(offset, into)
    }

    /// As [`Device::write`], for bytes on `node`, read by [`Device::read_to_move`] of a device there.
    fn write_moved(
        &self,
        offset: Bytes,
        from: &Buf,
        node: Option<NodeId>,
    ) -> impl Future<Output = io::Result<()>> {
        let _ = node;
        self.write(offset, from)
    }

    /// Makes every write completed before this call durable.
    fn flush(&self) -> impl Future<Output = io::Result<()>>;

    /// Discards a range's bytes: a hint that costs little. Later reads of the range are undefined. A device
    /// without a discard command does nothing.
    fn discard(&self, offset: Bytes, len: Bytes) -> impl Future<Output = io::Result<()>>;
}

/// A handle to a device is a device: the code that opened the device can still query the device while a
/// volume owns it.
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

    fn is_shared(&self) -> bool {
        (**self).is_shared()
    }

    fn repair_time(&self) -> Nanos {
        (**self).repair_time()
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
