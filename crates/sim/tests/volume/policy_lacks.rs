//! A policy that needs a class of devices missing from the volume.

use crate::rig::life::{LAST, addition, disk, open, wait_until_removed};
use crate::rig::{Rig, filled, is_all, options, sound, sound_one};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, create};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{self, DeviceTable, Header, Layout};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, World};

/// The only SSD could be removed under these policies, or the SSD left under another policy and the policy
/// was changed back. The volume did not open again, though only a device for new copies was missing.
#[test]
fn volume_opens_without_ssd_and_uses_next_ssd() {
    for (policy, copies) in [
        ("pass", 2),
        ("raid1,write-behind", 2),
        ("working-set", 2),
        ("working-set", 1),
        ("cache,mode=write-back", 1),
        ("exclusive", 1),
        ("ssd-first", 1),
        ("ssd-only", 1),
    ] {
        let world = World::new(650);
        let disks = [disk(&world, false), disk(&world, false), disk(&world, true)];
        let rt = world.clone();
        world.block_on(async move {
            let stripe =
                CreateOptions { copies, size: Some(MIB * 4), policy: "stripe".to_owned(), ..options(1) };
            create(&sound(&disks), &stripe).await.unwrap();
            let (arena, volume) = (Arena::new(MIB * 4), open(&rt, disks.to_vec()).await);
            for at in 0..4 {
                volume.write(MIB * at, &filled(&arena, MIB, 1 + at as u8), Durability::Fua).await.unwrap();
            }
            volume.remove_device(LAST).await.unwrap();
            wait_until_removed(&rt, &volume).await;
            volume.close().await.unwrap();
            disks[..2].iter().for_each(|disk| leave_with(disk, policy));

            let volume = open(&rt, disks[..2].to_vec()).await;
            assert!(volume.status().policy_lacks.is_some(), "{policy}");
            for at in 0..4 {
                assert!(has(&volume, &arena, at, 1 + at as u8).await, "{policy}");
            }
            volume.discard(Bytes::ZERO, MIB).await.unwrap();
            for at in 0..2 {
                volume.write(MIB * at, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
            }
            rt.sleep(Nanos::from_secs(60)).await;
            volume.audit().await.unwrap();
            volume.close().await.unwrap();

            let volume = open(&rt, disks[..2].to_vec()).await;
            let (new, mut how) = (disk(&rt, true), addition(Layout::Head));
            how.identity.0[0] += 1;
            let id = volume.add_device(sound_one(&new), &how, |_| Ok(())).await.unwrap();
            let status = volume.status();
            assert!(status.policy_lacks.is_none(), "{policy}: {:?}", status.policy_lacks);
            assert!(status.policy.starts_with(policy.split(',').next().unwrap()), "{}", status.policy);
            volume.discard(Bytes::ZERO, MIB * 2).await.unwrap();
            volume.flush().await.unwrap();
            for at in 0..2 {
                volume.write(MIB * at, &filled(&arena, MIB, 7), Durability::Fua).await.unwrap();
                // Longer writes bypass a cache.
                volume.write(MIB * at, &filled(&arena, KIB * 4, 7), Durability::Fua).await.unwrap();
            }
            assert!(
                volume.status().devices[id.index()].stats.guest_writes > 0,
                "{policy}: the new SSD has nothing"
            );
            for at in 0..4 {
                assert!(has(&volume, &arena, at, if at < 2 { 7 } else { 1 + at as u8 }).await, "{policy}");
            }
            rt.sleep(Nanos::from_secs(60)).await;
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            let volume = open(&rt, vec![disks[0].clone(), disks[1].clone(), new]).await;
            assert!(volume.status().policy_lacks.is_none(), "{policy}");
        });
        world.halt();
    }
}

async fn has(volume: &Rig, arena: &Arena, at: u64, value: u8) -> bool {
    let buf = arena.alloc(MIB).await;
    volume.read(MIB * at, &buf).await.expect("the devices are sound");
    is_all(&buf, value)
}

/// Makes the superblocks of a disk name this policy.
fn leave_with(disk: &Disk, policy: &str) {
    let mut bytes = vec![0; superblock::SIZE.as_usize()];
    disk.peek_durable(Bytes::ZERO, &mut bytes);
    let header = Header::decode(&bytes).expect("the devices are sound");
    let table_of = |header: &Header| {
        let place = header.tables.iter().find(|place| place.device == header.this_device)?;
        let mut table = vec![0; (place.len / 2).as_usize()];
        disk.peek_durable(place.half(header.sequence), &mut table);
        DeviceTable::decode(&table, header.volume).ok()
    };
    let table = table_of(&header).expect("the devices are sound");
    let (device, entry) = (header.this_device, header.device.clone());
    let mut superblock = header.with_table(table).expect("the devices are sound");
    superblock.policy = policy.to_owned();
    for offset in superblock_offsets(entry.size, entry.layout) {
        disk.poke(offset, &superblock.encode(device));
    }
}
