//! The rules of the oracle, one by one, and the oracle against a correct disk made of two arrays and a log.

use super::*;
use braid_base::Rng;
use braid_engine::Durability::{Fua, Volatile};
use proptest::prelude::*;

const SIZE: Bytes = Bytes(16);

fn written(oracle: &mut Oracle, value: u8, durability: Durability) {
    let id = oracle.begin_write(Bytes(4), &[value; 4]);
    oracle.end_write(id, durability);
}

fn flushed(oracle: &mut Oracle) {
    let id = oracle.begin_flush();
    oracle.end_flush(id);
}

fn image(value: u8) -> Vec<u8> {
    let mut image = vec![0; SIZE.as_usize()];
    image[4..8].fill(value);
    image
}

/// Returns the values of byte 4 (with its three neighbours) that are legal after a crash now.
fn legal_after_crash(oracle: &Oracle) -> Vec<u8> {
    (0..=9).filter(|&value| oracle.check_after_crash(0, &image(value)).is_ok()).collect()
}

/// Returns the legal values of a read that begins and ends now.
fn legal_to_read(oracle: &mut Oracle) -> Vec<u8> {
    let begun = oracle.tick();
    let writes = oracle.writes.len();
    let legal = (0..=9).filter(|&value| {
        let result = oracle.check_read(0, &image(value), begun);
        oracle.writes.truncate(writes);
        result.is_ok()
    });
    legal.collect()
}

#[test]
fn crash_state_holds_flushed_or_later_value() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Volatile);
    assert_eq!(legal_after_crash(&oracle), [0, 1]);
    written(&mut oracle, 2, Volatile);
    flushed(&mut oracle);
    assert_eq!(legal_after_crash(&oracle), [2]);
    written(&mut oracle, 3, Volatile);
    oracle.begin_write(Bytes(4), &[4; 4]);
    assert_eq!(legal_after_crash(&oracle), [2, 3, 4]);
    let mut torn = image(2);
    torn[5..7].copy_from_slice(&[4, 3]);
    assert_eq!(oracle.check_after_crash(0, &torn), Ok(()), "each byte on its own");
}

#[test]
fn flush_covers_only_writes_acknowledged_before_start() {
    let mut oracle = Oracle::new(SIZE);
    let first = oracle.begin_write(Bytes(4), &[1; 4]);
    let flush = oracle.begin_flush();
    oracle.end_write(first, Volatile);
    oracle.end_flush(flush);
    assert_eq!(legal_after_crash(&oracle), [0, 1]);
    flushed(&mut oracle);
    assert_eq!(legal_after_crash(&oracle), [1]);
}

#[test]
fn acknowledged_fua_write_is_durable_and_hides_older_value() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Volatile);
    written(&mut oracle, 2, Fua);
    assert_eq!(legal_after_crash(&oracle), [2]);
}

#[test]
fn a_discard_is_a_write_of_zeros() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Fua);
    let discard = oracle.begin_zero(Bytes(2), Bytes(8));
    oracle.end_write(discard, Volatile);
    assert_eq!(legal_to_read(&mut oracle), [0]);
    assert_eq!(legal_after_crash(&oracle), [0, 1]);
    flushed(&mut oracle);
    assert_eq!(legal_after_crash(&oracle), [0]);
}

#[test]
fn only_reads_begun_before_ack_may_return_old_bytes() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Volatile);
    let read = oracle.begin_read();
    let write = oracle.begin_write(Bytes(4), &[2; 4]);
    assert_eq!(legal_to_read(&mut oracle), [1, 2]);
    oracle.end_write(write, Fua);
    oracle.settle();
    assert_eq!(legal_to_read(&mut oracle), [2]);
    let mut older = image(1);
    older[5] = 2;
    assert_eq!(
        oracle.end_read(read, Bytes::ZERO, &older),
        Ok(()),
        "it began before the write was acknowledged"
    );
}

#[test]
fn read_decides_between_overlapping_writes() {
    let mut oracle = Oracle::new(SIZE);
    let (first, second) = (oracle.begin_write(Bytes(4), &[1; 4]), oracle.begin_write(Bytes(4), &[2; 4]));
    oracle.end_write(second, Volatile);
    oracle.end_write(first, Volatile);
    assert_eq!(legal_to_read(&mut oracle), [1, 2]);
    flushed(&mut oracle);
    oracle.settle();
    assert_eq!(legal_after_crash(&oracle), [1, 2]);
    oracle.expect_read(Bytes::ZERO, &image(1)).unwrap();
    assert_eq!(legal_to_read(&mut oracle), [1]);
    assert_eq!(legal_after_crash(&oracle), [1]);
}

