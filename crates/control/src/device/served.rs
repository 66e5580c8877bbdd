//! Log of the requests that a device has served for a while, to calibrate a model of the device.

use braid_base::{Bytes, Nanos, Op, Request};
use braid_model::Served;
use braid_runtime::Runtime;
use std::cell::{Cell, RefCell};

/// Log of one device. While off, a request costs one check of a flag.
pub(crate) struct ServedLog<R> {
    runtime: R,
    /// Number of requests still to be noted.
    room: Cell<usize>,
    /// Number of the series of notes: a request that ends later is not counted in the next series.
    turn: Cell<u32>,
    notes: RefCell<Vec<ServedRequest>>,
}

struct ServedRequest {
    at: Nanos,
    request: Request,
    /// `None` until the request has ended successfully.
    took: Option<Nanos>,
}

/// Handle of a noted request.
pub(crate) struct Noted {
    turn: u32,
    place: usize,
}

impl<R: Runtime> ServedLog<R> {
    /// Makes a log without notes.
    pub fn new(runtime: R) -> ServedLog<R> {
        ServedLog { runtime, room: Cell::new(0), turn: Cell::new(0), notes: RefCell::default() }
    }

    /// Forgets all notes, and notes the next `room` requests.
    pub fn start(&self, room: usize) {
        self.turn.set(self.turn.get().wrapping_add(1));
        self.room.set(room);
        *self.notes.borrow_mut() = Vec::with_capacity(room);
    }

    /// Returns the number of noted requests that have ended successfully.
    pub fn ended(&self) -> usize {
        self.notes.borrow().iter().filter(|note| note.took.is_some()).count()
    }

    /// Returns the noted requests that have ended successfully, and stops noting.
    pub fn take(&self) -> Vec<Served> {
        let served =
            |note: &ServedRequest| note.took.map(|took| Served { at: note.at, request: note.request, took });
        let all = self.notes.borrow().iter().filter_map(served).collect();
        self.start(0);
        all
    }

    /// Notes the start of a request to the device.
    #[inline]
    pub fn begins(&self, op: Op, offset: Bytes, len: Bytes) -> Option<Noted> {
        if self.room.get() == 0 { None } else { Some(self.note(Request { op, offset, len })) }
    }

    #[cold]
    fn note(&self, request: Request) -> Noted {
        self.room.set(self.room.get() - 1);
        let mut notes = self.notes.borrow_mut();
        notes.push(ServedRequest { at: self.runtime.now(), request, took: None });
        Noted { turn: self.turn.get(), place: notes.len() - 1 }
    }

    /// Notes the end of a request. A failed request keeps no time.
    #[inline]
    pub fn ends(&self, noted: Option<Noted>, well: bool) {
        if let Some(Noted { turn, place }) = noted
            && well
            && turn == self.turn.get()
            && let Some(note) = self.notes.borrow_mut().get_mut(place)
        {
            note.took = Some(self.runtime.now() - note.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_sim::World;

    #[test]
    fn served_log_records_first_successful_requests_with_times() {
        let world = World::new(1);
        world.clone().block_on(async move {
            let log = ServedLog::new(world.clone());
            let begins = |at: u64| log.begins(Op::Read, Bytes(at), Bytes(512));
            assert!(begins(0).is_none(), "notes were not started");
            log.start(3);
            let begun = world.now();
            let (failed, first) = (begins(1), begins(2));
            world.sleep(Nanos::from_millis(2)).await;
            let second = begins(3);
            assert!(begins(4).is_none(), "three were asked for");
            world.sleep(Nanos::from_millis(3)).await;
            log.ends(second, true);
            log.ends(failed, false);
            assert_eq!(log.ended(), 1);
            log.ends(first, true);
            let served: Vec<_> =
                log.take().iter().map(|one| (one.at - begun, one.request.offset, one.took)).collect();
            let millis = Nanos::from_millis;
            assert_eq!(served, [(Nanos::ZERO, Bytes(2), millis(5)), (millis(2), Bytes(3), millis(3))]);
            assert!(begins(5).is_none() && log.ended() == 0, "they were taken");
        });
    }

    #[test]
    fn late_end_is_not_attributed_to_a_newer_log() {
        let world = World::new(1);
        let log = ServedLog::new(world);
        log.start(2);
        let late = log.begins(Op::Write, Bytes(0), Bytes(512));
        log.start(2);
        let other = log.begins(Op::Write, Bytes(512), Bytes(512));
        log.ends(late, true);
        assert_eq!(log.ended(), 0);
        log.ends(other, true);
        assert_eq!(log.take()[0].request.offset, Bytes(512));
    }
}
