//! The decoder of replies: a pure state machine. Bytes come in; parts of replies and results come out.
//!
//! The decoder knows the requests in flight, each by its cookie. Everything that the protocol forbids is an
//! error, and the connection is then lost: an unknown cookie, a second reply, a part outside the request, a
//! byte answered twice or not at all. The payload of a read does not pass through the decoder: the caller
//! moves the bytes from the stream to the buffer of the request.

use super::coverage::Coverage;
use crate::wire::replies::{ERROR_MESSAGE_LARGEST, ReplyHead, decode_error, decode_hole, decode_offset};
use crate::wire::*;
use std::ops::Range;

/// Largest number of error parts in a reply. Servers of today send one.
const MOST_ERRORS: u32 = 64;
/// Longest error part: number, length, message, and the offset of NBD_REPLY_TYPE_ERROR_OFFSET.
const ERROR_LARGEST: u32 = 6 + ERROR_MESSAGE_LARGEST + 8;

/// Kind of a request, for its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// NBD_CMD_READ.
    Read,
    /// NBD_CMD_WRITE.
    Write,
    /// NBD_CMD_FLUSH.
    Flush,
    /// NBD_CMD_TRIM.
    Discard,
}

/// Next step after a call of [`Replies::receive`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyStep {
    /// Nothing was taken: more bytes are needed first.
    More,
    /// A part without bytes for the caller was taken.
    Next,
    /// The next bytes of the stream belong into this range of the request's buffer. The caller takes the
    /// bytes from the stream before the next call.
    Payload(usize, Range<u64>),
    /// This range of the request's buffer reads as zeros.
    Zeros(usize, Range<u64>),
    /// The request has ended, with success or with an error number (NBD_E…).
    Done(usize, Result<(), u32>),
}

/// Requests in flight on one connection, by slot.
pub struct Replies {
    structured: bool,
    slots: Vec<Expected>,
    free: Vec<usize>,
    /// The request whose last part was taken, and whose result comes next.
    ending: Option<usize>,
}

/// A request in flight.
struct Expected {
    /// Distinguishes the requests of a slot: the upper half of the cookie.
    generation: u32,
    is_expected: bool,
    command: Command,
    offset: u64,
    len: u32,
    coverage: Coverage,
    /// A part was received, and the last part was not.
    has_begun: bool,
    /// The first error of the reply; 0 for none.
    error: u32,
    errors: u32,
}

impl Replies {
    /// No requests in flight. `structured` if structured replies were agreed on.
    pub fn new(structured: bool) -> Replies {
        Replies { structured, slots: Vec::new(), free: Vec::new(), ending: None }
    }

