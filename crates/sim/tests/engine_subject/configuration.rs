//! Random configurations: 1 to 5 devices, sectors, sizes, copies, and a policy that fits the devices.

use super::Engine;
use braid_base::{Bytes, DeviceClass, KIB, MIB, Rng};
use braid_engine::Readahead;
use braid_sim::{Blank, DiskOptions, Disturbance, Setup};

/// Room on each device beside the extents of the volume: metadata, a cache, and slots for moves.
const SPARE: Bytes = Bytes(8 << 20);

/// Draws a configuration, with the disks and guests for it.
pub fn draw(engine: &Engine, rng: &mut Rng, setup: &mut Setup) -> Engine {
    let devices = rng.between(1, engine.most_devices + 1).max(u64::from(engine.copies));
    let copies = if devices > 1 && rng.chance(0.4) { 2 } else { engine.copies };
    let classes: Vec<DeviceClass> =
        (0..devices).map(|_| if rng.chance(0.5) { DeviceClass::Ssd } else { DeviceClass::Hdd }).collect();
    let extent_size = KIB * (4 << rng.below(8));
    let block_size = (KIB * (4 << rng.below(5))).min(extent_size);
    // Reading all bytes dominates the cost of a crash state: small volumes, but now and then a volume with
    // several map pages.
    let many_pages = extent_size == KIB * 4 && rng.chance(0.5);
    let size = if many_pages { MIB * 3 } else { (KIB * (256 << rng.below(4))).max(extent_size * 3) };
    let size = size - Bytes(512) * rng.below(8);
    setup.disks = classes.iter().map(|class| disk(*class, size, extent_size, rng)).collect();
    let workload = &mut setup.workload;
    workload.clients = rng.between(1, 9);
    workload.requests = rng.between(60, 200);
    workload.largest = KIB * (4 << rng.below(7));
    if copies == 1 && devices == 1 {
        // With one device, nothing can be missing or old except everything.
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
        // Not a draw of its own: an additional draw would change the trials of `regressions.txt`.
        readahead: if cache_extents % 2 == 0 { Readahead::First } else { Readahead::Second },
        checkpoints: rng.chance(0.7),
        classes,
        ..engine.clone()
    }
}

/// A disk with room for the whole volume, blank or with other content.
fn disk(class: DeviceClass, size: Bytes, extent_size: Bytes, rng: &mut Rng) -> DiskOptions {
    let room = (SPARE + size + extent_size * 24).align_up(MIB);
    let mut options = match class {
        DeviceClass::Ssd => DiskOptions::ssd(room),
        DeviceClass::Hdd => DiskOptions::hdd(room),
    };
    if rng.chance(0.4) {
        options.geometry.alignment = KIB * 4;
    }
    // A separate draw: a draw from the main stream would change the trials of `regressions.txt`.
    let options = options.with_memory_alignment(&mut rng.clone());
    if rng.chance(0.5) { options.with_blank(Blank::Garbage(1)) } else { options }
}

/// Policies that fit any number of copies. Other policies have campaigns of their own; adding a policy here
/// would change the trials of `regressions.txt`.
const NAMES: [&str; 7] = ["equi", "wardrop", "ssd-only", "hdd-only", "stripe", "static", "ssd-first"];

/// Draws a policy that these devices allow.
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
