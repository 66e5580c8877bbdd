//! Volumes on disks with switchable faults.

pub mod busy;
pub mod cached;
pub mod life;

use braid_base::{Bytes, MIB, Rng};
use braid_engine::{CreateOptions, Error, Export, OpenOptions, Recovery, Result, Volume, create};
use braid_format::Uuid;
use braid_runtime::{Arena, Buf};
use braid_sim::{Blank, Disk, DiskOptions, FaultPlan, Faults, Faulty, World};

pub type Rig = Volume<World, Faulty<Disk>>;

/// Two disks with switchable faults.
pub struct Bench {
    pub world: World,
    pub disks: Vec<Disk>,
    pub faults: Vec<Faults>,
    pub arena: Arena,
}

pub fn bench(seed: u64) -> Bench {
    bench_in(World::new(seed))
}

pub fn bench_in(world: World) -> Bench {
    let seed = world.seed();
    let options = [DiskOptions::ssd(MIB * 8), DiskOptions::hdd(MIB * 8)];
    let disks = options.map(|o| Disk::new(&world, o.with_blank(Blank::Garbage(seed)))).to_vec();
    let faults = disks.iter().map(|_| Faults::new(FaultPlan::default(), world.fork_rng())).collect();
    Bench { world, disks, faults, arena: Arena::new(MIB * 4) }
}

impl Bench {
    pub fn devices(&self) -> Vec<Faulty<Disk>> {
        self.disks.iter().zip(&self.faults).map(|(disk, faults)| Faulty::new(disk.clone(), faults)).collect()
    }

    /// The disks after a crash of the software at this moment: all writes given to the disks are there.
    pub fn killed(&self) -> Vec<Faulty<Disk>> {
        self.disks.iter().map(|disk| self.sound(disk.fork(&self.world))).collect()
    }

    /// A device without faults.
    pub fn sound(&self, disk: Disk) -> Faulty<Disk> {
        Faulty::new(disk, &Faults::new(FaultPlan::default(), self.world.fork_rng()))
    }

    pub fn run<T: 'static>(&self, test: impl Future<Output = T> + 'static) -> T {
        let result = self.world.block_on(test);
        self.world.halt();
        result
    }
}

/// Number of seeds: the value of an environment variable, or `usual`.
pub fn seeds(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |count| count.parse().expect("a number of seeds"))
}

/// Disks without faults, as devices of the type that all tests share: each type of device would be another
/// build of the engine.
pub fn sound(disks: &[Disk]) -> Vec<Faulty<Disk>> {
    disks.iter().map(sound_one).collect()
}

/// As [`sound`], one disk.
pub fn sound_one(disk: &Disk) -> Faulty<Disk> {
    Faulty::new(disk.clone(), &Faults::new(FaultPlan::default(), Rng::new(1)))
}

pub fn options(identity: u8) -> CreateOptions {
    let mut options = CreateOptions::new("faulty", Uuid([identity; 16]));
    (options.size, options.overwrite) = (Some(MIB * 4), true);
    options.span_size = options.extent_size;
    options
}

pub async fn open(world: World, devices: Vec<Faulty<Disk>>) -> Result<Rig> {
    let names = (0..devices.len()).map(|i| format!("disk {i}")).collect();
    let options = OpenOptions::new(names);
    Volume::open(world, devices, options).await.map(|(volume, _)| volume)
}

/// As [`open`], with other options.
pub async fn open_with(
    world: World,
    devices: Vec<Faulty<Disk>>,
    change: impl FnOnce(&mut OpenOptions),
) -> Result<(Rig, Recovery)> {
    let mut options = OpenOptions::new((0..devices.len()).map(|i| format!("disk {i}")).collect());
    change(&mut options);
    Volume::open(world, devices, options).await
}

pub async fn make(world: World, devices: Vec<Faulty<Disk>>, options: &CreateOptions) -> Rig {
    create(&devices, options).await.expect("the devices are fit");
    open(world, devices).await.expect("what was just made can be opened")
}

pub fn filled(arena: &Arena, len: Bytes, value: u8) -> Buf {
    let buf = arena.try_alloc(len).expect("the arena is large enough");
    buf.with_bytes_mut(|bytes| bytes.fill(value));
    buf
}

/// True if every byte of a buffer is `value`.
pub fn is_all(buf: &Buf, value: u8) -> bool {
    // A fold is compiled to vector instructions, `all` to a comparison of each byte.
    buf.with_bytes(|bytes| bytes.iter().fold(true, |all, &byte| all & (byte == value)))
}

pub async fn holds(volume: &Rig, arena: &Arena, offset: Bytes, len: Bytes, value: u8) -> Result<bool> {
    let buf = filled(arena, len, !value);
    volume.read(offset, &buf).await?;
    Ok(is_all(&buf, value))
}

pub fn refused<T>(result: Result<T>) -> Error {
    result.err().expect("this must be refused")
}
