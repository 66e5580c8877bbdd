//! `wear=0.3DWPD`: how much SSDs may be written, in drive writes per day, by what the policy decides.
//!
//! Each SSD has a bucket of bytes. The bucket fills at the rate of the bound, and holds an hour's worth: a
//! burst of that length passes unhindered, and no day exceeds the bound by more than a 24th. Every write to
//! the SSD takes from the bucket, metadata included. While the bucket is empty, nothing goes to that SSD that
//! can go elsewhere: no clean copy, no dirty copy, no move, no new home while a disk has room. A write to a
//! home on the SSD must be written, and makes a debt, of a day's worth at most: older writes are no part of a
//! day's average. While an SSD is in debt and is still written faster than its bound, homes that are written
//! leave it.
//!
//! Buckets outlast a restart as of a few minutes before it; time in which no daemon ran fills none. A new
//! policy has an hour's worth.
//!
//! An extent moves to such an SSD only if the bucket has room for the move and for the writes that the extent
//! is asked for in an hour. Else the extents that are written most would come, and leave again in debt.

use super::Equi;
use super::demand::{class, direction};
use super::moves::Gain;
use crate::{BadSetting, Completion, Direction, Move, Settings, View};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};

/// The bound, and the bucket of each SSD.
pub(super) struct Wear {
    /// Drive writes per day.
    per_day: f64,
    /// By device; none of a disk.
    buckets: Vec<Option<Bucket>>,
    seen: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Bytes that may be written; less than none is a debt.
    left: f64,
    /// Bytes a second that the bound allows; zero before the first view.
    rate: f64,
    /// Bytes a second of late.
    written_of_late: f64,
    /// Bytes written since the last plan of which completions told: of data, and not of metadata.
    told: u64,
    /// All that was written up to the last plan.
    counted: u64,
    /// What was left is known from an earlier time.
    is_restored: bool,
    /// Taken from the bucket since `seen`.
    taken: f64,
}

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;
/// The least and the largest bound: a page in a life, and the fastest SSD without a pause.
const BOUNDS: std::ops::RangeInclusive<f64> = 0.001..=10_000.0;

impl Wear {
    /// Setting: `wear` (none), such as `0.3DWPD`.
    pub fn take(settings: &mut Settings, classes: &[DeviceClass]) -> Result<Option<Wear>, BadSetting> {
        let Some(text) = settings.take_text("wear") else { return Ok(None) };
        let number = match text.len().checked_sub(4).and_then(|at| text.split_at_checked(at)) {
            Some((number, unit)) if unit.eq_ignore_ascii_case("DWPD") => number,
            _ => &text,
        };
        let per_day = number.parse().ok().filter(|per_day| BOUNDS.contains(per_day)).ok_or_else(|| {
            settings.bad("wear", &text, "drive writes per day from 0.001 to 10000, such as 0.3DWPD")
        })?;
        let bucket = |class: &DeviceClass| (*class == DeviceClass::Ssd).then(Bucket::default);
        Ok(Some(Wear { per_day, buckets: classes.iter().map(bucket).collect(), seen: Nanos::ZERO }))
    }

    /// As [`Wear::take`] takes it, where time passes so many times as fast, and a day is as much shorter.
    pub fn hastened(&self, haste: u32) -> String {
        format!(",wear={}DWPD", (self.per_day * f64::from(haste)).min(*BOUNDS.end()))
    }

    /// Time has passed.
    pub fn see(&mut self, view: &View, memory: Nanos) {
        let passed = view.now.saturating_sub(self.seen).as_secs_f64();
        if passed <= 0.0 {
            return;
        }
        self.seen = view.now;
        let memory = memory.as_secs_f64();
        let left_of_late = (-passed / memory).exp();
        for (bucket, device) in self.buckets.iter_mut().zip(view.devices) {
            let Some(bucket) = bucket else { continue };
            let size = view.extent_size.0 as f64 * f64::from(device.slots);
            let rate = self.per_day * size / DAY;
            if bucket.rate == 0.0 {
                // What was written before the policy took charge does not count.
                bucket.counted = device.written.0;
                bucket.left += if bucket.is_restored { 0.0 } else { rate * HOUR };
            }
            bucket.rate = rate;
            bucket.left = (bucket.left + rate * passed).clamp(-rate * DAY, rate * HOUR);
            let taken = std::mem::take(&mut bucket.taken);
            bucket.written_of_late = bucket.written_of_late * left_of_late + taken / memory;
        }
    }

    /// At each plan: what was written beside data.
    pub fn count(&mut self, view: &View) {
        for (bucket, device) in self.buckets.iter_mut().zip(view.devices) {
            let Some(bucket) = bucket else { continue };
            let all = device.written.0.saturating_sub(bucket.counted);
            bucket.counted = device.written.0;
            let told = std::mem::take(&mut bucket.told);
            bucket.takes(all.saturating_sub(told));
        }
    }

