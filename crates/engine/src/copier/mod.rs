//! The copier: copies between devices beside guests' requests. All but the last five keep to one budget.
//!
//! | reason | source | target | extent locked | intent in the journal | effect | limit |
//! |---|---|---|---|---|---|---|
//! | migrate | current copy | slot of the policy's device | no: watched | with two copies | new home | plan |
//! | mirror | home | slot of the policy's device | no: watched | yes | second copy | plan, or engine |
//! | promote | current copies | block slots | yes | no | clean extra copy | plan |
//! | write back | dirty blocks | home | shared; padding, gaps: yes | padding: yes | clean | plan, or engine |
//! | resync | current copy | stale copy | yes | the span is behind | ranges alike | plan, or engine |
//! | drain, window | leaving copy, or the other | slot elsewhere | yes | two copies | copy moved | engine |
//! | promote a guest's read | the guest's bytes | block slots | yes | no | clean extra copy | memory |
//! | decide | home where readable | other copy | yes | the span is dirty | copies alike | a guest waits |
//! | repair | the other copy | bad place | yes | no | place readable | four at a time |
//! | sweep | copies on the SSDs | image | while read | epoch journal | segments applied | 4 or 16 writes |
//! | apply | epoch journal | image | no | the epoch journal | segments applied | 16 writes |
//!
//! *Watched*: a guest's write during the copy stops the move. The budget is in `budget.rs`; a task waits for
//! the budget in `turns.rs`, before the task takes a lock.

mod budget;
mod claims;
mod copy;
mod mover;
mod queue;
mod run;
mod turns;

pub(crate) use budget::Budget;
pub(crate) use mover::Mover;
pub(crate) use queue::{MigrationRun, MoveTask, Queue};
pub(crate) use run::{IN_A_ROW, LONGEST_RUN, MOST_IN_RUN, RUNS_AT_ONCE};
