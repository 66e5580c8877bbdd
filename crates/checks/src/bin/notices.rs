//! Prints the licence texts of the crates that are linked into `braid` on this machine, for a package.

use braid_checks::{linked, metadata, notices};

fn main() {
    let metadata = metadata(&["--filter-platform", "host-tuple"]);
    print!("{}", notices(&linked(&metadata, "braid")));
}
