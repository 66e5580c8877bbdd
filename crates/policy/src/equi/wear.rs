//! `wear=0.3DWPD`: a bound on the writes to SSDs caused by the policy, in drive writes per day.
//!
//! Each SSD has a bucket of bytes. The bucket fills at the rate of the bound, and holds an hour's worth: a
//! burst of that length passes unhindered, and no day exceeds the bound by more than a 24th. Every write to
//! the SSD takes from the bucket, metadata included.
//!
//! While the bucket is empty, nothing goes to the SSD that can go elsewhere: no clean copy, no dirty copy, no
//! move, no new home while a disk has room. A write to a home on the SSD cannot be avoided, and makes a debt,
//! of a day's worth at most: older writes are no part of a day's average. While an SSD is in debt and is
//! still written faster than the bound, homes with writes leave the SSD.
//!
//! Buckets survive a restart, with a state a few minutes old; no bucket fills while no daemon runs. A new
//! policy starts with an hour's worth.
//!
//! An extent moves to an SSD with a bound only if the bucket has room for the move and for an hour of writes
//! to the extent. Otherwise the extents with most writes would come, and leave again in debt.

use super::Equi;
use super::demand::{class, direction};
use super::moves::Gain;
use crate::{BadSetting, Completion, Direction, Move, Settings, View};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};

/// Bound on writes, and the bucket of each SSD.
pub(super) struct Wear {
    /// Drive writes per day.
    per_day: f64,
    /// By device; none for a disk.
    buckets: Vec<Option<Bucket>>,
    seen: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Bytes that may be written; a debt is negative.
    left: f64,
    /// Bytes a second that the bound allows; zero before the first view.
    rate: f64,
    /// Recent bytes written per second.
    written_of_late: f64,
    /// Bytes of data reported by completions since the last plan, without metadata.
    told: u64,
    /// All bytes written up to the last plan.
    counted: u64,
    /// True if `left` was restored from an earlier run.
    is_restored: bool,
    /// Bytes taken from the bucket since `seen`.
    taken: f64,
}

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;
/// Least and largest bound: a page in a life, and the fastest SSD without a pause.
const BOUNDS: std::ops::RangeInclusive<f64> = 0.001..=10_000.0;

impl Wear {
    /// Reads the setting `wear` (none), such as `0.3DWPD`. Fails if the number is outside the limits.
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

    /// Returns the setting for [`Wear::take`] in a simulation in which time passes `haste` times as fast, and
    /// a day is shorter by the same factor.
    pub fn hastened(&self, haste: u32) -> String {
        format!(",wear={}DWPD", (self.per_day * f64::from(haste)).min(*BOUNDS.end()))
    }

    /// Fills the buckets for the time passed.
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
                // Writes before the policy became active do not count.
                bucket.counted = device.written.0;
                bucket.left += if bucket.is_restored { 0.0 } else { rate * HOUR };
            }
            bucket.rate = rate;
            bucket.left = (bucket.left + rate * passed).clamp(-rate * DAY, rate * HOUR);
            let taken = std::mem::take(&mut bucket.taken);
            bucket.written_of_late = bucket.written_of_late * left_of_late + taken / memory;
        }
    }

    /// Counts writes other than data, at each plan.
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

    /// True if avoidable writes to a device are allowed.
    pub fn may_write(&self, device: DeviceId) -> bool {
        self.buckets[device.index()].is_none_or(|bucket| bucket.left > 0.0)
    }

    /// Returns the bytes that an SSD may be written; a debt is negative. None for a disk.
    pub fn left(&self, device: DeviceId) -> Option<f64> {
        self.buckets[device.index()].map(|bucket| bucket.left)
    }

    /// Figures of an SSD; none for a disk.
    pub fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let of_ssd = |left| vec![("wear_left_bytes", left), ("wear_drive_writes_per_day", self.per_day)];
        self.left(device).map(of_ssd).unwrap_or_default()
    }

    /// True if an SSD is in debt, and the debt grows.
    fn wears(&self, device: DeviceId) -> bool {
        self.buckets[device.index()]
            .is_some_and(|bucket| bucket.left < 0.0 && bucket.written_of_late > bucket.rate)
    }

    /// Serialises the bytes left in each bucket, by device: f64, little-endian, NaN for a disk.
    pub fn save(&self) -> Vec<u8> {
        let left = self.buckets.iter().map(|bucket| bucket.map_or(f64::NAN, |bucket| bucket.left));
        left.flat_map(f64::to_le_bytes).collect()
    }

    /// Restores the result of `save`. Values that are not finite, and excess bytes, are ignored.
    pub fn restore(&mut self, state: &[u8]) {
        for (bucket, bytes) in self.buckets.iter_mut().zip(state.chunks_exact(size_of::<f64>())) {
            let left = f64::from_le_bytes(bytes.try_into().expect("a chunk is an f64"));
            if let Some(bucket) = bucket.as_mut().filter(|_| left.is_finite()) {
                (bucket.left, bucket.is_restored) = (left, true);
            }
        }
    }

    /// Returns the reason if a device takes no avoidable writes.
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
    /// Reduces the extents coming to a device to the part with room in the bucket.
    pub(super) fn keep_what_wear_allows(&self, coming: &mut Vec<Gain>, device: DeviceId, view: &View) {
        let Some(mut left) = self.wishes.wear.as_ref().and_then(|wear| wear.left(device)) else { return };
        coming.retain(|gain| {
            // An upper bound: positioning time of the SSD counts as transfer, too.
            let written = self.written_ms(gain.extent, view) / self.constants.transfer * (1 << 20) as f64;
            let takes = view.extent_size.0 as f64 + written * HOUR;
            let fits = takes <= left;
            left -= if fits { takes } else { 0.0 };
            fits
        });
    }

    /// Moves homes with writes off an SSD that wears too fast: first the homes with the least loss per write
    /// time. Only a few leave in each plan, since the remaining writes may be within the bound.
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

    /// Returns the time of an extent's writes on an unloaded SSD, in milliseconds a second.
    fn written_ms(&self, extent: ExtentId, view: &View) -> f64 {
        let known = self.known.value(extent).unwrap_or_default();
        let write = direction(Direction::Write).expect("a write has a place");
        f64::from(known.at(view.now, self.constants.memory)[class(DeviceClass::Ssd)][write])
    }
}
