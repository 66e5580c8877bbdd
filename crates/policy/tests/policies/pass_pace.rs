//! PASS: guests are paced by the rate of copies to the disk.

use crate::pass::{copied, pair, pass, request};
use braid_base::{KIB, Nanos, Op};
use braid_policy::{ByteRange, Move, Outcome, Plan};
use std::collections::{BTreeSet, VecDeque};

/// Number of blocks that a guest writes in ten seconds, in bursts of `burst` blocks all over the volume. The
/// SSD takes 0.1 ms for a block. The disk takes `slow` for the policy's copies in the first two seconds, and
/// 1 ms later; a synchronous write takes 10 ms.
fn written_in_ten_seconds(settings: &str, (burst, most_behind): (usize, usize), slow: Nanos) -> usize {
    let mut volume = pair();
    let mut policy = pass(settings, &volume);
    let (mut guest, mut asked, mut disk) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
    let (mut behind, mut moves) = (BTreeSet::new(), VecDeque::new());
    let (mut next, mut written, mut has_waited) = (0, 0, false);
    while guest < Nanos::from_secs(10) {
        let duplicator = if moves.is_empty() { asked } else { disk };
        volume.now = guest.min(duplicator);
        volume.lack(behind.iter().map(|&extent| ByteRange::new(KIB * 128 * extent, KIB * 4)));
        let takes = if volume.now < Nanos::from_secs(2) { slow } else { Nanos::from_millis(1) };
        if volume.now < duplicator {
            if !has_waited {
                let waits = (0..burst).map(|_| policy.throttle(&request(Op::Write), &volume.view()));
                guest += waits.max().expect("a burst has blocks");
            } else {
                for _ in 0..burst {
                    next = (next + 37) % 800;
                    let is_behind = behind.len() < most_behind && behind.insert(next);
                    guest += if is_behind { Nanos::from_micros(100) } else { Nanos::from_millis(10) };
                }
                written += burst;
                policy.observe(&request(Op::Write), &volume.view());
            }
            has_waited = !has_waited;
        } else if let Some(range) = moves.pop_front() {
            let range: ByteRange = range;
            behind.remove(&(range.start / (KIB * 128)));
            copied(&mut *policy, range.len());
            policy.done(&Move::Resync { range, gap: Move::GAP }, Outcome::Finished);
            (disk, asked) = (volume.now + takes, asked.max(volume.now + Nanos::from_millis(1)));
        } else {
            let mut plan = Plan::default();
            asked = policy.plan(&volume.view(), &mut plan);
            moves.extend(plan.moves.iter().map(|job| match job {
                Move::Resync { range, .. } => *range,
                other => panic!("{other:?}"),
            }));
            disk = volume.now + takes;
        }
    }
    written
}

/// Regression: guests waited half a second for each write under a window of 128 KiB, while all devices were
/// idle. The rate of the disk was measured only in windows that took 0.2 s to duplicate, and clients paced by
/// an old rate filled no such window.
#[test]
fn pacing_follows_current_disk_rate_after_slow_phase() {
    for blocks in [16, 32, 64] {
        let settings = format!("window={}B,base=0us", (KIB * 4 * blocks as u64).0);
        let of = |slow| written_in_ten_seconds(&settings, (blocks, 2 * blocks), slow);
        let [steady, recovered] = [Nanos::from_millis(1), Nanos::from_millis(100)].map(of);
        // The disk could have copied 10,000 blocks, and 8,000 after its slow phase.
        assert!(steady > 6_000 && recovered > 4_000, "{blocks}: {steady} and {recovered}");
    }
}
