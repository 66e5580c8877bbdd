//! Two SSDs that cache a disk, in a volume with one copy of everything. The SSD with the journal is lost. The
//! cache table of the other SSD is as old as the last checkpoint.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::rig::{Rig, filled, holds, make, open, open_with, options, refused, sound};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions};
use braid_format::superblock::{Region, RegionKind};
use braid_policy::{DeviceView, Occasion, Placement, Plan, Policy, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, DiskOptions, World};

const JOURNAL: DeviceId = DeviceId(0);
const PIECE: Bytes = Bytes(16 << 10);
const SIZE: Bytes = Bytes(4 << 20);
const PIECES: u64 = SIZE.0 / PIECE.0;
/// Time after its flush for which data on the other SSD needs the journal.
const OLDEST: Nanos = Nanos::from_secs(5);

/// A policy with homes on the disk. Writes to `on` go to this SSD alone, others to the home.
struct Cache {
    disk: DeviceId,
    on: Option<DeviceId>,
}

impl Policy for Cache {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match (occasion, self.on) {
            (Occasion::New { .. }, _) => Placement::on(self.disk),
            (Occasion::Write(_), Some(ssd)) => Placement::write_back(ssd),
            _ => Placement::KEEP,
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == self.disk { 0 } else { device.slots }
    }

    fn plan(&mut self, view: &View, _: &mut Plan) -> Nanos {
        view.now + Nanos::from_secs(1)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "a test".to_owned()
    }
}

/// Places of the second SSD and the disk. The witness is on the second device.
#[derive(Clone, Copy)]
struct Order {
    ssd: DeviceId,
    disk: DeviceId,
}

const ORDERS: [Order; 2] =
    [Order { ssd: DeviceId(1), disk: DeviceId(2) }, Order { ssd: DeviceId(2), disk: DeviceId(1) }];

fn disks(world: &World, order: Order) -> Vec<Disk> {
    let device = |id| match DeviceId(id) == order.disk {
        true => DiskOptions::hdd(MIB * 12),
        false => DiskOptions::ssd(MIB * 8),
    };
    (0..3).map(|id| Disk::new(world, device(id))).collect()
}

fn run(seed: u64, test: impl AsyncFnOnce(World) + 'static) {
    let world = World::new(seed);
    let rt = world.clone();
    world.block_on(async move { test(rt).await });
    world.halt();
}

/// A volume with all pieces 1 at their homes, and 2 on the second SSD, as of a checkpoint.
async fn made_dirty(world: &World, disks: &[Disk], order: Order) -> Rig {
    let how = CreateOptions { policy: "hdd-only".to_owned(), size: Some(SIZE), ..options(84) };
    let (volume, arena) = (make(world.clone(), sound(disks), &how).await, Arena::new(MIB));
    put(&volume, &arena, 0..PIECES, 1).await;
    cache_on(&volume, order, Some(order.ssd));
    put(&volume, &arena, 0..PIECES, 2).await;
    assert_eq!(volume.status().extra_blocks.1 as u64, SIZE.0 / 4096);
    volume.checkpoint().await.unwrap();
    world.sleep(OLDEST).await;
    volume
}

fn cache_on(volume: &Rig, order: Order, on: Option<DeviceId>) {
    volume.replace_policy(Box::new(Cache { disk: order.disk, on }));
}

/// Writes pieces, all of them durably.
async fn put(volume: &Rig, arena: &Arena, pieces: std::ops::Range<u64>, value: u8) {
    for piece in pieces {
        volume.write(PIECE * piece, &filled(arena, PIECE, value), Durability::Volatile).await.unwrap();
    }
    volume.flush().await.unwrap();
}

/// True if a piece has this value; `None` if a read fails.
async fn reads(volume: &Rig, arena: &Arena, piece: u64, value: u8) -> Option<bool> {
    holds(volume, arena, PIECE * piece, PIECE, value).await.ok()
}

async fn until_clean(world: &World, volume: &Rig) {
    volume.set_policy("hdd-only").await.unwrap();
    while volume.status().extra_blocks.1 > 0 {
        world.sleep(Nanos::from_millis(100)).await;
    }
}

