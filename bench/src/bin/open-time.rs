//! Time of an opening after the daemon was killed: a sparse volume with every extent mapped, and a journal
//! full of commits after the last checkpoint.
//!
//! `cargo run --release -p braid-bench --bin open-time -- [SIZE] [DIRECTORY] [EXTENT]`
//! (4TiB, /var/tmp, 128KiB)
//!
//! Also prints the memory of the process with the volume open.

use anyhow::{Context, Result};
use braid_base::{Bytes, DeviceClass, GIB, KIB, MIB, TIB};
use braid_bench::{machine, median, resident};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::map_page::{self, Entry};
use braid_format::superblock::{RegionKind, Superblock};
use braid_format::{SlotNumber, Uuid};
use braid_runtime::{Arena, Device};
use braid_uring::{Access, FileDevice, Ring};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let size: Bytes = args.next().map_or(Ok(TIB * 4), |s| s.parse())?;
    let directory = PathBuf::from(args.next().unwrap_or_else(|| "/var/tmp".to_owned()));
    let extent: Bytes = args.next().map_or(Ok(KIB * 128), |s| s.parse())?;
    let paths = [directory.join("braid-open-ssd"), directory.join("braid-open-hdd")];
    let result = measure(size, extent, &paths);
    for path in &paths {
        std::fs::remove_file(path).with_context(|| format!("{} could not be removed", path.display()))?;
    }
    result
}

fn measure(size: Bytes, extent: Bytes, paths: &[PathBuf; 2]) -> Result<()> {
    for (path, size) in paths.iter().zip([GIB * 64, size + GIB * 64]) {
        File::create(path)?.set_len(size.0)?;
    }
    run(|ring| async move { map_everything(&open_devices(&ring, paths)?, size, extent).await })?;
    let (mut seconds, mut memory) = (Vec::new(), Bytes::ZERO);
    for _ in 0..ROUNDS {
        // Leaves a journal as a kill does: commits that are not yet in any page.
        let took;
        (took, memory) = run(|ring| async move {
            let devices = open_devices(&ring, paths)?;
            let start = Instant::now();
            let options = OpenOptions::new(vec!["ssd".into(), "hdd".into()]);
            let (volume, recovery) = Volume::open(ring.clone(), devices, options).await?;
            let took = start.elapsed().as_secs_f64();
            println!(
                "opened in {took:.2} s: {} extents mapped, {} batches of the journal replayed",
                volume.status().mapped_extents,
                recovery.batches
            );
            let memory = resident()?;
            let arena = Arena::new(MIB);
            let buf = arena.alloc(KIB * 128).await;
            for i in 0..60 {
                volume.discard(MIB * i, MIB).await?;
                volume.write(MIB * i, &buf, Durability::Fua).await?;
            }
            Ok((took, memory))
        })?;
        seconds.push(took);
    }
    let (middle, low, high) = median(&seconds);
    let per_tib = middle / (size.0 as f64 / TIB.0 as f64);
    println!(
        "open-time: {size} of {extent}, {}: median {middle:.2} s ({low:.2} to {high:.2}), {per_tib:.3} s per TiB \
         mapped; {memory} of memory",
        machine()
    );
    Ok(())
}

/// Uses a ring of its own for each run, dropped without closing the volume: only the content of the devices
/// remains, as after a kill.
fn run<T, F: Future<Output = Result<T>>>(body: impl FnOnce(Ring) -> F) -> Result<T> {
    let arena = Arena::new(MIB);
    let ring = Ring::new(64, &arena)?;
    let result = ring.block_on(body(ring.clone()));
    ring.clear();
    result
}

fn open_devices(ring: &Ring, paths: &[PathBuf; 2]) -> Result<Vec<FileDevice>> {
    let open = |path: &Path, class| FileDevice::open(ring, path, class, Access::Direct);
    Ok(vec![open(&paths[0], DeviceClass::Ssd)?, open(&paths[1], DeviceClass::Hdd)?])
}

/// Makes a volume and writes map images with a slot for every extent. No test could write 4 TiB instead.
async fn map_everything(devices: &[FileDevice], size: Bytes, extent: Bytes) -> Result<()> {
    let mut options = CreateOptions::new("open-time", Uuid([4; 16]));
    (options.size, options.overwrite, options.extent_size) = (Some(size), true, extent);
    let superblock: Superblock = create(devices, &options).await?;
    let per_page = map_page::extents_per_page(1);
    let extents = superblock.extents();
    let buf = Arena::new(MIB).alloc(MIB).await;
    let group = (MIB / map_page::SIZE) as u32;
    let slots: u32 = superblock.devices.iter().map(|d| d.slots).sum();
    let skip = slots - extents;
    for first in (0..map_page::pages(extents, 1)).step_by(group as usize) {
        let count = group.min(map_page::pages(extents, 1) - first);
        buf.with_bytes_mut(|bytes| {
            for (page, bytes) in (first..first + count).zip(bytes.chunks_exact_mut(map_page::SIZE.as_usize()))
            {
                let here = page * per_page..((page + 1) * per_page).min(extents);
                let entry =
                    |e: u32| Entry { home: SlotNumber(1 + skip + e), valid: u16::MAX, ..Entry::default() };
                map_page::encode(bytes, superblock.volume, page, 0, 1, here.map(entry));
            }
        });
        let part = buf.slice(Bytes::ZERO..map_page::SIZE * u64::from(count));
        for image in superblock.regions.iter().filter(|region| region.kind == RegionKind::Map) {
            let at = image.offset + map_page::SIZE * u64::from(first);
            devices[image.device.index()].write(at, &part).await?;
        }
    }
    for device in devices {
        device.flush().await?;
    }
    Ok(())
}
