//! Events that may happen to a volume while guests work, by name.

use std::fmt;
use std::str::FromStr;

/// A kind of disturbance. In one life all kinds strike the same disk.
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
    /// Some flushes fail and lose the writes that they covered; the next flushes succeed.
    LossyFlushes,
    /// Some operations take seconds, or up to 100.
    Stalls,
    /// For up to five minutes no operation begins or ends.
    Hangs,
    /// The disk goes away and comes back: in the next life only, if unflushed writes were lost.
    Deaths,
    /// Some discards fail, and may have been carried out in part.
    DiscardErrors,
    /// For up to five minutes no discard begins or ends; all other operations do.
    DiscardHangs,
    /// A place is unreadable until rewritten, or neither readable nor writable any more, also in all later
    /// lives.
    BadPlaces,
    /// A place in the metadata is unreadable, or neither readable nor writable, for a while.
    BadRegions,
    /// Bytes of metadata change by themselves.
    Rot,
    /// Some writes of metadata change nothing.
    LostWrites,
    /// Some writes of metadata go elsewhere in the metadata.
    MisdirectedWrites,
    /// The disk is missing when the volume is opened.
    MissingDevice,
    /// Any disk is missing when the volume is opened: another disk each time.
    MissingInTurn,
    /// When the volume is opened, the disk is an old copy of itself.
    StaleDevice,
    /// When the volume is opened, a copy of the disk is present beside the disk, as old as the disk or
    /// older.
    ClonedDevice,
    /// When the volume is opened, the disks are given in another order.
    ShuffledDevices,
    /// The policy changes: no fault, but a disturbance all the same.
    PolicyChanges,
}

impl Disturbance {
    /// Faults of a disk that fails by itself.
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
    pub const ALL: [Disturbance; 21] = [
        Disturbance::ReadErrors,
        Disturbance::WriteErrors,
        Disturbance::BadSectors,
        Disturbance::FlushErrors,
        Disturbance::LossyFlushes,
        Disturbance::Stalls,
        Disturbance::Hangs,
        Disturbance::Deaths,
        Disturbance::DiscardErrors,
        Disturbance::DiscardHangs,
        Disturbance::BadPlaces,
        Disturbance::BadRegions,
        Disturbance::Rot,
        Disturbance::LostWrites,
        Disturbance::MisdirectedWrites,
        Disturbance::MissingDevice,
        Disturbance::MissingInTurn,
        Disturbance::StaleDevice,
        Disturbance::ClonedDevice,
        Disturbance::ShuffledDevices,
        Disturbance::PolicyChanges,
    ];

    /// The kind's name in reports and trials.
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
            Disturbance::DiscardErrors => "discard-errors",
            Disturbance::DiscardHangs => "discard-hangs",
            Disturbance::BadPlaces => "bad-places",
            Disturbance::BadRegions => "bad-regions",
            Disturbance::Rot => "rot",
            Disturbance::LostWrites => "lost-writes",
            Disturbance::MisdirectedWrites => "misdirected-writes",
            Disturbance::MissingDevice => "missing-device",
            Disturbance::MissingInTurn => "missing-in-turn",
            Disturbance::StaleDevice => "stale-device",
            Disturbance::ClonedDevice => "cloned-device",
            Disturbance::ShuffledDevices => "shuffled-devices",
            Disturbance::PolicyChanges => "policy-changes",
        }
    }

    /// True if the kind strikes at the opening of a volume, and not during its use.
    pub(super) fn is_of_opening(self) -> bool {
        matches!(
            self,
            Disturbance::MissingDevice
                | Disturbance::MissingInTurn
                | Disturbance::StaleDevice
                | Disturbance::ClonedDevice
                | Disturbance::ShuffledDevices
        )
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
