//! Which figures count: on emulated devices, delays of a busy machine cannot be told from delays of a policy.

use super::measure::Interval;
use braid_control::Lateness;

/// Mark of a figure that does not count.
pub const MARK: char = '?';

/// Mark for figures of this interval, or a blank if the figures count.
pub fn mark(interval: &Interval) -> char {
    if interval.too_late { MARK } else { ' ' }
}

/// Returns a warning with a remedy if figures of some runs do not count because devices were too late; `None`
/// if all figures count. Each run comes with its name. The remedy does not advise fewer policies, because
/// policies run one after the other.
pub fn too_slow<'a>(runs: impl Iterator<Item = (String, &'a Interval)>) -> Option<String> {
    let (mut all, mut late) = (0, Vec::new());
    for (run, interval) in runs {
        all += 1;
        if interval.too_late {
            late.push((run, interval));
        }
    }
    let (worst, interval) =
        late.iter().max_by(|(_, a), (_, b)| a.lateness_share.total_cmp(&b.lateness_share))?;
    let by = interval.devices.iter().filter(|device| device.requests > 0);
    let by: Vec<_> =
        by.map(|device| format!("{} {:.2} ms", device.class, device.lateness_ns_mean as f64 / 1e6)).collect();
    Some(format!(
        "Machine too slow: {} of {all} figures do not count, marked {MARK}: emulated devices completed requests later than \
         their models, by more than {:.0} % of the response time. Worst: {worst}, {:.0} % (mean lateness: {}). \
         End other programs, and run the demo again.",
        late.len(),
        Lateness::BOUND * 100.0,
        interval.lateness_share * 100.0,
        by.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::measure::tests::interval;
    use super::*;

    #[test]
    fn late_intervals_are_reported_with_count_and_worst_device() {
        let (in_time, late, worst) = (interval(10), interval(100), interval(900));
        let told = |intervals: &[(&str, &Interval)]| {
            too_slow(intervals.iter().map(|&(run, interval)| (run.to_owned(), interval)))
        };
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[("a", &in_time)]), None);
        let text = told(&[("a", &in_time), ("b", &late), ("c", &worst), ("d", &late)]).unwrap();
        assert!(text.contains("3 of 4") && text.contains("c, ") && text.contains("ssd 0.90 ms"), "{text}");
    }
}
