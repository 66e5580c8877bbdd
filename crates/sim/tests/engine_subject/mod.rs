//! The engine as a subject of campaigns: with a fixed configuration, or with a configuration drawn by each
//! seed.

// Each test that includes this module uses a part of the module.
#![allow(dead_code)]

mod configuration;

use crate::chaos::Chaos;
use braid_base::{Bytes, DeviceClass, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{
    AdoptedDisk, Adoption, BeforeOpen, CreateOptions, ErrorKind, OpenOptions, Readahead, Result, Volume,
    create,
};
use braid_format::Uuid;
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{DeviceEntry, Layout};
use braid_runtime::{Device, LastingMemory, Runtime};
use braid_sim::{Blank, Campaign, Disk, DiskOptions, Disturbance, Setup, States, Subject, World};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// The identity of the adopted disk.
const ADOPTED: Uuid = Uuid([9; 16]);

/// Disturbances that make a disk forget content reported as durable.
const FORGETFUL: [Disturbance; 4] =
    [Disturbance::Rot, Disturbance::LostWrites, Disturbance::MisdirectedWrites, Disturbance::StaleDevice];

/// The engine in one configuration.
#[derive(Clone, Debug)]
pub struct Engine {
    /// The policy with its settings.
    pub policy: String,
    /// Replaces the policy by a policy that makes every legal decision at random.
    pub chaos: bool,
    /// The same, but most writes make dirty extra copies on the first device.
    pub dirties: bool,
    /// The same, but most reads make clean extra copies on the first device.
    pub caches: bool,
    /// True if some writes of a random policy bypass the extra copies. Off if trials of `regressions.txt`
    /// would change.
    pub past: bool,
    pub size: Bytes,
    pub extent_size: Bytes,
    pub block_size: Bytes,
    pub copies: u8,
    /// Extents in a span: the campaign's draw.
    pub span: u64,
    pub cache_extents: usize,
    pub readahead: Readahead,
    /// Memory for read-ahead of streams.
    pub ahead: Bytes,
    /// True for checkpoints at random times, more often than the journal asks for.
    pub checkpoints: bool,
    /// The longest pause between two random checkpoints.
    pub checkpoint_pause: Nanos,
    /// True if most devices keep the addresses of extents.
    pub addresses: bool,
    /// True if the volume adopts the second device, with the third device as the record.
    pub adopted: bool,
    /// Each seed draws a configuration of its own, with up to this many devices; 0 for the fixed
    /// configuration.
    pub most_devices: u64,
    /// The classes of the disks, for the policies that fit them.
    pub classes: Vec<DeviceClass>,
    /// Devices that the machine has noted as outdated.
    pub outdated: Rc<RefCell<Vec<DeviceId>>>,
    /// Pages of the map in a group of its summary; `None` for a volume without a summary.
    pub map_group: Option<u32>,
    /// True if disks lose content reported as durable, or return in an older state. Otherwise a volume that
    /// reports such a loss is wrong.
    pub forgets: bool,
    /// Policies from which a change of policy chooses. If empty, all policies that fit and the random
    /// policy.
    pub changes: Vec<String>,
}

impl Engine {
    /// Wardrop on an SSD and a disk, with periods short enough for a short run.
    pub fn wardrop() -> Engine {
        Engine {
            policy: "wardrop,period=20ms".to_owned(),
            chaos: false,
            dirties: false,
            caches: false,
            past: true,
            size: MIB + KIB * 200,
            extent_size: KIB * 32,
            block_size: KIB * 4,
            copies: 1,
            span: 1,
            cache_extents: 6,
            readahead: Readahead::First,
            ahead: Bytes::ZERO,
            checkpoints: true,
            checkpoint_pause: Nanos::from_millis(60),
            addresses: false,
            adopted: false,
            most_devices: 0,
            classes: vec![DeviceClass::Ssd, DeviceClass::Hdd],
            outdated: Rc::default(),
            map_group: None,
            forgets: false,
            changes: Vec::new(),
        }
    }

    /// A write-back cache on the SSD with room for nearly all blocks, and few write-backs.
    pub fn write_back() -> Engine {
        Engine { dirties: true, policy: "ssd-first,cache=60%".to_owned(), ..Engine::wardrop() }
    }

    /// A cache for reads on the SSD, with room for half of the blocks.
    pub fn read_cache() -> Engine {
        Engine {
            caches: true,
            cache_extents: 0,
            policy: "ssd-first,cache=60%".to_owned(),
            ..Engine::wardrop()
        }
    }

    /// Hystor with searches and water marks that a short run reaches.
    pub fn hystor() -> Engine {
        let policy = "hystor,period=15ms,write-back=8%,quota=60%,budget=100%".to_owned();
        Engine { policy, cache_extents: 0, ..Engine::wardrop() }
    }

    /// A map of two or more pages, each page a group of the summary.
    pub fn of_large_map() -> Engine {
        Engine { map_group: Some(1), extent_size: KIB * 4, size: MIB * 3, ..Engine::wardrop() }
    }

    /// A configuration that each seed draws anew, with up to this many devices.
    pub fn random(most_devices: u64) -> Engine {
        Engine { most_devices, ..Engine::wardrop() }
    }

    fn chaos(&self, rng: Rng) -> Chaos {
        let chaos = Chaos::new(rng);
        if self.past { chaos } else { chaos.never_past() }
    }

    fn start_checkpoints(&self, world: &World, volume: &Volume<World, Disk>) {
        if !self.checkpoints {
            return;
        }
        let (volume, rt, mut rng) = (volume.clone(), world.clone(), world.fork_rng());
        let longest = self.checkpoint_pause.0;
        world.spawn(async move {
            loop {
                rt.sleep(Nanos(rng.below(longest))).await;
                if volume.checkpoint().await.is_err() {
                    break;
                }
            }
        });
    }
}

impl Subject for Engine {
    type Export = Volume<World, Disk>;

    fn prepare(&self, rng: &mut Rng, setup: &mut Setup) -> Engine {
        let forgets = setup.disturbances.iter().any(|disturbance| FORGETFUL.contains(disturbance));
        let engine = Engine { span: setup.span(), forgets, ..self.clone() };
        if self.most_devices > 0 { configuration::draw(&engine, rng, setup) } else { engine }
    }

    async fn create(self, world: World, disks: Vec<Disk>) -> Result<Volume<World, Disk>> {
        let mut identity = [0; 16];
        Rng::new(world.seed()).fill(&mut identity);
        let mut options = CreateOptions::new("crash", Uuid(identity));
        (options.size, options.copies) = (Some(self.size), self.copies);
        (options.extent_size, options.block_size) = (self.extent_size, self.block_size);
        (options.span_size, options.map_group) = (self.extent_size * self.span, self.map_group);
        if self.adopted {
            options.size = None;
            options.adoption = Some(Adoption { disk: 1, identity: ADOPTED, record: 2 });
        }
        (options.policy, options.overwrite) = (self.policy.clone(), true);
        if self.addresses {
            let mut rng = Rng::new(world.seed() ^ 1);
            let layouts = disks.iter().map(|_| if rng.chance(0.6) { Layout::Tail } else { Layout::Head });
            options.layouts = layouts.collect();
        }
        create(&disks, &options).await?;
        self.open(world, disks).await
    }

    async fn open(self, world: World, disks: Vec<Disk>) -> Result<Volume<World, Disk>> {
        let names = (0..disks.len()).map(|i| format!("disk {i}")).collect();
        let Engine { cache_extents, readahead, ahead, .. } = self;
        // The adopted disk holds no metadata and has no whole number of blocks. The disk may be missing.
        let is_adopted = |disk: &Disk| self.adopted && disk.geometry().size % (KIB * 4) != Bytes::ZERO;
        let place = disks.iter().position(is_adopted);
        let adopted = place.map(|place| AdoptedDisk { place, identity: ADOPTED, force: false });
        let outdated = self.outdated.borrow().clone();
        let notes = self.outdated.clone();
        let note = move |devices: &[DeviceId]| drop(notes.replace(devices.to_vec()));
        let before_open = Some(BeforeOpen(Rc::new(note)));
        let memory = world.memory().map(|memory| Rc::new(memory) as Rc<dyn LastingMemory>);
        let open = OpenOptions { cache_extents, readahead, ahead, adopted, ..OpenOptions::new(names) };
        // Each opening has a world of its own, and so a seed of its own. A pending log tells openings apart
        // by the seed.
        let owner = memory.as_ref().map_or(0, |_| Rng::new(world.seed() ^ 2).next_u64());
        let options = OpenOptions { outdated, before_open, memory, owner, ..open };
        let (volume, recovery) = Volume::open(world.clone(), disks, options).await?;
        assert!(self.forgets || recovery.forgetful.is_empty(), "no disk forgot anything: {recovery:?}");
        if self.chaos || self.dirties || self.caches {
            let chaos = self.chaos(world.fork_rng());
            volume.replace_policy(Box::new(match (self.dirties, self.caches) {
                (true, _) => chaos.dirtying(),
                (_, true) => chaos.caching(),
                _ => chaos,
            }));
        }
        self.start_checkpoints(&world, &volume);
        Ok(volume)
    }

    fn begun(&self) -> Engine {
        Engine { outdated: Rc::new(RefCell::new(self.outdated.borrow().clone())), ..self.clone() }
    }

    fn noted(&self, volume: &Volume<World, Disk>) -> Engine {
        Engine { outdated: Rc::new(RefCell::new(volume.outdated_devices())), ..self.clone() }
    }

    async fn close(self, volume: Volume<World, Disk>) -> Result<()> {
        volume.close().await
    }

    async fn change_policy(self, volume: Volume<World, Disk>, mut rng: Rng) -> Result<()> {
        let (modes, _) = volume.modes(1);
        if !modes.is_empty() {
            volume.switch_mode(rng.below(modes.len() as u64) as usize);
            return Ok(());
        }
        if !self.changes.is_empty() {
            return volume.set_policy(&self.changes[rng.below(self.changes.len() as u64) as usize]).await;
        }
        if rng.chance(0.5) {
            volume.replace_policy(Box::new(self.chaos(rng)));
            return Ok(());
        }
        volume.set_policy(&configuration::policy(&self.classes, &mut rng)).await
    }

    async fn audit(self, volume: Volume<World, Disk>) -> std::result::Result<(), String> {
        match volume.audit().await {
            // A failing device proves nothing about the others.
            Err(error) if error.kind() == ErrorKind::Corrupt => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    fn regions(&self, volume: &Volume<World, Disk>) -> Vec<Vec<Range<Bytes>>> {
        let superblock = volume.superblock();
        let of_device = |device| {
            let regions = superblock.regions.iter().filter(|region| region.device.index() == device);
            regions.map(|region| region.offset..region.offset + region.len).collect()
        };
        (0..superblock.devices.len()).map(of_device).collect()
    }

    fn metadata(&self, volume: &Volume<World, Disk>) -> Vec<Vec<Range<Bytes>>> {
        let superblock = volume.superblock();
        let of_device = |(i, entry): (usize, &DeviceEntry)| {
            let superblocks = superblock_offsets(entry.size, entry.layout).into_iter();
            let superblocks = superblocks.map(|at| at..at + braid_format::superblock::SIZE);
            let tables = superblock.tables.iter().filter(move |table| table.device.index() == i);
            superblocks.chain(tables.map(|table| table.offset..table.offset + table.len))
        };
        let essential = superblock.devices.iter().enumerate().map(of_device);
        essential.zip(self.regions(volume)).map(|(some, regions)| some.chain(regions).collect()).collect()
    }
}

/// A campaign on an SSD and a disk, both with earlier content; `test` is the name of the campaign's test.
pub fn campaign(name: &'static str, test: &str, seeds: u64) -> Campaign {
    let disks = vec![
        DiskOptions::ssd(MIB * 5).with_blank(Blank::Garbage(1)),
        DiskOptions::hdd(MIB * 6).with_blank(Blank::Garbage(1)),
    ];
    let command = format!("cargo test -p braid-sim --test engine -- --exact {test} --nocapture");
    Campaign {
        seeds: 0..seeds,
        states: States { every: 40, ..States::default() },
        regressions: include_str!("../regressions.txt"),
        ..Campaign::new(name, command, disks)
    }
}