    pub fn completed(&mut self, io: &Completion) {
        if let (Some(bucket), Direction::Write) = (&mut self.buckets[io.device.index()], io.direction) {
            bucket.told += io.len.0;
            bucket.takes(io.len.0);
        }
    }

    /// Whether what need not go to a device may go there.
    pub fn may_write(&self, device: DeviceId) -> bool {
        self.buckets[device.index()].is_none_or(|bucket| bucket.left > 0.0)
    }

    /// Bytes that an SSD may be written; less than none is a debt. None of a disk.
    pub fn left(&self, device: DeviceId) -> Option<f64> {
        self.buckets[device.index()].map(|bucket| bucket.left)
    }

    /// What is known of an SSD; nothing of a disk.
    pub fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let of_ssd = |left| vec![("wear_left_bytes", left), ("wear_drive_writes_per_day", self.per_day)];
        self.left(device).map(of_ssd).unwrap_or_default()
    }

    /// Whether an SSD is in debt, and the debt grows.
    fn wears(&self, device: DeviceId) -> bool {
        self.buckets[device.index()]
            .is_some_and(|bucket| bucket.left < 0.0 && bucket.written_of_late > bucket.rate)
    }

    /// What is left in each bucket, by device: f64, little-endian, NaN of a disk.
    pub fn save(&self) -> Vec<u8> {
        let left = self.buckets.iter().map(|bucket| bucket.map_or(f64::NAN, |bucket| bucket.left));
        left.flat_map(f64::to_le_bytes).collect()
    }

    /// Takes back what `save` returned; what else the bytes may be is ignored.
    pub fn restore(&mut self, state: &[u8]) {
        for (bucket, bytes) in self.buckets.iter_mut().zip(state.chunks_exact(size_of::<f64>())) {
            let left = f64::from_le_bytes(bytes.try_into().expect("a chunk is an f64"));
            if let Some(bucket) = bucket.as_mut().filter(|_| left.is_finite()) {
                (bucket.left, bucket.is_restored) = (left, true);
            }
        }
    }

    /// Why a device takes nothing that can go elsewhere, if it does not.
    pub fn refusal(&self, device: DeviceId) -> Option<String> {
        let bucket = self.buckets[device.index()].filter(|bucket| bucket.left <= 0.0 && bucket.rate > 0.0)?;
        let wait = Nanos::from_secs((-bucket.left / bucket.rate).ceil().max(1.0) as u64);
        Some(format!("wear={}DWPD keeps copies and moves from {device} for {wait}", self.per_day))
    }
}

impl Bucket {
    fn takes(&mut self, bytes: u64) {
        self.left -= bytes as f64;
        self.taken += bytes as f64;
    }
}

impl Equi {
    /// Leaves of what would come to a device the part for which the bucket has room.
    pub(super) fn keep_what_wear_allows(&self, coming: &mut Vec<Gain>, device: DeviceId, view: &View) {
        let Some(mut left) = self.wishes.wear.as_ref().and_then(|wear| wear.left(device)) else { return };
        coming.retain(|gain| {
            // At most: what positions an SSD counts as transfer, too.
            let written = self.written_ms(gain.extent, view) / self.constants.transfer * (1 << 20) as f64;
            let takes = view.extent_size.0 as f64 + written * HOUR;
            let fits = takes <= left;
            left -= if fits { takes } else { 0.0 };
            fits
        });
    }

    /// Homes that are written leave an SSD that wears too fast: those first that lose least for the time that
    /// their writes take, a few in each plan, since what is left may be within the bound.
    pub(super) fn leave_worn(&self, gains: &[Gain], view: &View, moves: &mut Vec<Move>) {
        let Some(wear) = &self.wishes.wear else { return };
        let leaves = |gain: &&Gain| self.is_faster(gain.from, gain.to) && wear.wears(gain.from);
        let mut leaving: Vec<(f64, &Gain)> = gains
            .iter()
            .filter(leaves)
            .map(|gain| (self.written_ms(gain.extent, view), gain))
            .filter(|(written, _)| *written > 0.0)
            .map(|(written, gain)| (-gain.ms / written, gain))
            .collect();
        leaving.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.extent.cmp(&b.1.extent)));
        leaving.truncate((self.constants.step * gains.len() as f64).ceil() as usize);
        moves.extend(leaving.iter().map(|(_, gain)| Move::Migrate { extent: gain.extent, target: gain.to }));
    }

    /// What writes to an extent take an unloaded SSD, in milliseconds a second.
    fn written_ms(&self, extent: ExtentId, view: &View) -> f64 {
        let known = self.known.value(extent).unwrap_or_default();
        let write = direction(Direction::Write).expect("a write has a place");
        f64::from(known.at(view.now, self.constants.memory)[class(DeviceClass::Ssd)][write])
    }
}