#[test]
fn a_failed_write_may_have_happened() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Fua);
    let failed = oracle.begin_write(Bytes(4), &[2; 4]);
    oracle.fail_write(failed);
    flushed(&mut oracle);
    oracle.settle();
    assert_eq!(legal_to_read(&mut oracle), [1, 2]);
    assert_eq!(legal_after_crash(&oracle), [1, 2]);
    written(&mut oracle, 3, Fua);
    assert_eq!(legal_after_crash(&oracle), [3]);
}

#[test]
fn value_verified_after_crash_stays_after_next_crash() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Volatile);
    oracle.crash();
    oracle.crash();
    oracle.verify_after_crash(&image(1)).unwrap();
    assert_eq!(legal_to_read(&mut oracle), [1]);
    oracle.crash();
    assert!(oracle.verify_after_crash(&image(0)).is_err());
    assert_eq!(oracle.verify_after_crash(&image(1)), Ok(()));
}

#[test]
fn partial_finding_after_crash_holds_after_second_crash() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Fua);
    written(&mut oracle, 2, Volatile);
    oracle.crash();
    oracle.find_after_crash(Bytes(4), &[2; 2]).unwrap();
    oracle.crash();
    assert!(oracle.find_after_crash(Bytes(4), &[1; 2]).is_err(), "an earlier read is not contradicted");
    oracle.find_after_crash(Bytes(4), &[2; 2]).unwrap();
    oracle.find_after_crash(Bytes(6), &[1; 2]).unwrap();
}

#[test]
fn unread_range_stays_undetermined_after_crash() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Fua);
    written(&mut oracle, 2, Volatile);
    oracle.crash();
    oracle.find_after_crash(Bytes(4), &[1; 2]).unwrap();
    oracle.resume();
    assert!(oracle.expect_read(Bytes(4), &[2; 2]).is_err());
    assert!(oracle.expect_read(Bytes(6), &[3; 2]).is_err());
    oracle.expect_read(Bytes(6), &[2; 2]).unwrap();
}

#[test]
fn value_read_after_kill_is_not_proved_durable() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Fua);
    written(&mut oracle, 2, Volatile);
    oracle.kill();
    assert_eq!(legal_to_read(&mut oracle), [1, 2], "the software may have held it in memory");
    oracle.find_after_crash(Bytes::ZERO, &image(2)).unwrap();
    oracle.resume();
    assert_eq!(legal_to_read(&mut oracle), [2]);
    oracle.crash();
    assert_eq!(legal_after_crash(&oracle), [1, 2]);
}

#[test]
fn reads_are_unchecked_after_loss_until_later_flush_succeeds() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Fua);
    written(&mut oracle, 2, Volatile);
    let earlier = oracle.begin_flush();
    oracle.doubt();
    oracle.end_flush(earlier);
    oracle.expect_read(Bytes::ZERO, &image(9)).unwrap();
    flushed(&mut oracle);
    assert_eq!(legal_to_read(&mut oracle), [2], "a success hides no loss");
    oracle.doubt();
    oracle.crash();
    assert_eq!(legal_after_crash(&oracle), [2]);
    oracle.doubt();
    oracle.find_after_crash(Bytes::ZERO, &image(9)).unwrap();
    oracle.resume();
    flushed(&mut oracle);
    assert_eq!(legal_to_read(&mut oracle), [2], "what was found after the loss is not the truth");
}

#[test]
fn read_after_reported_loss_returns_durable_or_later_value() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Fua);
    written(&mut oracle, 2, Volatile);
    let under_way = oracle.begin_write(Bytes::ZERO, &image(3));
    let flush = oracle.begin_flush();
    oracle.doubt();
    let read = oracle.begin_read();
    oracle.fail_flush(flush);
    oracle.end_read(read, Bytes::ZERO, &image(9)).unwrap();
    oracle.end_write(under_way, Volatile);
    assert_eq!(legal_to_read(&mut oracle), [1, 2, 3]);
}

