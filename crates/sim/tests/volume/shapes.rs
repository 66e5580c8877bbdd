//! Requests at any byte, of any length, with bytes anywhere in memory, on devices that require aligned
//! requests and buffers.

use crate::adopted;
use crate::rig::{open, options};
use braid_base::{Bytes, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, Volume, create};
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Buf, Device, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};

/// Bytes of a buffer's page before the bytes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lead {
    /// None: like the earlier buffers of guests.
    Nothing,
    /// As many as in the page of the volume: as with frontends.
    Same,
    Any,
}

/// Alignments of offsets and lengths, and of addresses.
const ALIGNMENTS: [(u64, u64); 4] = [(512, 512), (4096, 512), (512, 4096), (4096, 4096)];

fn aligned(mut options: DiskOptions, (alignment, memory_alignment): (u64, u64)) -> DiskOptions {
    options.geometry.alignment = Bytes(alignment);
    options.geometry.memory_alignment = Bytes(memory_alignment);
    options
}

/// Disks without faults.
fn sound_disks(options: [DiskOptions; 2], alignments: (u64, u64), world: &World) -> Vec<Faulty<Disk>> {
    let disks = options.map(|disk| Disk::new(world, aligned(disk, alignments)));
    disks.map(|disk| Faulty::new(disk, &Faults::new(FaultPlan::default(), world.fork_rng()))).to_vec()
}

fn place(arena: &Arena, rng: &mut Rng, lead: Lead, at: Bytes, len: Bytes) -> Buf {
    let lead = match lead {
        Lead::Nothing => Bytes::ZERO,
        Lead::Same => Bytes(at.0 % 4096),
        Lead::Any => Bytes(rng.below(4096)),
    };
    arena.try_alloc(lead + len).expect("the arena is large enough").slice(lead..lead + len)
}

/// Makes requests with sectors of 512 B, and at any bytes; then checks the content of the volume.
async fn any_shape<D: Device>(volume: &Volume<World, D>, world: &World, lead: Lead, what: &str) {
    let (mut rng, arena, size) = (world.fork_rng(), Arena::new(MIB * 2), volume.size());
    let mut expected = vec![0; size.as_usize()];
    // Across extents, and within an extent; the requests of the bug first.
    let known = [(512, 300_032), (1, 300_000), (4_097, 9_000), (131_073, 300_001), (size.0 - 1, 1)];
    for round in 0..60 {
        let (at, len) = known.get(round).copied().unwrap_or_else(|| {
            let unit = [1, 512][rng.below(2) as usize];
            let len = unit * (1 + rng.below(300_000 / unit));
            (rng.below((size.0 - len) / unit) * unit, len)
        });
        let buf = place(&arena, &mut rng, lead, Bytes(at), Bytes(len));
        buf.with_bytes_mut(|bytes| rng.fill(bytes));
        let written = volume.write(Bytes(at), &buf, Durability::Volatile).await;
        written.unwrap_or_else(|error| panic!("{what}: {len} bytes at {at} were not written: {error}"));
        buf.copy_to_slice(Bytes::ZERO, &mut expected[at as usize..(at + len) as usize]);
        drop(buf);
        let (at, len) = match round {
            0..5 => (at, len),
            _ => (rng.below(size.0 - 300_000), 1 + rng.below(300_000)),
        };
        let buf = place(&arena, &mut rng, lead, Bytes(at), Bytes(len));
        let read = volume.read(Bytes(at), &buf).await;
        read.unwrap_or_else(|error| panic!("{what}: {len} bytes at {at} were not read: {error}"));
        let is_right = buf.with_bytes(|bytes| *bytes == expected[at as usize..(at + len) as usize]);
        assert!(is_right, "{what}: {len} bytes at {at}");
        if rng.chance(0.2) {
            world.sleep(Nanos::from_millis(rng.below(300))).await;
        }
    }
    volume.flush().await.expect("the devices are sound");
    world.sleep(Nanos::from_secs(2)).await;
    let status = volume.status();
    for device in &status.devices {
        assert_eq!(
            (device.state, device.stats.errors),
            (DeviceState::Active, 0),
            "{what}: {:?}",
            device.stats.last_error
        );
    }
    assert_eq!(status.guests.errors, 0, "{what}");
    volume.audit().await.unwrap_or_else(|error| panic!("{what}: {error}"));
}

/// A guest's buffer began at a page, whatever the offset. A piece at the beginning of an extent was aligned
/// on the device but not in memory: direct I/O refused the request. Guests with sectors of 512 B met EIO on
/// files that require pages (btrfs, tmpfs); a mirror became degraded.
#[test]
fn requests_of_any_shape_work_on_devices_requiring_alignment() {
    let policies = [
        ("hdd-only", 1),
        ("cache,mode=write-back", 1),
        ("cache,mode=write-through", 1),
        ("hystor", 1),
        ("ssd-first", 1),
        ("raid1", 2),
        ("raid1,write-behind,limit=1MiB", 2),
        ("pass,idle=10ms", 2),
        ("pass,order=epoch,max-lag=1MiB,idle=20ms", 2),
    ];
    for (seed, (policy, copies)) in (0..).zip(policies) {
        for (seed, alignments) in (seed * 8..).zip(ALIGNMENTS) {
            for lead in [Lead::Nothing, Lead::Same, Lead::Any] {
                let world = World::new(seed);
                let disks =
                    sound_disks([DiskOptions::ssd(MIB * 24), DiskOptions::hdd(MIB * 24)], alignments, &world);
                let layouts = vec![Layout::Head, if copies == 2 { Layout::Tail } else { Layout::Head }];
                let how = CreateOptions { policy: policy.to_owned(), copies, layouts, ..options(1) };
                let (rt, what) = (world.clone(), format!("{policy}, {alignments:?}, {lead:?}"));
                world.block_on(async move {
                    create(&disks, &how).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    let volume = open(rt.clone(), disks).await;
                    let volume = volume.unwrap_or_else(|error| panic!("{what}: {error}"));
                    any_shape(&volume, &rt, lead, &what).await;
                    volume.close().await.expect("the devices are sound");
                });
                world.halt();
            }
        }
    }
}

#[test]
fn requests_of_any_shape_work_on_cached_adopted_disk() {
    for (seed, alignments) in (0..).zip(ALIGNMENTS) {
        for lead in [Lead::Nothing, Lead::Same, Lead::Any] {
            let world = World::new(seed);
            let options = [DiskOptions::ssd(MIB * 8), DiskOptions::hdd(MIB * 6), DiskOptions::hdd(MIB * 5)];
            let disks = options.map(|disk| Disk::new(&world, aligned(disk, alignments)));
            let (rt, what) = (world.clone(), format!("adopted, {alignments:?}, {lead:?}"));
            world.block_on(async move {
                let volume = adopted::make(&rt, &disks).await;
                adopted::dirty(&rt, &volume);
                any_shape(&volume, &rt, lead, &what).await;
                volume.close().await.expect("the devices are sound");
            });
            world.halt();
        }
    }
}
