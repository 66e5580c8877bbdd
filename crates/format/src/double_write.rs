//! The double-write area of a volume with two required copies: pages of the map and of the intents, before
//! the write in place.
//!
//! ```text
//! offset  size  field
//! 0       4096  a page with its own header, as it is written in place next (see `page.rs`)
//! 4096    …     more pages, 256 at most, in any order
//! ```
//!
//! Each metadata device holds one image and one area. A page is durable in the areas before the write in
//! place. If a power cut tears the page in the image, recovery reads the area, even if the device with the
//! other image is lost. A page identifies itself: its kind enters its checksum, its number and sequence are
//! in its header. Old pages may stay in an area, because the page in place is newer.

use crate::page;
use braid_base::Bytes;

/// The most pages of an area.
pub const MOST_PAGES: u32 = 256;
/// The length of a page.
pub const PAGE: Bytes = Bytes::of_len(page::SIZE);

/// The page number in the header; not verified.
pub fn number(page: &[u8]) -> u32 {
    page::number(page)
}
