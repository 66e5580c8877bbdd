//! What a server offers, and the terms that follow for the device.

use crate::handshake::{Access, PAYLOAD_LARGEST};
use crate::wire::{
    NBD_FLAG_CAN_MULTI_CONN, NBD_FLAG_HAS_FLAGS, NBD_FLAG_READ_ONLY, NBD_FLAG_SEND_FLUSH, NBD_FLAG_SEND_TRIM,
};
use braid_base::{Bytes, DeviceClass};
use braid_runtime::Geometry;
use std::io::{self, ErrorKind};

/// Least alignment of a device: a sector.
const ALIGNMENT_LEAST: u32 = 512;
/// Greatest alignment that the engine takes.
const ALIGNMENT_GREATEST: u32 = 4096;
/// Largest preferred size that the protocol knows: 32 MiB.
const PREFERRED_GREATEST: u32 = 32 << 20;
/// Longest range of one discard. The limit of payloads does not bind a request without payload; qemu's limit
/// is 2 GiB.
const DISCARD_LONGEST: Bytes = Bytes(1 << 30);

/// Result of a negotiation, as the server said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Size of the export in bytes.
    pub size: u64,
    /// NBD_FLAG_….
    pub flags: u16,
    /// Reads are answered with structured replies.
    pub structured: bool,
    /// Block sizes. `None` from a server without the fact.
    pub block_sizes: Option<BlockSizes>,
}

/// Block sizes in bytes, as the server said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this value.
    pub minimum: u32,
    /// Request size with the least cost.
    pub preferred: u32,
    /// Largest payload of a request; `u32::MAX` is no limit.
    pub maximum: u32,
}

/// Terms for the requests of a device: an offer, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Properties of the device.
    pub geometry: Geometry,
    /// Longest read or write.
    pub payload_longest: Bytes,
    /// Longest discard. `None` if the server has no discard.
    pub discard_longest: Option<Bytes>,
    /// The server has flush.
    pub flushes: bool,
    /// A flush on one connection covers the writes of all connections.
    pub multi_conn: bool,
}

impl Offer {
    /// Checks the offer for a device with this access.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem` or `Unsupported` if the export does not fit the access, `Unsupported` if the
    /// engine cannot use the size or alignment, `InvalidData` if the server's numbers contradict the
    /// protocol.
    pub fn terms(&self, class: DeviceClass, access: Access) -> io::Result<Terms> {
        let has = |flag| self.flags & flag != 0;
        if self.flags != 0 && !has(NBD_FLAG_HAS_FLAGS) {
            return Err(broken(format!("its flags {:#x} lack NBD_FLAG_HAS_FLAGS", self.flags)));
        }
        if access == Access::ReadWrite {
            if has(NBD_FLAG_READ_ONLY) {
                let problem = "the export is read-only: allow writes on the server";
                return Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, problem));
            }
            if !has(NBD_FLAG_SEND_FLUSH) {
                return Err(unsupported(
                    "the server has no flush, so no write could be promised to survive its power cut: \
                     use a server with flush",
                ));
            }
        }
        let (alignment, maximum) = self.alignment_and_maximum()?;
        if self.size > i64::MAX as u64 {
            return Err(broken(format!("the export has {} bytes: at most 2^63 - 1", self.size)));
        }
        let size = Bytes(self.size).align_down(alignment);
        if size == Bytes::ZERO {
            return Err(unsupported(format!(
                "the export has {} bytes, less than a block of {alignment}: enlarge the export",
                self.size
            )));
        }
        let discards = has(NBD_FLAG_SEND_TRIM) && access == Access::ReadWrite;
        Ok(Terms {
            geometry: Geometry { size, class, alignment, memory_alignment: Bytes(1) },
            payload_longest: maximum,
            discard_longest: discards.then_some(DISCARD_LONGEST),
            flushes: has(NBD_FLAG_SEND_FLUSH),
            multi_conn: has(NBD_FLAG_CAN_MULTI_CONN),
        })
    }

    /// Alignment of the device, and the longest payload: a multiple of the alignment.
    fn alignment_and_maximum(&self) -> io::Result<(Bytes, Bytes)> {
        let without_fact = BlockSizes { minimum: 1, preferred: 4096, maximum: PAYLOAD_LARGEST };
        let BlockSizes { minimum, preferred, maximum } = self.block_sizes.unwrap_or(without_fact);
        if !minimum.is_power_of_two() {
            return Err(broken(format!("its minimum block size of {minimum} is no power of two")));
        }
        if !preferred.is_power_of_two() || preferred < minimum || preferred > PREFERRED_GREATEST {
            return Err(broken(format!(
                "its preferred block size of {preferred} is no power of two from {minimum} to \
                 {PREFERRED_GREATEST}"
            )));
        }
        if maximum < minimum || (maximum != u32::MAX && maximum % minimum != 0) {
            return Err(broken(format!("its maximum block size of {maximum} is no multiple of {minimum}")));
        }
        if minimum > ALIGNMENT_GREATEST {
            return Err(unsupported(format!(
                "the server wants requests in multiples of {minimum} bytes: at most {ALIGNMENT_GREATEST}: \
                 set a smaller minimum block size on the server"
            )));
        }
        let alignment = minimum.max(ALIGNMENT_LEAST);
        if maximum < alignment {
            return Err(unsupported(format!(
                "the server takes requests of at most {maximum} bytes: at least {alignment} are needed: \
                 set a larger maximum block size on the server"
            )));
        }
        let longest = Bytes(maximum.min(PAYLOAD_LARGEST).into());
        Ok((Bytes(alignment.into()), longest.align_down(Bytes(alignment.into()))))
    }
}

