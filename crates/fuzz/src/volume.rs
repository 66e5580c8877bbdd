//! A volume with damaged devices: superblock, device table, journal, map, intents and proof are changed, and
//! their checksums made to fit.
//!
//! The input is a byte that chooses the volume and the options of the opening, then a list of changes of six
//! bytes. A change names the structure and its devices (one byte), the place in the structure (two bytes),
//! and the new number (width and kind in one byte, two bytes of value). Checking, opening and repairing must
//! end in a result. A volume that opens must serve, with any results, and close.

mod damage;
mod pristine;

pub use damage::damages;

use braid_base::{Bytes, DeviceId, KIB, MIB};
use braid_engine::{Durability, Export, OpenOptions, Volume, check};
use braid_runtime::Arena;
use braid_sim::{Disk, World};
use pristine::with_pristine;

/// Checks, opens, uses, closes and repairs a damaged volume.
pub fn open(input: &[u8]) {
    let Some((&how, changes)) = input.split_first() else { return };
    let how = How::new(how);
    for verb in [Verb::Check, Verb::Open, Verb::Repair] {
        let world = World::new(1);
        let disks = with_pristine(how.copies, |pristine| {
            let disks: Vec<Disk> = pristine.disks.iter().map(|disk| disk.fork(&world)).collect();
            damage::apply(&disks, &pristine.superblock, changes);
            disks
        });
        let runtime = world.clone();
        world.block_on(async move { how.act(verb, runtime, disks).await });
        world.halt();
    }
}

#[derive(Clone, Copy)]
enum Verb {
    Check,
    Open,
    Repair,
}

/// Choice of the volume, and options of the opening.
#[derive(Clone, Copy)]
struct How {
    copies: u8,
    /// The first device is missing.
    missing: bool,
    /// The second device's content is excluded.
    distrust: bool,
}

impl How {
    fn new(byte: u8) -> How {
        How { copies: 1 + (byte & 1), missing: byte & 6 == 6, distrust: byte & 24 == 24 }
    }

    /// An error is a valid result, also of a request: the devices hold damaged data.
    async fn act(self, verb: Verb, runtime: World, mut disks: Vec<Disk>) {
        if self.missing {
            disks.remove(0);
        }
        let names: Vec<String> = (0..disks.len()).map(|i| format!("disk {i}")).collect();
        if let Verb::Check = verb {
            let _ = check(&runtime, disks, &names, None).await;
            return;
        }
        let distrust = if self.distrust { vec![DeviceId(1)] } else { Vec::new() };
        let repair = matches!(verb, Verb::Repair);
        let options = OpenOptions { cache_extents: 2, repair, distrust, ..OpenOptions::new(names) };
        if let Ok((volume, _)) = Volume::open(runtime, disks, options).await {
            use_volume(&volume).await;
            let _ = volume.close().await;
        }
    }
}

async fn use_volume(volume: &Volume<World, Disk>) {
    let arena = Arena::new(MIB);
    let piece = arena.alloc(KIB * 9).await;
    let places = [Bytes::ZERO, KIB * 30, Bytes(volume.size().0 / 2), volume.size().saturating_sub(KIB * 9)];
    for at in places.into_iter().filter(|at| *at < volume.size()) {
        let _ = volume.read(at, &piece).await;
        let _ = volume.write(at, &piece, Durability::Volatile).await;
        let _ = volume.explain(at);
        let _ = volume.allocation(at, MIB);
    }
    let _ = volume.flush().await;
    let _ = volume.discard(Bytes::ZERO, KIB * 40).await;
    let _ = volume.audit().await;
    let _ = volume.checkpoint().await;
    let _ = volume.status();
}
