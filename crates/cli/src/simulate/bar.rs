//! Progress of simulations, shown on standard error if it is a terminal.

use braid_lab::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A progress bar with speed and time left.
pub struct Bar {
    bar: ProgressBar,
}

/// Steps of a full bar.
const FULL: u64 = 1000;

impl Bar {
    pub fn new() -> Bar {
        let style = ProgressStyle::with_template("{bar:30} {msg}").expect("the bar's template is one");
        Bar { bar: ProgressBar::new(FULL).with_style(style) }
    }

    /// Shows the progress of simulations.
    pub fn show(&self, progress: &Progress) {
        let seconds = progress.elapsed.as_secs_f64().max(1e-3);
        let speed = progress.requests as f64 / seconds / 1e6;
        let mut text = format!(
            "{} of {} done, {:.1} M requests, {speed:.2} M/s, {} simulated",
            progress.finished,
            progress.total,
            progress.requests as f64 / 1e6,
            clock(progress.simulated.as_secs_f64()),
        );
        if let Some(share) = progress.share.filter(|share| *share > 0.0) {
            self.bar.set_position((share * FULL as f64) as u64);
            text += &format!(", {} left", clock(seconds * (1.0 - share) / share));
        }
        self.bar.set_message(text);
    }

    /// Shows the progress of experiments: finished simulations, and the time left; also the longest time
    /// left, if verdicts may need more seeds.
    pub fn show_left(&self, progress: &Progress, left: f64, left_at_most: f64) {
        let elapsed = progress.elapsed.as_secs_f64();
        self.bar.set_position((elapsed / (elapsed + left).max(1e-9) * FULL as f64) as u64);
        let more = match left_at_most > left + 1.0 {
            true => format!(", {} if verdicts need all seeds", clock(left_at_most)),
            false => String::new(),
        };
        let (finished, total) = (progress.finished, progress.total);
        self.bar.set_message(format!("{finished} of {total} simulations done, {} left{more}", clock(left)));
    }

    /// Prints a line above the bar, or without a bar if standard error is no terminal.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// A duration as `3 s`, `2:05 min` or `1:02:05 h`.
pub fn clock(seconds: f64) -> String {
    let whole = Duration::from_secs_f64(seconds.clamp(0.0, 1e12)).as_secs();
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) if seconds < 10.0 => format!("{seconds:.1} s"),
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes}:{rest:02} min"),
        _ => format!("{hours}:{minutes:02}:{rest:02} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::clock;

    #[test]
    fn durations_are_shown_in_clock_format() {
        let shown = [0.25, 59.4, 125.0, 3725.0].map(clock);
        assert_eq!(shown, ["0.2 s", "59 s", "2:05 min", "1:02:05 h"]);
    }
}