#[test]
fn acknowledged_write_survives_death_unless_flush_failed() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Fua);
    written(&mut oracle, 2, Volatile);
    let mut died = oracle.clone();
    died.die();
    assert_eq!(legal_to_read(&mut died), [2]);
    oracle.suspect();
    let mut died = oracle.clone();
    died.die();
    assert_eq!(legal_to_read(&mut died), [1, 2], "the device may have lost what the memory speaks of");
    flushed(&mut oracle);
    written(&mut oracle, 3, Volatile);
    let mut died = oracle.clone();
    died.die();
    assert_eq!(legal_to_read(&mut died), [3], "another device has all of it");
    oracle.suspect_for_good();
    flushed(&mut oracle);
    written(&mut oracle, 4, Volatile);
    oracle.die();
    assert_eq!(legal_to_read(&mut oracle), [3, 4]);
}

#[test]
fn cloned_oracle_is_independent_of_original() {
    let mut oracle = Oracle::new(SIZE);
    written(&mut oracle, 1, Volatile);
    let mut other = oracle.clone();
    flushed(&mut oracle);
    other.crash();
    other.verify_after_crash(&image(0)).unwrap();
    assert_eq!((legal_after_crash(&oracle), legal_after_crash(&other)), (vec![1], vec![0]));
}

#[test]
fn the_state_at_an_earlier_flush_is_known() {
    let mut oracle = Oracle::new(SIZE);
    oracle.keep_flush_states(3);
    let legal_at = |oracle: &Oracle, flush: u64| -> Vec<u8> {
        (0..=9).filter(|&value| oracle.check_at_flush(flush, Bytes::ZERO, &image(value)).is_ok()).collect()
    };
    written(&mut oracle, 1, Volatile);
    flushed(&mut oracle);
    written(&mut oracle, 2, Volatile);
    let flush = oracle.begin_flush();
    written(&mut oracle, 3, Volatile);
    oracle.end_flush(flush);
    written(&mut oracle, 4, Fua);
    assert_eq!((legal_at(&oracle, 0), legal_at(&oracle, 1)), (vec![0], vec![1]));
    assert_eq!(legal_at(&oracle, 2), [2, 3], "a write that overlaps the flush may be in it");
    assert_eq!([0, 1, 3, 4].map(|value| oracle.flush_of(&image(value))), [Some(0), Some(1), Some(2), None]);
    flushed(&mut oracle);
    assert_eq!((oracle.newest_flush(), oracle.flush_of(&image(0))), (3, None), "three are kept");
}

