//! Summary of the map: the pages of the images that were ever written.
//!
//! The newest valid page among all images applies to all images. If no summary page is valid, all pages of
//! the map are read, and a page that was never written is damage.

use super::pages::{PAGE, read_group};
use super::{Mode, RecoveryInput};
use crate::Result;
use crate::buffer::buffer;
use crate::map::Groups;
use braid_base::{Bytes, DeviceId};
use braid_format::map_summary::{self, Summary};
use braid_runtime::Device;
use std::cell::RefCell;

/// Reads the summaries behind all images of the map.
///
/// # Errors
/// `Io` if no summary is valid and a page could not be read, unless the volume is repaired.
pub(super) async fn load<D: Device>(
    input: &RecoveryInput<'_, D>,
    images: &[(DeviceId, Bytes)],
) -> Result<Groups> {
    let (superblock, pages) = (input.superblock, input.superblock.map_pages());
    if !superblock.has_map_summary() {
        return Ok(Groups::all(pages));
    }
    let unread = RefCell::new(None);
    let found = read(input, images, &unread).await;
    let is_valid = found.iter().flatten();
    let newest = is_valid.max_by_key(|summary| (summary.sequence, summary.written().count())).cloned();
    let is_stale = found.iter().any(|found| found.is_none() || *found != newest);
    match (newest, unread.take()) {
        (Some(newest), _) => Ok(Groups::of(pages, newest, is_stale)),
        (None, Some(error)) if input.mode == Mode::Strict => {
            Err(super::unread(superblock, format_args!("the summary of the map"), &error))
        }
        (None, _) => Ok(Groups::of(pages, Summary::of_all(pages), true)),
    }
}

/// Reads both pages of each image; none for an invalid page. An error goes to `unread`.
async fn read<D: Device>(
    input: &RecoveryInput<'_, D>,
    images: &[(DeviceId, Bytes)],
    unread: &RefCell<Option<std::io::Error>>,
) -> Vec<Option<Summary>> {
    let (superblock, pages) = (input.superblock, input.superblock.map_pages());
    let mut buffers = Vec::new();
    for _ in images {
        buffers.push(buffer(PAGE * u64::from(map_summary::PAGES)).await);
    }
    let read = read_group(input, images, &buffers, pages, map_summary::PAGES, unread).await;
    let mut found = Vec::new();
    for (buffer, is_read) in buffers.iter().zip(read) {
        buffer.with_bytes(|bytes| {
            for (number, page) in (pages..).zip(bytes.chunks_exact(PAGE.as_usize())) {
                let decoded = is_read.then(|| Summary::decode(page, superblock.volume, number, pages).ok());
                found.push(decoded.flatten());
            }
        });
    }
    found
}

/// Returns the damage of the summary behind one image, for a check: a sentence for each invalid page.
pub(super) async fn check<D: Device>(
    input: &RecoveryInput<'_, D>,
    image: u8,
    place: (DeviceId, Bytes),
) -> Vec<String> {
    let (pages, device) = (input.superblock.map_pages(), place.0);
    let found = read(input, &[place], &RefCell::default()).await;
    let invalid = (pages..).zip(found).filter(|(_, found)| found.is_none()).map(|(number, _)| {
        let at = place.1 + PAGE * u64::from(number);
        format!("map image {image} on {device}: the summary at byte {} is damaged", at.0)
    });
    invalid.collect()
}
