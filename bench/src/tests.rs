//! What benchmarks rely on. They are tests of the library: for tests beside it all programmes would be built,
//! each with an engine of its own.

mod allocations;
mod balance;
mod worlds;
