//! The next batch, and the extents that are left.

use super::*;
use crate::epochs::index::tests::{damaged, index};

const EXTENT: Bytes = Bytes(16);

fn unapplied(recorded: &[u8]) -> Unapplied {
    // Extents 0, 1, 4 and 9, with 8, 16, 5 and 2 bytes in the journal.
    let index = index(&[(8..32, Some(0)), (66..70, None), (70..71, Some(64)), (144..146, Some(90))]);
    Unapplied::new(index, EXTENT, recorded, |_| false)
}

fn ranges(ranges: usize) -> Most {
    Most { ranges, bytes: Bytes(1000) }
}

#[test]
fn journaled_extents_are_unapplied_until_recorded() {
    let all = unapplied(&[]);
    assert_eq!((all.left(), all.is_done()), (Bytes(8 + 16 + 5 + 2), false));
    assert_eq!([0, 1, 2, 4, 9].map(|e| all.bit_of(ExtentId(e))), [Some(0), Some(1), None, Some(2), Some(3)]);
    let some = unapplied(&[0b1_0101]);
    assert_eq!((some.left(), some.bit_of(ExtentId(0)), some.bit_of(ExtentId(9))), (Bytes(18), None, Some(3)));
    assert_eq!(some.next(ranges(100)), [1, 3]);
    some.apply(&[3]);
    assert_eq!(some.applied(), [0b1_1101]);
    assert_eq!(some.bit_of(ExtentId(9)), Some(3), "it is not recorded yet");
    some.record(&[3]);
    assert_eq!((some.left(), some.bit_of(ExtentId(9))), (Bytes(16), None));
    some.record(&[1, 3]);
    assert!(some.is_done() && some.left() == Bytes::ZERO && some.next(ranges(100)).is_empty());
}

#[test]
fn awaited_extent_comes_first_and_failed_extent_is_skipped() {
    let all = unapplied(&[]);
    assert_eq!(all.next(ranges(1)), [0]);
    all.want(3);
    assert_eq!(all.next(ranges(1)), [3]);
    assert!(matches!(all.wait(3), Wait::Pending));
    all.fail(&[0], Error::new(ErrorKind::Io, "one"));
    assert!(matches!(all.wait(3), Wait::Pending), "another one has failed");
    all.fail(&[3], Error::new(ErrorKind::Io, "this"));
    assert!(matches!(all.wait(3), Wait::Failed(_)));
    assert_eq!(all.next(ranges(1)), [1], "it goes on behind what it did last");
    assert_eq!(all.next(ranges(2)), [2]);
    assert_eq!(all.next(ranges(100)), [3, 0, 1, 2]);
    all.record(&[3]);
    assert!(matches!(all.wait(3), Wait::Over));
}

/// A batch once included all bits that guests waited for: with long extents a batch took minutes, without a
/// flush.
#[test]
fn a_batch_is_bounded_by_ranges_and_by_bytes_whoever_waits() {
    let all = unapplied(&[]);
    (0..4).for_each(|bit| all.want(bit));
    assert_eq!(all.next(ranges(2)), [0, 1]);
    assert_eq!(all.next(ranges(2)), [2], "of it there are two ranges");
    assert_eq!(all.next(ranges(2)), [3, 0], "each has its turn");
    let most = Most { ranges: 100, bytes: Bytes(9) };
    assert_eq!((all.next(most), all.next(most)), (vec![1], vec![2, 3, 0]));
    all.record(&[0, 1, 2, 3]);
    let all = unapplied(&[]);
    assert_eq!((all.next(most), all.next(most)), (vec![0, 1], vec![2, 3, 0]));
}

/// Extent 1 has a damaged part, extent 9 is wholly damaged.
fn damaged_unapplied(recorded: &[u8], is_given_up: fn(ExtentId) -> bool) -> Unapplied {
    let index = index(&[(8..32, Some(0)), (66..70, None), (70..71, Some(64)), (144..146, Some(90))]);
    Unapplied::new(damaged(index, &[20..24, 144..148]), EXTENT, recorded, is_given_up)
}

#[test]
fn damaged_extent_is_applied_only_after_full_overwrite() {
    let some = damaged_unapplied(&[], |_| false);
    assert_eq!(some.damaged_ranges(), [Bytes(20)..Bytes(24), Bytes(144)..Bytes(148)]);
    assert_eq!(some.next(ranges(100)), [0, 2]);
    assert!(some.damage().is_some() && !some.is_stuck());
    some.record(&[0, 2]);
    assert!(some.next(ranges(100)).is_empty() && some.is_stuck() && !some.is_done());
    assert!(matches!(some.wait(1), Wait::Failed(error) if error.kind() == ErrorKind::Corrupt));

    some.write_whole(ExtentId(1), &Whole::Zeros);
    some.want(1);
    assert_eq!(some.next(ranges(100)), [1]);
    let Pieces { journaled, whole } = some.pieces_of(1, Bytes(9));
    let ranges_of_whole: Vec<_> = whole.into_iter().map(|(range, _)| range).collect();
    assert_eq!((journaled, ranges_of_whole), (vec![], vec![Bytes(16)..Bytes(25), Bytes(25)..Bytes(32)]));
    some.end_whole(ExtentId(1));
    assert!(matches!(some.wait(1), Wait::Failed(_)), "nothing will be applied");
    some.write_whole(ExtentId(1), &Whole::Zeros);
    some.record(&[1]);
    some.end_whole(ExtentId(1));
    assert_eq!((some.damaged_ranges(), some.left()), (vec![Bytes(144)..Bytes(148)], Bytes(4)));
    some.record(&[3]);
    assert!(some.is_done() && some.damage().is_none() && some.left() == Bytes::ZERO);
}

#[test]
fn discarded_damaged_extent_has_nothing_to_apply() {
    let some = damaged_unapplied(&[], |extent| extent == ExtentId(1));
    assert_eq!(some.damaged_extents(), [ExtentId(9)]);
    assert_eq!((some.next(ranges(100)), some.pieces_of(1, EXTENT).journaled), (vec![0, 1, 2], vec![]));
}

/// A journal may have more extents than a page has bits.
#[test]
fn extents_share_bits_if_page_has_too_few() {
    let extents = BITS as u64 + 1;
    let unapplied = Unapplied::new(index(&[(0..extents * 16, Some(0))]), EXTENT, &[], |_| false);
    assert_eq!(unapplied.bit_of(ExtentId(1)), Some(0));
    assert_eq!(unapplied.bit_of(ExtentId(2)), Some(1));
    assert_eq!(unapplied.bit_of(ExtentId(BITS as u32)), Some(BITS / 2));
    let last = unapplied.pieces_of(BITS / 2, EXTENT).journaled;
    let start = Bytes((extents - 1) * 16);
    assert_eq!(last, [(start..start + EXTENT, Lies::InJournal(start))]);
    unapplied.apply(&[BITS / 2]);
    assert!(unapplied.applied().len() <= APPLIED);
}
