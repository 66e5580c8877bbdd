//! The end of a resync. Batches record that spans are dirty and no longer behind, and commits of guests call
//! spans clean, at the same moments at which guests write to these spans.

use crate::rig::life::{disk, open};
use crate::rig::{Rig, options, seeds, sound, sound_one};
use braid_base::{Bytes, DeviceId, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, create};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, StoredDisk, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const EXTENT: Bytes = Bytes(16 << 10);
/// Writes to as many different extents follow the end of a resync.
const WRITES: usize = 48;

async fn write(volume: &Rig, extent: u64, value: u8) {
    let buf = Arena::new(EXTENT).alloc(EXTENT).await;
    buf.with_bytes_mut(|bytes| bytes.fill(value));
    volume.write(EXTENT * extent, &buf, Durability::Volatile).await.expect("the disks are sound");
}

/// A mirror is resynchronised after one disk had no room for a while, until idle spans are about to be
/// called clean for the first time. The power fails again and again, and both copies are alike after each
/// cut.
pub fn end_of_resync(seed: u64) {
    let world = World::new(seed);
    let rt = world.clone();
    world.block_on(async move {
        let mut rng = Rng::new(seed ^ 0x1A95E);
        let disks = [disk(&rt, false), disk(&rt, false)];
        let create_options = CreateOptions {
            copies: 2,
            policy: "hdd-only".to_owned(),
            extent_size: EXTENT,
            span_size: EXTENT,
            ..options(1)
        };
        create(&sound(&disks), &create_options).await.expect("the disks are fit");
        let faults = Faults::new(FaultPlan::default(), rng.fork());
        let devices = vec![sound_one(&disks[0]), Faulty::new(disks[1].clone(), &faults)];
        let volume = crate::rig::open(rt.clone(), devices).await.expect("it is new");
        let opened = rt.now();
        let mut extents: Vec<u64> = (0..volume.size() / EXTENT).collect();
        rng.shuffle(&mut extents);
        let others = extents.split_off(rng.between(40, 200) as usize);
        for extent in &extents {
            write(&volume, *extent, 1).await;
        }
        // The second disk misses the same writes once more.
        let on_second = |extent: &u64| {
            let places = volume.explain(EXTENT * *extent).expect("it is there");
            let second = places.second.map(|(device, at, _)| (device, at));
            let on = [places.home, second].into_iter().flatten().find(|(device, _)| *device == DeviceId(1));
            on.expect("each disk has a copy").1
        };
        let places: Vec<Bytes> = extents.iter().map(on_second).collect();
        let (first, last) = (places.iter().copied().min(), places.iter().copied().max());
        let slots = first.expect("some")..last.expect("some") + EXTENT;
        faults.set(FaultPlan { no_room: Some(slots), ..FaultPlan::default() });
        for extent in &extents {
            write(&volume, *extent, 1).await;
        }
        // Long enough that the spans are called clean as soon as no lag is left.
        rt.sleep(Nanos::from_secs(6)).await;
        faults.set(FaultPlan::default());
        volume.flush().await.expect("the disks are sound");
        let stop = Rc::new(Cell::new(false));
        begin_flushes(&rt, &volume, others, &stop);
        hold_the_end(&rt, &volume, (&disks, opened), &mut rng).await;
        let moments: Rc<RefCell<Vec<[StoredDisk; 2]>>> = Rc::default();
        let (written, writers) = (extents[..WRITES.min(extents.len())].to_vec(), Rc::new(Cell::new(4)));
        for part in written.chunks(written.len().div_ceil(4)) {
            let (rt, volume, writers, part) = (rt.clone(), volume.clone(), writers.clone(), part.to_vec());
            rt.clone().spawn(async move {
                for extent in part {
                    rt.sleep(Nanos::from_micros(1_500)).await;
                    write(&volume, extent, 2).await;
                }
                writers.set(writers.get() - 1);
            });
        }
        for _ in 0..6 {
            rt.sleep(Nanos::from_millis(rng.between(5, 30))).await;
            moments.borrow_mut().push([disks[0].store(), disks[1].store()]);
        }
        while writers.get() > 0 {
            rt.sleep(Nanos::from_millis(10)).await;
        }
        stop.set(true);
        let moments = moments.take();
        for (i, mut moment) in moments.into_iter().enumerate() {
            moment.iter_mut().for_each(|disk| disk.power_cut(&mut rng));
            let volume = open(&rt, moment.map(|disk| disk.attach(&rt)).to_vec()).await;
            let alike = volume.audit().await;
            alike.unwrap_or_else(|error| panic!("seed {seed}, moment {i}: {error}"));
        }
    });
    world.halt();
}

/// Makes the resync end about when the engine looks for idle spans, once in a second: one disk does not
/// answer until then.
async fn hold_the_end(rt: &World, volume: &Rig, (disks, opened): (&[Disk], Nanos), rng: &mut Rng) {
    let until = async |left: Bytes| {
        while volume.status().behind > left {
            rt.sleep(Nanos::from_micros(500)).await;
        }
    };
    until(EXTENT * rng.between(1, 6)).await;
    disks[1].faults().set(FaultPlan { hangs: true, ..FaultPlan::default() });
    let early = Nanos::from_micros(rng.below(80_000));
    let second = Nanos::from_secs((rt.now() - opened + early).0 / Nanos::from_secs(1).0 + 1);
    rt.sleep((opened + second).saturating_sub(rt.now() + early)).await;
    disks[1].faults().set(FaultPlan::default());
    until(Bytes::ZERO).await;
}

/// Starts a guest that writes to other extents, or discards them, and flushes at once: such a flush also
/// commits all pending records.
fn begin_flushes(rt: &World, volume: &Rig, extents: Vec<u64>, stop: &Rc<Cell<bool>>) {
    let (rt, volume, stop) = (rt.clone(), volume.clone(), stop.clone());
    let mut rng = rt.fork_rng();
    rt.clone().spawn(async move {
        while !stop.get() {
            let extent = extents[rng.below(extents.len() as u64) as usize];
            match rng.chance(0.5) {
                true => write(&volume, extent, 3).await,
                false => volume.discard(EXTENT * extent, EXTENT).await.expect("the disks are sound"),
            }
            volume.flush().await.expect("the disks are sound");
            rt.sleep(Nanos::from_micros(rng.below(4_000))).await;
        }
    });
}

/// A span was called clean while a batch that calls the span dirty was on its way. Writes went on as if the
/// journal said so, and a crash left copies that differ and pass for alike.
#[test]
fn spans_cleaned_as_resync_ends_are_equal_after_crash() {
    let seeds = seeds("BRAID_CRASH_SEEDS", 12);
    (0..seeds).for_each(end_of_resync);
}
