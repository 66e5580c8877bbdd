//! Records as bytes: differences from the record before.

use braid_base::{Arrival, Bytes, Nanos, Op, Request};

/// Longest record: the first byte and three varints.
pub(super) const LONGEST: usize = 1 + 3 * 10;

const SAME_LENGTH: u8 = 1 << 2;
const CONTIGUOUS: u8 = 1 << 3;
const IN_SECTORS: u8 = 1 << 4;
const SECTOR_SHIFT: u32 = 9;

/// Reference for the next record: time, end and lengths of earlier records.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeltaBase {
    at: u64,
    end: u64,
    len: [u64; 4],
}

impl DeltaBase {
    /// Creates the reference for the start of a block with the first record at time `first`.
    pub(super) fn new(first: u64) -> DeltaBase {
        DeltaBase { at: first, end: 0, len: [0; 4] }
    }

    /// Appends a record. Its time must not be before the time of the last record.
    pub(super) fn encode(&mut self, arrival: &Arrival, out: &mut Vec<u8>) {
        let Request { op, offset, len } = arrival.request;
        let since = arrival.at.0 - self.at;
        self.at = arrival.at.0;
        let (scale, since) = match since {
            0 => (0, 0),
            ns if ns.is_multiple_of(1_000) => (3, ns / 1_000),
            ns if ns.is_multiple_of(100) => (2, ns / 100),
            ns => (1, ns),
        };
        let mut first = number(op) as u8 | scale << 5;
        if op == Op::Flush {
            out.push(first | SAME_LENGTH | CONTIGUOUS);
            if scale != 0 {
                varint(since, out);
            }
            return;
        }
        let distance = offset.0.wrapping_sub(self.end) as i64;
        let same = self.len[number(op)] == len.0;
        let sectors = (distance as u64 | if same { 0 } else { len.0 }).trailing_zeros() >= SECTOR_SHIFT;
        let shift = if sectors { SECTOR_SHIFT } else { 0 };
        first |= if same { SAME_LENGTH } else { 0 };
        first |= if distance == 0 { CONTIGUOUS } else { 0 };
        first |= if sectors { IN_SECTORS } else { 0 };
        out.push(first);
        if scale != 0 {
            varint(since, out);
        }
        if distance != 0 {
            varint(zigzag(distance >> shift), out);
        }
        if !same {
            varint(len.0 >> shift, out);
        }
        self.len[number(op)] = len.0;
        self.end = offset.0 + len.0;
    }

    /// Takes a record from the front of `bytes`. `None` if the bytes are not a record.
    pub(super) fn decode(&mut self, bytes: &mut &[u8]) -> Option<Arrival> {
        let (&first, rest) = bytes.split_first()?;
        *bytes = rest;
        if first & 0x80 != 0 {
            return None;
        }
        let scale = [0, 1, 100, 1_000][usize::from(first >> 5)];
        if scale != 0 {
            self.at = self.at.checked_add(take_varint(bytes)?.checked_mul(scale)?)?;
        }
        let at = Nanos(self.at);
        let op = OPS[usize::from(first & 3)];
        if op == Op::Flush {
            let whole = first & (SAME_LENGTH | CONTIGUOUS) == SAME_LENGTH | CONTIGUOUS;
            let request = Request { op, offset: Bytes::ZERO, len: Bytes::ZERO };
            return whole.then_some(Arrival { at, request });
        }
        let shift = if first & IN_SECTORS != 0 { SECTOR_SHIFT } else { 0 };
        let mut offset = self.end;
        if first & CONTIGUOUS == 0 {
            let distance = unzigzag(take_varint(bytes)?);
            let scaled = distance.checked_mul(1 << shift)?;
            offset = offset.checked_add_signed(scaled)?;
        }
        let mut len = self.len[number(op)];
        if first & SAME_LENGTH == 0 {
            len = take_varint(bytes)?.checked_mul(1 << shift)?;
            self.len[number(op)] = len;
        }
        self.end = offset.checked_add(len)?;
        Some(Arrival { at, request: Request { op, offset: Bytes(offset), len: Bytes(len) } })
    }
}

const OPS: [Op; 4] = [Op::Read, Op::Write, Op::Flush, Op::Discard];

fn number(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Flush => 2,
        Op::Discard => 3,
    }
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (place, &byte) in bytes.iter().enumerate().take(10) {
        // The tenth byte has room for the last bit only.
        if place == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            *bytes = &bytes[place + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_and_zigzags_come_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            varint(value, &mut bytes);
            let mut rest = &bytes[..];
            assert_eq!((take_varint(&mut rest), rest.len()), (Some(value), 0));
            assert_eq!(zigzag(unzigzag(value)), value);
        }
        assert_eq!(take_varint(&mut &[0xff; 10][..]), None);
        assert_eq!(take_varint(&mut &[0x80][..]), None);
    }

    #[test]
    fn repeated_sequential_read_takes_one_byte() {
        let mut before = DeltaBase::new(0);
        let mut bytes = Vec::new();
        let read = |at, offset| Arrival {
            at: Nanos(at),
            request: Request { op: Op::Read, offset: Bytes(offset), len: Bytes(4096) },
        };
        before.encode(&read(0, 0), &mut bytes);
        let first = bytes.len();
        before.encode(&read(0, 4096), &mut bytes);
        assert_eq!(bytes.len(), first + 1);
    }
}