fn unsupported(problem: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::Unsupported, problem.into())
}

fn broken(problem: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server breaks the NBD protocol: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: u16 = 1 | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_TRIM;

    fn offer(size: u64, flags: u16, sizes: Option<(u32, u32, u32)>) -> Offer {
        let block_sizes =
            sizes.map(|(minimum, preferred, maximum)| BlockSizes { minimum, preferred, maximum });
        Offer { size, flags, structured: true, block_sizes }
    }

    fn terms(offer: Offer, access: Access) -> Result<Terms, ErrorKind> {
        offer.terms(DeviceClass::Ssd, access).map_err(|error| error.kind())
    }

    #[test]
    fn sizes_are_rounded_to_the_alignment() {
        let cases = [
            (None, (512, 32 << 20)),
            (Some((1, 4096, 1000)), (512, 512)),
            (Some((1, 512, u32::MAX)), (512, 32 << 20)),
            (Some((4096, 65_536, 1 << 20)), (4096, 1 << 20)),
        ];
        for (sizes, (alignment, longest)) in cases {
            let terms = terms(offer(1_000_001, FLAGS, sizes), Access::ReadWrite).unwrap();
            let size = Bytes(1_000_001).align_down(Bytes(alignment));
            assert_eq!((terms.geometry.alignment, terms.geometry.size), (Bytes(alignment), size));
            assert_eq!(terms.payload_longest, Bytes(longest));
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let refused = |size, sizes| terms(offer(size, FLAGS, sizes), Access::ReadWrite).unwrap_err();
        for sizes in [
            (0, 4096, 1 << 20),
            (3, 4096, 1 << 20),
            (512, 256, 1 << 20),
            (512, 1000, 1 << 20),
            (512, 1 << 26, 1 << 27),
            (512, 4096, 256),
            (512, 4096, 1_000_000),
            (512, 4096, 0),
        ] {
            assert_eq!(refused(1 << 20, Some(sizes)), ErrorKind::InvalidData, "{sizes:?}");
        }
        assert_eq!(refused(1 << 20, Some((8192, 8192, 1 << 20))), ErrorKind::Unsupported);
        assert_eq!(refused(1 << 20, Some((1, 512, 511))), ErrorKind::Unsupported);
        assert_eq!(refused(0, None), ErrorKind::Unsupported);
        assert_eq!(refused(511, None), ErrorKind::Unsupported);
        assert_eq!(refused(1 << 63, None), ErrorKind::InvalidData);
    }

    #[test]
    fn writer_needs_a_writable_export_with_flush() {
        let with = |flags, access| terms(offer(1 << 20, flags, None), access);
        let read_only = FLAGS | NBD_FLAG_READ_ONLY;
        assert_eq!(with(read_only, Access::ReadWrite), Err(ErrorKind::ReadOnlyFilesystem));
        assert_eq!(with(1, Access::ReadWrite), Err(ErrorKind::Unsupported));
        let reader = with(read_only & !NBD_FLAG_SEND_FLUSH, Access::ReadOnly).unwrap();
        assert_eq!((reader.flushes, reader.discard_longest), (false, None));
        let writer = with(FLAGS, Access::ReadWrite).unwrap();
        assert_eq!((writer.flushes, writer.discard_longest), (true, Some(DISCARD_LONGEST)));
        assert!(with(0, Access::ReadOnly).is_ok() && !writer.multi_conn);
        assert_eq!(with(FLAGS & !NBD_FLAG_HAS_FLAGS, Access::ReadWrite), Err(ErrorKind::InvalidData));
    }
}
