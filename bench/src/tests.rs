//! Tests of the figures behind the benchmarks. They are tests of the library: tests beside the library would
//! build all programmes, each with an engine of its own.

mod allocations;
mod balance;
mod worlds;
