//! Volumes before the damage: made once for each thread, with a few extents written.

use crate::disk::VOLUME;
use braid_base::{KIB, MIB};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::superblock::Superblock;
use braid_runtime::Arena;
use braid_sim::{Disk, DiskOptions, World};

/// A volume after its creation, some writes and a clean shutdown.
pub struct Pristine {
    pub disks: Vec<Disk>,
    pub superblock: Superblock,
}

thread_local! {
    static PRISTINE: [Pristine; 2] = [Pristine::new(1), Pristine::new(2)];
}

/// Calls `then` with the volume of `copies` required copies.
pub fn with_pristine<T>(copies: u8, then: impl FnOnce(&Pristine) -> T) -> T {
    PRISTINE.with(|all| then(&all[usize::from(copies) - 1]))
}

impl Pristine {
    fn new(copies: u8) -> Pristine {
        let world = World::new(1);
        let options = [DiskOptions::ssd(MIB * 5), DiskOptions::hdd(MIB * 6), DiskOptions::hdd(MIB * 5)];
        let disks: Vec<Disk> = options.into_iter().map(|options| Disk::new(&world, options)).collect();
        let (inner, runtime) = (disks.clone(), world.clone());
        let superblock = world.block_on(async move {
            let mut options = CreateOptions::new("fuzz", VOLUME);
            (options.extent_size, options.size, options.copies) = (KIB * 32, Some(MIB), copies);
            create(&inner, &options).await.expect("the devices are large enough");
            let names = ["ssd", "hdd", "second hdd"].map(str::to_owned);
            let options = OpenOptions::new(names.into());
            let (volume, _) = Volume::open(runtime, inner, options).await.expect("the volume was just made");
            let piece = Arena::new(MIB).alloc(KIB * 100).await;
            piece.fill_zero();
            volume.write(KIB * 3, &piece, Durability::Fua).await.expect("there is room");
            volume.close().await.expect("the disks work");
            volume.superblock()
        });
        world.halt();
        Pristine { disks, superblock }
    }
}
