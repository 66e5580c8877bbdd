//! The double-write area of a volume with two required copies: pages of the map and of the intents, as they
//! are about to be written in place.
//!
//! ```text
//! offset  size  field
//! 0       4096  a page with its own header, as it is written in place next (see `page.rs`)
//! 4096    …     more pages, 256 at most, in any order
//! ```
//!
//! Each metadata device holds one image and one area. A page is durable in the areas before it is written in
//! place, so one that a power cut tears in the image is found here, even if the device with the other image
//! is gone. A page says which it is: its kind enters its checksum, its number and its sequence are in its
//! header. Old ones may stay, for the page in place is newer then.

use crate::page;
use braid_base::Bytes;

/// The most pages of an area.
pub const MOST_PAGES: u32 = 256;
/// The length of a page.
pub const PAGE: Bytes = Bytes::of_len(page::SIZE);

/// The number that a page says it has; not verified.
pub fn number(page: &[u8]) -> u32 {
    page::number(page)
}
