//! Filter for system calls (seccomp): refuses what no daemon of a volume needs, with `EPERM` and a line in
//! the kernel's log.
//!
//! A list of refused calls, not of allowed calls: a daemon serves for months, and a call that a list of
//! allowed calls forgets, of a rare path or of a later C library, would then fail under guests. For the same
//! reason a refused call is an error and no kill: the guests of a wrong list lose one operation, not their
//! disk.
//!
//! The filter sees system calls alone. Operations of an io_uring (open, connect, rename …) pass beside every
//! seccomp filter; capabilities and file modes bound them. Landlock is no alternative: a process that it
//! restricts can never mount, and `braid attach` needs a mount of FUSE.
#![allow(unsafe_code)]

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io;

/// Condition on an argument: its number, its length, the comparison, the value.
struct Condition(u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// A refused call: its number, and all conditions that its arguments must meet; none refuses every call.
struct Refused(i64, Vec<Condition>);

/// Installs the filter in all threads of the process, for good. The process must have no new privileges.
///
/// # Errors
/// If the kernel has no filters, or an earlier filter refuses another one; `Unsupported` on a processor that
/// the filter's compiler does not know.
pub(crate) fn install() -> io::Result<()> {
    let refused = programme(refused(), libc::EPERM)?;
    // The flags of clone3 lie in memory, where no filter looks. With this error the C library uses clone.
    let unknown = programme(vec![Refused(libc::SYS_clone3, Vec::new())], libc::ENOSYS)?;
    load(&refused, libc::SECCOMP_FILTER_FLAG_LOG)?;
    // Without lines in the kernel's log: each new thread asks for clone3 first.
    load(&unknown, 0)
}

/// Compiles a filter that answers calls with an error.
fn programme(refused: Vec<Refused>, error: i32) -> io::Result<BpfProgram> {
    let target = std::env::consts::ARCH.try_into().map_err(unsupported)?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for Refused(call, conditions) in refused {
        let rule = (!conditions.is_empty()).then(|| rule(conditions)).transpose()?;
        for call in numbers(call) {
            rules.entry(call).or_default().extend(rule.clone());
        }
    }
    let answer = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, target).map_err(unsupported)?;
    filter.try_into().map_err(unsupported)
}

fn rule(conditions: Vec<Condition>) -> io::Result<SeccompRule> {
    let condition = |Condition(argument, length, comparison, value)| {
        SeccompCondition::new(argument, length, comparison, value).map_err(unsupported)
    };
    let conditions = conditions.into_iter().map(condition).collect::<io::Result<_>>()?;
    SeccompRule::new(conditions).map_err(unsupported)
}

fn unsupported(error: seccompiler::BackendError) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, error)
}

/// Numbers of a call: the call has a second one on x86-64, of the x32 interface.
fn numbers(call: i64) -> Vec<i64> {
    const X32: i64 = 0x4000_0000;
    if cfg!(target_arch = "x86_64") { vec![call, call | X32] } else { vec![call] }
}

/// Loads a filter into all threads, with further flags of the kernel.
fn load(programme: &BpfProgram, flags: libc::c_ulong) -> io::Result<()> {
    let len = programme.len().try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let filter = programme.as_ptr().cast_mut().cast::<libc::sock_filter>();
    let described = libc::sock_fprog { len, filter };
    // Without SPEC_ALLOW, kernels before 5.16 would slow down all loads and stores of a filtered process.
    let flags = flags | libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies `len` instructions at `filter`, which has the layout of `sock_filter` (see
    // below) and lives as long as `programme`.
    let loaded = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const described)
    };
    match loaded {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}

const _: () = assert!(size_of::<seccompiler::sock_filter>() == size_of::<libc::sock_filter>());

/// The refused calls.
fn refused() -> Vec<Refused> {
    let mut refused: Vec<Refused> = ALWAYS.iter().map(|&call| Refused(call, Vec::new())).collect();
    refused.extend(OF_X86.iter().map(|&call| Refused(call, Vec::new())));
    refused.extend(by_arguments());
    refused
}

/// Calls that are refused with some arguments.
fn by_arguments() -> Vec<Refused> {
    let bits = |argument, mask: libc::c_int| {
        let mask = u64::from(mask.unsigned_abs());
        vec![Condition(argument, Dword, MaskedEq(mask), mask)]
    };
    let other_than = |argument, values: &[libc::c_int]| {
        values.iter().map(|value| Condition(argument, Dword, Ne, u64::from(value.unsigned_abs()))).collect()
    };
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let mut refused: Vec<Refused> =
        namespaces.iter().map(|&flag| Refused(libc::SYS_clone, bits(0, flag))).collect();
    // The one mount of a daemon is that of FUSE. Flags of the kernel, in the fourth argument.
    let of_fuse = (libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC) as libc::c_int;
    refused.push(Refused(libc::SYS_mount, other_than(3, &[of_fuse])));
    // The C library resolves names by AF_NETLINK.
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    refused.push(Refused(libc::SYS_socket, other_than(0, &families)));
    // Memory that is written and executed.
    let (written, executed) = (libc::PROT_WRITE | libc::PROT_EXEC, libc::PROT_EXEC);
    refused.push(Refused(libc::SYS_mmap, bits(2, written)));
    refused.push(Refused(libc::SYS_mprotect, bits(2, executed)));
    refused.push(Refused(libc::SYS_pkey_mprotect, bits(2, executed)));
    refused.push(Refused(libc::SYS_shmat, bits(2, libc::SHM_EXEC)));
    // Keys typed into the terminal of root.
    for request in [TIOCSTI, TIOCLINUX] {
        refused.push(Refused(libc::SYS_ioctl, vec![Condition(1, Dword, Eq, request)]));
    }
    refused
}

// The type of a request differs between C libraries.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// Calls that are always refused.
const ALWAYS: &[i64] = &[
    // Other programs: a daemon starts none, and looks into none.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Code in the kernel, and parts of the kernel with a long history of holes.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_lookup_dcookie,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_fanotify_init,
    // The machine as a whole.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
    // Another view of the file systems. `mount` is bounded by its flags.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_mknodat,
    // Another user.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
];

/// Further calls of x86-64.
#[cfg(target_arch = "x86_64")]
const OF_X86: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_mknod,
    libc::SYS_uselib,
    libc::SYS_kexec_file_load,
    libc::SYS_quotactl_fd,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_X86: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_compiles_for_this_processor_and_is_short() {
        let refused = programme(refused(), libc::EPERM).unwrap();
        // The kernel's limit is 4,096.
        assert!((100..2000).contains(&refused.len()), "{}", refused.len());
    }
}
