//! The ublk protocol (`linux/ublk_cmd.h`) as values: commands, structures and requests. Pure code.
//!
//! Fields are in the byte order of the machine, because both ends run on the same machine. Commands have the
//! encoding of ioctls, which every driver since Linux 6.4 takes.

use braid_base::{Bytes, SECTOR};
use braid_engine::{Durability, Hints, Zeroing};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A command to `/dev/ublk-control`, with the number of its ioctl encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum ControlVerb {
    /// Reads the description of a device to the memory of the command.
    DeviceInfo = encode(READ, 0x02, size_of::<ControlCommand>()),
    /// Makes a device without a disk, and its file `/dev/ublkcN`.
    Add = encode(READ | WRITE, 0x04, size_of::<ControlCommand>()),
    /// Makes the disk `/dev/ublkbN`, once all tags are fetched.
    Start = encode(READ | WRITE, 0x06, size_of::<ControlCommand>()),
    /// Removes the disk. Requests in flight are answered first if there is a server, else they fail.
    Stop = encode(READ | WRITE, 0x07, size_of::<ControlCommand>()),
    /// Sets the parameters of a device that was not started.
    SetParameters = encode(READ | WRITE, 0x08, size_of::<ControlCommand>()),
    /// Reads the parameters of a device.
    Parameters = encode(READ, 0x09, size_of::<ControlCommand>()),
    /// Prepares a device without a server for the next server.
    StartRecovery = encode(READ | WRITE, 0x10, size_of::<ControlCommand>()),
    /// Lets requests through to the new server, once all tags are fetched.
    EndRecovery = encode(READ | WRITE, 0x11, size_of::<ControlCommand>()),
    /// Reads the features of the driver to the memory of the command.
    Features = encode(READ, 0x13, size_of::<ControlCommand>()),
    /// Removes a device, without waiting for its last user.
    Delete = encode(READ, 0x14, size_of::<ControlCommand>()),
    /// Gives a started disk another size.
    UpdateSize = encode(READ | WRITE, 0x15, size_of::<ControlCommand>()),
}

/// A command to `/dev/ublkcN`, for one tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum TagVerb {
    /// Waits for the first request.
    Fetch = encode(READ | WRITE, 0x20, size_of::<TagCommand>()),
    /// Answers a request, and waits for the next request.
    CommitAndFetch = encode(READ | WRITE, 0x21, size_of::<TagCommand>()),
}

const WRITE: u32 = 1;
const READ: u32 = 2;

/// `_IOC(direction, 'u', number, size)` of `asm-generic/ioctl.h`.
const fn encode(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (b'u' as u32) << 8 | number
}

/// `struct ublksrv_ctrl_cmd`, the first bytes of the command of a control request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct ControlCommand {
    pub device: u32,
    /// All ones: the command is for no queue.
    pub queue: u16,
    /// Bytes of memory at `address`.
    pub len: u16,
    pub address: u64,
    pub argument: u64,
    /// The rest is for devices of users without privileges.
    pub unused: u64,
}

impl ControlCommand {
    /// Room of a command in a submission of 128 bytes.
    pub const ROOM: usize = 80;

    /// Makes a command for a device, without memory.
    pub fn new(device: u32, argument: u64) -> ControlCommand {
        ControlCommand { device, queue: u16::MAX, len: 0, address: 0, argument, unused: 0 }
    }

    /// Bytes of the command for the submission.
    pub fn encode(&self) -> [u8; ControlCommand::ROOM] {
        let mut bytes = [0; ControlCommand::ROOM];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(self.as_bytes());
        bytes
    }
}

/// Number in an [`ControlVerb::Add`] that lets the kernel choose the device's number.
pub(crate) const ANY_DEVICE: u32 = u32::MAX;

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    pub queues: u16,
    pub depth: u16,
    /// [`DEAD`], [`LIVE`] or [`QUIESCED`].
    pub state: u16,
    pub unused_0: u16,
    pub longest_request: u32,
    pub number: u32,
    /// Process of the server.
    pub process: i32,
    pub unused_1: u32,
    /// [`ENCODED`], [`OUTLIVES_SERVER`], and more features of the driver.
    pub features: u64,
    /// Free for the server: the mark of the volume.
    pub mark: u64,
    pub owner_user: u32,
    pub owner_group: u32,
    pub reserved: [u64; 2],
}

/// State without a disk.
pub(crate) const DEAD: u16 = 0;
/// State with a disk and a server.
pub(crate) const LIVE: u16 = 1;
/// State with a disk whose server has ended: requests wait.
pub(crate) const QUIESCED: u16 = 2;

