//! `working-set` on a whole volume: often-read extents move in the first pause, once, and learned state
//! survives a restart.

use crate::rig::{Rig, sound};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, World};

const EXTENT: Bytes = Bytes(128 << 10);
const EXTENTS: u64 = 32;

async fn open(world: &World, disks: &[Disk]) -> Rig {
    let options = OpenOptions { cache_extents: 0, ..OpenOptions::new(vec!["ssd".into(), "hdd".into()]) };
    Volume::open(world.clone(), sound(disks), options).await.expect("the devices are there").0
}

/// Runs `guest` on a volume with this policy, on an SSD and a disk with room for learned state. All extents
/// are written.
fn run(policy: &str, guest: impl AsyncFnOnce(World, Vec<Disk>, Rig, Arena) + 'static) {
    let (world, arena, policy) = (World::new(4), Arena::new(MIB * 2), policy.to_owned());
    let disks =
        vec![Disk::new(&world, DiskOptions::ssd(MIB * 40)), Disk::new(&world, DiskOptions::hdd(MIB * 40))];
    let rt = world.clone();
    world.block_on(async move {
        let options = CreateOptions {
            size: Some(EXTENT * EXTENTS),
            policy,
            ..CreateOptions::new("reorganized", Uuid([8; 16]))
        };
        create(&sound(&disks), &options).await.expect("the devices are fit");
        let volume = open(&rt, &disks).await;
        let buf = arena.alloc(EXTENT).await;
        for extent in 0..EXTENTS {
            buf.with_bytes_mut(|bytes| bytes.fill(extent as u8));
            volume.write(EXTENT * extent, &buf, Durability::Fua).await.expect("there is room");
        }
        drop(buf);
        guest(rt, disks, volume, arena).await;
    });
    world.halt();
}

async fn read(volume: &Rig, arena: &Arena, extent: u64) {
    let buf = arena.alloc(KIB * 4).await;
    volume.read(EXTENT * extent, &buf).await.expect("no disk fails");
    assert!(buf.with_bytes(|bytes| bytes.iter().all(|&byte| u64::from(byte) == extent)), "extent {extent}");
}

fn migrations(volume: &Rig) -> u64 {
    volume.status().background.migrations
}

#[test]
fn hot_extents_move_only_in_first_pause() {
    run("working-set,stripe=even,water-mark=0%", async |rt, disks, volume, arena| {
        for _ in 0..4 {
            for extent in 0..16 {
                read(&volume, &arena, extent).await;
                rt.sleep(Nanos::from_millis(100)).await;
            }
        }
        assert_eq!(migrations(&volume), 0, "guests are at work");
        rt.sleep(Nanos::from_millis(900)).await;
        assert!(migrations(&volume) > 0, "it begins within a second");
        rt.sleep(Nanos::from_secs(5)).await;
        // Of sixteen hot extents, eight lay on the disk.
        assert_eq!(migrations(&volume), 8);
        rt.sleep(Nanos::from_secs(600)).await;
        assert_eq!((migrations(&volume), volume.status().background.migrations_stopped), (8, 0));
        let on_disk = volume.status().devices[1].stats.guest_reads;
        for extent in 0..16 {
            read(&volume, &arena, extent).await;
        }
        assert_eq!(volume.status().devices[1].stats.guest_reads, on_disk);
        volume.close().await.expect("no disk fails");
        // After a restart the policy knows its earlier moves.
        let volume = open(&rt, &disks).await;
        read(&volume, &arena, 3).await;
        rt.sleep(Nanos::from_secs(60)).await;
        assert_eq!(migrations(&volume), 0);
        volume.close().await.expect("no disk fails");
    });
}

/// The settings of the power-cut campaigns: extents move in pauses of milliseconds.
#[test]
fn the_campaigns_have_something_to_move() {
    let policy = "working-set,stripe=even,window=200ms,threshold-h=1,threshold-l=1,water-mark=80%,idle=1ms,new-data=32KiB,change=1%";
    run(policy, async |rt, _, volume, arena| {
        for round in 0..200 {
            for i in 0..4 {
                read(&volume, &arena, (round * 7 + i / 2) % EXTENTS).await;
            }
            rt.sleep(Nanos::from_millis(3)).await;
        }
        assert!(migrations(&volume) > 8, "{} migrations", migrations(&volume));
        volume.audit().await.expect("moves lose nothing");
        for extent in 0..EXTENTS {
            read(&volume, &arena, extent).await;
        }
        volume.close().await.expect("no disk fails");
    });
}

/// A volume that checks its devices, or plans, again and again keeps a processor and disks awake for
/// nothing.
#[test]
fn idle_hour_takes_few_engine_turns_after_last_move() {
    run("working-set,stripe=even,water-mark=0%", async |rt, disks, volume, arena| {
        for round in 0..64 {
            read(&volume, &arena, round % 16).await;
            rt.sleep(Nanos::from_millis(100)).await;
        }
        rt.sleep(Nanos::from_secs(60)).await;
        assert_eq!(migrations(&volume), 8, "it has moved what is worth it");
        let operations = || disks.iter().map(Disk::operations).sum::<u64>();
        let before = (rt.turns(), operations());
        rt.sleep(Nanos::from_secs(3600)).await;
        let (turns, asked) = (rt.turns() - before.0, operations() - before.1);
        println!("{turns} turns in an hour, and {asked} requests to devices");
        // A turn takes some microseconds: with 100 in a second the engine works for a thousandth of the time.
        assert!(turns < 3600 * 100, "{turns} turns");
        assert!(asked < 60 * 20, "{asked} requests");
        assert_eq!(migrations(&volume), 8);
        volume.close().await.expect("no disk fails");
    });
}
