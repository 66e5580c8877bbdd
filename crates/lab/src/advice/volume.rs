//! Contents and layout of the volume before the load begins.
//!
//! A volume in use begins in its present state: requests at their own addresses, the present layout as far as
//! known, and untouched data beside the touched data. Other sizes of the SSD, and a recording without a
//! volume, begin anew: the touched extents are contiguous, and the usual neutral policy places the data
//! (`fill.rs`).

use super::window::Window;
use crate::{Error, Recorded, Result};
use braid_base::{Arrival, Bytes, Nanos};
use std::ops::Range;
use std::sync::Arc;

/// A volume in use.
#[derive(Clone, PartialEq, Debug)]
pub struct InUse {
    /// Size of the volume.
    pub size: Bytes,
    /// Data that has a home.
    pub mapped: Bytes,
    /// Mapped data on SSDs.
    pub on_ssd: Bytes,
    /// Touched extents ([`Window::touched`]) with homes on SSDs, by number, in order; `None` if unknown.
    pub touched_on_ssd: Option<Vec<u64>>,
    /// Touched extents without data, by number, in order: reading them takes no time.
    pub touched_empty: Vec<u64>,
    /// True if the policy chooses among modes; the question has the present mode. The other modes then need
    /// no advice.
    pub chooses_mode: bool,
}

/// Initial state of a load.
#[derive(Clone)]
pub(crate) struct Beginning {
    pub load: Arc<Recorded>,
    /// Recorded time left out before the load.
    pub left_out: Nanos,
    pub size: Option<Bytes>,
    pub on_ssd: Option<Vec<Range<Bytes>>>,
}

/// Number of parts of the requests: further runs begin at other parts.
const PARTS: usize = 40;
/// Most extents without requests in a simulation: each costs a write before the load begins.
const MOST_COLD: u64 = 1 << 18;

impl Beginning {
    /// A new volume: the touched extents are contiguous, followed by the rest of `data`.
    pub fn anew(window: &Window, data: Bytes) -> Beginning {
        let cold = cold(window, data);
        let span = window.extent * (window.extents + cold);
        let filled = vec![Bytes::ZERO..span];
        Beginning {
            load: recorded(window, &window.compacted, span, filled),
            left_out: Nanos::ZERO,
            size: None,
            on_ssd: None,
        }
    }

    /// The volume in its present state.
    ///
    /// # Errors
    /// `Setup` if the recording is not of this volume.
    pub fn now(window: &Window, volume: &InUse) -> Result<Beginning> {
        let Window { name, extent, .. } = window;
        let elsewhere = |why: String| {
            Err(Error::setup(format!(
                "{name} {why}, so the file is not a recording of this volume: give a recording of this \
                 volume, or leave the volume's name out and name devices with --ssd and --hdd"
            )))
        };
        let Some(touched) = window.touched() else {
            return elsewhere("has several devices, or touches too many extents".to_owned());
        };
        if window.end() > volume.size || touched.last().is_some_and(|last| *extent * *last >= volume.size) {
            return elsewhere(format!("has requests beyond the {} of the volume", volume.size));
        }
        let filler = untouched(touched, volume.size / *extent, cold(window, volume.mapped));
        let listed = volume.touched_on_ssd.as_ref().map(|hot| {
            let left = (volume.on_ssd / *extent).saturating_sub(hot.len() as u64).min(filler.len() as u64);
            let of_filler = (0..left).map(|number| filler[(number * filler.len() as u64 / left) as usize]);
            ranges(hot.iter().copied().chain(of_filler), *extent, volume.size)
        });
        let is_filled = |extent: &u64| volume.touched_empty.binary_search(extent).is_err();
        let all = touched.iter().copied().filter(is_filled).chain(filler);
        let filled = ranges(all, *extent, volume.size);
        let load = recorded(window, &window.placed, volume.size, filled);
        Ok(Beginning { load, left_out: Nanos::ZERO, size: Some(volume.size), on_ssd: listed })
    }

    /// The same, a little later: `number` fortieths of the requests are left out.
    pub fn later(&self, number: usize) -> Beginning {
        let arrivals = &self.load.arrivals[number * self.load.arrivals.len() / PARTS..];
        let left_out = arrivals.first().map_or(Nanos::ZERO, |first| first.at);
        let at = |arrival: &Arrival| Arrival { at: arrival.at - left_out, ..*arrival };
        let load = Recorded { arrivals: arrivals.iter().map(at).collect(), ..(*self.load).clone() };
        Beginning { load: Arc::new(load), left_out, ..self.clone() }
    }
}