/// Features of a disk that outlives its server: later requests, and requests without an answer, go to the
/// next server.
pub(crate) const OUTLIVES_SERVER: u64 = 1 << 3 | 1 << 4;
/// Feature of the driver: the size of a started disk can change (Linux 6.16).
pub(crate) const RESIZABLE: u64 = 1 << 10;
/// Feature of the encoding above.
pub(crate) const ENCODED: u64 = 1 << 6;

/// `struct ublk_params` up to its first two parts. `len` is the number of bytes in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Parameters {
    pub len: u32,
    /// Parts that are set: bit 0 for the next eight fields, bit 1 for the fields of discards.
    pub parts: u32,
    pub attributes: u32,
    /// Powers of two, in bytes.
    pub logical_block: u8,
    pub physical_block: u8,
    pub optimal_request: u8,
    pub least_request: u8,
    /// Longest read or write, in sectors.
    pub longest: u32,
    pub unused_chunk: u32,
    /// Sectors of the disk.
    pub sectors: u64,
    pub unused_mask: u64,
    pub discard_alignment: u32,
    /// Bytes.
    pub discard_granularity: u32,
    /// Sectors of the longest discard and of the longest zeroing.
    pub longest_discard: u32,
    pub longest_zeroing: u32,
    pub discard_ranges: u16,
    pub unused_0: u16,
    pub unused_1: u32,
}

impl Parameters {
    /// Bytes in use: without the field that fills the last word.
    pub const LEN: u32 = 60;
    /// Parts that [`Parameters`] has.
    pub const PARTS: u32 = 3;
}

/// Attribute of a disk that refuses changes.
pub(crate) const READ_ONLY: u32 = 1;
/// Attribute of a disk with a volatile cache, to which the kernel sends flushes.
pub(crate) const VOLATILE_CACHE: u32 = 1 << 2;
/// Attribute of a disk that takes forced unit access.
pub(crate) const FUA: u32 = 1 << 3;

/// `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct TagCommand {
    pub queue: u16,
    pub tag: u16,
    /// Answer of [`TagVerb::CommitAndFetch`]: bytes read or written, or a negative error.
    pub result: i32,
    /// Memory for the bytes: of a read that this command answers, and of the next write.
    pub address: u64,
}

impl TagCommand {
    /// Bytes of the command for the submission.
    pub fn encode(&self) -> [u8; 16] {
        zerocopy::transmute!(*self)
    }
}

/// `struct ublksrv_io_desc`, as the kernel writes it for each tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, Immutable)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// Operation in the lowest byte, flags above.
    pub operation: u32,
    pub sectors: u32,
    pub start: u64,
    pub address: u64,
}

/// Bytes of an entry of the kernel's table of requests, which has one for each tag.
pub const DESCRIPTOR: usize = 24;

const _: () = assert!(size_of::<ControlCommand>() == 32 && size_of::<DeviceInfo>() == 64);
const _: () = assert!(size_of::<Parameters>() == 64 && size_of::<TagCommand>() == 16);
const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR);

/// Describes a request to people, by its entry in the kernel's table. `None` if its range is impossible.
pub fn describe_request(entry: &[u8; DESCRIPTOR]) -> Option<String> {
    let descriptor: Descriptor = zerocopy::transmute!(*entry);
    descriptor.decode().map(|request| format!("{request:?}"))
}

/// A request of a guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub operation: Operation,
    pub offset: Bytes,
    pub len: Bytes,
    pub hints: Hints,
}

/// Operation of a [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Read,
    Write(Durability),
    Flush,
    Discard,
    WriteZeroes(Zeroing, Durability),
    /// An operation of zoned or later disks, which this disk has not announced.
    Unknown,
}

/// Code of a flush in [`Descriptor::operation`].
const FLUSH: u32 = 2;
/// Flags of [`Descriptor::operation`].
const METADATA: u32 = 1 << 11;
const FORCED: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

