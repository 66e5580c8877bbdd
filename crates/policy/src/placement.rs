//! The questions on the path of a guest's request, and the answers to them.
//!
//! Every answer is a legal one. What an occasion has no use for is ignored, and what cannot be done falls
//! back, by the rules at [`Placement`], which the methods at the end apply in one place for the engine and
//! for tests.

use crate::{Piece, WholeInMemory};
use braid_base::{Bytes, DeviceId, ExtentId};

/// Why the engine asks where bytes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occasion<'a> {
    /// An extent without a home gets one: for a piece of a guest's write, or for none if a guest only wants
    /// room to be kept.
    New {
        /// Which extent.
        extent: ExtentId,
        /// What is written to it now.
        write: Option<Piece<'a>>,
    },
    /// A piece of an extent that has a home is written.
    Write(Piece<'a>),
    /// A piece is read that the memory cache holds: no device is touched.
    ReadHit(Piece<'a>),
    /// A piece is read that the memory cache does not hold. The extent may have no home: then it reads as
    /// zeros.
    ReadMiss(Piece<'a>),
}

impl<'a> Occasion<'a> {
    /// What the guest reads or writes, if anything.
    pub fn piece(&self) -> Option<&Piece<'a>> {
        match self {
            Occasion::New { write, .. } => write.as_ref(),
            Occasion::Write(piece) | Occasion::ReadHit(piece) | Occasion::ReadMiss(piece) => Some(piece),
        }
    }
}

/// Where bytes go. What counts on which occasion, and what happens if it cannot be done:
///
/// | occasion | `home` | `second` | `extra` |
/// |---|---|---|---|
/// | new | `On` a device; otherwise, or if that is full, the roomiest | where the second copy is allocated, and how this write treats it | with a write, if the home is `On` its device: the copy that is written alone, if there is room |
/// | write | `Moved`, if the target has room; `Later` with `extra`, if that has room; `Alone`; otherwise the home, and what extra copies there are | how this write treats it | with `Later`: the copy that is written alone |
/// | read hit | not used | not used | not used |
/// | read miss | `Alone`: clean extra copies are passed over | not used | where the blocks that the piece covers whole get a clean copy, if there is room |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement<'a> {
    /// The home.
    pub home: Home<'a>,
    /// The second required copy.
    pub second: Second,
    /// The device of the extra copy, if there shall be one that is not there yet.
    pub extra: Option<DeviceId>,
}

/// Where the home is, or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<'a> {
    /// It stays where it is; a new one goes where the engine finds room.
    Keep,
    /// A new one goes to this device.
    On(DeviceId),
    /// All of the extent is written to this device, out of the memory cache, which becomes its home.
    Moved(DeviceId, WholeInMemory<'a>),
    /// It is brought up to date later: only the extra copy is written now, and is dirty (write-back).
    Later,
    /// It alone: a write drops the extra copies of blocks that it covers whole; a read takes clean extra
    /// copies only if the home cannot be read.
    Alone,
}

/// What becomes of the second required copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Second {
    /// What the volume requires: none with one copy; with two, `Sync` on the roomiest other device.
    #[default]
    None,
    /// It is written before the guest is answered. A new one goes to this device, if that has room and is not
    /// the home's; otherwise to the roomiest other one.
    Sync(DeviceId),
    /// It is brought up to date later: the range is recorded as behind before the guest is answered. A new
    /// one goes where `Sync` says.
    Behind {
        /// Where a new one goes.
        device: DeviceId,
        /// What may be behind with this write, of the volume: if it would be more, the write goes to both
        /// copies before it is answered.
        most: Bytes,
    },
}

impl Second {
    /// The device for a new second copy, if the policy chose one.
    pub fn device(self) -> Option<DeviceId> {
        match self {
            Second::None => None,
            Second::Sync(device) | Second::Behind { device, .. } => Some(device),
        }
    }
}

/// What the engine does with a piece of a write to an extent that has a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTarget {
    /// It writes the home, and what extra copies there are.
    Home,
    /// It writes the home, and drops the extra copies of blocks that it covers whole.
    HomeAlone,
    /// It writes all of the extent to a new home on this device.
    NewHome(DeviceId),
    /// It writes an extra copy on this device, alone.
    Extra(DeviceId),
}

impl<'a> Placement<'a> {
    /// Nothing changes; what is new goes where the engine finds room.
    pub const KEEP: Placement<'static> = Placement { home: Home::Keep, second: Second::None, extra: None };

    /// The request goes past a cache: to the home alone.
    pub const ALONE: Placement<'static> = Placement { home: Home::Alone, ..Placement::KEEP };

    /// A new home on this device.
    pub const fn on(device: DeviceId) -> Placement<'static> {
        Placement { home: Home::On(device), ..Placement::KEEP }
    }

    /// The home moves to this device, with the write that is being placed.
    pub const fn moved(device: DeviceId, whole: WholeInMemory<'a>) -> Placement<'a> {
        Placement { home: Home::Moved(device, whole), second: Second::None, extra: None }
    }

    /// The write goes to an extra copy on this device alone, which is dirty then.
    pub const fn write_back(device: DeviceId) -> Placement<'static> {
        Placement { home: Home::Later, second: Second::None, extra: Some(device) }
    }

    /// What is read gets an extra copy on this device, or none.
    pub const fn cached(device: Option<DeviceId>) -> Placement<'static> {
        Placement { home: Home::Keep, second: Second::None, extra: device }
    }

    /// A new home, to which nothing is written yet if there is an extra copy: the write goes there alone,
    /// which is dirty then.
    pub const fn with_extra(self, extra: Option<DeviceId>) -> Placement<'a> {
        Placement { extra, ..self }
    }

    /// The same with this second required copy.
    pub const fn with_second(self, second: Second) -> Placement<'a> {
        Placement { home: self.home, second, extra: self.extra }
    }

    /// The device that the policy chose for a new home; none leaves it to the engine.
    pub fn new_home(&self) -> Option<DeviceId> {
        match self.home {
            Home::On(device) => Some(device),
            Home::Keep | Home::Moved(..) | Home::Later | Home::Alone => None,
        }
    }

    /// Where the first write to an extent goes, if not to its home on this device.
    pub fn first_write(&self, home: DeviceId) -> WriteTarget {
        match (self.home, self.extra) {
            (Home::On(device), Some(extra)) if device == home => WriteTarget::Extra(extra),
            _ => WriteTarget::Home,
        }
    }

    /// Where a write to an extent with a home goes.
    pub fn write_target(&self) -> WriteTarget {
        match (self.home, self.extra) {
            (Home::Moved(device, _), _) => WriteTarget::NewHome(device),
            (Home::Later, Some(device)) => WriteTarget::Extra(device),
            (Home::Alone, _) => WriteTarget::HomeAlone,
            (Home::Keep | Home::On(_) | Home::Later, _) => WriteTarget::Home,
        }
    }

    /// Whether a read passes over clean extra copies, to the home.
    pub fn passes_clean(&self) -> bool {
        self.home == Home::Alone
    }

    /// The device on which blocks that are being read get an extra copy.
    pub fn promoted_to(&self) -> Option<DeviceId> {
        self.extra
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: DeviceId = DeviceId(3);

    #[test]
    fn an_answer_that_an_occasion_has_no_use_for_falls_back() {
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
