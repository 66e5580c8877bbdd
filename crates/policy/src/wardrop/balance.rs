//! One device's side of the equilibrium: its response time R, its share Q, and the share P that it shall have next.

use super::constants::Constants;
use super::response::Asked;
use crate::Direction;
use braid_base::Bytes;

/// What is known of one device.
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    /// R_d in milliseconds, exponentially averaged over guests' requests; unknown while there are none.
    pub response_ms: Option<f64>,
    /// The mean of guests' requests in the last period that had any.
    last_ms: Option<f64>,
    /// What guests asked in this period.
    pub asked: Asked,
    /// What is remembered of the periods before.
    asked_before: Asked,
    /// What probes say: of reads, of writes.
    pub probed_ms: [Option<f64>; 2],
    /// What a copied byte takes, in milliseconds: to read, to write.
    copying_ms: [Option<f64>; 2],
    /// Q_d of the last period with load.
    pub share: f64,
    /// P_d.
    pub target: f64,
    /// What `step` is multiplied by: more than 1 after steps in one direction, less after turns.
    stride: f64,
    /// Whether the last step was up.
    rising: Option<bool>,
    /// For how many periods more a turn means nothing.
    settling: u8,
    /// How many requests of guests it had in flight in the last period, on average.
    pub in_flight: f64,
    /// The share that hot extents shall bring about in this period.
    pub next: f64,
    /// What may still come here in this period, or, below 0, leave, in parts of the load: β of them are all of it.
    pub tokens: f64,
    /// What whole tokens have left of earlier periods.
    carried: f64,
    /// For how many periods before this one it was slower than the mean, or P the floor.
    pub behind: u32,
    /// What is due to it of the allocations that follow P.
    pub credit: f64,
    /// Whether it sheds cold extents.
    pub shedding: bool,
}

/// How far the mean of one period counts at most: response times of one period scatter, and shares must not follow that.
const FOLLOWED_MOST: f64 = 0.4;
/// Background work on less is of the journal or the map.
const SMALLEST_COPY: Bytes = Bytes(32 << 10);
/// Weight of one copy in the average.
const COPY_WEIGHT: f64 = 0.05;
/// How far P is ahead of Q at most.
const FARTHEST_AHEAD: f64 = 0.25;
/// Response times that are less apart, relative to the greater one, are near enough to equilibrium for strides not to grow.
const ALIKE: f64 = 0.2;
/// Strides: how they grow and shrink, and their bounds, of which the first stride is the upper one: a volume begins far from
/// equilibrium.
const STRIDE_GROWTH: f64 = 1.2;
const STRIDE_TURN: f64 = 0.4;
const STRIDES: (f64, f64) = (0.1, 1.5);
/// For so many periods after a load has grown turns shorten no stride: what guests begin with is not what they go on with.
const SETTLING: u8 = 4;
/// How many numbers are kept of a device when the volume is closed.
pub const SAVED: usize = 8;

impl Balance {
    /// A device of which nothing is known, with a first P.
    pub fn new(target: f64) -> Balance {
        Balance {
            response_ms: None,
            last_ms: None,
            asked: Asked::default(),
            asked_before: Asked::default(),
            probed_ms: [None; 2],
            copying_ms: [None; 2],
            share: 0.0,
            target,
            stride: STRIDES.1,
            rising: None,
            settling: 0,
            in_flight: 0.0,
            next: target,
            tokens: 0.0,
            carried: 0.0,
            behind: 0,
            credit: 0.0,
            shedding: false,
        }
    }

    /// What is kept when the volume is closed; NaN for what is not known. See [`Balance::restore`].
    pub fn saved(&self) -> [f64; SAVED] {
        let [read, write] = self.probed_ms;
        let [copy_read, copy_written] = self.copying_ms;
        let known = [self.response_ms, read, write, copy_read, copy_written].map(|ms| ms.unwrap_or(f64::NAN));
        let [response, read, write, copy_read, copy_written] = known;
        [self.target, self.share, self.stride, response, read, write, copy_read, copy_written]
    }

    /// Takes back what [`Balance::saved`] returned, whatever it is: a number that cannot be is not taken.
    pub fn restore(&mut self, saved: [f64; SAVED], floor: f64) {
        let [target, share, stride, response, read, write, copy_read, copy_written] = saved;
        let within = |number: f64, low: f64, high: f64, now: f64| match number.is_finite() {
            true => number.clamp(low, high),
            false => now,
        };
        let known = |ms: f64| (ms.is_finite() && ms >= 0.0).then_some(ms);
        self.target = within(target, floor, 1.0, self.target);
        self.next = self.target;
        self.share = within(share, 0.0, 1.0, self.share);
        self.stride = within(stride, STRIDES.0, STRIDES.1, self.stride);
        self.response_ms = known(response);
        self.probed_ms = [known(read), known(write)];
        self.copying_ms = [known(copy_read), known(copy_written)];
    }

