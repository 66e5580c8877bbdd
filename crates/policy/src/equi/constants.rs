//! All numbers that the rule assumes, each with its reason. They are settings for research alone, as
//! `research.memory`: `equi-sweep` measures what half and double of each do (docs/benchmarks.md).

use super::demand::Speed;
use crate::{BadSetting, Settings};
use braid_base::{DeviceClass, Nanos};

/// See above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// How fast what was asked for is forgotten, and what devices were like: longer than pauses between
    /// bursts, shorter than a phase of a load.
    pub memory: Nanos,
    /// The time in which a move must have gained more than it costs. Loads that go on for ever want a long
    /// one, traces of bursts a short one.
    pub horizon: Nanos,
    /// Plans in a horizon: often enough to follow a load, seldom enough to cost nothing.
    pub plans: f64,
    /// Extents of which something is remembered. A plan looks at all of them and at those between neighbours,
    /// and guests wait meanwhile.
    pub known: f64,
    /// Extents of a group, which lend each other half of their mean: what little is asked of one of them, its
    /// neighbours confirm. A group is also what is planned as one piece: 1 MiB of extents of the usual size.
    pub group: f64,
    /// Ends of requests that are remembered: as many as streams that a disk's own buffer may follow.
    pub streams: f64,
    /// What is only guessed counts until there are so many observations, and devices are probed as often
    /// before guests have to do it.
    pub guessed: f64,
    /// Requests by which moves judge a device, at least: many, so that what bursts do is not forgotten
    /// between them.
    pub long: f64,
    /// Requests by which shares judge a device, and comparisons by which demands of a size are judged: few,
    /// since guests come and go.
    pub short: f64,
    /// What differs by less than this factor may be chance: devices are alike, a swap must gain as many times
    /// its price, what has moved rests for as many horizons, and demands are not believed to grow by more. An
    /// extent returns from an SSD that is not saturated only if it costs more there by the square of this
    /// factor.
    pub margin: f64,
    /// By how much a share of new extents changes from one plan to the next at most, as an exponent of e: a
    /// factor of 7 in a horizon. In one plan, this part of the known extents returns from SSDs that are not
    /// saturated, at most.
    pub step: f64,
    /// The least share of new extents for a device, so that it can grow again, and of its slots that new
    /// extents leave to moves, and homes to copies before these need them.
    pub least: f64,
    /// What guests wait for each millisecond that an idle device works for a move: something may come.
    pub idle: f64,
    /// Milliseconds that a disk takes to position, an SSD to position, and either to transfer 1 MiB: a seek
    /// and half a turn, the read of a page, 100 MB/s.
    pub disk: f64,
    pub ssd: f64,
    pub transfer: f64,
}

/// The shortest time of a setting.
const SHORTEST: Nanos = Nanos::from_millis(20);

impl Constants {
    const USUAL: Constants = Constants {
        memory: Nanos::from_secs(16),
        horizon: Nanos::from_secs(10),
        plans: 20.0,
        known: 4096.0,
        group: 8.0,
        streams: 64.0,
        guessed: 16.0,
        long: 8192.0,
        short: 512.0,
        margin: 2.0,
        step: 0.1,
        least: 0.01,
        idle: 0.1,
        disk: 8.0,
        ssd: 0.1,
        transfer: 10.0,
    };

    fn times(&mut self) -> [(&'static str, &mut Nanos); 2] {
        [("research.memory", &mut self.memory), ("research.horizon", &mut self.horizon)]
    }

    /// Those that are numbers, with the least and the largest value of each.
    fn numbers(&mut self) -> [(&'static str, &mut f64, [f64; 2]); 14] {
        [
            ("research.plans", &mut self.plans, [1.0, 1e3]),
            ("research.known", &mut self.known, [1.0, 1e6]),
            ("research.group", &mut self.group, [1.0, 1e3]),
            ("research.streams", &mut self.streams, [1.0, 1e3]),
            ("research.guessed", &mut self.guessed, [1.0, 1e3]),
            ("research.long", &mut self.long, [1.0, 1e9]),
            ("research.short", &mut self.short, [1.0, 1e9]),
            ("research.margin", &mut self.margin, [1.0, 1e3]),
            ("research.step", &mut self.step, [1e-6, 10.0]),
            ("research.least", &mut self.least, [1e-6, 0.5]),
            ("research.idle", &mut self.idle, [1e-6, 1e3]),
            ("research.disk", &mut self.disk, [1e-3, 1e3]),
            ("research.ssd", &mut self.ssd, [1e-3, 1e3]),
            ("research.transfer", &mut self.transfer, [1e-3, 1e3]),
        ]
    }

    pub fn read(settings: &mut Settings) -> Result<Constants, BadSetting> {
        let mut constants = Constants::USUAL;
        for (key, time) in constants.times() {
            settings.rename(before(key), key);
            *time = settings.take_time(key, *time, SHORTEST..=Nanos::from_secs(3600))?;
        }
        for (key, number, [least, most]) in constants.numbers() {
            settings.rename(before(key), key);
            *number = settings.take_within(key, *number, least, most)?;
        }
        Ok(constants)
    }

    /// The same where time passes so many times as fast.
    pub fn hastened(self, haste: u32) -> Constants {
        let shorter = |time: Nanos| (time / u64::from(haste.max(1))).max(SHORTEST);
        Constants { memory: shorter(self.memory), horizon: shorter(self.horizon), ..self }
    }

    /// As [`Constants::read`] takes them, without what is as usual: each with a comma before it.
    pub fn written(mut self) -> String {
        let (mut usual, mut text) = (Constants::USUAL, String::new());
        for ((key, time), (_, usual)) in self.times().into_iter().zip(usual.times()) {
            if time != usual {
                text += &format!(",{key}={}ns", time.0);
            }
        }
        for ((key, number, _), (_, usual, _)) in self.numbers().into_iter().zip(usual.numbers()) {
            if number != usual {
                text += &format!(",{key}={number}");
            }
        }
        text
    }

    /// Extents of a group.
    pub fn group(&self) -> u32 {
        self.group as u32
    }

    /// What devices of a class are like.
    pub fn speed(&self, class: DeviceClass) -> Speed {
        let position_ms = match class {
            DeviceClass::Hdd => self.disk,
            DeviceClass::Ssd => self.ssd,
        };
        Speed { position_ms, ms_per_mib: self.transfer }
    }

    /// What the guess of how fast a device is counts for: so many milliseconds of requests.
    pub fn guess(&self, class: DeviceClass) -> f64 {
        self.guessed * self.speed(class).position_ms
    }

    /// Between two plans.
    pub fn tick(&self) -> Nanos {
        Nanos::from_secs_f64(self.horizon.as_secs_f64() / self.plans).max(Nanos::from_millis(1))
    }

    /// What is left of an average from one plan to the next.
    pub fn left(&self) -> f64 {
        (-self.tick().as_secs_f64() / self.memory.as_secs_f64()).exp()
    }
}

/// The key of a constant in volumes of earlier versions.
fn before(key: &'static str) -> &'static str {
    key.strip_prefix("research.").unwrap_or(key)
}
