//! The seek curve: the seek time for a given share of the stroke.
//!
//! Short seeks accelerate and brake, long seeks coast (C. Ruemmler, J. Wilkes, "An Introduction to Disk Drive
//! Modeling", IEEE Computer, March 1994):
//!
//! ```text
//! seek(d) = a + b·√d    for 0 < d < cut
//! seek(d) = c + e·d     for d ≥ cut
//! ```
//!
//! Here `d` is a share of the full stroke, so a device with fewer cylinders keeps the same mechanics. The
//! constants are solved from data sheets. The settling time is `a`, the two parts meet at the cut, and the
//! full stroke takes the sheet's time. The mean over uniformly random pairs of cylinders is the sheet's
//! average. Makers define average seek as this mean (Ultrastar HC310 specification, [sheet]).
//!
//! A move to the next cylinder is a separate case: the move takes the sheet's track-to-track time, whatever
//! its share of the stroke on a small device. Otherwise sequential access to a small device would not stream.

use braid_base::Nanos;

/// The figures of a data sheet from which the curve follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seek {
    /// To the next cylinder, for a read.
    pub track_read: Nanos,
    /// To the next cylinder, for a write.
    pub track_write: Nanos,
    /// The time of every longer seek without the distance: the curve's value at distance zero.
    pub settle: Nanos,
    /// Mean over all pairs of cylinders, for a read.
    pub average: Nanos,
    /// From the first cylinder to the last, for a read.
    pub full: Nanos,
    /// Additional settling time of a write after a seek of more than one cylinder.
    pub write_settle: Nanos,
}

/// The curve with its constants, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Curve {
    sheet: Seek,
    a: f64,
    b: f64,
    c: f64,
    e: f64,
}

/// The share of the stroke at which the arm begins to coast: 0.107 on the Cheetah 15K.5, from a fit to the
/// curve extracted from a drive (DiskSim model file, [derived]). Used for every disk, because no other curve
/// is available.
const CUT: f64 = 0.107;

impl Curve {
    /// Solves the constants from the sheet's figures.
    ///
    /// # Panics
    /// If no curve has these figures.
    pub fn fit(sheet: Seek) -> Curve {
        Curve::solve(sheet).unwrap_or_else(|| {
            panic!("no rising curve has an average of {} and a full stroke of {}", sheet.average, sheet.full)
        })
    }

    /// Solves the constants from the sheet's figures; `None` if no rising curve has them.
    pub fn solve(sheet: Seek) -> Option<Curve> {
        let ns = |time: Nanos| time.0 as f64;
        let (a, full, average) = (ns(sheet.settle), ns(sheet.full), ns(sheet.average));
        // Distances of random pairs have density 2(1 − d). The integrals of that density times 1, √d and d:
        let short_one = 2.0 * CUT - CUT.powi(2);
        let short_root = 4.0 / 3.0 * CUT.powf(1.5) - 4.0 / 5.0 * CUT.powf(2.5);
        let long_one = (1.0 - CUT).powi(2);
        let long_linear = 1.0 / 3.0 - CUT.powi(2) + 2.0 / 3.0 * CUT.powi(3);
        // With c = full − e and b = (full − e(1 − cut) − a)/√cut the mean is linear in e.
        let root = short_root / CUT.sqrt();
        let e = (a * short_one + (full - a) * root + full * long_one - average)
            / ((1.0 - CUT) * root + long_one - long_linear);
        let b = (full - e * (1.0 - CUT) - a) / CUT.sqrt();
        (b >= 0.0 && e >= 0.0).then_some(Curve { sheet, a, b, c: full - e, e })
    }

    /// The time for a read over `distance` of the `stroke` (the distance from the first to the last
    /// cylinder).
    pub fn read(&self, distance: u32, stroke: u32) -> Nanos {
        match distance {
            0 => Nanos::ZERO,
            1 => self.sheet.track_read,
            _ => self.over(f64::from(distance) / f64::from(stroke)),
        }
    }

    /// The time for a write over `distance` of the `stroke`.
    pub fn write(&self, distance: u32, stroke: u32) -> Nanos {
        match distance {
            0 => Nanos::ZERO,
            1 => self.sheet.track_write,
            _ => self.over(f64::from(distance) / f64::from(stroke)) + self.sheet.write_settle,
        }
    }

    fn over(&self, share: f64) -> Nanos {
        let time = if share < CUT { self.a + self.b * share.sqrt() } else { self.c + self.e * share };
        Nanos(time as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cheetah() -> Curve {
        Curve::fit(Seek {
            track_read: Nanos(552_000),
            track_write: Nanos(552_000),
            settle: Nanos(850_000),
            average: Nanos(3_790_000),
            full: Nanos(6_950_000),
            write_settle: Nanos::ZERO,
        })
    }

    #[test]
    fn cheetah_seek_fit_yields_published_constants() {
        let curve = cheetah();
        for (found, published) in [(curve.b, 6.08e6), (curve.c, 2.340e6), (curve.e, 4.61e6)] {
            assert!((found / published - 1.0).abs() < 0.01, "{found} against {published}");
        }
    }

    #[test]
    fn cheetah_seek_curve_passes_extracted_points() {
        let curve = cheetah();
        for (cylinders, published_ms) in [
            (1, 0.552),
            (1_000, 1.636),
            (5_000, 2.332),
            (10_000, 2.986),
            (24_000, 4.006),
            (48_000, 5.414),
            (72_000, 6.914),
        ] {
            let found = curve.read(cylinders, 72_169).as_millis_f64();
            assert!(
                (found - published_ms).abs() < 0.15,
                "{cylinders} cylinders: {found} ms against {published_ms}"
            );
        }
    }
}