fn give_up(o: &mut OpenOptions) {
    o.distrust = vec![JOURNAL];
}

/// The devices without the SSD with the journal, after a power cut.
fn left(world: &World, disks: &[Disk]) -> Vec<Disk> {
    let left: Vec<Disk> = disks[1..].iter().map(|disk| disk.fork(world)).collect();
    left.iter().for_each(Disk::lose_cache);
    left
}

/// All pieces were dirty on the second SSD at the last checkpoint. They were written back, and a guest's
/// flush made newer bytes durable at the disk. Without the journal 494 of 1000 blocks read as before, and
/// were written over the newer bytes.
#[test]
fn overwritten_blocks_do_not_revert_after_journal_loss() {
    for (order, waits) in ORDERS.into_iter().flat_map(|order| [(order, false), (order, true)]) {
        run(1, async move |world| {
            let (disks, arena) = (disks(&world, order), Arena::new(MIB));
            let volume = made_dirty(&world, &disks, order).await;
            until_clean(&world, &volume).await;
            put(&volume, &arena, 0..PIECES / 2, 3).await;
            if waits {
                world.sleep(OLDEST).await;
            }
            let rest = left(&world, &disks);
            let (alone, _) = open_with(world.clone(), sound(&rest), give_up).await.unwrap();
            let check = async |volume: &Rig, when: &str| {
                for piece in 0..PIECES {
                    let value = if piece < PIECES / 2 { 3 } else { 2 };
                    let read = reads(volume, &arena, piece, value).await;
                    assert_ne!(read, Some(false), "{when}: piece {piece} is older");
                    assert!(read.is_some() || !waits, "{when}: piece {piece} is known");
                }
            };
            check(&alone, "at once").await;
            world.sleep(Nanos::from_secs(40)).await;
            check(&alone, "later").await;
            let killed: Vec<Disk> = rest.iter().map(|disk| disk.fork(&world)).collect();
            check(&open(world.clone(), sound(&killed)).await.unwrap(), "after a death").await;
            alone.close().await.unwrap();
            check(&open(world.clone(), sound(&rest)).await.unwrap(), "after a shutdown").await;
        });
    }
}

/// Blocks became dirty on the second SSD after the last checkpoint. Only the journal knew these blocks.
/// Without the journal the blocks read as the disk's older bytes, though the SSD was there.
#[test]
fn blocks_dirtied_since_checkpoint_survive_journal_loss() {
    for order in ORDERS {
        run(2, async move |world| {
            let (disks, arena) = (disks(&world, order), Arena::new(MIB));
            let volume = made_dirty(&world, &disks, order).await;
            until_clean(&world, &volume).await;
            volume.checkpoint().await.unwrap();
            cache_on(&volume, order, Some(order.ssd));
            put(&volume, &arena, 10..PIECES / 2, 3).await;
            world.sleep(OLDEST).await;
            let rest = left(&world, &disks);
            let (alone, recovery) = open_with(world.clone(), sound(&rest), give_up).await.unwrap();
            assert_eq!(recovery.lost, []);
            for piece in 0..PIECES {
                let value = if (10..PIECES / 2).contains(&piece) { 3 } else { 2 };
                assert_eq!(reads(&alone, &arena, piece, value).await, Some(true), "piece {piece}");
            }
            alone.audit().await.unwrap();
        });
    }
}

/// A block that was written back long ago left the cache, and the guest's write bypassed the cache: no
/// record of the next flush named the block.
#[test]
fn bypassing_write_is_never_stale_after_journal_loss() {
    for order in ORDERS {
        run(3, async move |world| {
            let (disks, arena) = (disks(&world, order), Arena::new(MIB));
            let volume = made_dirty(&world, &disks, order).await;
            volume.set_policy("hdd-only").await.unwrap();
            let mut rng = Rng::new(3);
            for _ in 0..25 {
                world.sleep(Nanos::from_millis(rng.below(200))).await;
                let piece = rng.below(PIECES);
                put(&volume, &arena, piece..piece + 1, 3).await;
                let rest = left(&world, &disks);
                let (alone, _) = open_with(world.clone(), sound(&rest), give_up).await.unwrap();
                assert_ne!(reads(&alone, &arena, piece, 3).await, Some(false), "piece {piece}");
            }
        });
    }
}

