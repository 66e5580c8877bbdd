use super::*;

/// Ranges of deferred writes in flight count separately, until a deferred write ends in the same block.
#[test]
fn extent_lacks_deferred_write_only_after_completion() {
    let shape = Shape::new(Bytes(1 << 24), Bytes(1 << 17), Bytes(1 << 12), 2, 8);
    let (mut behind, extent, span, most) = (Behind::new(shape), ExtentId(25), SpanId(3), Bytes(u64::MAX));
    let start = shape.bytes_of(extent).start;
    let blocks = |first: u64, end: u64| start + Bytes(first << 12)..start + Bytes(end << 12);
    assert!(behind.begin_deferred_write(span, blocks(0, 2), most));
    assert!(behind.begin_deferred_write(span, blocks(1, 3), most));
    assert!(behind.is_behind(extent) && !behind.lacks_completed(extent));
    behind.end_deferred_write(blocks(0, 2));
    assert!(behind.lacks_completed(extent) && !behind.lacks_completed(ExtentId(24)));
    behind.copied(span, blocks(0, 2), behind.doubts(span));
    assert!(
        behind.is_behind(extent) && !behind.lacks_completed(extent),
        "a part of the second has only begun"
    );
    behind.mark_behind(span, blocks(2, 3));
    assert!(behind.lacks_completed(extent), "a copy missed another write there");
    behind.copied(span, blocks(0, 3), behind.doubts(span));
    assert!(behind.begin_deferred_write(span, blocks(0, 1), most) && !behind.lacks_completed(extent));
    behind.doubt_extent(extent);
    assert!(behind.lacks_completed(extent));
    behind.copied(span, shape.bytes_of_span(span), behind.doubts(span));
    assert!(!behind.begin_deferred_write(span, blocks(0, 2), Bytes(1 << 12)), "beyond the bound");
    assert!(!behind.is_behind(extent) && behind.defer(span, blocks(0, 2), most));
    assert!(behind.lacks_completed(extent), "deferred without a write under way");
}

/// The bug: a write refused by the journal left its range stale, so that the home alone was read.
#[test]
fn cancelled_deferred_write_keeps_blocks_of_overlapping_writes() {
    let shape = Shape::new(Bytes(1 << 24), Bytes(1 << 17), Bytes(1 << 12), 2, 8);
    let (mut behind, extent, span, most) = (Behind::new(shape), ExtentId(25), SpanId(3), Bytes(u64::MAX));
    let start = shape.bytes_of(extent).start;
    let blocks = |first: u64, end: u64| start + Bytes(first << 12)..start + Bytes(end << 12);
    assert!(behind.defer(span, blocks(8, 9), most));
    assert!(behind.begin_deferred_write(span, blocks(0, 9), most));
    assert!(behind.begin_deferred_write(span, blocks(2, 3), most));
    behind.cancel_deferred_write(span, &blocks(0, 9));
    assert_eq!(behind.ranges().iter().collect::<Vec<_>>(), [blocks(2, 3), blocks(8, 9)]);
    behind.cancel_deferred_write(span, &blocks(2, 3));
    assert_eq!(behind.ranges().iter().collect::<Vec<_>>(), [blocks(8, 9)]);
    behind.copied(span, blocks(8, 9), behind.doubts(span));
    assert!(behind.begin_deferred_write(span, blocks(0, 1), most) && behind.any_behind());
    behind.cancel_deferred_write(span, &blocks(0, 1));
    assert!(!behind.any_behind() && !behind.is_unrecorded(span));
}

/// Otherwise the batch would end after the batch that clears the span. The span would count as recorded
/// behind although the journal says "clean".
#[test]
fn span_is_not_cleared_before_intent_in_flight_ends() {
    let shape = Shape::new(Bytes(1 << 24), Bytes(1 << 17), Bytes(1 << 12), 2, 8);
    let (mut behind, span) = (Behind::new(shape), SpanId(3));
    let missed = shape.bytes_of(ExtentId(25));
    assert_eq!(behind.begin_write(span), Intent::Record);
    let dirty = behind.take_wanted();
    behind.recorded(&dirty);
    assert_eq!(behind.begin_write(span), Intent::Begun);
    behind.end_write(span, Some(missed.clone()), Nanos(1));
    assert!(behind.is_behind(ExtentId(25)) && !behind.is_behind(ExtentId(24)));
    let batch = behind.take_wanted();
    assert_eq!(batch, [(span, Difference::Behind)]);
    behind.copied(span, missed, behind.doubts(span));
    assert!(!behind.any_behind());
    assert_eq!(behind.begin_clearing(&[span]), []);
    behind.recorded(&batch);
    assert_eq!(behind.begin_clearing(&[span]), [span]);
}

/// The bug: each doubted extent searched the list of wanted spans. The return of an empty device to a mirror
/// of 1 TiB held up the daemon for a minute.
#[test]
fn doubted_extents_of_large_volume_want_each_span_once() {
    let shape = Shape::new(Bytes(1 << 33), Bytes(1 << 16), Bytes(1 << 12), 2, 2);
    let mut behind = Behind::new(shape);
    (0..1 << 17).map(ExtentId).for_each(|extent| behind.doubt_extent(extent));
    let batch = behind.take_wanted();
    assert_eq!(batch.len(), 1 << 16);
    behind.recorded(&batch);
    assert!(batch.iter().all(|(span, _)| !behind.is_unrecorded(*span)) && !behind.has_wanted());
}
