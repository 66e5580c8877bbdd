//! Partition tables: GPT with sectors of 512 or 4096 bytes, and the primary partitions of an MBR.
//!
//! ```text
//! MBR   446  entries, 4 of 16 bytes: 4 type, 8 first sector (4), 12 sectors (4)      510  55 aa
//! GPT   the second sector: 0 "EFI PART", 72 sector of the entries (8), 80 entries (4), 84 size of one (4)
//!       an entry: 0 type (16), 32 first sector (8), 40 last sector (8)
//! ```

use super::{BEGINNING, Found, Of, Step, file_system, little, range_at};
use braid_base::Bytes;

/// Maximum number of entries: GPT has 128, and may have more.
const MOST: u64 = 1024;

/// Returns the partitions of a volume, or the file system that begins at `start`. `None` without a partition
/// table.
pub fn look(bytes: &[u8], start: Bytes) -> Option<Found> {
    let whole = file_system(bytes, start);
    if !whole.ranges.is_empty() {
        return Some(whole);
    }
    let firsts = gpt(bytes, 512).or_else(|| gpt(bytes, 4096)).or_else(|| mbr(bytes))?;
    let step = |first: u64| Some(Step { range: range_at(start, first, BEGINNING.0)?, of: Of::Partition });
    Some(Found { ranges: Vec::new(), steps: firsts.into_iter().filter_map(step).collect() })
}

fn gpt(bytes: &[u8], sector: usize) -> Option<Vec<u64>> {
    let header = bytes.get(sector..)?;
    if !header.starts_with(b"EFI PART") {
        return None;
    }
    let at = little::u64(header, 72)?.checked_mul(sector as u64)?;
    let (count, size) = (little::u32(header, 80)?.min(MOST), little::u32(header, 84)?.max(128));
    let entry = |number: u64| {
        let at = usize::try_from(at.checked_add(number * size)?).ok()?;
        let entry = bytes.get(at..)?.get(..128)?;
        let is_used = entry[..16].iter().any(|&byte| byte != 0);
        little::u64(entry, 32).filter(|_| is_used)?.checked_mul(sector as u64)
    };
    Some((0..count).filter_map(entry).collect())
}

fn mbr(bytes: &[u8]) -> Option<Vec<u64>> {
    if bytes.get(510..512)? != [0x55, 0xaa] {
        return None;
    }
    let entry = |number: usize| {
        let entry = bytes.get(446 + number * 16..)?.get(..16)?;
        little::u32(entry, 8).filter(|&first| entry[4] != 0 && first > 0).map(|first| first * 512)
    };
    Some((0..4).filter_map(entry).collect())
}
