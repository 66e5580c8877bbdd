//! Questions and answers on the path of a guest's request.
//!
//! Every answer is legal. Fields without a meaning for an occasion are ignored, and impossible placements
//! fall back, by the rules of [`Placement`]. The methods at the end apply the rules in one place, for the
//! engine and for tests.

use crate::{Piece, WholeInMemory};
use braid_base::{Bytes, DeviceId, ExtentId};

/// Reason for a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occasion<'a> {
    /// An extent without a home is allocated: for a piece of a guest's write, or only to reserve room for a
    /// guest.
    New {
        /// The extent.
        extent: ExtentId,
        /// The piece to be written now, if any.
        write: Option<Piece<'a>>,
    },
    /// A guest writes a piece of an extent with a home.
    Write(Piece<'a>),
    /// A guest reads a piece from the memory cache: no device is used.
    ReadHit(Piece<'a>),
    /// A guest reads a piece that is not in the memory cache. An extent without a home reads as zeros.
    ReadMiss(Piece<'a>),
}

impl<'a> Occasion<'a> {
    /// Returns the piece that the guest reads or writes, if any.
    pub fn piece(&self) -> Option<&Piece<'a>> {
        match self {
            Occasion::New { write, .. } => write.as_ref(),
            Occasion::Write(piece) | Occasion::ReadHit(piece) | Occasion::ReadMiss(piece) => Some(piece),
        }
    }
}

/// Placement of bytes. The table shows the meaning of each field, and the fallback of an impossible
/// placement:
///
/// | occasion | `home` | `second` | `extra` |
/// |---|---|---|---|
/// | new | `On` a device; if the device is full, or for other values, the roomiest device | device of the second copy, and its timing for this write | with a write, if the home is `On` its device: only this copy is written, if there is room |
/// | write | `Moved`, if the target has room; `Later` with `extra`, if the extra device has room; `Alone`; otherwise the home and existing extra copies | timing of the second copy for this write | with `Later`: only this copy is written |
/// | read hit | not used | not used | not used |
/// | read miss | `Alone`: clean extra copies are not read | not used | device for clean copies of the blocks that the piece covers whole, if there is room |
///
/// With two required copies, an extra copy alone is not enough: such a write goes to the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement<'a> {
    /// The home.
    pub home: Home<'a>,
    /// The second required copy.
    pub second: Second,
    /// Device of a new extra copy, if wanted.
    pub extra: Option<DeviceId>,
}

/// Place of the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<'a> {
    /// Keeps an existing home. The engine chooses a device for a new home.
    Keep,
    /// Places a new home on the device.
    On(DeviceId),
    /// Writes the whole extent from the memory cache to a new home on the device.
    Moved(DeviceId, WholeInMemory<'a>),
    /// Leaves the home stale: only the extra copy is written now, and becomes dirty (write-back).
    Later,
    /// Uses only the home. A write drops the extra copies of blocks covered whole. A read uses clean extra
    /// copies only if the home cannot be read.
    Alone,
}

/// Treatment of the second required copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Second {
    /// As the volume requires: none with one copy; with two copies, `Sync` on the roomiest other device.
    #[default]
    None,
    /// Written before the reply to the guest. A new copy goes to the device, if the device has room and is
    /// not the home's; otherwise to the roomiest other device.
    Sync(DeviceId),
    /// Brought up to date later: the range is recorded as behind before the reply to the guest. A new copy is
    /// placed as with `Sync`.
    Behind {
        /// Device for a new copy.
        device: DeviceId,
        /// Bound of stale bytes in the volume, this write included. A write beyond the bound goes to both
        /// copies before the reply.
        most: Bytes,
    },
}

impl Second {
    /// Returns the policy's device for a new second copy, if chosen.
    pub fn device(self) -> Option<DeviceId> {
        match self {
            Second::None => None,
            Second::Sync(device) | Second::Behind { device, .. } => Some(device),
        }
    }
}

/// The engine's action for a piece of a write to an extent with a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTarget {
    /// Writes the home and the existing extra copies.
    Home,
    /// Writes the home, and drops the extra copies of blocks covered whole.
    HomeAlone,
    /// Writes the whole extent to a new home on the device.
    NewHome(DeviceId),
    /// Writes only an extra copy on the device.
    Extra(DeviceId),
}

impl<'a> Placement<'a> {
    /// Changes nothing; the engine chooses a device for a new home.
    pub const KEEP: Placement<'static> = Placement { home: Home::Keep, second: Second::None, extra: None };

