//! Braid's own trace format: small, fast to read, and suited for recording while a volume is served.
//!
//! A file is a header, blocks of records, and an end. Each block is independent: a block can be read without
//! the blocks before, and damage to a block costs only its own records. A recorder only appends. An
//! interrupted recording has no end, and perhaps a torn last block. The reader reports the interruption and
//! reads all other blocks. All numbers are little-endian. Every checksum is a CRC-32C.
//!
//! ```text
//! header    0   8  "BRAIDTRC"
//!           8   4  version, 1
//!          12   4  length of the header, all of it: a multiple of 8, at most 1 MiB
//!          16   4  checksum of all that follows of the header
//!          20   4  zero
//!          24   8  size of the address space in bytes; 0 if it was not known
//!          32   8  records; 2^64 - 1 where that was not known
//!          40   8  time zero as nanoseconds since 1970; 0 if it was not known
//!          48   4  number of devices, 0 to 65,536 (once 1024); 0 if all is one device, called "0"
//!          52   2  length of the trace's name, at most 255
//!          54   2  zero
//!          56   …  the name, UTF-8
//!           …   …  for each device: base (8) and span (8) in the address space, bytes; length of its label (1); label, UTF-8
//!           …   …  zeros up to the length
//!
//! block     0   4  "BTBK"
//!           4   4  checksum of bytes 8 to 48
//!           8   4  checksum of the payload as it is stored
//!          12   4  length of the payload as it is stored, at most 1 MiB and 4 KiB
//!          16   4  length of the payload once decompressed, 1 byte to 1 MiB
//!          20   4  records in it, 1 or more
//!          24   1  0 stored plainly, 1 zstd
//!          25   7  zero
//!          32   8  time of its first record in nanoseconds
//!          40   8  records before it
//!          48   …  payload
//!
//! end       0   4  "BTND"
//!           4   4  checksum of bytes 8 to 48
//!           8   8  records in all
//!          16   8  time of the last record in nanoseconds
//!          24   8  one past the last byte that a record speaks of
//!          32   8  requests that the recorder had to drop
//!          40   8  time of the first record in nanoseconds
//! ```
//!
//! A payload is a sequence of records. Each record holds the differences from the record before:
//!
//! ```text
//! 1 byte    bits 0-1  0 read, 1 write, 2 flush, 3 discard
//!           bit  2    the length is that of the last record of the same op (0 at first); none follows
//!           bit  3    it begins where the record before ended (0 at first); no offset follows
//!           bit  4    offset and length are counted in sectors of 512 bytes
//!           bits 5-6  time since the record before: 0 none; 1 in ns; 2 in units of 100 ns; 3 in µs
//!           bit  7    zero
//! varint    time since the record before, unless that is none
//! varint    offset less the end of the record before, zigzag; unless bit 3
//! varint    length; unless bit 2
//! ```
//! A varint has 7 bits in each byte, the lowest first, and bit 7 set in all bytes but the last; ten bytes at
//! most. Zigzag is 0, -1, 1, -2 … as 0, 1, 2, 3 …. A flush has bits 2 and 3 set. Both kinds of "before" skip
//! flushes. Records are in order of time.

mod block;
mod header;
mod read;
mod record;
mod write;

pub use header::Header;
pub(crate) use read::CompactReader;
pub use read::{COMPACT_END_LEN, CompactEnd, compact_end};
pub(crate) use read::{Tail, tail};
pub use write::{BlockCompression, CompactWriter};

pub(crate) use header::MAGIC;
