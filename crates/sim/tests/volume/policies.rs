//! Engine services that no policy of the library uses: extra copies made by writes (write-back), and the
//! origin of each flush.

use crate::rig::{Rig, sound};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Result, Volume, create};
use braid_format::Uuid;
use braid_policy::{Completion, DeviceView, Direction, Occasion, Origin, Placement, Plan, Policy, View};
use braid_runtime::{Arena, Buf, Runtime, join_all};
use braid_sim::{Disk, DiskOptions, World};
use std::cell::RefCell;
use std::rc::Rc;

/// Every write after the first to an extent goes to an extra copy on the SSD.
#[derive(Default)]
struct WriteBack {
    flushed_for: Rc<RefCell<Vec<Origin>>>,
}

impl Policy for WriteBack {
    fn name(&self) -> &'static str {
        "write-back"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => Placement::on(DeviceId(1)),
            Occasion::Write(_) => Placement::write_back(DeviceId(0)),
            Occasion::ReadHit(_) | Occasion::ReadMiss(_) => Placement::KEEP,
        }
    }

    fn extra_slots(&self, _: &DeviceView) -> u32 {
        3
    }

    fn completed(&mut self, completion: &Completion) {
        if completion.direction == Direction::Flush {
            self.flushed_for.borrow_mut().push(completion.origin);
        }
    }

    fn plan(&mut self, view: &View, _: &mut Plan) -> Nanos {
        view.now + Nanos::from_secs(1)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "all is written to the SSD first".to_owned()
    }
}

fn disks(world: &World) -> Vec<Disk> {
    let options = [DiskOptions::ssd(MIB * 8), DiskOptions::hdd(MIB * 8)];
    options.map(|options| Disk::new(world, options)).to_vec()
}

async fn open(world: World, disks: Vec<Disk>) -> Result<Rig> {
    let names = (0..disks.len()).map(|i| format!("disk {i}")).collect();
    let options = OpenOptions::new(names);
    Volume::open(world, sound(&disks), options).await.map(|(volume, _)| volume)
}

async fn make(world: World, disks: Vec<Disk>) -> Rig {
    let mut options = CreateOptions::new("extras", Uuid([7; 16]));
    options.size = Some(MIB * 4);
    create(&sound(&disks), &options).await.expect("the devices are fit");
    let volume = open(world, disks).await.expect("what was just made can be opened");
    volume.replace_policy(Box::new(WriteBack::default()));
    volume
}

fn filled(arena: &Arena, len: Bytes, value: u8) -> Buf {
    let buf = arena.try_alloc(len).expect("the arena is large enough");
    buf.with_bytes_mut(|bytes| bytes.fill(value));
    buf
}

/// Eight guests each write an eighth of one block.
async fn write_eighths(volume: &Rig, arena: &Arena) {
    let eighth = KIB / 2;
    let writes = (0..8).map(async |i: u8| {
        volume.write(eighth * u64::from(i), &filled(arena, eighth, i + 1), Durability::Volatile).await
    });
    join_all(writes).await.into_iter().collect::<Result<()>>().expect("the disks are whole");
}

async fn holds_eighths(volume: &Rig, arena: &Arena) -> bool {
    let block = filled(arena, KIB * 4, 0);
    volume.read(Bytes::ZERO, &block).await.expect("the disks are whole");
    block.with_bytes(|bytes| bytes.iter().enumerate().all(|(at, &byte)| usize::from(byte) == at / 512 + 1))
}

#[test]
fn concurrent_writes_to_block_reach_new_cached_copy() {
    for seed in 0..50 {
        let (world, arena) = (World::new(seed), Arena::new(MIB));
        let disks = disks(&world);
        let rt = world.clone();
        world.block_on(async move {
            let volume = make(rt, disks).await;
            volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 99), Durability::Volatile).await.unwrap();
            write_eighths(&volume, &arena).await;
            assert!(holds_eighths(&volume, &arena).await, "seed {seed}");
            assert_eq!(volume.status().extra_blocks, (1, 1), "seed {seed}");
        });
        world.halt();
    }
}

#[test]
fn dirty_blocks_are_written_back_under_policy_without_cache() {
    let (world, arena) = (World::new(3), Arena::new(MIB));
    let disks = disks(&world);
    let rt = world.clone();
    world.block_on(async move {
        let volume = make(rt.clone(), disks.clone()).await;
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 99), Durability::Volatile).await.unwrap();
        write_eighths(&volume, &arena).await;
        assert_eq!(volume.status().extra_blocks, (1, 1));
        volume.close().await.unwrap();

        let volume = open(rt.clone(), disks).await.unwrap();
        rt.sleep(Nanos::from_secs(1)).await;
        assert_eq!(volume.status().extra_blocks, (0, 0));
        assert!(holds_eighths(&volume, &arena).await);
    });
    world.halt();
}

#[test]
fn flush_without_guest_request_is_background_work() {
    let (world, arena) = (World::new(4), Arena::new(MIB));
    let disks = disks(&world);
    let rt = world.clone();
    world.block_on(async move {
        let volume = make(rt.clone(), disks).await;
        let policy = WriteBack::default();
        let flushed_for = policy.flushed_for.clone();
        volume.replace_policy(Box::new(policy));
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 1), Durability::Volatile).await.unwrap();
        volume.flush().await.unwrap();
        let for_a_guest = flushed_for.take();
        assert!(!for_a_guest.is_empty() && for_a_guest.iter().all(|origin| *origin == Origin::Guest));
        volume.write(MIB, &filled(&arena, KIB * 4, 1), Durability::Volatile).await.unwrap();
        rt.sleep(Nanos::from_secs(10)).await;
        assert_eq!(flushed_for.take().first(), Some(&Origin::Background));
    });
    world.halt();
}
