//! Policies against the papers that they follow, on a volume without an engine.

mod baselines;
mod volume;
mod wardrop;