/// The list of recent entries is unreadable: dirty blocks on the second SSD read as errors, and are named.
#[test]
fn without_the_list_dirty_blocks_read_as_errors() {
    run(4, async |world| {
        let order = ORDERS[1];
        let (disks, arena) = (disks(&world, order), Arena::new(MIB));
        let volume = made_dirty(&world, &disks, order).await;
        put(&volume, &arena, 0..8, 3).await;
        until_clean(&world, &volume).await;
        put(&volume, &arena, 0..PIECES / 2, 4).await;
        world.sleep(OLDEST).await;
        let rest = left(&world, &disks);
        let mut page = vec![0; 4096];
        for at in (0..MIB.0 * 12).step_by(4096).map(Bytes) {
            rest[0].peek_durable(at, &mut page);
            if page.starts_with(b"BRAIDRCB") {
                rest[0].spoil(at..at + KIB * 4, Bad::UntilWritten);
            }
        }
        let repaired = |o: &mut OpenOptions| (o.distrust, o.repair) = (vec![JOURNAL], true);
        let (alone, recovery) = open_with(world.clone(), sound(&rest), repaired).await.unwrap();
        assert!(!recovery.lost.is_empty());
        for piece in 0..PIECES {
            let value = if piece < PIECES / 2 { 4 } else { 2 };
            assert_ne!(reads(&alone, &arena, piece, value).await, Some(false), "piece {piece}");
        }
    });
}

/// A place of the witness is bad. Blocks that left the second cache are listed in the other place. Without
/// the SSD with the journal, the bad place may have been the newer: the opening is refused, and after a
/// repair no block is older.
#[test]
fn evicted_blocks_stay_current_beside_bad_witness_page() {
    for (order, bad) in ORDERS.into_iter().flat_map(|order| [(order, 0), (order, 1)]) {
        run(5, async move |world| {
            let (disks, arena) = (disks(&world, order), Arena::new(MIB));
            let volume = made_dirty(&world, &disks, order).await;
            let superblock = volume.superblock();
            let is_witness = |r: &&Region| (r.kind, r.device) == (RegionKind::Proof, DeviceId(1));
            let at = superblock.regions.iter().find(is_witness).unwrap().offset + KIB * 4 * bad;
            disks[1].spoil(at..at + KIB * 4, Bad::ForEver);
            until_clean(&world, &volume).await;
            let check = async |volume: &Rig, waits: bool, when: &str| {
                for piece in 0..PIECES {
                    let value = if piece < PIECES / 2 { 3 } else { 2 };
                    let read = reads(volume, &arena, piece, value).await;
                    assert_ne!(read, Some(false), "{when}: piece {piece} is older");
                    assert!(read.is_some() || !waits, "{when}: piece {piece} is known");
                }
            };
            put(&volume, &arena, 0..PIECES / 2, 3).await;
            for waits in [false, true] {
                if waits {
                    world.sleep(OLDEST).await;
                }
                let error = refused(open_with(world.clone(), sound(&left(&world, &disks)), give_up).await);
                assert!(error.kind() == ErrorKind::Io && error.to_string().contains("d1"), "{error}");
                let killed: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
                check(&open(world.clone(), sound(&killed)).await.unwrap(), true, "with the journal").await;
                let repaired = |o: &mut OpenOptions| (o.distrust, o.repair) = (vec![JOURNAL], true);
                let rest = left(&world, &disks);
                let (alone, recovery) = open_with(world.clone(), sound(&rest), repaired).await.unwrap();
                assert_eq!(recovery.warnings.len(), 1, "{recovery:?}");
                check(&alone, waits, "after a repair").await;
            }
        });
    }
}

