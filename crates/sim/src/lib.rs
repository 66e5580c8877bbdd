//! The virtual world: clock, modelled devices, faults, crashes, oracle
