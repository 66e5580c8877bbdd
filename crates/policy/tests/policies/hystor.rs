//! `hystor` on a volume without an engine: extra copies in a list, made and dropped as the engine would.

use super::volume::{HDD, SSD, devices, figure};
use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, KIB, Nanos, Op};
use braid_policy::{
    ByteRange, CellId, DeviceView, ExtraCopy, Flags, Homes, Move, Occasion, Piece, Placement, Plan, Policy,
    Request, View, parse,
};
use std::collections::BTreeMap;

/// 1 GiB of homes on the disk.
const EXTENTS: u32 = 8192;
const BLOCK: Bytes = Bytes(4 << 10);

struct Rig {
    policy: Box<dyn Policy>,
    now: Nanos,
    devices: Vec<DeviceView>,
    copies: Copies,
    /// Contents of the volume; zeros after the end.
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Copies(BTreeMap<BlockId, bool>);

impl Homes for Copies {
    fn extents(&self) -> u32 {
        EXTENTS
    }

    fn home(&self, _: ExtentId) -> Option<DeviceId> {
        Some(HDD)
    }

    fn extra(&self, block: BlockId) -> Option<ExtraCopy> {
        self.0.get(&block).map(|&dirty| ExtraCopy { device: SSD, dirty, cell: CellId(block.0 as u32) })
    }

    fn block_in(&self, cell: CellId) -> Option<BlockId> {
        Some(BlockId(cell.0.into())).filter(|block| self.0.contains_key(block))
    }
}

impl Rig {
    /// An SSD with `slots` extent slots of 32 blocks each.
    fn new(text: &str, slots: u32) -> Rig {
        let devices = devices(&[(DeviceClass::Ssd, slots), (DeviceClass::Hdd, EXTENTS)]);
        let policy = parse(text, &devices).expect(text);
        Rig { policy, now: Nanos::ZERO, devices, copies: Copies::default(), bytes: Vec::new() }
    }

    fn with<T>(&mut self, ask: impl FnOnce(&mut dyn Policy, &View) -> T) -> T {
        let view = View {
            now: self.now,
            extent_size: KIB * 128,
            block_size: BLOCK,
            devices: &self.devices,
            homes: &self.copies,
        };
        ask(&mut *self.policy, &view)
    }

    /// A guest's request within one extent, carried out as the policy says.
    fn request(&mut self, op: Op, block: u64, blocks: u64, flags: Flags) -> Placement<'static> {
        let range = ByteRange::new(BLOCK * block, BLOCK * blocks);
        let start = BLOCK * (block % 32);
        let piece = || Piece {
            extent: ExtentId((block / 32) as u32),
            range: start..start + range.len(),
            first_block: BlockId(block),
            blocks: blocks as u32,
            request: range,
            whole: None,
        };
        let placed = self.with(|policy, view| {
            policy.observe(&Request { op, range, flags }, view);
            let occasion =
                if op == Op::Read { Occasion::ReadMiss(piece()) } else { Occasion::Write(piece()) };
            let Placement { home, second, extra } = policy.place(&occasion, view);
            assert!(!matches!(home, braid_policy::Home::Moved(..)));
            match extra {
                Some(device) if op == Op::Write => Placement::write_back(device),
                _ => Placement::cached(extra).with_second(second),
            }
        });
        for block in (block..block + blocks).map(BlockId) {
            match (placed.extra.is_some(), op, self.copies.0.get(&block)) {
                (true, Op::Write, _) => self.set(block, Some(true)),
                (true, Op::Read, None) => self.set(block, Some(false)),
                _ => {}
            }
        }
        placed
    }

