//! Input of a recovery.

use super::LoggedChanges;
use crate::devices::Member;
use crate::journal::DirtySpans;
use braid_base::DeviceId;
use braid_format::superblock::Superblock;

/// Input of a recovery: devices, superblock, and notes from elsewhere.
pub(crate) struct RecoveryInput<'a, D> {
    pub members: &'a [Member<D>],
    pub superblock: &'a Superblock,
    pub mode: Mode,
    /// True after a shutdown: copies then differ only in spans with a stale or undecided copy.
    pub clean: bool,
    /// True if the adopted disk was changed while Braid did not serve it.
    pub changed_elsewhere: bool,
    /// Table of dirty spans of a volume on an adopted disk.
    pub dirty_spans: Option<&'a DirtySpans>,
    /// Changes in the pending log of a daemon that died.
    pub log: Option<&'a LoggedChanges>,
    /// Devices whose end is gone.
    pub cut: &'a [(DeviceId, String)],
    /// Newest batch that the host has noted as durable; 0 if unknown.
    pub noted: u64,
}

/// How recovery treats damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Refuses damage.
    Strict,
    /// Keeps everything proved.
    Repair,
}
