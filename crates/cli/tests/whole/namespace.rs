//! Mount namespaces of tests. A new mount namespace begins with a copy of every mount, also of other tests',
//! and a copy keeps a block device in use: `detach` of another test was refused.

use crate::machine::{have, skip};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Shared by commands that need block devices without users; exclusive while a mount namespace has copies.
static COPIES: RwLock<()> = RwLock::new(());

/// A script's first command in a mount namespace: removes the copies of other tests' mounts, also of other
/// programmes of tests. The source may be mounted below such a name, too, but not from a volume. The kernel
/// prints a blank in a path as `\040`.
pub const REMOVE_COPIES: &str = "while read -r _ _ _ _ point rest; do \
    case $rest in *' - fuse'*|*' /dev/loop'*|*' /dev/ublk'*) \
    case $point in */.tmp*|*/braid*) umount --lazy \"$(printf \"$point\")\";; esac;; esac; \
    done 2>/dev/null <<MOUNTS
$(cat /proc/self/mountinfo)
MOUNTS
";

/// Runs `make`, which returns when `REMOVE_COPIES` has run in the new mount namespace. No test detaches a
/// volume meanwhile.
pub fn make_namespace<T>(make: impl FnOnce() -> T) -> T {
    let _alone = COPIES.write().unwrap_or_else(PoisonError::into_inner);
    make()
}

/// No mount namespace is made while the value lives.
pub fn without_copies() -> RwLockReadGuard<'static, ()> {
    COPIES.read().unwrap_or_else(PoisonError::into_inner)
}

/// True if this process may make mount namespaces; else the test is reported as skipped.
pub fn can_unshare() -> bool {
    let can = rustix::process::geteuid().is_root() && have(&["unshare"]);
    can || skip("a mount namespace needs root")
}
