//! Caching and write-back as published: writes of a part of a block, and write-back of dirty blocks at purge.

use crate::caching::{Cache, ROOM, piece};
use crate::volume::SSD;
use braid_base::{BlockId, Bytes, Nanos};
use braid_policy::{Occasion, Piece, WriteTarget};

#[test]
fn part_writes_setting_sends_partial_block_write_to_ssd() {
    for (policy, to_ssd) in [
        ("cache,mode=write-back", false),
        ("cache,mode=write-back,part-writes=cache", true),
        ("hystor", false),
        ("hystor,as-published", true),
        ("exclusive", false),
        ("exclusive,as-published", true),
    ] {
        let mut cache = Cache::new(policy);
        let piece = Piece { range: Bytes(512)..Bytes(1024), ..piece(64) };
        let placed = cache.ask(|policy, view| policy.place(&Occasion::Write(piece), view));
        assert_eq!(placed.write_target() == WriteTarget::Extra(SSD), to_ssd, "{policy}");
    }
}

/// The paper purges the least recently used segment, and writes the segment back at purge.
#[test]
fn purge_mode_purges_dirty_blocks_in_lru_order() {
    let mut cache = Cache::new("exclusive,cache=100%,dirty-until=purge");
    (0..ROOM as u64).for_each(|block| assert!(cache.write(block * 7), "{block}"));
    cache.now = Nanos::from_secs(1000);
    for _ in 0..10 {
        assert_eq!(
            cache.write_back(),
            [] as [u64; 0],
            "nobody needs room, though no guest asks for anything"
        );
    }
    assert_eq!(cache.dirty(), ROOM);
    // The first blocks have been used since.
    (0..100).for_each(|block| assert!(cache.read(block * 7)));
    assert!(!cache.write(1), "no clean copy can go for it");
    let written = cache.write_back();
    assert_eq!(written, (100..164).map(|block| block * 7).collect::<Vec<_>>());
    assert!(
        cache.write(1) && !cache.copies.by_block.contains_key(&BlockId(700)),
        "the least recently used has gone"
    );
    // The next blocks are purged in turn.
    for block in 0..3000 {
        cache.write(block * 11 + 5);
        if block % 10 == 0 {
            cache.write_back();
        }
    }
    assert!(cache.dirty() > ROOM * 8 / 10, "{}", cache.dirty());
}
