//! Superblocks of a volume with another size than at its creation.

use super::{map_len, region, reopened, volume};
use crate::layout::intents_len;
use crate::superblock::{RegionKind, Superblock};
use braid_base::{GIB, MIB};

/// The volume with 1 GiB more. Both images of the map lie in new, longer places.
fn grown() -> Superblock {
    let mut superblock = volume();
    superblock.volume_size += GIB;
    let map = map_len(superblock.extents(), superblock.copies);
    for copy in 0..2 {
        let image = region(&mut superblock, RegionKind::Map, copy);
        (image.offset, image.len) = (MIB * 800, map);
    }
    assert_eq!(intents_len(superblock.spans()), region(&mut superblock, RegionKind::Intents, 0).len);
    superblock
}

#[test]
fn grown_volume_needs_longer_regions() {
    let superblock = grown();
    assert_eq!(reopened(&superblock, 0), Ok(superblock.clone()));
    let mut short = volume();
    short.volume_size += GIB;
    assert!(reopened(&short, 0).is_err_and(|error| error.to_string().contains("invalid length for a map")));
}

#[test]
fn shrunk_volume_keeps_its_regions() {
    let mut superblock = volume();
    superblock.volume_size = GIB;
    assert_eq!(reopened(&superblock, 0), Ok(superblock));
}

/// The unwritable old place of a map image stays reserved after the volume has grown.
#[test]
fn void_region_may_be_short() {
    let mut superblock = grown();
    let mut void = *volume().region(RegionKind::Map, 1).expect("the volume has a map");
    void.void = true;
    superblock.regions.push(void);
    assert_eq!(reopened(&superblock, 1), Ok(superblock));
}