#[test]
fn a_mismatch_names_the_place_the_value_and_the_legal_writes() {
    let mut oracle = Oracle::new(Bytes(64));
    for durability in [Volatile, Fua, Volatile] {
        let mut bytes = [0; 32];
        oracle.stamp_next(Bytes(16), &mut bytes);
        let id = oracle.begin_write(Bytes(16), &bytes);
        oracle.end_write(id, durability);
    }
    let mut lost = vec![0; 64];
    stamp(0, Bytes(16), &mut lost[16..48]);
    oracle.crash();
    let message = oracle.verify_after_crash(&lost).unwrap_err().to_string();
    for part in [
        "offset 0x10",
        "write 0 wrote at 0x10",
        "write 1 of 32 bytes at 0x10, durable",
        "2 of 32",
        "not flushed",
        "4: 1 is acknowledged and durable 0x10..0x30",
        "crash",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// A correct disk: visible bytes, durable bytes, and a log of the difference, in order of effect.
struct Model {
    current: Vec<u8>,
    durable: Vec<u8>,
    log: Vec<(usize, Vec<u8>)>,
    /// Number of log entries ever made durable and removed.
    removed: usize,
    /// All values that each byte ever had.
    history: Vec<Vec<u8>>,
}

impl Model {
    fn apply(&mut self, start: usize, bytes: &[u8]) {
        self.current[start..start + bytes.len()].copy_from_slice(bytes);
        self.log.push((start, bytes.to_vec()));
    }

    fn flush_before(&mut self, end: usize) {
        for (start, bytes) in self.log.drain(..end.saturating_sub(self.removed)) {
            self.durable[start..start + bytes.len()].copy_from_slice(&bytes);
            self.removed += 1;
        }
    }

    /// Keeps any of the log entries and of `in_flight` for each byte.
    fn crash(&mut self, in_flight: &[Open], rng: &mut Rng) {
        for open in in_flight {
            if let Open::Write { start, bytes, effect: false, .. } = open {
                self.log.push((*start, bytes.clone()));
            }
        }
        for (start, bytes) in std::mem::take(&mut self.log) {
            self.removed += 1;
            for (at, byte) in bytes.iter().enumerate().filter(|_| rng.chance(0.5)) {
                self.durable[start + at] = *byte;
            }
        }
        self.current = self.durable.clone();
    }

    /// Returns a value that byte `at` never had.
    fn foreign(&self, at: usize) -> u8 {
        (0..=255).find(|value| *value != 0 && !self.history[at].contains(value)).unwrap()
    }
}

/// An operation in flight.
enum Open {
    Write { id: WriteId, start: usize, bytes: Vec<u8>, effect: bool, durability: Durability },
    Flush { id: FlushId, end: usize },
    Read { id: ReadId, start: usize, len: usize, found: Option<Vec<u8>> },
}

fn begin(oracle: &mut Oracle, model: &mut Model, rng: &mut Rng) -> Open {
    let size = model.current.len() as u64;
    let start = rng.below(size) as usize;
    let len = 1 + rng.below((size - start as u64).min(24)) as usize;
    match rng.below(8) {
        0 => Open::Flush { id: oracle.begin_flush(), end: model.removed + model.log.len() },
        1 | 2 => Open::Read { id: oracle.begin_read(), start, len, found: None },
        kind => {
            let value = if kind == 3 { 0 } else { rng.below(250) as u8 };
            let offset = Bytes::of_len(start);
            let id = match kind {
                3 => oracle.begin_zero(offset, Bytes::of_len(len)),
                _ => oracle.begin_write(offset, &vec![value; len]),
            };
            model.history[start..start + len].iter_mut().for_each(|h| h.push(value));
            let durability = if kind == 4 { Fua } else { Volatile };
            Open::Write { id, start, bytes: vec![value; len], effect: false, durability }
        }
    }
}

/// Lets an operation in flight take effect, or end.
fn go_on(
    open: Open,
    oracle: &mut Oracle,
    model: &mut Model,
    rng: &mut Rng,
) -> Result<Option<Open>, Mismatch> {
    match open {
        Open::Write { id, start, bytes, effect: false, durability } => {
            model.apply(start, &bytes);
            return Ok(Some(Open::Write { id, start, bytes, effect: true, durability }));
        }
        Open::Write { id, durability, .. } => {
            if durability == Fua {
                model.flush_before(model.removed + model.log.len());
            }
            oracle.end_write(id, durability);
        }
        Open::Flush { id, end } => {
            model.flush_before(end);
            oracle.end_flush(id);
        }
        Open::Read { id, start, len, found: None } => {
            let found = Some(model.current[start..start + len].to_vec());
            return Ok(Some(Open::Read { id, start, len, found }));
        }
        Open::Read { id, start, found: Some(mut found), .. } => {
            let at = rng.below(found.len() as u64) as usize;
            let right = std::mem::replace(&mut found[at], model.foreign(start + at));
            let begun = oracle.reads.iter().find(|(other, _)| *other == id).unwrap().1;
            assert!(oracle.check_read(start, &found, begun).is_err(), "a foreign byte passed");
            found[at] = right;
            oracle.end_read(id, Bytes::of_len(start), &found)?;
        }
    }
    Ok(None)
}

/// A life of a correct disk under `seed`: every answer must pass, every foreign byte must not.
fn live(seed: u64) -> Result<(), Mismatch> {
    let mut rng = Rng::new(seed);
    let size = 64;
    let (mut oracle, mut open) = (Oracle::new(Bytes::of_len(size)), Vec::new());
    let (zeros, history) = (vec![0; size], vec![Vec::new(); size]);
    let mut model = Model { current: zeros.clone(), durable: zeros, log: Vec::new(), removed: 0, history };
    for _ in 0..600 {
        if rng.chance(0.01) {
            model.crash(&open, &mut rng);
            open.clear();
            oracle.crash();
            let (mut found, at) = (model.current.clone(), rng.below(size as u64) as usize);
            found[at] = model.foreign(at);
            assert!(oracle.verify_after_crash(&found).is_err(), "a foreign byte passed");
            oracle.verify_after_crash(&model.current)?;
        } else if open.len() < 5 && rng.chance(0.4) {
            open.push(begin(&mut oracle, &mut model, &mut rng));
        } else if !open.is_empty() {
            let chosen = open.swap_remove(rng.below(open.len() as u64) as usize);
            open.extend(go_on(chosen, &mut oracle, &mut model, &mut rng)?);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_correct_disk_always_passes_and_a_foreign_byte_never(seed: u64) {
        prop_assert_eq!(live(seed), Ok(()));
    }
}
