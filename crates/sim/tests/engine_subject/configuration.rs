//! Configurations by chance: 1 to 5 devices, sectors, sizes, copies, and a policy that fits the devices.

use super::Engine;
use braid_base::{Bytes, DeviceClass, KIB, MIB, Rng};
use braid_engine::Readahead;
use braid_sim::{Blank, DiskOptions, Disturbance, Setup};

/// Room on each device beside the extents of the volume: metadata, a cache, and slots for moves.
const SPARE: Bytes = Bytes(8 << 20);

/// A configuration, and the disks and guests for it.
pub fn draw(engine: &Engine, rng: &mut Rng, setup: &mut Setup) -> Engine {
    let devices = rng.between(1, engine.most_devices + 1).max(u64::from(engine.copies));
    let copies = if devices > 1 && rng.chance(0.4) { 2 } else { engine.copies };
    let classes: Vec<DeviceClass> =
        (0..devices).map(|_| if rng.chance(0.5) { DeviceClass::Ssd } else { DeviceClass::Hdd }).collect();
    let extent_size = KIB * (4 << rng.below(8));
    let block_size = (KIB * (4 << rng.below(5))).min(extent_size);
    // Reading all is what a crash state costs: small volumes, but now and then one with several map pages.
    let many_pages = extent_size == KIB * 4 && rng.chance(0.5);
    let size = if many_pages { MIB * 3 } else { (KIB * (256 << rng.below(4))).max(extent_size * 3) };
    let size = size - Bytes(512) * rng.below(8);
    setup.disks = classes.iter().map(|class| disk(*class, size, extent_size, rng)).collect();
    let workload = &mut setup.workload;
    workload.clients = rng.between(1, 9);
    workload.requests = rng.between(60, 200);
    workload.largest = KIB * (4 << rng.below(7));
    if copies == 1 && devices == 1 {
        // Nothing can be missing or old but all.
        setup.disturbances.retain(|kind| *kind != Disturbance::MissingDevice);
    }
    let (policy, chaos, cache_extents) = (policy(&classes, rng), rng.chance(0.4), rng.below(7) as usize);
    Engine {
        policy,
        chaos,
        size,
        extent_size,
        block_size,
        copies,
        cache_extents,
        // Not drawn by itself, or the trials of `regressions.txt` would be others.
        readahead: if cache_extents % 2 == 0 { Readahead::First } else { Readahead::Second },
        checkpoints: rng.chance(0.7),
        classes,
        ..engine.clone()
    }
}

/// A disk that holds the whole volume, with something else on it or with nothing.
fn disk(class: DeviceClass, size: Bytes, extent_size: Bytes, rng: &mut Rng) -> DiskOptions {
    let room = (SPARE + size + extent_size * 24).align_up(MIB);
    let mut options = match class {
        DeviceClass::Ssd => DiskOptions::ssd(room),
        DeviceClass::Hdd => DiskOptions::hdd(room),
    };
    if rng.chance(0.4) {
        options.geometry.alignment = KIB * 4;
    }
    // Drawn beside the others, or the trials of `regressions.txt` would be others.
    let options = options.with_memory_alignment(&mut rng.clone());
    if rng.chance(0.5) { options.with_blank(Blank::Garbage(1)) } else { options }
}

/// Policies that fit any number of copies. Others have campaigns of their own; with them the trials of
/// `regressions.txt` would be others.
const NAMES: [&str; 7] = ["equi", "wardrop", "ssd-only", "hdd-only", "stripe", "static", "ssd-first"];

/// One that these devices allow.
pub fn policy(classes: &[DeviceClass], rng: &mut Rng) -> String {
    let has = |class: DeviceClass| classes.contains(&class);
    loop {
        let name = NAMES[rng.below(NAMES.len() as u64) as usize];
        match name {
            "wardrop" => return "wardrop,period=20ms".to_owned(),
            "equi" => return "equi,research.memory=40ms,research.horizon=20ms".to_owned(),
            "ssd-only" | "ssd-first" if !has(DeviceClass::Ssd) => {}
            "hdd-only" if !has(DeviceClass::Hdd) => {}
            "static" if classes.len() == 1 => return "static,d0=100%".to_owned(),
            "static" => return format!("static,d0={}%", rng.between(10, 91)),
            _ => return name.to_owned(),
        }
    }
}