    fn read(&mut self, block: u64) -> Placement<'static> {
        self.request(Op::Read, block, 1, Flags::default())
    }

    fn write(&mut self, block: u64) -> Placement<'static> {
        self.request(Op::Write, block, 1, Flags::default())
    }

    /// Makes, drops, cleans or dirties an extra copy.
    fn set(&mut self, block: BlockId, dirty: Option<bool>) {
        let before = self.copies.extra(block);
        match dirty {
            Some(dirty) => self.copies.0.insert(block, dirty),
            None => self.copies.0.remove(&block),
        };
        let now = self.copies.extra(block);
        self.policy.extra_changed(block, before, now);
    }

    /// Advances to the policy's next plan, and carries out the plan.
    fn tick(&mut self) -> Vec<Move> {
        let mut plan = Plan::default();
        self.now = self.with(|policy, view| policy.plan(view, &mut plan));
        for job in &plan.moves {
            match *job {
                Move::Inspect { range } => {
                    let from = range.start.as_usize().min(self.bytes.len());
                    let mut bytes = self.bytes[from..].to_vec();
                    bytes.resize(range.len().as_usize(), 0);
                    self.with(|policy, view| policy.inspected(range, &bytes, view));
                }
                Move::Promote { range, .. } => {
                    for block in blocks(range) {
                        if !self.copies.0.contains_key(&block) {
                            self.set(block, Some(false));
                        }
                    }
                }
                Move::WriteBack { range } => {
                    for block in blocks(range) {
                        if self.copies.0.get(&block) == Some(&true) {
                            self.set(block, Some(false));
                        }
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        plan.moves.retain(|job| !matches!(job, Move::Inspect { .. }));
        plan.moves
    }

    /// Plans from the next search on, with the default period, until no work is left.
    fn search(&mut self) -> Vec<Move> {
        let mut moves = self.tick();
        self.now += Nanos::from_secs(10);
        moves.extend(self.settle());
        moves
    }

    /// Plans until no work is left, but not beyond the next search.
    fn settle(&mut self) -> Vec<Move> {
        (0..50).flat_map(|_| self.tick()).collect()
    }

    fn figure(&self, name: &str) -> f64 {
        figure(&*self.policy, SSD, name)
    }
}

fn blocks(range: ByteRange) -> impl Iterator<Item = BlockId> {
    (range.start / BLOCK..range.end / BLOCK).map(BlockId)
}

fn promoted(moves: &[Move]) -> Vec<u64> {
    let of = |job: &Move| match *job {
        Move::Promote { range, target: SSD } => blocks(range).map(|block| block.0).collect(),
        _ => Vec::new(),
    };
    moves.iter().flat_map(of).collect()
}

/// Blocks in the remap area of an SSD of `slots` slots, without a write-back area: a 64th is the engine's.
fn remap_blocks(slots: u32) -> u64 {
    u64::from(slots * 32 - slots * 32 / 64)
}

#[test]
fn small_request_blocks_outrank_large_request_blocks() {
    let mut rig = Rig::new("hystor,write-back=0%", 4);
    // All blocks are read equally often: 100 blocks one by one, 640 in requests of 32 blocks.
    for block in (0..100).map(|i| 5_000 + i * 3) {
        rig.read(block);
    }
    for extent in 0..20 {
        rig.request(Op::Read, 5_312 + extent * 32, 32, Flags::default());
    }
    let promoted = promoted(&rig.search());
    let small = promoted.iter().filter(|&&block| block < 5_300).count();
    assert!(promoted.is_sorted() && small >= 95, "{small} of {}", promoted.len());
    assert!(promoted.len() as u64 <= remap_blocks(4));
    assert_eq!(rig.figure("high_cost_blocks"), promoted.len() as f64);
}

#[test]
fn ssd_takes_only_remap_writes_without_write_back_area() {
    let mut rig = Rig::new("hystor,write-back=0%", 4);
    rig.read(7);
    rig.search();
    assert_eq!(rig.write(7).write_target(), Placement::write_back(SSD).write_target());
    assert_eq!(rig.write(8), Placement::KEEP);
    assert_eq!(rig.request(Op::Write, 7, 2, Flags::default()), Placement::KEEP);
    assert_eq!((rig.figure("high_cost_blocks"), rig.figure("write_back_dirty_blocks")), (1.0, 0.0));
}

#[test]
fn write_back_follows_address_order_to_low_mark() {
    // 16 slots: 504 blocks. The write-back area has 252 blocks, its high mark is 189 and its low mark 126.
    let mut rig = Rig::new("hystor,write-back=50%,period=1h", 16);
    for i in 0..189u64 {
        assert_ne!(rig.write(i * 76 % 189 * 50), Placement::KEEP);
    }
    assert_eq!(rig.tick(), []);
    rig.write(100_000);
    let starts: Vec<Bytes> = rig
        .tick()
        .iter()
        .map(|job| match job {
            Move::WriteBack { range } => range.start,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(starts.len() > 10 && starts.is_sorted(), "{starts:?}");
    let (clean, dirty) = (rig.figure("write_back_clean_blocks"), rig.figure("write_back_dirty_blocks"));
    assert!(dirty > 50.0 && dirty <= 126.0 && clean + dirty == 190.0, "{clean} and {dirty}");
    assert_eq!(rig.tick(), []);
}

#[test]
fn writes_go_to_the_disk_while_the_write_back_area_is_full() {
    let mut rig = Rig::new("hystor,write-back=50%,period=1h", 16);
    // Seven eighths of 252: halfway from the high mark to the end.
    let written = (0..252).take_while(|block| rig.write(block * 30) != Placement::KEEP).count();
    assert_eq!(written, 221);
    assert_eq!(rig.write(50_000), Placement::KEEP);
    assert_ne!(rig.write(30), Placement::KEEP, "it has a copy there");
    rig.settle();
    assert_ne!(rig.write(50_000), Placement::KEEP);
}

#[test]
fn idle_volume_writes_back_all_dirty_blocks() {
    let mut rig = Rig::new("hystor,period=1s", 16);
    (0..10).for_each(|block| _ = rig.write(block));
    rig.settle();
    rig.now += Nanos::from_secs(3);
    rig.settle();
    assert_eq!(rig.figure("write_back_dirty_blocks"), 0.0);
}

#[test]
fn chosen_cached_block_joins_remap_area_without_promotion() {
    let mut rig = Rig::new("hystor,write-back=50%", 16);
    (0..5).for_each(|block| _ = rig.write(block));
    let moves = rig.search();
    assert!(promoted(&moves).is_empty());
    assert_eq!((rig.figure("high_cost_blocks"), rig.figure("write_back_dirty_blocks")), (5.0, 0.0));
}

#[test]
fn oldest_chosen_blocks_make_room_for_new_hot_set() {
    let mut rig = Rig::new("hystor,write-back=0%,period=1s", 4);
    let room = remap_blocks(4);
    (0..room).for_each(|block| _ = rig.read(block));
    rig.search();
    assert_eq!(rig.figure("high_cost_blocks"), room as f64);
    rig.write(0);
    // A new hot set, in another sub-region.
    for _ in 0..300 {
        (0..room).for_each(|block| _ = rig.read(2_000 + block));
    }
    let moves = rig.search();
    assert!(
        moves.contains(&Move::WriteBack { range: ByteRange::new(Bytes::ZERO, BLOCK) })
            || rig.copies.0[&BlockId(0)]
    );
    let fresh = promoted(&moves).iter().filter(|&&block| block >= 2_000).count() as u64;
    assert!(fresh > room * 3 / 4, "{fresh} of {moves:?}");
    assert!(rig.figure("high_cost_blocks") <= room as f64);
    let victim = rig.with(|policy, view| policy.evict(SSD, view)).expect("clean copies are there");
    assert!(victim.0 < room, "{victim:?} was chosen last");
}

#[test]
fn metadata_is_remapped_at_first_sight() {
    let metadata = Flags { metadata: true, ..Flags::default() };
    let mut rig = Rig::new("hystor,write-back=0%", 4);
    assert_eq!(rig.read(70).promoted_to(), None);
    assert_eq!(rig.request(Op::Read, 70, 1, metadata).promoted_to(), Some(SSD));
    assert_eq!(rig.request(Op::Write, 300, 1, metadata), Placement::write_back(SSD));
    assert_eq!(rig.figure("metadata_blocks"), 2.0);
    // High-cost blocks do not evict metadata.
    for _ in 0..200 {
        (0..200).for_each(|block| _ = rig.read(5_000 + block));
    }
    rig.search();
    assert_eq!(rig.figure("metadata_blocks"), 2.0);
    let mut off = Rig::new("hystor,write-back=0%,metadata=off", 4);
    assert_eq!(off.request(Op::Read, 70, 1, metadata).promoted_to(), None);
    assert_eq!(off.figure("metadata_blocks"), 0.0);
}

/// ext4 with blocks of 4 KiB and one group: its superblock, and the descriptor in the following block.
fn ext4(inode_table: u32) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    let mut set = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    for (at, value) in [(4, 32_768), (24, 2), (32, 32_768), (40, 8_192), (88, 256)] {
        set(1024 + at, value);
    }
    for (at, value) in [(0, 10), (4, 11), (8, inode_table)] {
        set(4096 + at, value);
    }
    bytes[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    bytes
}

#[test]
fn file_system_metadata_is_recognised_from_disk_content() {
    let mut rig = Rig::new("hystor,write-back=0%", 4);
    rig.bytes = ext4(1_000);
    rig.settle();
    // 8,192 inodes of 256 bytes are 512 blocks.
    for (block, is_metadata) in
        [(10, true), (12, false), (999, false), (1_000, true), (1_511, true), (1_512, false)]
    {
        assert_eq!(rig.read(block).promoted_to().is_some(), is_metadata, "block {block}");
    }
    assert_eq!(
        (rig.figure("metadata_blocks"), rig.figure("structures_bytes")),
        (3.0, (4_096 * (2 + 2 + 512)) as f64)
    );
}

#[test]
fn new_file_system_is_scanned_after_superblock_write() {
    let mut rig = Rig::new("hystor,write-back=0%", 4);
    rig.bytes = ext4(1_000);
    rig.settle();
    rig.read(1_200);
    rig.bytes = ext4(5_000);
    rig.write(0);
    rig.now += Nanos::from_secs(10);
    rig.settle();
    assert_eq!(rig.read(5_200).promoted_to(), Some(SSD));
    assert_eq!(rig.read(1_201).promoted_to(), None);
}

#[test]
fn metadata_has_at_most_half_of_a_crowded_remap_area() {
    let metadata = Flags { metadata: true, ..Flags::default() };
    let mut rig = Rig::new("hystor,write-back=0%,period=1s", 4);
    (0..100).for_each(|block| _ = rig.request(Op::Read, block, 1, metadata));
    assert_eq!(rig.figure("metadata_blocks"), 100.0);
    for _ in 0..20 {
        (0..100).for_each(|block| _ = rig.read(5_000 + block));
    }
    rig.search();
    assert!(rig.figure("metadata_blocks") >= (remap_blocks(4) / 2) as f64);
    assert!(rig.figure("high_cost_blocks") > 20.0);
}

#[test]
fn learned_blocks_survive_restart() {
    let mut rig = Rig::new("hystor,write-back=0%", 4);
    (0..40).for_each(|block| _ = rig.read(block * 50));
    let saved = rig.with(|policy, view| policy.save(view));
    let mut after = Rig::new("hystor,write-back=0%", 4);
    after.with(|policy, view| policy.restore(&saved, view));
    after.read(0);
    assert_eq!(promoted(&after.search()), (0..40).map(|i| i * 50).collect::<Vec<u64>>());
}

#[test]
fn hystor_settings_survive_round_trip() {
    let devices = devices(&[(DeviceClass::Ssd, 10), (DeviceClass::Hdd, 10)]);
    for text in [
        "hystor",
        "hystor,write-back=7%,dirty-high=60%,dirty-low=10%,period=3s,quota=50%,budget=5%,metadata=off,memory=4MiB",
    ] {
        let policy = parse(text, &devices).expect(text);
        let again = format!("hystor,{}", policy.settings());
        assert_eq!(parse(&again, &devices).expect(&again).settings(), policy.settings());
    }
    let refused = |text: &str| parse(text, &devices).err().expect(text).to_string();
    assert!(refused("hystor,dirty-high=20%,dirty-low=30%").contains("dirty-low=30%"));
    assert!(refused("hystor,metadata=perhaps").contains("on or off"));
    assert!(parse("hystor", &devices[..1]).is_err() && parse("hystor", &devices[1..]).is_err());
}
