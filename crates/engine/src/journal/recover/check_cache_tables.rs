//! Check of the cache tables: invalid pages of single images.

use super::RecoveryInput;
use super::pages::PAGE;
use crate::buffer::buffer;
use crate::devices::Deadline;
use crate::journal::cache_images;
use crate::map::{CachePage, State};
use braid_format::extra_directory::{self, Content};
use braid_format::extra_page;
use braid_runtime::Device;

/// Returns a sentence for each invalid page of the cache tables. For a check after a successful recovery: no
/// dirty entry is lost with such a page. Either another image has the page, or its entries were clean.
pub(crate) async fn check_cache_tables<D: Device>(
    input: &RecoveryInput<'_, D>,
    state: &State,
) -> Vec<String> {
    let (buf, mut problems) = (buffer(PAGE).await, Vec::new());
    let volume = input.superblock.volume;
    for member in input.members.iter().filter(|member| member.is_current()) {
        let (device, directory) = (member.id, state.tables.directory_pages(member.id));
        for (image, (_, offset)) in cache_images(input.superblock, device).into_iter().enumerate() {
            let written = |page: &u32| {
                let page = page.checked_sub(directory).map(|page| CachePage { device, page });
                page.is_none_or(|page| state.tables.content(page) != Content::Unwritten)
            };
            for page in (0..directory + state.tables.pages(device)).filter(written) {
                let at = offset + PAGE * u64::from(page);
                let read = member.read(at, &buf, Deadline::Only).await;
                let decoded = buf.with_bytes(|bytes| match page < directory {
                    true => extra_directory::decode(bytes, volume, page, |_, _| ()),
                    false => extra_page::decode(bytes, volume, page, |_, _| ()),
                });
                let problem = match (read, decoded) {
                    (Err(error), _) => error.to_string(),
                    (Ok(()), Err(invalid)) => invalid.to_string(),
                    (Ok(()), Ok(_)) => continue,
                };
                problems.push(format!(
                    "cache table image {image} on {device}, page {page} at byte {}: {problem}",
                    at.0
                ));
            }
        }
    }
    problems
}