    /// R_d in milliseconds: of guests, or else of probes, as guests mix reads and writes.
    pub fn response_ms(&self, read_share: f64) -> Option<f64> {
        self.response_ms.or(match self.probed_ms {
            [Some(read), Some(write)] => Some(read_share * read + (1.0 - read_share) * write),
            [one, other] => one.or(other),
        })
    }

    /// What it takes for a request while it has no other, by the arrival theorem.
    pub fn service_ms(&self, read_share: f64) -> Option<f64> {
        self.response_ms(read_share).map(|response| response / (1.0 + self.in_flight))
    }

    /// As [`Balance::response_ms`], but of guests in the last period alone.
    pub fn last_ms(&self, read_share: f64) -> Option<f64> {
        self.last_ms.or_else(|| self.response_ms(read_share))
    }

    /// Takes note of background work.
    pub fn learn_copying(&mut self, direction: Direction, len: Bytes, taken_ms: f64) {
        if len < SMALLEST_COPY {
            return;
        }
        let sample = taken_ms / len.0 as f64;
        let average = self.copying_ms[usize::from(direction != Direction::Read)].get_or_insert(sample);
        *average += COPY_WEIGHT * (sample - *average);
    }

    /// How long the device takes to read or write `len` of a copy, in milliseconds; as long as a guest's request where
    /// nothing was copied yet.
    pub fn copying_ms(&self, direction: Direction, len: Bytes, response_ms: f64) -> f64 {
        let known = self.copying_ms[usize::from(direction != Direction::Read)];
        known.map_or(response_ms, |per_byte| per_byte * len.0 as f64)
    }

    /// Q_d and R_d at the end of a period in which guests asked `mix` of all devices. Where their load has `grown`,
    /// what was says little, and equilibrium may be far.
    pub fn end_period(&mut self, mix: &Asked, read_share: f64, grown: bool, constants: &Constants) {
        let asked = std::mem::take(&mut self.asked);
        let requests = asked.requests();
        self.share = requests / mix.requests();
        if requests == 0.0 {
            // What guests saw before is no news; the probes are.
            (self.response_ms, self.last_ms) = (None, None);
        } else if !constants.as_in_the_paper() {
            self.last_ms = asked.response_ms(&self.asked_before, mix);
            let before = self.response_ms(read_share).or(self.last_ms);
            let most = if grown { 1.0 } else { FOLLOWED_MOST };
            let followed = (1.0 - (1.0 - constants.weight).powf(requests)).min(most);
            let followed = |(before, last_ms): (f64, f64)| before + followed * (last_ms - before);
            self.response_ms = before.zip(self.last_ms).map(followed);
        }
        self.settling = if grown { SETTLING } else { self.settling.saturating_sub(1) };
        if grown {
            self.stride = self.stride.max(1.0);
        }
        self.asked_before = asked.and(&self.asked_before).remembered();
    }

    /// P_d, before all of them are made to add up to 1: equation (1). Without `go_on` the last P says nothing.
    pub fn aim(&mut self, average: Against, last: Against, go_on: bool, constants: &Constants) {
        let Constants { alpha, floor, step, .. } = *constants;
        let share = self.share.max(floor);
        if constants.as_in_the_paper() {
            self.target = share + alpha * (average.mean_ms - average.response_ms) * share;
            self.next = self.target;
        } else {
            let apart = agreed(average.apart(), last.apart());
            let change = step * self.stride(apart) * apart;
            let base = match go_on {
                false => share,
                true if change > 0.0 => share.max(self.target),
                true => share.min(self.target),
            };
            self.target = (base + change).clamp(share - FARTHEST_AHEAD, share + FARTHEST_AHEAD);
            self.next = self.share + change;
        }
        self.target = self.target.clamp(floor, 1.0);
        self.next = self.next.clamp(floor, 1.0);
    }

    /// The tokens of a period: β times how far its share shall move. What is not a whole one counts in the next period.
    pub fn take_tokens(&mut self, constants: &Constants) {
        let due = (self.next - self.share) * constants.beta + self.carried;
        self.tokens = due.round();
        if !constants.as_in_the_paper() {
            self.carried = due - self.tokens;
        }
    }

    /// P_d under a load of which little else is known, if it lies the way that equation (1) says.
    pub fn expect(&mut self, share: f64) {
        let (aimed, expected) = (self.target - self.share, share - self.share);
        if aimed * expected > 0.0 {
            let change = aimed.abs().max(expected.abs().min(FARTHEST_AHEAD));
            self.target = self.share + change.copysign(aimed);
        }
    }

