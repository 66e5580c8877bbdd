//! File systems of guests, in which `hystor` looks for metadata: for any bytes, a scan ends, and asks for
//! nothing beyond the volume.

use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, KIB, Nanos};
use braid_policy::{
    DeviceView, ExtraCopy, Homes, LONGEST_INSPECTED, Move, Outcome, Plan, Policy, View, parse,
};

/// A volume of 1 TiB.
struct Volume;

const EXTENTS: u32 = 1 << 23;

impl Homes for Volume {
    fn extents(&self) -> u32 {
        EXTENTS
    }

    fn home(&self, _: ExtentId) -> Option<DeviceId> {
        Some(DeviceId(1))
    }

    fn extra(&self, _: BlockId) -> Option<ExtraCopy> {
        None
    }
}

/// Plans that are followed. A scan may continue for longer, but not in a test.
const PLANS: u64 = 40;

/// Scans a volume with the same bytes in each range, so that the target of a pointer holds these bytes, too.
pub fn scan(bytes: &[u8]) {
    let class = |(id, class)| DeviceView::empty(DeviceId(id), class, 1 << 20);
    let devices = [(0, DeviceClass::Ssd), (1, DeviceClass::Hdd)].map(class);
    let mut policy = parse("hystor", &devices).expect("its settings have defaults");
    for step in 0..PLANS {
        let view = View {
            now: Nanos::from_millis(step),
            extent_size: KIB * 128,
            block_size: KIB * 4,
            devices: &devices,
            homes: &Volume,
        };
        let mut plan = Plan::default();
        policy.plan(&view, &mut plan);
        for job in &plan.moves {
            show(&mut *policy, job, bytes, &view);
        }
    }
}

fn show(policy: &mut dyn Policy, job: &Move, bytes: &[u8], view: &View) {
    let Move::Inspect { range } = *job else { panic!("{job:?} without any request") };
    assert!(
        range.len() <= LONGEST_INSPECTED && range.end <= view.extent_size * u64::from(EXTENTS),
        "{range:?}"
    );
    // A group of XFS has its headers at the place of the superblock, too.
    let shown = &bytes[..bytes.len().min(range.len().as_usize())];
    policy.inspected(range, shown, view);
    policy.done(job, Outcome::Finished);
}

/// The beginnings of ext4, XFS and btrfs, and of a disk with partitions.
pub fn superblocks() -> Vec<Vec<u8>> {
    vec![ext4(), xfs(), btrfs(), gpt()]
}

fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn ext4() -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    for (at, value) in [(4, 1u32 << 28), (24, 2), (32, 32_768), (40, 8_192), (88, 256), (96, 0x80)] {
        set(&mut bytes, 1024 + at, &value.to_le_bytes());
    }
    set(&mut bytes, 1024 + 56, &[0x53, 0xef]);
    set(&mut bytes, 1024 + 254, &64u16.to_le_bytes());
    for group in 0..64 {
        for (at, value) in [(0, 100u32), (4, 200), (8, 300)] {
            set(&mut bytes, 4096 + group * 64 + at, &(value + group as u32 * 1000).to_le_bytes());
        }
    }
    bytes
}

fn xfs() -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    set(&mut bytes, 0, b"XFSB");
    for (at, value) in [(4, 4096u32), (84, 1 << 20), (88, 40)] {
        set(&mut bytes, at, &value.to_be_bytes());
    }
    set(&mut bytes, 100, &5u16.to_be_bytes());
    set(&mut bytes, 102, &512u16.to_be_bytes());
    bytes[123] = 3;
    set(&mut bytes, 512, b"XAGF");
    set(&mut bytes, 1024, b"XAGI");
    for (at, value) in [(16, 1u32), (20, 2), (28, 2), (32, 1)] {
        set(&mut bytes, 512 + at, &value.to_be_bytes());
    }
    for (at, value) in [(20, 3u32), (24, 2), (328, 4), (332, 1)] {
        set(&mut bytes, 1024 + at, &value.to_be_bytes());
    }
    bytes
}

fn btrfs() -> Vec<u8> {
    let start = 64 << 10;
    let mut bytes = vec![0; (68 << 10) + 512];
    set(&mut bytes, start + 64, b"_BHRfS_M");
    set(&mut bytes, start + 88, &(1u64 << 20).to_le_bytes());
    set(&mut bytes, start + 148, &16_384u32.to_le_bytes());
    set(&mut bytes, start + 160, &97u32.to_le_bytes());
    set(&mut bytes, start + 201, &1u64.to_le_bytes());
    let chunk = start + 811 + 17;
    set(&mut bytes, chunk - 8, &(1u64 << 20).to_le_bytes());
    for (at, value) in [(0, 8u64 << 20), (24, 2), (48, 1), (56, 1 << 20)] {
        set(&mut bytes, chunk + at, &value.to_le_bytes());
    }
    set(&mut bytes, chunk + 44, &1u16.to_le_bytes());
    // The root at 1 MiB is the same bytes: a leaf of one chunk.
    set(&mut bytes, 96, &1u32.to_le_bytes());
    bytes[101 + 8] = 228;
    set(&mut bytes, 101 + 17, &200u32.to_le_bytes());
    set(&mut bytes, 301, &(1u64 << 30).to_le_bytes());
    set(&mut bytes, 301 + 24, &4u64.to_le_bytes());
    set(&mut bytes, 301 + 44, &1u16.to_le_bytes());
    bytes
}

fn gpt() -> Vec<u8> {
    let mut bytes = vec![0; 2048];
    set(&mut bytes, 512, b"EFI PART");
    set(&mut bytes, 512 + 72, &2u64.to_le_bytes());
    set(&mut bytes, 512 + 80, &8u32.to_le_bytes());
    set(&mut bytes, 512 + 84, &128u32.to_le_bytes());
    for number in 0..8 {
        bytes[1024 + number * 128] = 1;
        set(&mut bytes, 1024 + number * 128 + 32, &(2048 * (number as u64 + 1)).to_le_bytes());
    }
    bytes
}
