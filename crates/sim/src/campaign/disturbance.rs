//! What may happen to a volume while its guests work, by name.

use std::fmt;
use std::str::FromStr;

/// A kind of disturbance. In one life all of them strike the same disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Disturbance {
    /// Some reads fail.
    ReadErrors,
    /// Some writes fail, and may have been carried out in part.
    WriteErrors,
    /// A range can neither be read nor written for a while.
    BadSectors,
    /// Some flushes fail, and lose nothing.
    FlushErrors,
    /// Some flushes fail and lose what they should have made durable; the next ones succeed.
    LossyFlushes,
    /// Some operations take seconds, or up to 100.
    Stalls,
    /// For up to five minutes no operation begins or ends.
    Hangs,
    /// The disk goes away and comes back; if it lost what was not flushed, only to the next life.
    Deaths,
    /// Bytes of metadata change by themselves.
    Rot,
    /// Some writes of metadata change nothing.
    LostWrites,
    /// Some writes of metadata go elsewhere in the metadata.
    MisdirectedWrites,
    /// The disk is missing when the volume is opened.
    MissingDevice,
    /// When the volume is opened, the disk is an old copy of itself.
    StaleDevice,
    /// The policy changes: no fault, but it disturbs all the same.
    PolicyChanges,
}

impl Disturbance {
    /// What may happen to a disk that fails by itself.
    pub const OF_FAILING_DISKS: [Disturbance; 8] = [
        Disturbance::ReadErrors,
        Disturbance::WriteErrors,
        Disturbance::BadSectors,
        Disturbance::FlushErrors,
        Disturbance::LossyFlushes,
        Disturbance::Stalls,
        Disturbance::Hangs,
        Disturbance::Deaths,
    ];

    /// All kinds.
    pub const ALL: [Disturbance; 14] = [
        Disturbance::ReadErrors,
        Disturbance::WriteErrors,
        Disturbance::BadSectors,
        Disturbance::FlushErrors,
        Disturbance::LossyFlushes,
        Disturbance::Stalls,
        Disturbance::Hangs,
        Disturbance::Deaths,
        Disturbance::Rot,
        Disturbance::LostWrites,
        Disturbance::MisdirectedWrites,
        Disturbance::MissingDevice,
        Disturbance::StaleDevice,
        Disturbance::PolicyChanges,
    ];

    /// Its name in reports and trials.
    pub fn name(self) -> &'static str {
        match self {
            Disturbance::ReadErrors => "read-errors",
            Disturbance::WriteErrors => "write-errors",
            Disturbance::BadSectors => "bad-sectors",
            Disturbance::FlushErrors => "flush-errors",
            Disturbance::LossyFlushes => "lossy-flushes",
            Disturbance::Stalls => "stalls",
            Disturbance::Hangs => "hangs",
            Disturbance::Deaths => "deaths",
            Disturbance::Rot => "rot",
            Disturbance::LostWrites => "lost-writes",
            Disturbance::MisdirectedWrites => "misdirected-writes",
            Disturbance::MissingDevice => "missing-device",
            Disturbance::StaleDevice => "stale-device",
            Disturbance::PolicyChanges => "policy-changes",
        }
    }

    /// Whether it strikes when a volume is opened, and not while it is in use.
    pub(super) fn is_of_opening(self) -> bool {
        matches!(self, Disturbance::MissingDevice | Disturbance::StaleDevice)
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Disturbance {
    type Err = String;

    fn from_str(text: &str) -> Result<Disturbance, String> {
        let found = Disturbance::ALL.into_iter().find(|disturbance| disturbance.name() == text);
        found.ok_or_else(|| format!("unknown disturbance '{text}'"))
    }
}
