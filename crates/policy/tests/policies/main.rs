//! Policies against the papers that they follow, on a volume without an engine.

mod baselines;
mod equi;
mod volume;
mod wardrop;
