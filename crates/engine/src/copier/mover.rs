//! Owner of a copy between devices.

/// Owner of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mover {
    /// The policy's plan, within its limits.
    Plan,
    /// The engine, within its own budget.
    Engine,
}
