//! Required journal records of a mirror. A missed write of a copy is recorded before the guest's write
//! succeeds. Spans are not recorded as clean if the flush that was to make them clean lost their device.

use crate::rig::life::{disk, open, state};
use crate::rig::{Rig, is_all, options, seeds, sound};
use braid_base::{Bytes, DeviceId, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, create};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, World};

const EXTENT: Bytes = Bytes(16 << 10);

/// A mirror of two disks, with a few extents that were written and flushed.
struct Mirror {
    rt: World,
    rng: Rng,
    arena: Arena,
    disks: [Disk; 2],
    volume: Rig,
    extents: Vec<u64>,
    /// The disk that fails.
    victim: usize,
}

impl Mirror {
    async fn begin(rt: &World, seed: u64) -> Mirror {
        let mut rng = Rng::new(seed ^ 0x00BE_41AD);
        let disks = [disk(rt, rng.chance(0.5)), disk(rt, rng.chance(0.5))];
        let create_options = CreateOptions {
            copies: 2,
            policy: "raid1".to_owned(),
            extent_size: EXTENT,
            span_size: EXTENT * [1, 2, 8, 64][rng.below(4) as usize],
            ..options(1)
        };
        create(&sound(&disks), &create_options).await.expect("the disks are fit");
        let volume = open(rt, disks.to_vec()).await;
        let mut extents: Vec<u64> = (0..volume.size() / EXTENT).collect();
        rng.shuffle(&mut extents);
        extents.truncate(rng.between(1, 40) as usize);
        let victim = rng.below(2) as usize;
        let mirror =
            Mirror { rt: rt.clone(), rng, arena: Arena::new(EXTENT * 2), disks, volume, extents, victim };
        for &extent in &mirror.extents {
            mirror.write(extent, 1, Durability::Volatile).await;
        }
        mirror.volume.flush().await.expect("the disks are sound");
        mirror
    }

    async fn write(&self, extent: u64, value: u8, durability: Durability) {
        let bytes = self.arena.alloc(EXTENT).await;
        bytes.with_bytes_mut(|bytes| bytes.fill(value));
        self.volume.write(EXTENT * extent, &bytes, durability).await.expect("one disk is enough");
    }

    /// Place of an extent on the failing disk.
    fn place(&self, extent: u64) -> Bytes {
        let places = self.volume.explain(EXTENT * extent).expect("it is there");
        let second = places.second.map(|(device, at, _)| (device, at));
        let on =
            [places.home, second].into_iter().flatten().find(|(device, _)| device.index() == self.victim);
        on.expect("each disk has a copy").1
    }

    /// The disks after a power cut.
    fn cut(&mut self) -> [Disk; 2] {
        [0, 1].map(|i| {
            let mut stored = self.disks[i].store();
            stored.power_cut(&mut self.rng);
            stored.attach(&self.rt)
        })
    }
}

/// One copy of an extent misses a flushed write, then the power fails, and the disk with the other copy is
/// lost.
pub fn a_copy_misses_a_write(seed: u64) {
    let world = World::new(seed);
    let rt = world.clone();
    world.block_on(async move {
        let mut mirror = Mirror::begin(&rt, seed).await;
        let extent = mirror.extents[mirror.rng.below(mirror.extents.len() as u64) as usize];
        let place = mirror.place(extent);
        let faults = mirror.disks[mirror.victim].faults();
        faults.set(FaultPlan { bad_writes: Some(place..place + EXTENT), ..FaultPlan::default() });
        let fua = mirror.rng.chance(0.5);
        mirror.write(extent, 2, if fua { Durability::Fua } else { Durability::Volatile }).await;
        if !fua {
            mirror.volume.flush().await.expect("the other disk keeps it");
        }
        rt.sleep(Nanos(mirror.rng.below(20_000_000))).await;
        let [first, second] = mirror.cut();
        let left = if mirror.victim == 0 { first } else { second };
        match crate::rig::open(rt.clone(), sound(&[left])).await {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Degraded, "seed {seed}: {error}"),
            Ok(volume) => {
                let bytes = mirror.arena.alloc(EXTENT).await;
                if volume.read(EXTENT * extent, &bytes).await.is_ok() {
                    let is_new = is_all(&bytes, 2);
                    assert!(is_new, "seed {seed}: what was flushed is older again");
                }
            }
        }
    });
    world.halt();
}

/// Idle spans are about to be called clean when the preceding flush fails, and a disk loses the spans'
/// writes.
pub fn a_flush_loses_idle_spans(seed: u64) {
    let world = World::new(seed);
    let rt = world.clone();
    world.block_on(async move {
        let mut mirror = Mirror::begin(&rt, seed).await;
        let written = 1 + mirror.rng.below(mirror.extents.len() as u64) as usize;
        for i in 0..written {
            mirror.write(mirror.extents[i], 2, Durability::Volatile).await;
        }
        rt.sleep(Nanos(mirror.rng.below(Nanos::from_secs(4).0))).await;
        let faults = mirror.disks[mirror.victim].faults();
        faults.set(FaultPlan { flushes: 1.0, flushes_lose: true, ..FaultPlan::default() });
        let victim = DeviceId(mirror.victim as u16);
        while state(&mirror.volume, victim) != DeviceState::Failed {
            rt.sleep(Nanos::from_millis(10)).await;
        }
        faults.set(FaultPlan::default());
        rt.sleep(Nanos(mirror.rng.below(Nanos::from_secs(3).0))).await;
        let volume = open(&rt, mirror.cut().to_vec()).await;
        while state(&volume, victim) != DeviceState::Active {
            rt.sleep(Nanos::from_millis(100)).await;
        }
        let alike = volume.audit().await;
        alike.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    });
    world.halt();
}

/// Seeds of each campaign, unless the environment says another number.
const SEEDS: u64 = 40;

#[test]
fn stale_copy_is_not_read_after_peer_loss() {
    (0..seeds("BRAID_CRASH_SEEDS", SEEDS)).for_each(a_copy_misses_a_write);
}

#[test]
fn writes_lost_by_flush_of_idle_spans_are_resynced() {
    (0..seeds("BRAID_CRASH_SEEDS", SEEDS)).for_each(a_flush_loses_idle_spans);
}
