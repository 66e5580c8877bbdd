//! `p99<5ms`: a target for the latency of reads and writes.

use crate::outcome::Distribution;
use braid_base::Nanos;
use std::fmt;
use std::str::FromStr;

/// A target for the latency of reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slo {
    statistic: Statistic,
    /// Upper limit, exclusive.
    pub limit: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Statistic {
    Mean,
    P50,
    P95,
    P99,
    P999,
}

const NAMES: [(&str, Statistic); 5] = [
    ("mean", Statistic::Mean),
    ("p50", Statistic::P50),
    ("p95", Statistic::P95),
    ("p99", Statistic::P99),
    ("p999", Statistic::P999),
];

impl Slo {
    /// The target's statistic of these latencies, in nanoseconds.
    pub fn of(&self, latency: &Distribution) -> f64 {
        match self.statistic {
            Statistic::Mean => latency.mean,
            Statistic::P50 => latency.p50 as f64,
            Statistic::P95 => latency.p95 as f64,
            Statistic::P99 => latency.p99 as f64,
            Statistic::P999 => latency.p999 as f64,
        }
    }

    /// Name of the statistic: `p99`.
    pub fn name(&self) -> &'static str {
        NAMES.iter().find(|(_, statistic)| *statistic == self.statistic).map_or("", |(name, _)| name)
    }
}

impl FromStr for Slo {
    type Err = String;
    fn from_str(text: &str) -> Result<Slo, String> {
        let wrong = || {
            format!(
                "'{text}' is not a target: use mean, p50, p95, p99 or p999 and a time above 0, as in 'p99<5ms'"
            )
        };
        let (name, limit) = text.split_once('<').ok_or_else(wrong)?;
        let (_, statistic) = NAMES.iter().find(|(known, _)| *known == name.trim()).ok_or_else(wrong)?;
        let limit =
            limit.trim().parse::<Nanos>().ok().filter(|limit| *limit > Nanos::ZERO).ok_or_else(wrong)?;
        Ok(Slo { statistic: *statistic, limit })
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} < {}", self.name(), self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_statistic_and_a_limit() {
        let slo: Slo = "p99<5ms".parse().unwrap();
        assert_eq!((slo.name(), slo.limit), ("p99", Nanos::from_millis(5)));
        let latency = Distribution { mean: 1.5, p99: 7, p999: 9, ..Distribution::default() };
        assert_eq!((slo.of(&latency), "mean < 1s".parse::<Slo>().unwrap().of(&latency)), (7.0, 1.5));
        assert_eq!("p999<1ms".parse::<Slo>().unwrap().of(&latency), 9.0);
        for wrong in ["", "p99", "p98<5ms", "p99<5", "p99<0s", "5ms<p99", "p99>5ms"] {
            assert!(wrong.parse::<Slo>().unwrap_err().contains("p99<5ms"), "{wrong}");
        }
    }
}