    /// Counts the last period, if the device was not wanted in it.
    pub fn count_behind(&mut self, floor: f64) {
        let wanted = self.rising != Some(false) && self.target > floor;
        self.behind = if wanted { 0 } else { self.behind.saturating_add(1) };
    }

    /// The stride for response times that are `apart`, relative to the greater one.
    fn stride(&mut self, apart: f64) -> f64 {
        if apart == 0.0 {
            return self.stride;
        }
        let factor = match self.rising.replace(apart > 0.0) {
            _ if self.settling > 0 => 1.0,
            Some(rising) if rising != (apart > 0.0) => STRIDE_TURN,
            Some(_) if apart.abs() > ALIKE => STRIDE_GROWTH,
            _ => 1.0,
        };
        self.stride = (self.stride * factor).clamp(STRIDES.0, STRIDES.1);
        self.stride
    }
}

/// The response time of a device, and the mean of all devices by their shares.
#[derive(Clone, Copy)]
pub struct Against {
    pub response_ms: f64,
    pub mean_ms: f64,
}

impl Against {
    /// How far the device is ahead of the mean, relative to the greater of both.
    fn apart(self) -> f64 {
        (self.mean_ms - self.response_ms) / self.mean_ms.max(self.response_ms).max(1e-9)
    }
}

/// Shares with which all devices that are asked anything answer equally quickly, while `in_flight` requests are in flight: by the
/// arrival theorem of queueing theory, R_d = S_d (1 + L_d), for devices that take S_d for a request alone and have L_d in flight.
/// A rough guess, for devices do not all queue like this; it is where to begin.
pub fn equilibrium(service_ms: &[f64], in_flight: f64) -> Vec<f64> {
    let speed = |d: usize| 1.0 / service_ms[d].max(1e-6);
    let mut used: Vec<usize> = (0..service_ms.len()).collect();
    used.sort_by(|&a, &b| speed(b).total_cmp(&speed(a)));
    // A device that is slower alone than the others under their load is asked for nothing.
    let response_ms =
        |used: &[usize]| (in_flight + used.len() as f64) / used.iter().map(|&d| speed(d)).sum::<f64>();
    while used.len() > 1 && used.last().is_some_and(|&d| service_ms[d] >= response_ms(&used)) {
        used.pop();
    }
    let response_ms = response_ms(&used);
    let mut shares = vec![0.0; service_ms.len()];
    for d in used {
        shares[d] = (response_ms * speed(d) - 1.0) / in_flight.max(1e-9);
    }
    shares
}

/// What is true of both: the smaller of two differences in the same direction, and nothing of two that point apart.
fn agreed(one: f64, other: f64) -> f64 {
    if one * other <= 0.0 { 0.0 } else { one.abs().min(other.abs()).copysign(one) }
}

/// Makes one kind of share of all devices add up to 1 with none below the floor.
pub fn renormalise(devices: &mut [Balance], floor: f64, share: impl Fn(&mut Balance) -> &mut f64) {
    let spare: f64 = devices.iter_mut().map(|d| *share(d) - floor).sum();
    let (room, even) = (1.0 - floor * devices.len() as f64, 1.0 / devices.len() as f64);
    for device in devices.iter_mut() {
        let share = share(device);
        let above = if spare > 0.0 { (*share - floor) / spare } else { even };
        *share = floor + above * room;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn against(response_ms: f64, mean_ms: f64) -> Against {
        Against { response_ms, mean_ms }
    }

    #[test]
    fn a_first_guess_gives_equal_response_times_by_the_arrival_theorem() {
        let alike = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(alike(&equilibrium(&[1.0, 1.0], 7.0), &[0.5, 0.5]));
        let shares = equilibrium(&[0.25, 0.75], 4.0);
        let response = |d: usize, service: f64| service * (1.0 + shares[d] * 4.0);
        assert!((response(0, 0.25) - response(1, 0.75)).abs() < 1e-9, "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
        assert!(alike(&equilibrium(&[2.0, 0.1, 0.1], 1.0), &[0.0, 0.5, 0.5]));
        assert!(alike(&equilibrium(&[0.3, 0.1], 0.5), &[0.0, 1.0]));
        assert!(alike(&equilibrium(&[0.3], 0.5), &[1.0]));
    }

    #[test]
    fn a_step_is_as_long_as_the_average_and_the_last_period_agree_on() {
        let (far, near, slower) =
            (against(1.0, 4.0).apart(), against(1.0, 2.0).apart(), against(4.0, 2.0).apart());
        assert_eq!((far, near, slower), (0.75, 0.5, -0.5));
        assert_eq!((agreed(far, near), agreed(near, far)), (0.5, 0.5));
        assert_eq!((agreed(far, slower), agreed(0.0, far)), (0.0, 0.0));
        assert_eq!(agreed(-0.75, slower), -0.5);
    }
}
