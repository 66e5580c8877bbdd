//! What a restart would lose: shares, hot extents, and heat, as bytes.
//!
//! ```text
//! offset  size  field
//! 0       1     version: 1
//! 1       1     whether a period has had load
//! 2       2     devices
//! 4       4     hot extents
//! 8       8     guests' requests on average, 4 bytes each: length, share of reads
//! 16      32 d  of each device, 4 bytes each: P, Q, stride, R, a read probe, a write probe, copying a byte: to read it, to write it
//! …       17 h  of each hot extent, most recently used first: extent (4); requests in the last period, in the one before,
//!               on average (4 each); periods for which they are known (1)
//! …       5 n   of each warm extent: extent (4), heat (1)
//! ```
//!
//! Little-endian; fractions are single precision, with NaN for what is not known. Hot extents take half of the room at most: those
//! accessed last. Warm ones take the rest: the hottest. No times are in it, and no tokens: a period begins with the volume.
//! What is read may be anything: a number that is none is not taken, nor is an extent that the volume does not have.

use super::balance::SAVED;
use super::traffic::Requests;
use super::{Balance, Wardrop, renormalise};
use crate::{LONGEST_STATE, View};
use braid_base::ExtentId;

const VERSION: u8 = 1;
const HEADER: usize = 16;
const DEVICE: usize = SAVED * size_of::<f32>();
const HOT: usize = 17;
const WARM: usize = 5;

impl Wardrop {
    pub(super) fn saved(&self) -> Vec<u8> {
        let most = LONGEST_STATE.as_usize();
        let devices = HEADER + DEVICE * self.devices.len();
        let hot = self.hot.len().min((most - devices) / 2 / HOT);
        let mut bytes = Vec::with_capacity(most);
        bytes.extend([VERSION, u8::from(self.loaded)]);
        bytes.extend((self.devices.len() as u16).to_le_bytes());
        bytes.extend((hot as u32).to_le_bytes());
        for number in self.guests.saved().into_iter().chain(self.devices.iter().flat_map(Balance::saved)) {
            bytes.extend((number as f32).to_le_bytes());
        }
        for (extent, requests) in self.hot.values_newest_first().take(hot) {
            let (numbers, known) = requests.saved();
            bytes.extend(extent.0.to_le_bytes());
            numbers.iter().for_each(|&number| bytes.extend((number as f32).to_le_bytes()));
            bytes.push(known);
        }
        self.heat.hottest((most - bytes.len()) / WARM, |extent, level| {
            bytes.extend(extent.0.to_le_bytes());
            bytes.push(level);
        });
        bytes
    }

    pub(super) fn restore_saved(&mut self, state: &[u8], view: &View) {
        let mut rest = state;
        // What a truncated state lacks at its end is not known.
        let _end = self.take_saved(&mut rest, view.homes.extents());
    }

    /// None at the end of the bytes, wherever that is.
    fn take_saved(&mut self, rest: &mut &[u8], extents: u32) -> Option<()> {
        let [version, loaded] = take(rest)?;
        if version != VERSION {
            return None;
        }
        let devices = u16::from_le_bytes(take(rest)?);
        let hot = u32::from_le_bytes(take(rest)?);
        if usize::from(devices) != self.devices.len() {
            return None;
        }
        let guests = [take_number(rest)?, take_number(rest)?];
        let floor = self.settings.floor;
        let mut balances = self.devices.clone();
        for balance in &mut balances {
            let mut numbers = [0.0; SAVED];
            for number in &mut numbers {
                *number = take_number(rest)?;
            }
            balance.restore(numbers, floor);
        }
        renormalise(&mut balances, floor, |d| &mut d.target);
        (self.devices, self.loaded) = (balances, loaded == 1);
        self.guests.restore(guests);
        let mut found = Vec::new();
        for _ in 0..hot {
            let extent = ExtentId(u32::from_le_bytes(take(rest)?));
            let numbers = [take_number(rest)?, take_number(rest)?, take_number(rest)?];
            let [known] = take(rest)?;
            if extent.0 < extents {
                found.push((extent, Requests::restored(numbers, known)));
            }
        }
        let most = self.settings.hot;
        for (extent, requests) in found.into_iter().take(most).rev() {
            *self.hot.touch_value(extent, most) = requests;
        }
        loop {
            let extent = ExtentId(u32::from_le_bytes(take(rest)?));
            let [level] = take(rest)?;
            if extent.0 < extents {
                self.heat.set_level(extent, level);
            }
        }
    }
}

/// The next bytes; none if there are not so many.
fn take<const LEN: usize>(rest: &mut &[u8]) -> Option<[u8; LEN]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn take_number(rest: &mut &[u8]) -> Option<f64> {
    take(rest).map(|bytes| f64::from(f32::from_le_bytes(bytes)))
}
