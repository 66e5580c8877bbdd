//! A volume whose devices lie: superblock, journal and map are changed, and their checksums made to fit.
//!
//! The input is a list of changes of six bytes: what is changed, where in it (two bytes), and the number that is put there
//! (width and kind in one byte, two bytes of value). Opening must answer with a volume or an error; a volume that opens
//! must serve, whatever it returns, and close.

use braid_base::{Bytes, ExtentId, KIB, MIB};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::journal::{self, Record};
use braid_format::layout::superblock_offsets;
use braid_format::map_page::{self, Entry};
use braid_format::superblock::{self, Superblock};
use braid_format::{SlotNumber, Uuid};
use braid_sim::{Disk, DiskOptions, World};

const CHANGE: usize = 6;
const VOLUME: Uuid = Uuid([7; 16]);

/// Opens, uses and closes a damaged volume.
pub fn open(changes: &[u8]) {
    let world = World::new(1);
    let superblock = PRISTINE.with(|pristine| pristine.superblock.clone());
    let disks = PRISTINE.with(|p| p.disks.iter().map(|disk| disk.fork(&world)).collect::<Vec<_>>());
    damage(&disks, &superblock, changes);
    let names = (0..disks.len()).map(|i| format!("disk {i}")).collect();
    let options = OpenOptions { cache_extents: 2, ..OpenOptions::new(names) };
    let runtime = world.clone();
    world.block_on(async move {
        // An error is an answer. So is one of the verbs': the devices hold what nobody wrote.
        if let Ok((volume, _)) = Volume::open(runtime, disks, options).await {
            use_volume(&volume).await;
            let _ = volume.close().await;
        }
    });
    world.halt();
}

async fn use_volume(volume: &Volume<World, Disk>) {
    let arena = braid_runtime::Arena::new(MIB);
    let piece = arena.alloc(KIB * 9).await;
    let places = [Bytes::ZERO, KIB * 30, Bytes(volume.size().0 / 2), volume.size().saturating_sub(KIB * 9)];
    for at in places {
        let _ = volume.read(at, &piece).await;
        let _ = volume.write(at, &piece, Durability::Volatile).await;
        let _ = volume.explain(at);
    }
    let _ = volume.flush().await;
    let _ = volume.discard(Bytes::ZERO, KIB * 40).await;
    let _ = volume.status();
}

/// A volume as it was made, with a few extents written.
struct Pristine {
    disks: Vec<Disk>,
    superblock: Superblock,
}

thread_local! {
    static PRISTINE: Pristine = Pristine::new();
}

impl Pristine {
    fn new() -> Pristine {
        let world = World::new(1);
        let disks =
            vec![Disk::new(&world, DiskOptions::ssd(MIB * 5)), Disk::new(&world, DiskOptions::hdd(MIB * 6))];
        let (inner, runtime) = (disks.clone(), world.clone());
        let superblock = world.block_on(async move {
            let mut options = CreateOptions::new("fuzz", VOLUME);
            (options.extent_size, options.size) = (KIB * 32, Some(MIB));
            create(&inner, &options).await.expect("the devices are large enough");
            let names = vec!["ssd".to_owned(), "hdd".to_owned()];
            let options = OpenOptions::new(names);
            let (volume, _) = Volume::open(runtime, inner, options).await.expect("the volume was just made");
            let piece = braid_runtime::Arena::new(MIB).alloc(KIB * 100).await;
            piece.fill_zero();
            volume.write(KIB * 3, &piece, Durability::Fua).await.expect("there is room");
            volume.close().await.expect("the disks work");
            volume.superblock()
        });
        world.halt();
        Pristine { disks, superblock }
    }
}

