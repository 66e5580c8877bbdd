//! Sound devices with slow discards.

use crate::deadlines::{hang, state, timed};
use crate::rig::{Rig, filled, holds, make, options};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, Operation, Step, Trace, World};

const SIZE: Bytes = Bytes(1 << 30);
/// The longest discard sent to a device.
const LONGEST: Bytes = Bytes(256 << 20);

struct Bench {
    world: World,
    arena: Arena,
    disks: Vec<Disk>,
    traces: Vec<Trace>,
    volume: Rig,
}

/// Runs a test on a volume of 1 GiB with a little data in each extent.
fn on_full(copies: u8, test: impl AsyncFn(&Bench) + 'static) {
    let world = World::new(u64::from(copies));
    let rt = world.clone();
    world.block_on(async move {
        // With one copy, all data lies on the disk.
        let ssd = if copies == 1 { MIB * 64 } else { MIB * 1200 };
        let disks = vec![Disk::new(&rt, DiskOptions::ssd(ssd)), Disk::new(&rt, DiskOptions::hdd(MIB * 1200))];
        let traces = vec![Trace::default(), Trace::default()];
        let device = |(disk, trace): (&Disk, &Trace)| {
            Faulty::new(disk.clone(), &Faults::new(FaultPlan::default(), rt.fork_rng())).traced(trace)
        };
        let devices = disks.iter().zip(&traces).map(device).collect();
        let policy = if copies == 1 { "hdd-only" } else { "raid1" };
        let made = CreateOptions {
            size: Some(SIZE),
            copies,
            policy: policy.to_owned(),
            extent_size: MIB,
            span_size: MIB * 16,
            ..options(1)
        };
        let volume = make(rt.clone(), devices, &made).await;
        let bench = Bench { world: rt, arena: Arena::new(MIB * 4), disks, traces, volume };
        for extent in 0..SIZE / MIB {
            bench.write(MIB * extent, 1).await;
        }
        bench.volume.flush().await.expect("the devices are sound");
        bench.traces.iter().for_each(|trace| drop(trace.take()));
        test(&bench).await;
    });
    world.halt();
}

impl Bench {
    async fn write(&self, at: Bytes, value: u8) {
        let bytes = filled(&self.arena, KIB * 4, value);
        self.volume.write(at, &bytes, Durability::Volatile).await.expect("the devices answer");
    }

    async fn discard_all(&self) {
        self.volume.discard(Bytes::ZERO, SIZE).await.expect("the devices are sound");
        self.volume.flush().await.expect("the devices are sound");
    }

    /// For this long a guest writes, flushes and reads, and never waits. No device is slow or failed.
    async fn work(&self, seconds: u64) {
        for second in 0..seconds {
            let at = MIB * (second % 7);
            let work = async {
                self.write(at, second as u8).await;
                self.volume.flush().await.expect("the devices answer");
                holds(&self.volume, &self.arena, at, KIB * 4, second as u8).await
            };
            let (took, held) = timed(&self.world, work).await;
            assert!(held.expect("the devices answer") && took < Nanos::from_secs(1), "{took}");
            for device in 0..2 {
                assert_eq!(state(&self.volume, device), DeviceState::Active, "after {second} s");
            }
            self.world.sleep(Nanos::from_secs(1)).await;
        }
    }

    fn set_all(&self, plan: &FaultPlan) {
        self.disks.iter().for_each(|disk| disk.faults().set(plan.clone()));
    }

    fn free(&self) -> u64 {
        self.volume.status().devices.iter().map(|device| u64::from(device.free)).sum()
    }
}

/// One discard of everything that `blkdiscard` had freed kept a healthy device busy beyond the deadline of a
/// write. The mirror continued without the device, and the whole volume was copied later.
#[test]
fn a_discard_of_a_whole_mirror_costs_no_device() {
    on_full(2, async |bench| {
        // 20 s for the whole volume, and 5 s for the largest single discard.
        bench.set_all(&FaultPlan { discard_time: Nanos::from_millis(20), ..FaultPlan::default() });
        bench.discard_all().await;
        bench.work(60).await;
        for trace in &bench.traces {
            let discarded = trace.take().into_iter().filter_map(|step| match step {
                Step::End(Operation::Discard(_, len)) => Some(len),
                _ => None,
            });
            let all: Vec<Bytes> = discarded.collect();
            assert!(all.iter().all(|&len| len <= LONGEST), "{all:?}");
            assert!(all.iter().map(|len| len.0).sum::<u64>() >= SIZE.0, "{all:?}");
        }
    });
}

/// However long a discard takes: a device that answers everything else works.
#[test]
fn device_with_hung_discards_stays_in_use() {
    for copies in [1, 2] {
        on_full(copies, async |bench| {
            let before = bench.free();
            bench.set_all(&FaultPlan { discards_hang: true, ..FaultPlan::default() });
            bench.discard_all().await;
            bench.work(200).await;
            bench.set_all(&FaultPlan::default());
            bench.world.sleep(Nanos::from_secs(5)).await;
            assert!(bench.free() > before + 1000, "what was discarded is free: {}", bench.free());
            bench.volume.audit().await.expect("all copies are alike");
            bench.volume.close().await.expect("the devices are sound");
        });
    }
}

/// A device that answers nothing during a discard is failed all the same, whether guests write or not.
#[test]
fn device_hanging_during_discard_is_failed() {
    for writes in [true, false] {
        on_full(2, async move |bench| {
            let hung = 1;
            bench.disks[hung].faults().set(FaultPlan { discards_hang: true, ..FaultPlan::default() });
            bench.discard_all().await;
            bench.world.sleep(Nanos::from_secs(30)).await;
            assert_eq!(state(&bench.volume, hung), DeviceState::Active);
            hang(&bench.disks[hung]);
            if writes {
                let (took, ()) = timed(&bench.world, bench.write(MIB, 3)).await;
                assert!(took < Nanos::from_secs(8), "{took}");
            } else {
                bench.world.sleep(Nanos::from_secs(90)).await;
            }
            assert_eq!(state(&bench.volume, hung), DeviceState::Failed);
        });
    }
}

/// A guest that needs the room of a discard in progress waits for at most a minute; a closing volume waits
/// for two.
#[test]
fn neither_guests_nor_the_end_wait_for_a_discard_for_ever() {
    on_full(1, async |bench| {
        bench.set_all(&FaultPlan { discards_hang: true, ..FaultPlan::default() });
        bench.discard_all().await;
        bench.world.sleep(Nanos::from_secs(1)).await;
        let writes = async {
            for extent in 0..SIZE / MIB {
                let bytes = filled(&bench.arena, KIB * 4, 2);
                bench.volume.write(MIB * extent, &bytes, Durability::Volatile).await?;
            }
            Ok::<(), braid_engine::Error>(())
        };
        let (took, written) = timed(&bench.world, writes).await;
        assert_eq!(written.expect_err("slots are being discarded").kind(), ErrorKind::NoSpace);
        assert!(took < Nanos::from_secs(120), "{took}");
        let (took, closed) = timed(&bench.world, bench.volume.close()).await;
        let error = closed.expect_err("the device may still discard");
        assert!(error.to_string().contains("has not answered"), "{error}");
        assert!(took < Nanos::from_secs(300), "{took}");
    });
}
