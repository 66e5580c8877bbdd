//! Numbers assumed by the policy, each with the reason. All are settings for research only, such as
//! `research.memory`: `equi-sweep` measures the effect of half and double of each (docs/benchmarks.md).

use super::demand::Speed;
use crate::{BadSetting, Settings};
use braid_base::{DeviceClass, Nanos};

/// Constants of the policy `equi`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// Decay time of demands and of device behaviour: longer than pauses between bursts, shorter than a phase
    /// of a load.
    pub memory: Nanos,
    /// Time in which a move must gain more than the move costs. Steady loads favour a long horizon, traces of
    /// bursts a short horizon.
    pub horizon: Nanos,
    /// Plans per horizon: often enough to follow a load, seldom enough to cost nothing.
    pub plans: f64,
    /// Extents with a remembered demand. A plan looks at all known extents and at the extents between
    /// neighbours, and guests wait meanwhile.
    pub known: f64,
    /// Extents per group. Extents of a group lend each other half of their mean: sparse requests to an extent
    /// are confirmed by requests to neighbours. A group is also planned as one piece: 1 MiB of extents of the
    /// usual size.
    pub group: f64,
    /// Remembered ends of requests: as many as the streams that a disk's own buffer may follow.
    pub streams: f64,
    /// Weight of a guess, in observations. Also the number of probes of a device and direction: otherwise
    /// guests would be the first to measure the device.
    pub guessed: f64,
    /// Least number of requests by which moves judge a device: many, so that the behaviour in bursts is not
    /// forgotten between bursts.
    pub long: f64,
    /// Requests by which shares judge a device, and comparisons by which demands of a size are judged: few,
    /// since guests come and go.
    pub short: f64,
    /// Factor below which a difference may be chance. Devices within the factor are alike, and a demand is
    /// expected to grow by no more. A swap must gain as many times the price, and a moved extent rests for as
    /// many horizons. An extent returns from an SSD that is not saturated only if the cost there is higher by
    /// the square of this factor.
    pub margin: f64,
    /// Largest change of a share of new extents from one plan to the next, as an exponent of e: a factor of 7
    /// in a horizon. Also the largest part of the known extents that returns in one plan from SSDs that are
    /// not saturated.
    pub step: f64,
    /// Least share of new extents for a device, so that the share can grow again. Also the part of a device's
    /// slots that new extents leave to moves, and the part that homes leave to cached copies in advance.
    pub least: f64,
    /// Delay of guests for each millisecond that an idle device works for a move: a request may arrive.
    pub idle: f64,
    /// Milliseconds that a disk takes to position, an SSD to position, and either to transfer 1 MiB: a seek
    /// and half a turn, the read of a page, 100 MB/s.
    pub disk: f64,
    pub ssd: f64,
    pub transfer: f64,
}

/// Shortest time of a setting.
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

    /// Returns the constants that are numbers, with the least and the largest value of each.
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

    /// Returns the constants for a simulation in which time passes `haste` times as fast.
    pub fn hastened(self, haste: u32) -> Constants {
        let shorter = |time: Nanos| (time / u64::from(haste.max(1))).max(SHORTEST);
        Constants { memory: shorter(self.memory), horizon: shorter(self.horizon), ..self }
    }

    /// Returns the settings for [`Constants::read`] that differ from the defaults, each preceded by a comma.
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

    /// Extents per group.
    pub fn group(&self) -> u32 {
        self.group as u32
    }

    /// Returns the assumed speed of a class of devices.
    pub fn speed(&self, class: DeviceClass) -> Speed {
        let position_ms = match class {
            DeviceClass::Hdd => self.disk,
            DeviceClass::Ssd => self.ssd,
        };
        Speed { position_ms, ms_per_mib: self.transfer }
    }

    /// Weight of the guessed speed of a device, in milliseconds of requests.
    pub fn guess(&self, class: DeviceClass) -> f64 {
        self.guessed * self.speed(class).position_ms
    }

    /// Time between two plans.
    pub fn tick(&self) -> Nanos {
        Nanos::from_secs_f64(self.horizon.as_secs_f64() / self.plans).max(Nanos::from_millis(1))
    }

    /// Weight that an average keeps from one plan to the next.
    pub fn left(&self) -> f64 {
        (-self.tick().as_secs_f64() / self.memory.as_secs_f64()).exp()
    }
}

/// Returns the key of a constant in volumes of earlier versions.
fn before(key: &'static str) -> &'static str {
    key.strip_prefix("research.").unwrap_or(key)
}
