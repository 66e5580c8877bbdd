use super::*;
use braid_base::{MIB, Rng};

/// Interleaves commits and checkpoints of any duration: batches arrive during a checkpoint, and checkpoints
/// follow each other without a batch between.
#[test]
fn a_checkpoint_always_finds_room_however_commits_and_checkpoints_interleave() {
    let reserve = end_of_checkpoint();
    for seed in 0..2_000 {
        let mut rng = Rng::new(seed);
        let mut ring = Ring::new(MIB, VecDeque::new(), 1);
        let mut checkpoint = None;
        for _ in 0..300 {
            assert!(ring.keeps_room(), "a recovery could find the ring like this");
            match checkpoint {
                None if rng.chance(0.2) => checkpoint = Some(ring.next_sequence - 1),
                Some(done) if rng.chance(0.2) => {
                    let place = ring.place(reserve, &[]).expect("room is kept");
                    push(&mut ring, place, reserve);
                    ring.forget(done);
                    checkpoint = None;
                }
                _ => {
                    let room = PAGE * rng.between(1, 64);
                    if let Some(place) = ring.place(room, &[reserve, reserve]) {
                        push(&mut ring, place, PAGE * rng.between(1, room / PAGE + 1));
                    }
                }
            }
        }
    }
}

fn push(ring: &mut Ring, place: Bytes, room: Bytes) {
    assert!(place + room <= ring.len);
    for (_, other, len) in &ring.live {
        assert!(
            place + room <= *other || *other + *len <= place,
            "{place:?}+{room:?} overlaps {other:?}+{len:?}"
        );
    }
    ring.push(place, room);
}

#[test]
fn consecutive_batches_get_consecutive_numbers() {
    let mut ring = Ring::new(MIB, VecDeque::new(), 7);
    assert_eq!((ring.push(Bytes::ZERO, PAGE), ring.push(PAGE, PAGE)), (7, 8));
}
