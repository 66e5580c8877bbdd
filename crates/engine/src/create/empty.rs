//! Empty regions of a new volume, or of a device that is new to a volume.

use crate::buffer::buffer;
use crate::journal::{images, write_empty_directories, write_empty_table};
use crate::{Error, Result};
use braid_base::Bytes;
use braid_format::intent_page::{self, Difference};
use braid_format::map_page;
use braid_format::map_summary::{self, Summary};
use braid_format::superblock::{Mapping, RegionKind, Superblock};
use braid_runtime::{Arena, Device};

/// Writes all regions on these devices, by id, as empty. `map_group` overrides the pages of a group of the
/// map's summary, otherwise chosen by the size of the map.
pub(crate) async fn write_empty_regions<D: Device>(
    devices: &[Option<&D>],
    superblock: &Superblock,
    map_group: Option<u32>,
) -> Result<()> {
    match superblock.mapping() {
        Mapping::OwnAddress => {}
        Mapping::Dense if superblock.has_map_summary() => {
            write_empty_summary(devices, superblock, map_group).await?;
        }
        Mapping::Dense => write_empty_map(devices, superblock).await?,
    }
    write_empty_intents(devices, superblock).await?;
    write_empty_directories(devices, superblock).await?;
    if let Some(region) = superblock.region(RegionKind::DirtySpans, 0)
        && let Some(device) = devices[region.device.index()]
    {
        write_empty_table(device, region.offset, superblock.volume, superblock.spans()).await?;
    }
    let kinds = [
        RegionKind::Journal,
        RegionKind::Proof,
        RegionKind::DoubleWrite,
        RegionKind::PolicyState,
        RegionKind::EpochJournal,
    ];
    for kind in kinds {
        erase(devices, superblock, kind).await?;
    }
    Ok(())
}

/// Records in the summaries of both map images that no page was ever written: earlier contents then count for
/// nothing.
async fn write_empty_summary<D: Device>(
    devices: &[Option<&D>],
    superblock: &Superblock,
    map_group: Option<u32>,
) -> Result<()> {
    let pages = superblock.map_pages();
    let group = map_group.or_else(|| map_summary::group_pages(pages)).unwrap_or(pages);
    let summary = Summary::new(pages, group.max(pages.div_ceil(map_summary::MOST_GROUPS)));
    let buf = buffer(map_summary::SIZE).await;
    for number in pages..pages + map_summary::PAGES {
        buf.with_bytes_mut(|bytes| summary.encode(bytes, superblock.volume, number));
        for (device, image) in images(superblock, RegionKind::Map) {
            let Some(target) = devices[device.index()] else { continue };
            let written = target.write(image + map_summary::SIZE * u64::from(number), &buf).await;
            written.map_err(|e| {
                Error::io(format_args!("the map's summary could not be written to {device}"), &e)
            })?;
        }
    }
    Ok(())
}

/// Writes both map images with nothing mapped: earlier contents must not be taken for pages.
async fn write_empty_map<D: Device>(devices: &[Option<&D>], superblock: &Superblock) -> Result<()> {
    let pages = superblock.map_pages();
    let buf = buffer(Arena::LARGEST).await;
    let group = (Arena::LARGEST / map_page::SIZE) as u32;
    for first in (0..pages).step_by(group as usize) {
        let count = group.min(pages - first);
        buf.with_bytes_mut(|bytes| {
            for (page, bytes) in (first..first + count).zip(bytes.chunks_exact_mut(map_page::SIZE.as_usize()))
            {
                map_page::encode(bytes, superblock.volume, page, 0, superblock.copies, std::iter::empty());
            }
        });
        for (device, image) in images(superblock, RegionKind::Map) {
            let Some(target) = devices[device.index()] else { continue };
            let (at, len) = (image + map_page::SIZE * u64::from(first), map_page::SIZE * u64::from(count));
            let written = target.write(at, &buf.slice(Bytes::ZERO..len)).await;
            written.map_err(|e| Error::io(format_args!("the map could not be written to {device}"), &e))?;
        }
    }
    Ok(())
}

/// Writes the table of spans with all spans clean.
async fn write_empty_intents<D: Device>(devices: &[Option<&D>], superblock: &Superblock) -> Result<()> {
    let buf = buffer(intent_page::SIZE).await;
    for (device, offset) in images(superblock, RegionKind::Intents) {
        let Some(target) = devices[device.index()] else { continue };
        for page in 0..intent_page::pages(superblock.spans()) {
            buf.with_bytes_mut(|b| intent_page::encode(b, superblock.volume, page, 0, |_| Difference::None));
            let written = target.write(offset + intent_page::SIZE * u64::from(page), &buf).await;
            written.map_err(|e| Error::io(format_args!("the spans could not be written to {device}"), &e))?;
        }
    }
    Ok(())
}

/// Erases regions of one kind: nothing of an earlier volume with the same UUID may be found.
async fn erase<D: Device>(devices: &[Option<&D>], superblock: &Superblock, kind: RegionKind) -> Result<()> {
    let buf = buffer(Arena::LARGEST).await;
    buf.fill_zero();
    for region in superblock.regions.iter().filter(|region| region.kind == kind) {
        let Some(target) = devices[region.device.index()] else { continue };
        let mut at = Bytes::ZERO;
        while at < region.len {
            let step = buf.len().min(region.len - at);
            let written = target.write(region.offset + at, &buf.slice(Bytes::ZERO..step)).await;
            written.map_err(|e| {
                Error::io(format_args!("the {kind} could not be written to {}", region.device), &e)
            })?;
            at += step;
        }
    }
    Ok(())
}
