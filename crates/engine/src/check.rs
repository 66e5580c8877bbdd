//! Checking a volume that nobody serves: superblocks, both map images, journal, slots.

use crate::create::buffer;
use crate::journal::map_images;
use crate::journal::recover;
use crate::map::State;
use crate::open::{assemble, read_superblock};
use crate::shape::Shape;
use crate::{ErrorKind, Result};
use braid_format::map_page;
use braid_format::superblock::Superblock;
use braid_runtime::Device;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The volume's name.
    pub name: String,
    /// Damage that another copy makes good: data is safe, and `--repair` restores the second copy.
    pub repairable: Vec<String>,
    /// Damage that nothing makes good.
    pub fatal: Vec<String>,
    /// Extents that have a home.
    pub mapped_extents: u32,
    /// Journal batches that the next opening replays.
    pub journal_batches: u64,
}

/// Checks the volume on `devices`, and changes nothing.
///
/// # Errors
/// Where the devices are not those of one volume, as [`crate::Volume::open`] says. Damage is in the report.
pub async fn check<D: Device>(devices: Vec<D>, names: &[String]) -> Result<Report> {
    let mut report = Report::default();
    for (device, name) in devices.iter().zip(names) {
        for offset in read_superblock(device, name).await?.damaged {
            report.repairable.push(format!("{name}: the superblock copy at byte {} is damaged", offset.0));
        }
    }
    let (superblock, devices, _) = assemble(devices, names).await?;
    report.name.clone_from(&superblock.name);
    check_images(&devices, &superblock, &mut report).await?;
    let shape =
        Shape::new(superblock.volume_size, superblock.extent_size, superblock.block_size, superblock.copies);
    let mut state = State::new(&shape, &superblock.devices);
    match recover(&devices, &superblock, &mut state).await {
        Ok((_, recovery)) => {
            report.journal_batches = recovery.batches;
            report.mapped_extents = state.map.mapped();
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => report.fatal.push(error.to_string()),
        Err(error) => return Err(error),
    }
    Ok(report)
}

/// Reads both map images whole. A page damaged in one is repairable; in both, recovery says so.
async fn check_images<D: Device>(devices: &[D], superblock: &Superblock, report: &mut Report) -> Result<()> {
    let buf = buffer(map_page::SIZE).await;
    for (image, (device, offset)) in map_images(superblock).into_iter().enumerate() {
        for page in 0..map_page::pages(superblock.extents(), superblock.copies) {
            let at = offset + map_page::SIZE * u64::from(page);
            let read = devices[device.index()].read(at, &buf).await;
            let decoded = buf
                .with_bytes(|b| map_page::decode(b, superblock.volume, page, superblock.copies, |_, _| ()));
            let problem = match (read, decoded) {
                (Err(error), _) => error.to_string(),
                (Ok(()), Err(invalid)) => invalid.to_string(),
                (Ok(()), Ok(())) => continue,
            };
            report
                .repairable
                .push(format!("map image {image} on {device}, page {page} at byte {}: {problem}", at.0));
        }
    }
    Ok(())
}
