//! An unreadable journal on one disk of a mirror, for one opening. A batch may be on this disk alone. The
//! opening does not know the batch, and serves the volume without it: no later opening may find the batch.

use crate::rig::life::{disk, names};
use crate::rig::{Rig, options, seeds, sound};
use braid_base::{Bytes, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::superblock::{Region, RegionKind};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, StoredDisk, World};
use std::cell::Cell;
use std::rc::Rc;

const EXTENT: Bytes = Bytes(16 << 10);
/// Longer than a span must be idle to be called clean.
const IDLE: Nanos = Nanos::from_secs(30);
/// Number of inspected states of the disks, and power cuts of each state.
const MOMENTS: u64 = 10;
const OUTCOMES: u64 = 3;

async fn open(world: &World, devices: Vec<Faulty<Disk>>) -> Rig {
    let opened = Volume::open(world.clone(), devices, OpenOptions::new(names(2))).await;
    opened.expect("one journal is whole").0
}

async fn write(volume: &Rig, extent: u64) {
    let buf = Arena::new(EXTENT).alloc(EXTENT).await;
    buf.with_bytes_mut(|bytes| bytes.fill(1 + extent as u8 % 250));
    volume.write(EXTENT * extent, &buf, Durability::Volatile).await.expect("the disks are sound");
}

/// The first byte of each extent.
async fn read_all(volume: &Rig) -> Vec<u8> {
    let (mut found, buf) = (Vec::new(), Arena::new(EXTENT).alloc(EXTENT).await);
    for extent in 0..volume.size() / EXTENT {
        volume.read(EXTENT * extent, &buf).await.expect("the data is readable");
        buf.with_bytes(|bytes| found.push(bytes[0]));
    }
    found
}

/// Guests discard extents of an idle mirror, and the power fails. The next opening cannot read one of the
/// journals. Later openings must read the same bytes as this opening.
pub fn one_journal_is_not_read(seed: u64) {
    let world = World::new(seed);
    let rt = world.clone();
    world.block_on(async move {
        let mut rng = Rng::new(seed ^ 0x0BE7);
        let disks = [disk(&rt, rng.chance(0.5)), disk(&rt, false)];
        let create_options = CreateOptions {
            copies: 2,
            policy: "raid1".to_owned(),
            extent_size: EXTENT,
            span_size: EXTENT * [1, 8][rng.below(2) as usize],
            ..options(1)
        };
        create(&sound(&disks), &create_options).await.expect("the disks are fit");
        let volume = open(&rt, sound(&disks)).await;
        for extent in 0..volume.size() / EXTENT {
            write(&volume, extent).await;
        }
        volume.flush().await.expect("the disks are sound");
        rt.sleep(IDLE).await;
        let stop = Rc::new(Cell::new(false));
        begin_discards(&rt, &volume, rng.fork(), &stop);
        let mut moments: Vec<[StoredDisk; 2]> = Vec::new();
        for _ in 0..MOMENTS {
            rt.sleep(Nanos::from_micros(rng.between(500, 20_000))).await;
            moments.push([disks[0].store(), disks[1].store()]);
        }
        stop.set(true);
        let regions = volume.superblock().regions.clone();
        for (at, moment) in moments.iter().enumerate() {
            for _ in 0..OUTCOMES {
                let mut stored = moment.clone();
                stored.iter_mut().for_each(|disk| disk.power_cut(&mut rng));
                let unread = usize::from(rng.chance(0.5));
                let disks = stored.map(|disk| disk.attach(&rt));
                let first = open(&rt, hide_journal(&disks, &regions, unread)).await;
                let found = read_all(&first).await;
                let disks = disks.map(|disk| disk.fork(&rt));
                let next = open(&rt, sound(&disks)).await;
                let now = read_all(&next).await;
                let differs = (0..found.len()).find(|&extent| found[extent] != now[extent]);
                assert_eq!(differs, None, "seed {seed}, moment {at}: an extent reads as something else");
                next.audit().await.expect("both copies are alike");
            }
        }
    });
    world.halt();
}

/// The disks, with an unreadable journal on disk `unread`.
fn hide_journal(disks: &[Disk; 2], regions: &[Region], unread: usize) -> Vec<Faulty<Disk>> {
    let is_hidden = |region: &&Region| region.kind == RegionKind::Journal && region.device.index() == unread;
    let journal = regions.iter().find(is_hidden).expect("a mirror has two journals");
    let bad_reads = Some(journal.offset..journal.offset + journal.len);
    let plan = FaultPlan { bad_reads, ..FaultPlan::default() };
    let mut devices = sound(disks);
    devices[unread] = Faulty::new(disks[unread].clone(), &Faults::new(plan, Rng::new(1)));
    devices
}

/// Starts a guest with a discard and a flush of extent after extent.
fn begin_discards(rt: &World, volume: &Rig, mut rng: Rng, stop: &Rc<Cell<bool>>) {
    let (rt, volume, stop) = (rt.clone(), volume.clone(), stop.clone());
    rt.clone().spawn(async move {
        while !stop.get() {
            let extent = rng.below(volume.size() / EXTENT);
            volume.discard(EXTENT * extent, EXTENT).await.expect("the disks are sound");
            volume.flush().await.expect("the disks are sound");
            rt.sleep(Nanos::from_micros(rng.below(3_000))).await;
        }
    });
}

/// A batch lay on one disk alone when the power failed, and the next opening could not read the batch.
/// Extents discarded in the batch had their old bytes again. The following opening found the batch, and the
/// same extents read as zeros.
#[test]
fn later_opening_reads_same_data_after_unreadable_journal() {
    let seeds = seeds("BRAID_CRASH_SEEDS", 4);
    (0..seeds).for_each(one_journal_is_not_read);
}