    /// Bypasses a cache: only the home is used.
    pub const ALONE: Placement<'static> = Placement { home: Home::Alone, ..Placement::KEEP };

    /// Places a new home on the device.
    pub const fn on(device: DeviceId) -> Placement<'static> {
        Placement { home: Home::On(device), ..Placement::KEEP }
    }

    /// Moves the home to the device, together with the write being placed.
    pub const fn moved(device: DeviceId, whole: WholeInMemory<'a>) -> Placement<'a> {
        Placement { home: Home::Moved(device, whole), second: Second::None, extra: None }
    }

    /// Writes only an extra copy on the device, which becomes dirty.
    pub const fn write_back(device: DeviceId) -> Placement<'static> {
        Placement { home: Home::Later, second: Second::None, extra: Some(device) }
    }

    /// Makes extra copies of the bytes read on the device, if any.
    pub const fn cached(device: Option<DeviceId>) -> Placement<'static> {
        Placement { home: Home::Keep, second: Second::None, extra: device }
    }

    /// Adds an extra copy to a new home. If `extra` is set, only the extra copy is written, and becomes
    /// dirty; the home has no bytes yet.
    pub const fn with_extra(self, extra: Option<DeviceId>) -> Placement<'a> {
        Placement { extra, ..self }
    }

    /// Sets the second required copy.
    pub const fn with_second(self, second: Second) -> Placement<'a> {
        Placement { home: self.home, second, extra: self.extra }
    }

    /// Returns the policy's device for a new home; `None` leaves the choice to the engine.
    pub fn new_home(&self) -> Option<DeviceId> {
        match self.home {
            Home::On(device) => Some(device),
            Home::Keep | Home::Moved(..) | Home::Later | Home::Alone => None,
        }
    }

    /// Returns the target of the first write to an extent with a new home on `home`.
    pub fn first_write(&self, home: DeviceId) -> WriteTarget {
        match (self.home, self.extra) {
            (Home::On(device), Some(extra)) if device == home => WriteTarget::Extra(extra),
            _ => WriteTarget::Home,
        }
    }

    /// Returns the target of a write to an extent with a home.
    pub fn write_target(&self) -> WriteTarget {
        match (self.home, self.extra) {
            (Home::Moved(device, _), _) => WriteTarget::NewHome(device),
            (Home::Later, Some(device)) => WriteTarget::Extra(device),
            (Home::Alone, _) => WriteTarget::HomeAlone,
            (Home::Keep | Home::On(_) | Home::Later, _) => WriteTarget::Home,
        }
    }

    /// True if a read uses the home instead of clean extra copies.
    pub fn passes_clean(&self) -> bool {
        self.home == Home::Alone
    }

    /// Returns the device for extra copies of the blocks being read.
    pub fn promoted_to(&self) -> Option<DeviceId> {
        self.extra
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: DeviceId = DeviceId(3);

    #[test]
    fn placement_unsuited_to_occasion_falls_back_to_home() {
        let whole = WholeInMemory::vouched_by_the_engine();
        let later = Placement { home: Home::Later, ..Placement::KEEP };
        let behind = Second::Behind { device: D, most: Bytes(u64::MAX) };
        let cases = [
            (Placement::KEEP, None, WriteTarget::Home, None),
            (Placement::on(D), Some(D), WriteTarget::Home, None),
            (Placement::moved(D, whole), None, WriteTarget::NewHome(D), None),
            (Placement::write_back(D), None, WriteTarget::Extra(D), Some(D)),
            (Placement::cached(Some(D)), None, WriteTarget::Home, Some(D)),
            (later, None, WriteTarget::Home, None),
            (Placement::ALONE, None, WriteTarget::HomeAlone, None),
        ];
        for (placement, new_home, write_target, promoted_to) in cases {
            assert_eq!(placement.new_home(), new_home, "{placement:?}");
            assert_eq!(placement.write_target(), write_target, "{placement:?}");
            assert_eq!(placement.promoted_to(), promoted_to, "{placement:?}");
            assert_eq!(placement.passes_clean(), placement == Placement::ALONE, "{placement:?}");
            assert_eq!(placement.with_second(behind).write_target(), write_target);
            assert_eq!(placement.first_write(D), WriteTarget::Home, "{placement:?}");
        }
        let dirty = Placement::on(D).with_extra(Some(DeviceId(1)));
        assert_eq!(dirty.first_write(D), WriteTarget::Extra(DeviceId(1)));
        assert_eq!(dirty.first_write(DeviceId(2)), WriteTarget::Home, "there was no room for its home");
    }
}
