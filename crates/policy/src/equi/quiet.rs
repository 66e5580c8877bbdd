//! Which plans are worth making while nothing happens: a plan looks at thousands of extents.
//!
//! A request, or the end of a move, makes the next plan due. While neither happens, only time changes the
//! result: demands decay, devices come to rest. Plans are then due after 1, 2, 4, … periods, and after
//! `memory` none is: a demand is forgotten by then. The work therefore follows the number of requests, and
//! not the length of a trace.

use super::Constants;

/// Counts the periods in which nothing happened.
#[derive(Debug)]
pub(super) struct Quiet {
    /// Periods since the last request or end of a move; 0 if there was one in this period.
    periods: u32,
    /// The period after which no plan is due.
    last: u32,
}

impl Quiet {
    pub fn new(constants: &Constants) -> Quiet {
        let periods = constants.memory.as_secs_f64() / constants.tick().as_secs_f64();
        Quiet { periods: 0, last: periods as u32 }
    }

    /// A request arrived or ended, or a move ended.
    pub fn disturb(&mut self) {
        self.periods = 0;
    }

    /// True if extents are to be looked at now. Called once a period.
    pub fn is_plan_due(&mut self) -> bool {
        let periods = self.periods;
        self.periods = periods.saturating_add(1);
        periods == 0 || periods.is_power_of_two() && periods <= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A week of a trace with one request in five minutes took 20 s of processor time: two plans a second, of
    /// nothing.
    #[test]
    fn idle_plans_become_rare_and_stop_until_disturbed() {
        let mut quiet = Quiet { periods: 0, last: 32 };
        let mut due = |periods: u32| (0..periods).filter(|_| quiet.is_plan_due()).count();
        assert_eq!(due(3), 3);
        assert_eq!(due(1000), 4, "after 4, 8, 16 and 32 periods");
        assert_eq!(due(1_000_000), 0);
        quiet.disturb();
        assert!(quiet.is_plan_due());
    }
}
