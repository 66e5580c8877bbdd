//! Runtime and Device traits, buffers, executor, locks