impl Descriptor {
    /// Decodes the request. `None` if its range ends beyond 2^64 bytes. A flush has no range: the kernel
    /// leaves all ones as its start.
    pub fn decode(&self) -> Option<Request> {
        let (start, sectors) =
            if self.operation & 0xff == FLUSH { (0, 0) } else { (self.start, self.sectors) };
        let offset = start.checked_mul(SECTOR.0)?;
        let len = u64::from(sectors) * SECTOR.0;
        offset.checked_add(len)?;
        let has = |flag: u32| self.operation & flag != 0;
        let durability = if has(FORCED) { Durability::Fua } else { Durability::Volatile };
        let zeroing = if has(NO_UNMAP) { Zeroing::KeepAllocated } else { Zeroing::MayDiscard };
        let operation = match self.operation & 0xff {
            0 => Operation::Read,
            1 => Operation::Write(durability),
            FLUSH => Operation::Flush,
            3 => Operation::Discard,
            5 => Operation::WriteZeroes(zeroing, durability),
            _ => Operation::Unknown,
        };
        let hints = Hints { metadata: has(METADATA), ..Hints::default() };
        Some(Request { operation, offset: Bytes(offset), len: Bytes(len), hints })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as `linux/ublk_cmd.h` computes them.
    #[test]
    fn commands_have_the_numbers_of_the_kernel() {
        assert_eq!(ControlVerb::DeviceInfo as u32, 0x8020_7502);
        assert_eq!(ControlVerb::Add as u32, 0xc020_7504);
        assert_eq!(ControlVerb::Start as u32, 0xc020_7506);
        assert_eq!(ControlVerb::Stop as u32, 0xc020_7507);
        assert_eq!(ControlVerb::SetParameters as u32, 0xc020_7508);
        assert_eq!(ControlVerb::Parameters as u32, 0x8020_7509);
        assert_eq!(ControlVerb::StartRecovery as u32, 0xc020_7510);
        assert_eq!(ControlVerb::EndRecovery as u32, 0xc020_7511);
        assert_eq!(ControlVerb::Features as u32, 0x8020_7513);
        assert_eq!(ControlVerb::Delete as u32, 0x8020_7514);
        assert_eq!(ControlVerb::UpdateSize as u32, 0xc020_7515);
        assert_eq!(TagVerb::Fetch as u32, 0xc010_7520);
        assert_eq!(TagVerb::CommitAndFetch as u32, 0xc010_7521);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn commands_have_the_bytes_of_the_kernel() {
        let command = ControlCommand { len: 64, address: 0x1122, ..ControlCommand::new(7, 0x99) };
        let mut expected = [0; 80];
        expected[..8].copy_from_slice(&[7, 0, 0, 0, 0xff, 0xff, 64, 0]);
        expected[8..10].copy_from_slice(&[0x22, 0x11]);
        expected[16] = 0x99;
        assert_eq!(command.encode(), expected);
        let command = TagCommand { queue: 0, tag: 63, result: -5, address: 0x1000 };
        assert_eq!(command.encode(), [0, 0, 63, 0, 0xfb, 0xff, 0xff, 0xff, 0, 0x10, 0, 0, 0, 0, 0, 0]);
    }

    /// Offsets as `offsetof` gives them in C.
    #[test]
    fn structures_have_the_offsets_of_the_kernel() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(DeviceInfo, state), 4);
        assert_eq!(offset_of!(DeviceInfo, longest_request), 8);
        assert_eq!(offset_of!(DeviceInfo, process), 16);
        assert_eq!(offset_of!(DeviceInfo, features), 24);
        assert_eq!(offset_of!(DeviceInfo, mark), 32);
        assert_eq!(offset_of!(Parameters, logical_block), 12);
        assert_eq!(offset_of!(Parameters, longest), 16);
        assert_eq!(offset_of!(Parameters, sectors), 24);
        assert_eq!(offset_of!(Parameters, discard_alignment), 40);
        assert_eq!(offset_of!(Parameters, discard_ranges), 56);
        assert_eq!(offset_of!(Parameters, unused_1), Parameters::LEN as usize);
    }

    fn decoded(operation: u32, start: u64, sectors: u32) -> Option<Request> {
        Descriptor { operation, sectors, start, address: 0 }.decode()
    }

    #[test]
    fn requests_are_decoded_with_their_flags() {
        let request = |operation, metadata| Request {
            operation,
            offset: Bytes(4096),
            len: Bytes(1024),
            hints: Hints { metadata, sequential: false },
        };
        for (code, operation, metadata) in [
            (0, Operation::Read, false),
            (0x800, Operation::Read, true),
            (1, Operation::Write(Durability::Volatile), false),
            (0x2801, Operation::Write(Durability::Fua), true),
            (3, Operation::Discard, false),
            (5, Operation::WriteZeroes(Zeroing::MayDiscard, Durability::Volatile), false),
            (0x8005, Operation::WriteZeroes(Zeroing::KeepAllocated, Durability::Volatile), false),
            (4, Operation::Unknown, false),
            (0xff, Operation::Unknown, false),
        ] {
            assert_eq!(decoded(code, 8, 2), Some(request(operation, metadata)), "{code:#x}");
        }
    }

    /// Regression: every flush failed, because its start is 2^64 - 1.
    #[test]
    fn flush_has_no_range() {
        for start in [0, u64::MAX] {
            let request = decoded(2, start, 0).expect("a flush is a request");
            assert_eq!(
                (request.operation, request.offset, request.len),
                (Operation::Flush, Bytes(0), Bytes(0))
            );
        }
    }

    #[test]
    fn range_beyond_the_last_byte_is_no_request() {
        assert_eq!(decoded(0, u64::MAX, 1), None);
        assert_eq!(decoded(1, u64::MAX / 512, u32::MAX), None);
        assert!(decoded(0, u64::MAX / 512 - 1, 1).is_some());
    }
}
