//! The order of an SSD's channels: first the busy channels by the time of their next look, then the idle
//! channels, idle for longest first.
//!
//! Programs take about the same time, and programs that begin together take the same time. A new busy channel
//! therefore mostly belongs behind all other busy channels. A channel delayed by a read belongs near their
//! front, and is moved from the front to its place.
//!
//! All channels form one row, which moves through the memory: channels at its front become idle and go behind
//! the last channel. The row therefore never wraps. At the end of the memory, which is rare, the row moves
//! back to the start.

use braid_base::Nanos;

/// All channels of a drive, by number.
#[derive(Clone, Debug)]
pub struct Rota {
    places: Vec<(Nanos, u32)>,
    /// Start of the row.
    first: usize,
    channels: usize,
    /// Busy channels. The time of idle channels is `Nanos::MAX`.
    busy: usize,
}

impl Rota {
    /// `channels` channels, all idle, in order of number.
    pub fn new(channels: u32) -> Rota {
        let mut places: Vec<_> = (0..channels).map(|at| (Nanos::MAX, at)).collect();
        places.resize(4 * places.len(), (Nanos::MAX, 0));
        Rota { places, first: 0, channels: channels as usize, busy: 0 }
    }

    /// The first busy channel and the time of its next look; `Nanos::MAX` if no channel is busy.
    #[inline]
    pub fn next(&self) -> (Nanos, u32) {
        self.places[self.first]
    }

    /// True if a channel is idle.
    #[inline]
    pub fn has_idle(&self) -> bool {
        self.busy < self.channels
    }

    /// Makes idle channels busy, idle for longest first, each until the time that `until` returns, up to the
    /// first `None`.
    #[inline]
    pub fn begin(&mut self, mut until: impl FnMut(u32) -> Option<Nanos>) {
        let row = &mut self.places[self.first..][..self.channels];
        while let Some((time, at)) = row.get_mut(self.busy)
            && let Some(until) = until(*at)
        {
            *time = until;
            self.busy += 1;
            pass_along(&mut row[..self.busy]);
        }
    }

    /// Makes the first busy channel idle.
    #[inline]
    pub fn rest(&mut self) {
        let resting = (Nanos::MAX, self.places[self.first].1);
        self.first += 1;
        self.busy -= 1;
        match self.places.get_mut(self.first + self.channels - 1) {
            Some(last) => *last = resting,
            None => self.move_back(resting),
        }
    }

    /// Moves the row, except the last channel, to the start of the memory.
    #[cold]
    fn move_back(&mut self, last: (Nanos, u32)) {
        self.places.copy_within(self.first.., 0);
        self.places[self.channels - 1] = last;
        self.first = 0;
    }

    /// Keeps the first busy channel busy until `until`, which is not earlier than its present time.
    #[inline]
    pub fn put_off(&mut self, until: Nanos) {
        let row = &mut self.places[self.first..][..self.busy];
        if self.busy == self.channels && until >= row[row.len() / 2].0 {
            // No idle channel then stands at the new place.
            self.rest();
            let row = &mut self.places[self.first..][..self.channels];
            row[self.busy].0 = until;
            pass_along(row);
            self.busy += 1;
            return;
        }
        let (mut place, at) = (0, row[0].1);
        while place + 1 < row.len() && row[place + 1].0 <= until {
            row[place] = row[place + 1];
            place += 1;
        }
        row[place] = (until, at);
    }

    /// The busy channels in order, with the time of each.
    pub fn busy(&self) -> &[(Nanos, u32)] {
        &self.places[self.first..][..self.busy]
    }
}

/// Moves the last entry to its place: the entries before are in order.
#[inline]
fn pass_along(row: &mut [(Nanos, u32)]) {
    let Some((&mut last, before)) = row.split_last_mut() else { return };
    let mut place = before.len();
    while place > 0 && row[place - 1].0 > last.0 {
        row[place] = row[place - 1];
        place -= 1;
    }
    row[place] = last;
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;
    use std::collections::VecDeque;

    #[test]
    fn busy_channels_are_sorted_by_time_idle_by_wait() {
        for channels in [1, 2, 5, 40] {
            let (mut rota, mut rng) = (Rota::new(channels), Rng::new(u64::from(channels)));
            let (mut idle, mut busy): (VecDeque<u32>, Vec<(Nanos, u32)>) =
                ((0..channels).collect(), Vec::new());
            for step in 0..20_000u64 {
                assert_eq!(rota.next().0, busy.first().map_or(Nanos::MAX, |first| first.0));
                // Few distinct times, so many channels share a time.
                let mut insert = |busy: &mut Vec<_>, at, no_earlier: Nanos| {
                    let until = no_earlier + Nanos(rng.below(12));
                    busy.insert(busy.partition_point(|other: &(Nanos, u32)| other.0 <= until), (until, at));
                    until
                };
                match step * 7 % 11 {
                    0..=4 if !idle.is_empty() => {
                        let mut several = step % 23;
                        rota.begin(|at| {
                            several = several.checked_sub(1)?;
                            assert_eq!(idle.pop_front(), Some(at));
                            Some(insert(&mut busy, at, Nanos(step / 10)))
                        });
                    }
                    5..=7 if !busy.is_empty() => {
                        let (time, at) = busy.remove(0);
                        assert_eq!(rota.next(), (time, at));
                        rota.put_off(insert(&mut busy, at, time));
                    }
                    _ if !busy.is_empty() => {
                        idle.push_back(busy.remove(0).1);
                        rota.rest();
                    }
                    _ => {}
                }
                assert_eq!(rota.busy(), busy, "{channels} channels, after step {step}");
            }
        }
    }
}
