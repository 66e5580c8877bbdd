//! `dbench-like` and `netapp-like` against Wu and Reddy, tables I and II.

mod measure;

use measure::{assert_near, figures};

#[test]
fn dbench_like_agrees_with_the_tables_where_nothing_is_cached() {
    let f = figures("dbench-like,cached=0%", 1_000_000);
    assert_near("reads per write", f.read / (1.0 - f.read), 5_315_377.0 / 1_690_616.0, 0.01);
    assert_near("mean read", f.mean_read, 11_853.0, 0.01);
    assert_near("mean write", f.mean_write, 25_720.0, 0.01);
    assert_near("writes per flush", (1.0 - f.read) * f.requests / f.flushes, 7.1, 0.02);
    assert_near("sequential share", f.sequential, 0.7, 0.02);
}

#[test]
fn netapp_like_agrees_with_the_tables_where_nothing_is_cached() {
    let f = figures("netapp-like,cached=0%", 1_000_000);
    assert_near("reads per write", f.read / (1.0 - f.read), 43_044.0 / 47_626.0, 0.01);
    assert_near("mean read", f.mean_read, 18_105.0, 0.01);
    assert_near("mean write", f.mean_write, 6_204.0, 0.01);
    assert_near("writes per flush", (1.0 - f.read) * f.requests / f.flushes, 404.0, 0.1);
    assert_near("sequential share", f.sequential, 0.5, 0.02);
}

#[test]
fn cached_reads_are_missing_and_nothing_else() {
    let (with, without) = (figures("netapp-like", 1_000_000), figures("netapp-like,cached=0%", 1_000_000));
    let per_write = |read: f64| read / (1.0 - read);
    assert_near("reads that are left", per_write(with.read) / per_write(without.read), 0.1, 0.02);
    assert_near("mean write", with.mean_write, without.mean_write, 0.01);
}

#[test]
fn processes_that_join_later_wait_once() {
    let late = figures("netapp-like,join=60s,clients=2", 10_000);
    assert_near("time of the second process", late.seconds, 60.0, 0.0);
}