/// Applies the changes: each structure is made once more with all of its changes, and sealed.
fn damage(disks: &[Disk], superblock: &Superblock, changes: &[u8]) {
    let (mut blocks, mut batch, mut page) = (superblock.encode(), a_batch(superblock), a_page(superblock));
    let mut changed = [false; 3];
    for change in changes.chunks_exact(CHANGE).take(16) {
        let structure = usize::from(change[0] % 3);
        let target = match structure {
            0 => &mut blocks,
            1 => &mut batch,
            _ => &mut page,
        };
        put(target, change);
        changed[structure] = true;
    }
    if changed[0] {
        poke_superblocks(disks, superblock, &mut blocks);
    }
    if changed[1] {
        seal(&mut batch, 8, 12);
        let (offset, _) = superblock.devices[0].journal.expect("the first device has the journal");
        disks[0].poke(offset, &batch);
    }
    if changed[2] {
        seal(&mut page, 0, 4);
        for (disk, image) in disks.iter().zip([0, 1]) {
            let offset = superblock.devices[image].map[image].expect("each device has a map image");
            disk.poke(offset, &page);
        }
    }
}

fn poke_superblocks(disks: &[Disk], superblock: &Superblock, bytes: &mut [u8]) {
    for (i, disk) in disks.iter().enumerate() {
        bytes[80] = i as u8;
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        for offset in superblock_offsets(superblock.devices[i].size) {
            disk.poke(offset, bytes);
        }
    }
}

/// A batch that comes after all others, with a record of each kind.
fn a_batch(superblock: &Superblock) -> Vec<u8> {
    let extra = journal::Extra { slot: SlotNumber(40), place: 2, dirty: true };
    let records = [
        Record::Extent(ExtentId(9), Entry { home: SlotNumber(30), valid: 3, ..Entry::default() }),
        Record::Extra(braid_base::BlockId(100), Some(extra)),
    ];
    let mut bytes = vec![0; journal::room(records.len()).as_usize()];
    journal::encode(&mut bytes, superblock.volume, 1 << 20, 1 << 20, &records);
    bytes.truncate(256);
    bytes
}

fn a_page(superblock: &Superblock) -> Vec<u8> {
    let mut page = vec![0; map_page::SIZE.as_usize()];
    let entry = |i: u32| Entry { home: SlotNumber(i + 1), valid: 0xff, ..Entry::default() };
    map_page::encode(&mut page, superblock.volume, 0, 1, superblock.copies, (0..4).map(entry));
    page
}

/// A change: the number of one, two, four or eight bytes, or one with a single bit, or one near the largest.
fn put(bytes: &mut [u8], change: &[u8]) {
    let value = u64::from(change[4]) | u64::from(change[5]) << 8;
    let number = match change[3] >> 2 & 3 {
        0 => value,
        1 => 1 << (value % 64),
        2 => u64::MAX - value,
        _ => value << 12,
    };
    let width = 1 << (change[3] & 3);
    let at = (usize::from(change[1]) | usize::from(change[2]) << 8) % (bytes.len() - width);
    bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
}

/// Makes the checksum at `place` fit, which covers the volume's UUID and what follows `from`.
fn seal(bytes: &mut [u8], place: usize, from: usize) {
    let len = if from == 12 {
        u32::from_le_bytes(std::array::from_fn(|i| bytes[12 + i])) as usize
    } else {
        bytes.len()
    };
    let covered = &bytes[from..len.clamp(from, bytes.len())];
    let crc = crc32c::crc32c_append(crc32c::crc32c(&VOLUME.0), covered);
    bytes[place..place + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Each structure's fields, changed one at a time, and one that changes nothing.
pub fn damages() -> Vec<Vec<u8>> {
    let superblock = superblock::SIZE.0 as u16;
    let header = (24..160).step_by(4).map(|at| (0u8, at));
    let tables = (4096..4096 + 256).step_by(4).map(|at| (0, at));
    let batch = (12..72).step_by(2).map(|at| (1, at));
    let page = (8..40).step_by(2).map(|at| (2, at));
    let all = header.chain(tables).chain(batch).chain(page).filter(|(_, at)| *at < superblock);
    let mut changes: Vec<Vec<u8>> = all
        .flat_map(|(structure, at)| {
            let [low, high] = at.to_le_bytes();
            [0u8, 2, 3, 10, 11].map(|kind| vec![structure, low, high, kind, 1, 0])
        })
        .collect();
    changes.push(Vec::new());
    changes
}
