//! `slo=p99<5ms`: background work only while guests' requests are fast enough for the owner.
//!
//! Of a hundred requests one may take 5 ms or longer. Each request earns a hundredth of a slow request, and
//! each slow request costs a whole one. Background work begins with half of a minute's credit, and ends at
//! zero credit. Background work may therefore make requests slow, but no more requests than the wish allows
//! over some minutes. A debt of more than ten minutes is forgiven. A load that is slow by itself earns
//! nothing, and gets no background work beside guests.
//!
//! After a second without requests of guests, background work harms nobody. The first request ends the
//! background work (`Plan::yields`).
//!
//! Latencies are the latencies of devices, queues included, and of hits in memory. Each piece of a split
//! request counts as a request.

use crate::{BadSetting, Completion, Origin, Plan, Settings, View};
use braid_base::Nanos;

/// Bound on slow requests, and recent latencies.
pub(super) struct Slo {
    /// Digits of the percentile, as in `p99`.
    digits: String,
    bound: Nanos,
    /// Fraction of requests that may be slow.
    allowed: f64,
    /// Requests of the last minute, and the slow ones among them.
    requests: f64,
    slow: f64,
    /// Number of slow requests still allowed.
    credit: f64,
    /// True from half of a minute's credit until the credit is used up.
    is_rich: bool,
    is_quiet: bool,
    /// True if a request of a guest has ended since `seen`.
    was_asked: bool,
    last_request: Nanos,
    seen: Nanos,
}

/// Seconds in which credit is earned: some thousand requests, of which some may be slow.
const MINUTE: f64 = 60.0;
/// Largest debt, in minutes.
const DEBT: f64 = 10.0;
/// Time without requests after which the volume counts as idle.
const IDLE: Nanos = Nanos::from_secs(1);
const EXPECTED: &str = "a percentile from p50 to p999 and a time up to 1min, such as p99<5ms";

/// When background work may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Slack {
    /// Beside guests.
    #[default]
    Now,
    /// Until the next request of a guest.
    Pause,
    /// Only unavoidable work.
    None,
}

impl Slo {
    /// Reads the setting `slo` (none), such as `p99<5ms`. Fails if the text is no percentile and time within
    /// the limits.
    pub fn take(settings: &mut Settings) -> Result<Option<Slo>, BadSetting> {
        let Some(text) = settings.take_text("slo") else { return Ok(None) };
        let read = || {
            let (percentile, bound) = text.split_once('<')?;
            let digits = percentile.strip_prefix('p')?.replace('.', "");
            let part: f64 = format!("0.{digits}").parse().ok()?;
            let bound: Nanos = bound.parse().ok()?;
            let is_right = (2..=3).contains(&digits.len())
                && (0.5..=0.999).contains(&part)
                && (Nanos(1)..=Nanos::from_secs(60)).contains(&bound);
            is_right.then_some((digits, 1.0 - part, bound))
        };
        let (digits, allowed, bound) = read().ok_or_else(|| settings.bad("slo", &text, EXPECTED))?;
        Ok(Some(Slo {
            digits,
            bound,
            allowed,
            requests: 0.0,
            slow: 0.0,
            credit: 0.0,
            is_rich: false,
            is_quiet: true,
            was_asked: false,
            last_request: Nanos::ZERO,
            seen: Nanos::ZERO,
        }))
    }

    pub fn written(&self) -> String {
        format!(",slo={}", self.shown())
    }

    fn shown(&self) -> String {
        format!("p{}<{}", self.digits, braid_base::written(&format!("{}ns", self.bound.0)))
    }

    /// Records the arrival of a guest's request.
    pub fn requested(&mut self, view: &View) {
        (self.last_request, self.is_quiet) = (view.now, false);
    }

    /// Records a request served from memory.
    pub fn hit(&mut self) {
        self.ended(false);
    }

    pub fn completed(&mut self, io: &Completion) {
        if io.origin == Origin::Guest {
            self.was_asked = true;
            self.ended(io.latency >= self.bound);
        }
    }

    fn ended(&mut self, is_slow: bool) {
        let slow = if is_slow { 1.0 } else { 0.0 };
        self.requests += 1.0;
        self.slow += slow;
        let most = self.most();
        self.credit = (self.credit + self.allowed - slow).clamp(-DEBT * most, most);
        self.is_rich &= self.credit > 0.0;
    }

    /// Returns the credit of a minute, at least two slow requests.
    fn most(&self) -> f64 {
        (self.allowed * self.requests).max(2.0)
    }

    /// Updates the credit, at each plan.
    pub fn plan(&mut self, view: &View, plan: &mut Plan) {
        let passed = view.now.saturating_sub(self.seen).as_secs_f64();
        let left = (-passed / MINUTE).exp();
        (self.requests, self.slow, self.seen) = (self.requests * left, self.slow * left, view.now);
        let most = self.most();
        self.credit = self.credit.clamp(-DEBT * most, most);
        self.is_rich |= self.credit >= most / 2.0;
        if std::mem::take(&mut self.was_asked) {
            self.last_request = view.now;
        }
        let is_idle = view.devices.iter().all(|device| device.in_flight == 0);
        self.is_quiet = is_idle && view.now >= self.last_request + IDLE;
        plan.yields = self.slack() == Slack::Pause;
    }

    pub fn slack(&self) -> Slack {
        match (self.is_rich, self.is_quiet) {
            (true, _) => Slack::Now,
            (false, true) => Slack::Pause,
            (false, false) => Slack::None,
        }
    }

    /// Returns the reason if there is no background work.
    pub fn refusal(&self) -> Option<String> {
        let slow = 100.0 * self.slow / self.requests.max(1.0);
        (self.slack() == Slack::None).then(|| {
            format!(
                "slo={} leaves no time for copies and moves: {slow:.2} % of the last minute's requests took {} or longer",
                self.shown(),
                self.bound
            )
        })
    }
}
