//! Guests' requests as they arrive: a bounded queue of notes between the guests' path and the task that
//! writes the trace.
//!
//! A note takes 24 bytes of memory allocated at the start: noting allocates nothing and never waits. If the
//! queue is full, the note is dropped and counted: guests have priority over the recording.

use braid_base::{Arrival, Bytes, Nanos, Op, Request};

/// A request in packed form.
#[derive(Clone, Copy, Default)]
pub(crate) struct Note {
    at: u64,
    offset: u64,
    /// Operation in the highest byte, length in the other bytes.
    what: u64,
}

/// Queue of notes.
pub(crate) struct Notes {
    places: Box<[Note]>,
    /// Notes ever added, and notes ever taken.
    noted: u64,
    taken: u64,
    dropped: u64,
}

const OPS: [Op; 4] = [Op::Read, Op::Write, Op::Flush, Op::Discard];
const LENGTH: u64 = (1 << 56) - 1;

impl Notes {
    /// Makes a queue for `capacity` notes, a power of two.
    ///
    /// # Panics
    /// If `capacity` is not a power of two.
    pub fn new(capacity: usize) -> Notes {
        assert!(capacity.is_power_of_two(), "places are found by the lower bits of a number");
        Notes { places: vec![Note::default(); capacity].into(), noted: 0, taken: 0, dropped: 0 }
    }

    /// Adds a note of a request.
    #[inline]
    pub fn note(&mut self, at: Nanos, request: Request) {
        if self.noted - self.taken == self.places.len() as u64 {
            self.dropped += 1;
            return;
        }
        let place = self.noted as usize & (self.places.len() - 1);
        let op = OPS.iter().position(|&known| known == request.op).unwrap_or(0) as u64;
        let what = op << 56 | request.len.0.min(LENGTH);
        self.places[place] = Note { at: at.0, offset: request.offset.0, what };
        self.noted += 1;
    }

    /// Takes the oldest notes, and returns their number.
    pub fn take(&mut self, into: &mut [Note]) -> usize {
        let count = ((self.noted - self.taken) as usize).min(into.len());
        for note in &mut into[..count] {
            *note = self.places[self.taken as usize & (self.places.len() - 1)];
            self.taken += 1;
        }
        count
    }

    /// Returns the number of dropped notes.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Note {
    /// Returns the request, with its time relative to `start`.
    pub fn arrival(&self, start: Nanos) -> Arrival {
        let op = OPS[(self.what >> 56) as usize & 3];
        let request = Request { op, offset: Bytes(self.offset), len: Bytes(self.what & LENGTH) };
        Arrival { at: Nanos(self.at).saturating_sub(start), request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, offset: u64, len: u64) -> Request {
        Request { op, offset: Bytes(offset), len: Bytes(len) }
    }

    #[test]
    fn notes_keep_order_and_overflow_is_counted() {
        let mut notes = Notes::new(8);
        let mut taken = [Note::default(); 5];
        let mut expected = 0;
        for round in 0..100u64 {
            for n in 0..4 {
                let op = OPS[(round + n) as usize % 4];
                notes.note(Nanos(100 + round), request(op, round * 4 + n, 512));
            }
            assert_eq!(notes.take(&mut taken), 4);
            let offsets = [0, 1, 2, 3].map(|n| taken[n].arrival(Nanos(100)).request.offset.0);
            assert_eq!(offsets, [0, 1, 2, 3].map(|n| round * 4 + n));
            expected += 4;
        }
        assert_eq!((notes.noted + notes.dropped, notes.dropped), (expected, 0));
        (0..20).for_each(|n| notes.note(Nanos(n), request(Op::Write, n, 1)));
        assert_eq!(notes.dropped(), 12);
        assert_eq!(notes.take(&mut taken), 5);
        let offsets = taken.map(|note| note.arrival(Nanos(1)).request.offset.0);
        assert_eq!(offsets, [0, 1, 2, 3, 4]);
        assert_eq!(taken[4].arrival(Nanos(1)).at, Nanos(3));
        assert_eq!((notes.take(&mut taken), notes.take(&mut taken)), (3, 0));
    }

    #[test]
    fn a_note_holds_every_op_and_every_length_of_a_volume() {
        let mut notes = Notes::new(4);
        let mut taken = [Note::default(); 4];
        for op in OPS {
            notes.note(Nanos(7), request(op, u64::MAX, 1 << 48));
        }
        assert_eq!(notes.take(&mut taken), 4);
        for (note, op) in taken.iter().zip(OPS) {
            let request = request(op, u64::MAX, 1 << 48);
            assert_eq!(note.arrival(Nanos(7)), Arrival { at: Nanos::ZERO, request });
        }
    }
}
