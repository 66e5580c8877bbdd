//! `attach` by ublk on a machine without the driver. `tests/guest` has the tests with the driver.

use crate::machine::{Machine, skip};
use std::path::Path;

#[test]
fn forced_ublk_without_the_driver_names_the_remedy() {
    if Path::new("/dev/ublk-control").exists() || !rustix::process::geteuid().is_root() {
        skip("needs root on a machine without the ublk driver");
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    machine.refused(&["attach", "vault", "--via", "ublk"], "unsupported", &["--via loop"]);
    machine.refused(&["attach", "vault", "--via", "nbd"], "usage", &["ublk or loop"]);
    assert_eq!(daemon.terminate().status, 0);
}