fn recorded(window: &Window, arrivals: &[Arrival], span: Bytes, filled: Vec<Range<Bytes>>) -> Arc<Recorded> {
    Arc::new(Recorded { name: window.name.clone(), arrivals: arrivals.to_vec(), span, filled })
}

/// Number of simulated extents with data and without requests.
fn cold(window: &Window, data: Bytes) -> u64 {
    (data / window.extent).saturating_sub(window.extents).min(MOST_COLD)
}

/// Picks `count` untouched extents of a volume, in order, evenly spread.
fn untouched(touched: &[u64], extents: u64, count: u64) -> Vec<u64> {
    let free = extents.saturating_sub(touched.len() as u64);
    let count = count.min(free);
    // The n-th free extent, found by walking both lists.
    let (mut found, mut passed) = (Vec::with_capacity(count as usize), 0);
    for number in 0..count {
        let rank = (u128::from(number) * u128::from(free) / u128::from(count)) as u64;
        while touched.get(passed).is_some_and(|&extent| extent <= rank + passed as u64) {
            passed += 1;
        }
        found.push(rank + passed as u64);
    }
    found
}

fn ranges(extents: impl Iterator<Item = u64>, extent: Bytes, size: Bytes) -> Vec<Range<Bytes>> {
    let mut extents: Vec<u64> = extents.collect();
    extents.sort_unstable();
    let mut ranges = crate::corpus::ranges(extents, extent);
    if let Some(last) = ranges.last_mut() {
        last.end = last.end.min(size);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::window::tests::{read_at, recording};
    use braid_trace::Options;

    /// Extents 0, 8 … 72 are touched; the volume has 100, of which 30 hold data.
    fn begun(touched_on_ssd: Option<Vec<u64>>, touched_empty: Vec<u64>) -> Beginning {
        let (folder, extent) = (tempfile::tempdir().unwrap(), Bytes(128 << 10));
        let all: Vec<Arrival> = (0..200).map(|n| read_at(n % 10, n)).collect();
        let path = recording(folder.path(), &all);
        let window = Window::read(&path, &Options::default(), extent, 1000).unwrap();
        let (size, mapped, on_ssd) = (extent * 100, extent * 30, extent * 12);
        let volume = InUse { size, mapped, on_ssd, touched_on_ssd, touched_empty, chooses_mode: false };
        Beginning::now(&window, &volume).unwrap()
    }

    fn extents(ranges: &[Range<Bytes>]) -> Vec<u64> {
        ranges.iter().flat_map(|range| range.start.0 >> 17..range.end.0 >> 17).collect()
    }

    #[test]
    fn used_volume_starts_with_recorded_layout_and_cold_data() {
        let begun = begun(Some(vec![8, 16]), vec![72]);
        let (filled, on_ssd) = (extents(&begun.load.filled), extents(&begun.on_ssd.unwrap()));
        // 20 untouched extents beside the touched extents, one of them without data.
        assert_eq!((filled.len(), begun.size), (29, Some(Bytes(100 << 17))));
        assert!([0, 8, 64].iter().all(|extent| filled.contains(extent)) && !filled.contains(&72));
        // Of twelve extents on SSDs two are touched.
        let touched: Vec<u64> =
            on_ssd.iter().copied().filter(|extent| extent % 8 == 0 && *extent < 80).collect();
        assert_eq!((on_ssd.len(), touched), (12, vec![8, 16]));
        assert!(on_ssd.iter().all(|extent| filled.contains(extent)));
    }

    #[test]
    fn an_unknown_layout_is_left_to_the_neutral_policy_and_a_later_run_begins_later() {
        let begun = begun(None, Vec::new());
        assert_eq!((begun.on_ssd.clone(), begun.load.data()), (None, Bytes(30 << 17)));
        let later = begun.later(2);
        assert_eq!((later.left_out, later.load.arrivals.len()), (Nanos::from_millis(10), 190));
        assert_eq!(
            (later.load.arrivals[0].at, later.load.filled.len()),
            (Nanos::ZERO, begun.load.filled.len())
        );
    }

    #[test]
    fn untouched_extents_are_spread_between_touched_extents() {
        assert_eq!(untouched(&[0, 1, 5], 10, 7), [2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(untouched(&[0, 1, 5], 10, 2), [2, 6]);
        assert_eq!(untouched(&[0, 1, 5], 10, 100).len(), 7);
        assert_eq!((untouched(&[0, 1], 2, 5), untouched(&[], 4, 2)), (vec![], vec![0, 2]));
    }
}