/// Knowledge about a piece: the newest value, the time of its flush, and whether the piece may lie on the
/// lost SSD alone.
#[derive(Clone, Copy, Default)]
struct Known {
    value: u8,
    at: Nanos,
    on_lost: bool,
    /// True if written to an SSD: after 5 s the write is known without the journal.
    on_ssd: bool,
}

/// Draws a life, a power cut, and the loss of the SSD with the journal. Data flushed 5 s earlier, or on the
/// disk, is not older than its flush.
pub fn lives_end_with_one_of_two_ssds(seed: u64) -> (usize, usize) {
    let world = World::new(seed);
    let rt = world.clone();
    let counts = world.block_on(async move {
        let (world, mut rng) = (rt, Rng::new(seed));
        let order = ORDERS[seed as usize % 2];
        let (disks, arena) = (disks(&world, order), Arena::new(MIB));
        let how = CreateOptions { policy: "hdd-only".to_owned(), size: Some(SIZE), ..options(84) };
        let mut volume = make(world.clone(), sound(&disks), &how).await;
        put(&volume, &arena, 0..PIECES, 1).await;
        let mut known = vec![Known { value: 1, at: world.now(), ..Known::default() }; PIECES as usize];
        let mut on = None;
        for _ in 0..4 + rng.below(30) {
            match rng.below(12) {
                0 => volume.checkpoint().await.unwrap(),
                1 => {
                    until_clean(&world, &volume).await;
                    volume.flush().await.unwrap();
                    known.iter_mut().for_each(|piece| piece.on_lost = false);
                    on = None;
                }
                2..5 => {
                    on = [Some(order.ssd), Some(order.ssd), Some(JOURNAL), None][rng.below(4) as usize];
                    cache_on(&volume, order, on);
                }
                5 => world.sleep(Nanos::from_millis(rng.below(9_000))).await,
                6 => {
                    volume.close().await.unwrap();
                    volume = open(world.clone(), sound(&disks)).await.unwrap();
                    on = None;
                }
                _ => {
                    let first = rng.below(PIECES);
                    let pieces = first..PIECES.min(first + 1 + rng.below(40));
                    let value = 1 + rng.below(250) as u8;
                    let value = if rng.chance(0.1) { 0 } else { value };
                    match value {
                        0 => {
                            let len = PIECE * (pieces.end - first);
                            volume.discard(PIECE * first, len).await.unwrap();
                            volume.flush().await.unwrap();
                        }
                        _ => put(&volume, &arena, pieces.clone(), value).await,
                    }
                    for piece in pieces {
                        let before = known[piece as usize].on_lost;
                        let on_lost = value > 0 && (on == Some(JOURNAL) || before);
                        let (at, on_ssd) = (world.now(), on.is_some());
                        known[piece as usize] = Known { value, at, on_lost, on_ssd };
                    }
                }
            }
            world.sleep(Nanos::from_millis(rng.below(1_500))).await;
        }
        let now = world.now();
        let rest = left(&world, &disks);
        let (alone, _) = open_with(world.clone(), sound(&rest), give_up).await.unwrap();
        let (mut whole, mut errors) = (0, 0);
        for (piece, known) in known.iter().enumerate() {
            let read = reads(&alone, &arena, piece as u64, known.value).await;
            whole += usize::from(read == Some(true));
            errors += usize::from(read.is_none());
            let is_old = now >= known.at + OLDEST;
            let may_differ = known.on_lost || !is_old && known.on_ssd;
            assert!(read != Some(false) || may_differ, "seed {seed}: piece {piece} is not {}", known.value);
        }
        alone.audit().await.unwrap();
        (whole, errors)
    });
    world.halt();
    counts
}

#[test]
fn loss_of_journal_ssd_makes_no_surviving_data_stale() {
    let (mut whole, mut errors) = (0, 0);
    for seed in 0..30 {
        let counts = lives_end_with_one_of_two_ssds(seed);
        (whole, errors) = (whole + counts.0, errors + counts.1);
    }
    assert!(whole > 3000, "{whole} pieces were whole, {errors} read as errors");
}
