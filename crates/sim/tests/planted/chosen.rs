//! The planted bugs to look for, in both programmes of tests: all, or the one in `BRAID_PLANTED=NAME`.

use braid_engine::Bug;

/// Number of seeds after which a bug counts as not found.
pub const SEEDS: u64 = 300;

/// Returns all of `bugs`, or the bug named in the environment.
pub fn chosen(bugs: &'static [Bug]) -> impl Iterator<Item = Bug> {
    let asked = std::env::var("BRAID_PLANTED").ok();
    let is_chosen = move |bug: &Bug| asked.as_ref().is_none_or(|asked| format!("{bug:?}") == *asked);
    bugs.iter().copied().filter(is_chosen)
}
