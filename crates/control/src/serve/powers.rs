//! Powers that the daemon gives up: for one process, a daemon that hostile bytes have taken over is worth as
//! much as its powers.

use crate::served::detacher::Detacher;
use crate::served::options::ServeOptions;
use crate::{Error, Result};
use braid_uring::{CallFilter, give_up_powers};

/// Gives up what the daemon does not need, after its sockets are bound and before it reads any device. The
/// process that detaches at the end keeps its powers: it reads nothing but the state directory and the
/// kernel's lists.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn give_up(options: &ServeOptions) -> Result<Option<Detacher>> {
    // Only root can attach.
    let command = options.detach.as_deref().filter(|_| rustix::process::geteuid().is_root());
    let detacher = command.map_or(Ok(None), Detacher::start)?;
    let left = give_up_powers().map_err(|error| Error::io("giving up powers of root", &error))?;
    let kept = match left.capabilities.is_empty() {
        true => "no capability".to_owned(),
        false => left.capabilities.join(", "),
    };
    match left.filter {
        CallFilter::Own => tracing::info!("powers left: {kept}; system calls are filtered"),
        CallFilter::OfManager(_) => {
            tracing::info!("powers left: {kept}; the service manager filters system calls");
        }
        CallFilter::Nothing(why) => tracing::warn!(
            "powers left: {kept}; system calls are not filtered: {why}: use a kernel with CONFIG_SECCOMP_FILTER"
        ),
    }
    Ok(detacher)
}
