//! In which order the channels of an SSD come up: the busy ones by the time at which to look at them again, then the idle
//! ones, the first of them idle for longest.
//!
//! Programs take about the same time each, so that those that begin together mostly belong behind all other busy ones; one
//! that is put off for a read belongs near their front, and is passed along from there.
//!
//! All channels stand in one row, which moves through the memory as those at its front go idle and stand behind the last,
//! so that there is no wrap to look after. At the end of the memory, which is seldom, the row moves back to the start.

use braid_base::Nanos;

/// All channels of a drive, by number.
#[derive(Clone, Debug)]
pub struct Rota {
    places: Vec<(Nanos, u32)>,
    /// Where the row begins.
    first: usize,
    channels: usize,
    /// How many of them are busy. The time of the others is the end of time.
    busy: usize,
}

impl Rota {
    /// So many channels, all idle, in order of number.
    pub fn new(channels: u32) -> Rota {
        let mut places: Vec<_> = (0..channels).map(|at| (Nanos::MAX, at)).collect();
        places.resize(4 * places.len(), (Nanos::MAX, 0));
        Rota { places, first: 0, channels: channels as usize, busy: 0 }
    }

    /// The first busy channel, and when to look at it; at the end of time if none is busy.
    #[inline]
    pub fn next(&self) -> (Nanos, u32) {
        self.places[self.first]
    }

    /// Whether a channel is idle.
    #[inline]
    pub fn has_idle(&self) -> bool {
        self.busy < self.channels
    }

    /// Idle channels are busy from now on, the longest idle first, each until what `until` says of it, as long as that says
    /// something.
    #[inline]
    pub fn begin(&mut self, mut until: impl FnMut(u32) -> Option<Nanos>) {
        let row = &mut self.places[self.first..][..self.channels];
        let mut sorted = self.busy;
        while let Some((time, at)) = row.get_mut(self.busy)
            && let Some(until) = until(*at)
        {
            *time = until;
            self.busy += 1;
        }
        while sorted < self.busy {
            let end = self.busy.min(sorted + FEW);
            merge(&mut row[..end], sorted);
            sorted = end;
        }
    }

    /// The first busy channel is idle.
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

    /// Moves the row, but for the last, to the start of the memory.
    #[cold]
    fn move_back(&mut self, last: (Nanos, u32)) {
        self.places.copy_within(self.first.., 0);
        self.places[self.channels - 1] = last;
        self.first = 0;
    }

    /// The first busy channel is busy until then, which comes no earlier.
    #[inline]
    pub fn put_off(&mut self, until: Nanos) {
        let row = &mut self.places[self.first..][..self.busy];
        if self.busy == self.channels && until >= row[row.len() / 2].0 {
            // Then no idle one stands where it belongs.
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

/// Passes the last along to where it belongs: those before are in order.
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

/// So many channels are put in order at a time: most writes begin programs on no more.
const FEW: usize = 8;
/// What tells that many apart; times of the next seventy years leave as much room.
const TURN_BITS: u32 = FEW.ilog2();

/// Puts the last few in order, and among those before, which are.
#[inline]
fn merge(row: &mut [(Nanos, u32)], sorted: usize) {
    let few = &row[sorted..];
    if few.len() == 1 {
        return pass_along(row);
    }
    let (mut keys, mut channels, mut times) = ([u64::MAX; FEW], [0; FEW], 0);
    for (turn, (time, at)) in few.iter().enumerate().take(FEW) {
        (keys[turn], channels[turn]) = (time.0 << TURN_BITS | turn as u64, *at);
        times |= time.0;
    }
    assert!(times.leading_zeros() >= TURN_BITS, "a program ends in more than seventy years");
    let keys = sort(keys);
    let (mut before, mut left) = (sorted, few.len());
    while left > 0 {
        let key = keys[(left - 1) % FEW];
        let last = (Nanos(key >> TURN_BITS), channels[key as usize % FEW]);
        if before > 0 && row[before - 1].0 > last.0 {
            row[before + left - 1] = row[before - 1];
            before -= 1;
        } else {
            row[before + left - 1] = last;
            left -= 1;
        }
    }
}

/// Sorts by exchanges that are always the same, a network of Batcher's: which program ends first is chance, and a processor
/// that has to guess mostly guesses wrong.
#[inline]
fn sort([a, b, c, d, e, f, g, h]: [u64; FEW]) -> [u64; FEW] {
    let order = |one: u64, other: u64| (one.min(other), one.max(other));
    let ((a, b), (c, d), (e, f), (g, h)) = (order(a, b), order(c, d), order(e, f), order(g, h));
    let ((a, c), (b, d), (e, g), (f, h)) = (order(a, c), order(b, d), order(e, g), order(f, h));
    let ((b, c), (f, g)) = (order(b, c), order(f, g));
    let ((a, e), (b, f), (c, g), (d, h)) = (order(a, e), order(b, f), order(c, g), order(d, h));
    let ((c, e), (d, f)) = (order(c, e), order(d, f));
    let ((b, c), (d, e), (f, g)) = (order(b, c), order(d, e), order(f, g));
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;
    use std::collections::VecDeque;

    #[test]
    fn busy_channels_come_by_time_and_then_by_turn_and_idle_ones_by_how_long_they_are() {
        for channels in [1, 2, 5, 40] {
            let (mut rota, mut rng) = (Rota::new(channels), Rng::new(u64::from(channels)));
            let (mut idle, mut busy): (VecDeque<u32>, Vec<(Nanos, u32)>) =
                ((0..channels).collect(), Vec::new());
            for step in 0..20_000u64 {
                assert_eq!(rota.next().0, busy.first().map_or(Nanos::MAX, |first| first.0));
                // Few times, so that many are the same.
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
