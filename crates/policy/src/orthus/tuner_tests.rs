//! The tuner with a model of two devices, whose throughput is a formula.

use super::*;

struct System {
    tuner: Tuner,
    now: Nanos,
    /// Misses in a hundred reads.
    misses: u64,
    /// Share of hits served by the cache, by interval, and whether misses filled the cache.
    seen: Vec<(f64, bool)>,
}

impl System {
    fn new(settings: &str) -> System {
        let mut settings = Settings::parse("policy", &format!("orthus,{settings}")).expect("settings");
        let tuner = Tuner::take(&mut settings).expect("they are right");
        System { tuner, now: Nanos::ZERO, misses: 5, seen: Vec::new() }
    }

    /// Runs intervals of 100 ms, each with a thousand reads. `served` returns the bytes of an interval and
    /// the response time in ms, by share.
    fn run(&mut self, intervals: usize, served: impl Fn(f64) -> (f64, f64)) {
        for _ in 0..intervals {
            let (bytes, ms) = served(self.tuner.load_admit());
            (0..1000).for_each(|read| self.tuner.read(read % 100 >= self.misses));
            self.tuner.completed(Bytes(bytes as u64), Nanos((ms * 1e6) as u64));
            self.now += Nanos::from_millis(100);
            self.tuner.advance(self.now);
            self.seen.push((self.tuner.load_admit(), self.tuner.admits_data()));
        }
    }

    fn last(&self) -> (f64, bool) {
        *self.seen.last().expect("time has passed")
    }
}

/// A cache of 100 MB/s above a device of 60 MB/s, with 5 % of misses, saturated with requests: the bottleneck
/// bounds the throughput.
fn saturated(load_admit: f64) -> (f64, f64) {
    let to_cache = 0.95 * load_admit;
    ((100e6 / to_cache).min(60e6 / (1.0 - to_cache)), 1.0)
}

/// Both devices are busy at 100 of 160: 0.95 x = 0.625, x = 0.658. Steps of 2 % meet the optimum at 0.66.
#[test]
fn search_settles_at_share_saturating_both_devices() {
    let mut system = System::new("target=throughput");
    system.run(20, saturated);
    assert!(system.seen[..9].iter().all(|&seen| seen == (1.0, true)), "the first window: {:?}", system.seen);
    system.run(200, saturated);
    let (load_admit, fills) = system.last();
    assert!((0.63..=0.69).contains(&load_admit) && !fills, "{load_admit}");
    // From 1 down in steps, each share measured once.
    let falls = system.seen.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
    assert!(falls >= 17, "{falls}");
}

/// With a load that the cache can serve, each share gives the same throughput: the best is 1, twice. The
/// cache fills until two windows have a stable miss ratio. Then the search begins again.
#[test]
fn filling_and_tuning_alternate_if_cache_serves_whole_load() {
    let mut system = System::new("target=throughput");
    system.run(400, |_| (50e6, 1.0));
    let begins =
        |fills: bool| system.seen.windows(2).filter(|pair| (pair[0].1, pair[1].1) == (!fills, fills)).count();
    assert!(
        begins(true) >= 5 && begins(false) >= 5,
        "{} times filled, {} tuned",
        begins(true),
        begins(false)
    );
    assert!(system.seen.iter().all(|&(share, _)| share >= 0.98), "a step is tried, and no more");
}

/// Latency distinguishes shares with equal throughput.
#[test]
fn the_target_may_be_latency() {
    let latency = |load_admit: f64| 1.0 + (load_admit - 0.8).abs();
    let mut system = System::new("target=latency,margin=0.1%");
    system.run(200, |load_admit| (50e6, latency(load_admit)));
    let (load_admit, fills) = system.last();
    assert!((0.77..=0.83).contains(&load_admit) && !fills, "{load_admit}");
}

#[test]
fn changed_miss_ratio_restarts_cache_fill() {
    let mut system = System::new("target=throughput");
    system.run(120, saturated);
    assert!(!system.last().1 && system.last().0 < 0.8);
    system.misses = 20;
    system.run(30, saturated);
    assert!(!system.last().1, "15 points are not 20");
    system.misses = 30;
    system.run(12, saturated);
    assert!(system.seen[system.seen.len() - 12..].contains(&(1.0, true)), "{:?}", system.seen);
}

#[test]
fn cache_keeps_filling_while_miss_ratio_is_unstable() {
    let mut system = System::new("target=throughput");
    for misses in [90, 70, 50, 30, 20, 10] {
        system.misses = misses;
        system.run(10, saturated);
    }
    assert!(system.seen.iter().all(|&seen| seen == (1.0, true)));
}

/// Two windows of 100 reads at ten reads a second: 20 s, not 2 s.
#[test]
fn window_lasts_until_enough_reads() {
    let mut system = System::new("target=throughput");
    let mut tenths = 0;
    while system.tuner.admits_data() {
        tenths += 1;
        system.now += Nanos::from_millis(100);
        system.tuner.read(tenths % 20 > 0);
        system.tuner.advance(system.now);
    }
    assert_eq!(tenths, 200);
}

#[test]
fn time_without_requests_is_no_measurement() {
    let mut system = System::new("target=throughput");
    system.run(100, saturated);
    let before = system.last();
    for _ in 0..50 {
        system.now += Nanos::from_millis(100);
        system.tuner.advance(system.now);
        assert_eq!(system.tuner.load_admit(), before.0);
    }
}