    /// Adds a request. Returns its slot, and the cookie for the server. The slot is taken until
    /// [`Replies::release`].
    pub fn expect(&mut self, command: Command, offset: u64, len: u32) -> (usize, u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Expected::default());
            self.slots.len() - 1
        });
        let place = &mut self.slots[slot];
        let (generation, mut coverage) =
            (place.generation.wrapping_add(1), std::mem::take(&mut place.coverage));
        coverage.clear();
        *place =
            Expected { generation, is_expected: true, command, offset, len, coverage, ..Expected::default() };
        (slot, u64::from(generation) << 32 | slot as u64)
    }

    /// Kind of the request in a slot.
    pub fn command(&self, slot: usize) -> Command {
        self.slots[slot].command
    }

    /// Frees a slot after its result.
    ///
    /// # Panics
    /// If the reply is still expected.
    pub fn release(&mut self, slot: usize) {
        assert!(!self.slots[slot].is_expected, "a slot stays taken until the reply has come");
        self.free.push(slot);
    }

    /// Handles at most one head at the start of `input`. Returns the number of input bytes used.
    ///
    /// `input` may hold any amount; a head with an error part has at most 4 KiB and 34 bytes.
    ///
    /// # Errors
    /// If the server breaks the protocol; says how.
    pub fn receive(&mut self, input: &[u8]) -> Result<(usize, ReplyStep), &'static str> {
        if let Some(slot) = self.ending.take() {
            return Ok((0, self.end(slot)?));
        }
        let head = ReplyHead::decode(input).map_err(|_| "something else came in place of a reply")?;
        match head {
            None => Ok((0, ReplyStep::More)),
            Some((ReplyHead::Simple { cookie, error }, used)) => {
                let slot = self.find(cookie)?;
                Ok((used, self.simple(slot, error)?))
            }
            Some((ReplyHead::Structured { cookie, part, kind, len }, used)) => {
                let slot = self.find(cookie)?;
                if !self.structured {
                    return Err("a structured reply came, but none were agreed on");
                }
                let (more, step) = self.structured(slot, part, kind, len, &input[used..])?;
                Ok(if step == ReplyStep::More { (0, step) } else { (used + more, step) })
            }
        }
    }

    fn find(&self, cookie: u64) -> Result<usize, &'static str> {
        let (slot, generation) = (cookie as u32 as usize, (cookie >> 32) as u32);
        match self.slots.get(slot) {
            Some(place) if place.is_expected && place.generation == generation => Ok(slot),
            _ => Err("a reply came to a request that was never sent, or a second reply"),
        }
    }

    fn simple(&mut self, slot: usize, error: u32) -> Result<ReplyStep, &'static str> {
        let structured = self.structured;
        let place = &mut self.slots[slot];
        if place.has_begun || (structured && place.command == Command::Read) {
            return Err("a simple reply came in place of a structured reply");
        }
        place.error = error;
        if error != 0 || place.command != Command::Read {
            return self.end(slot);
        }
        let whole = 0..u64::from(place.len);
        place.coverage.add(whole.clone())?;
        self.ending = Some(slot);
        Ok(ReplyStep::Payload(slot, whole))
    }

    /// Takes a part whose content starts at `content`. Returns the number of used content bytes, without the
    /// payload.
    fn structured(
        &mut self,
        slot: usize,
        part: Part,
        kind: u16,
        len: u32,
        content: &[u8],
    ) -> Result<(usize, ReplyStep), &'static str> {
        let place = &mut self.slots[slot];
        let (used, step) = match kind {
            NBD_REPLY_TYPE_NONE if len == 0 && part == Part::Last => (0, ReplyStep::Next),
            NBD_REPLY_TYPE_OFFSET_DATA if len > 8 => {
                let Some(offset) = decode_offset(content) else { return Ok((0, ReplyStep::More)) };
                (8, ReplyStep::Payload(slot, place.cover(offset, len - 8)?))
            }
            NBD_REPLY_TYPE_OFFSET_HOLE if len == 12 => {
                let Some((offset, len)) = decode_hole(content) else { return Ok((0, ReplyStep::More)) };
                (12, ReplyStep::Zeros(slot, place.cover(offset, len)?))
            }
            kind if kind & NBD_REPLY_TYPE_ERROR_BIT != 0 && len <= ERROR_LARGEST => {
                let Some(content) = content.get(..len as usize) else { return Ok((0, ReplyStep::More)) };
                place.fail(content)?;
                (content.len(), ReplyStep::Next)
            }
            _ => return Err("a part of a reply has the wrong type or length"),
        };
        place.has_begun = true;
        match (part, &step) {
            (Part::More, _) => Ok((used, step)),
            (Part::Last, ReplyStep::Next) => Ok((used, self.end(slot)?)),
            (Part::Last, _) => {
                self.ending = Some(slot);
                Ok((used, step))
            }
        }
    }

    fn end(&mut self, slot: usize) -> Result<ReplyStep, &'static str> {
        let place = &mut self.slots[slot];
        if place.error != 0 {
            place.is_expected = false;
            return Ok(ReplyStep::Done(slot, Err(place.error)));
        }
        if place.command == Command::Read && !place.coverage.is_whole(place.len.into()) {
            return Err("a reply to a read lacks bytes");
        }
        place.is_expected = false;
        Ok(ReplyStep::Done(slot, Ok(())))
    }
}

impl Expected {
    /// Notes that a part covers these bytes of the export. Returns their range in the request.
    fn cover(&mut self, offset: u64, len: u32) -> Result<Range<u64>, &'static str> {
        if self.command != Command::Read {
            return Err("bytes came for a request that is no read");
        }
        let start = offset.checked_sub(self.offset);
        let range = start.and_then(|start| Some(start..start.checked_add(len.into())?));
        let Some(range) = range.filter(|range| !range.is_empty() && range.end <= self.len.into()) else {
            return Err("a part of a reply lies outside the request");
        };
        self.coverage.add(range.clone())?;
        Ok(range)
    }

    /// Notes an error part.
    fn fail(&mut self, content: &[u8]) -> Result<(), &'static str> {
        let (error, _) = decode_error(content).ok_or("an error part of a reply has a wrong length")?;
        self.errors += 1;
        if error == 0 || self.errors > MOST_ERRORS {
            return Err("a reply has too many errors, or an error without a number");
        }
        if self.error == 0 {
            self.error = error;
        }
        Ok(())
    }
}

impl Default for Expected {
    fn default() -> Expected {
        Expected {
            generation: 0,
            is_expected: false,
            command: Command::Flush,
            offset: 0,
            len: 0,
            coverage: Coverage::default(),
            has_begun: false,
            error: 0,
            errors: 0,
        }
    }
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;
