//! `slo=p99<5ms`: background work only while guests' requests are quicker than an owner wishes.
//!
//! Of a hundred requests one may take 5 ms or longer. Each request earns a hundredth of such a slow one, and
//! each slow request costs a whole one. Background work begins with half of what a minute earns, and ends
//! with nothing: so it may make requests slow, but no more of them than the wish allows over some minutes. A
//! debt of more than ten minutes is forgiven. A load that is slow by itself earns nothing, and gets no
//! background work beside it.
//!
//! While no guest has asked for anything for a second, background work harms nobody. The first request ends
//! it (`Plan::yields`).
//!
//! Latencies are those of devices, their queues included, and memory's; a request that is cut into pieces
//! counts as so many.

use crate::{BadSetting, Completion, Origin, Plan, Settings, View};
use braid_base::Nanos;

/// The bound, and what requests were like.
pub(super) struct Slo {
    /// As in `p99`.
    digits: String,
    bound: Nanos,
    /// The part of requests that may be slow.
    allowed: f64,
    /// Requests of the last minute, and slow ones of these.
    requests: f64,
    slow: f64,
    /// Slow requests that there may be.
    credit: f64,
    /// Whether there was enough credit, and there is some left.
    is_rich: bool,
    is_quiet: bool,
    /// A request has ended since `seen`.
    was_asked: bool,
    last_request: Nanos,
    seen: Nanos,
}

/// The time in which credit is earned: some thousand requests, of which some may be slow.
const MINUTE: f64 = 60.0;
/// The largest debt, in minutes.
const DEBT: f64 = 10.0;
/// Guests have left the volume alone if they have for so long.
const IDLE: Nanos = Nanos::from_secs(1);
const EXPECTED: &str = "a percentile from p50 to p999 and a time up to 1min, such as p99<5ms";

/// When background work may be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Slack {
    /// Beside guests.
    #[default]
    Now,
    /// Until a guest asks for something.
    Pause,
    /// Only what must be.
    None,
}

impl Slo {
    /// Setting: `slo` (none), such as `p99<5ms`.
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

    /// A guest asks for something.
    pub fn requested(&mut self, view: &View) {
        (self.last_request, self.is_quiet) = (view.now, false);
    }

    /// Memory served a request.
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

    /// The credit of a minute, but that of two slow requests at least.
    fn most(&self) -> f64 {
        (self.allowed * self.requests).max(2.0)
    }

    /// At each plan.
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

    /// Why there is no background work, if there is none.
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
