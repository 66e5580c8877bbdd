//! A volume is closed while guests work. From some moment on guests are refused, and all data flushed
//! earlier survives any later loss.

use crate::epochs::sound;
use crate::lost_caches::run;
use crate::rig::life::{BLOCK, Oracle, SIZE, disk};
use crate::rig::{Rig, make, open, options};
use braid_base::{MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::superblock::Layout;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, Faulty, World};
use std::cell::Cell;
use std::rc::Rc;

/// A guest that writes with FUA until a write is refused.
async fn write_until_refused(volume: Rig, oracle: Oracle, mut rng: Rng, ended: Rc<Cell<u32>>) {
    let arena = Arena::new(MIB);
    let buf = arena.alloc(BLOCK).await;
    loop {
        // Few blocks: most are cached. All extents: some are new.
        let block = if rng.chance(0.5) { rng.below(8) } else { rng.below(SIZE / BLOCK) } as usize;
        let value = 1 + rng.below(250) as u8;
        buf.with_bytes_mut(|bytes| bytes.fill(value));
        oracle.0.borrow_mut()[block].1.push(value);
        match volume.write(BLOCK * block as u64, &buf, Durability::Fua).await {
            Ok(()) => {
                let (flushed, later) = &mut oracle.0.borrow_mut()[block];
                let place = later.iter().rposition(|&v| v == value).expect("no other guest writes it");
                *flushed = value;
                later.drain(..=place);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                let flushed = volume.flush().await.expect_err("nothing more is made durable");
                assert_eq!(flushed.kind(), ErrorKind::Io);
                ended.set(ended.get() + 1);
                return;
            }
        }
    }
}

async fn closed_beside_guests(world: &World, policy: &str, copies: u8, seed: u64) -> (Vec<Disk>, Oracle) {
    let disks = [disk(world, true), disk(world, false)];
    let how =
        CreateOptions { policy: policy.to_owned(), copies, layouts: vec![Layout::Head; 2], ..options(50) };
    let devices: Vec<Faulty<Disk>> = disks.iter().map(|disk| sound(disk, world)).collect();
    let volume = make(world.clone(), devices, &how).await;
    let (oracle, ended, mut rng) = (Oracle::new(), Rc::new(Cell::new(0)), Rng::new(seed));
    let guest = write_until_refused(volume.clone(), oracle.clone(), Rng::new(seed + 1), ended.clone());
    world.spawn(guest);
    world.sleep(Nanos::from_millis(200 + rng.below(800))).await;
    volume.close().await.expect("what guests have begun ends");
    world.sleep(Nanos::from_secs(1)).await;
    assert_eq!(ended.get(), 1, "the guest was refused");
    // The process ends, and all unflushed writes of the devices are gone.
    (disks.iter().map(|disk| disk.fork(world)).collect(), oracle)
}

/// A disk after a power cut that follows the shutdown of its volume.
fn after_power_cut(world: &World, disk: &Disk, seed: u64) -> Faulty<Disk> {
    let left = disk.fork(world);
    left.power_cut(&mut Rng::new(seed));
    sound(&left.restart(world), world)
}

#[test]
fn disk_alone_has_data_flushed_while_volume_closes() {
    for policy in ["cache,mode=write-through", "cache,mode=write-back", "hystor"] {
        for seed in 0..16 {
            run(seed, async move |world| {
                let (disks, oracle) = closed_beside_guests(&world, policy, 1, seed).await;
                let alone = open(world.clone(), vec![after_power_cut(&world, &disks[1], seed)]).await;
                match alone {
                    Ok(volume) => {
                        let what = format!("{policy}, seed {seed}, without the SSD");
                        oracle.check(&volume, &Arena::new(MIB), &what).await;
                    }
                    // Dirty blocks were left.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Degraded, "{error}"),
                }
            });
        }
    }
}

#[test]
fn copies_are_alike_though_guests_wrote_while_the_volume_was_closed() {
    for seed in 0..32 {
        run(seed, async move |world| {
            let (disks, oracle) = closed_beside_guests(&world, "raid1", 2, seed).await;
            let both = disks.iter().map(|disk| after_power_cut(&world, disk, seed)).collect();
            let volume = open(world.clone(), both).await.expect("both are there");
            volume.audit().await.expect("nothing differs that counts as alike");
            oracle.check(&volume, &Arena::new(MIB), &format!("seed {seed}, both copies")).await;
        });
    }
}
