//! Simulations, from the setup to the outcome.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod advice;
mod mirrors;
mod nodes;
mod papers;
mod pass;
mod refill;
mod streams;
mod traces;
mod wishes;
