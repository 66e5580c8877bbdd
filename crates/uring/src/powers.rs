//! Powers of this process that a daemon gives up before it reads foreign bytes: capabilities, privileges of
//! programs with set-user-ID bits, and system calls ([`crate::call_filter`]).

use crate::call_filter;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, SecureComputingMode, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, secure_computing_mode,
    set_capabilities, set_no_new_privs,
};
use std::io;

/// Capabilities that a daemon keeps, as far as the process has them:
///
/// - `CAP_SYS_ADMIN`: mounts of FUSE, and commands to the ublk driver, at any later time.
/// - `CAP_SYS_RESOURCE`: the mark of an I/O flusher and the out-of-memory score, when the volume is attached.
/// - `CAP_IPC_LOCK`: locked memory, when the volume is attached; memory of later rings.
/// - `CAP_DAC_OVERRIDE`: image files of other users, also for devices that are added or return.
const KEPT: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::DAC_OVERRIDE);

/// Powers of a process that has given up the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PowersLeft {
    /// Names of the capabilities: `CAP_SYS_ADMIN`.
    pub capabilities: Vec<String>,
    /// Filter for system calls.
    pub filter: CallFilter,
}

/// Filter for system calls of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallFilter {
    /// The filter of Braid.
    Own,
    /// The filter of the service manager or container alone, which refuses another one, for this reason.
    OfManager(String),
    /// None, for this reason.
    Nothing(String),
}

/// Gives up the powers of this thread and of threads that it starts later. Call while the process has no
/// other thread, and before untrusted bytes are read. There is no way back.
///
/// # Errors
/// If the kernel refuses to take capabilities away.
pub fn give_up_powers() -> io::Result<PowersLeft> {
    let kept = narrow_capabilities()?;
    set_no_new_privs(true)?;
    let filter = match call_filter::install() {
        Ok(()) => CallFilter::Own,
        Err(error) if secure_computing_mode() == Ok(SecureComputingMode::Filter) => {
            CallFilter::OfManager(error.to_string())
        }
        Err(error) => CallFilter::Nothing(error.to_string()),
    };
    let capabilities = kept.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    Ok(PowersLeft { capabilities, filter })
}

/// Keeps [`KEPT`] alone in all capability sets. Returns what is left.
fn narrow_capabilities() -> io::Result<CapabilitySet> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if KEPT.contains(capability) {
            continue;
        }
        match capability_is_in_bounding_set(capability) {
            Ok(true) => match remove_capability_from_bounding_set(capability) {
                // Without CAP_SETPCAP. The bounding set matters to programs alone that a process without new
                // privileges executes, and the filter refuses to execute any.
                Ok(()) | Err(Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            },
            Ok(false) => {}
            // The kernel knows no capability with this number.
            Err(_) => break,
        }
    }
    clear_ambient_capability_set()?;
    let had = capabilities(None)?;
    let (effective, permitted) = (had.effective & KEPT, had.permitted & KEPT);
    match set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
    {
        // A service manager that has taken the capabilities may forbid the call, too.
        Err(Errno::PERM) if had.effective == effective && had.permitted == permitted => {}
        result => result?,
    }
    Ok(effective)
}
