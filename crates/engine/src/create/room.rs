//! Largest volume on given devices, and the room that a volume's size leaves for other policies.
//!
//! A policy with cached copies can be chosen only if the volume leaves enough room on the devices. A volume
//! without a size therefore leaves a part of the SSDs ([`Left::ForPolicies`]). Meanwhile, the active policy
//! uses the part.
//!
//! | policy | what it needs of the SSDs by default |
//! |---|---|
//! | `exclusive`, `inclusive` | 20 % |
//! | `ssd-first` | 10 % |
//! | `cache`, `orthus`, `hystor` | all: homes lie on the disks |
//! | `most` | as much as 20 % of all devices, or all |
//! | `pass`, `raid1` | nothing beside the two required copies of everything |
//! | all others | nothing |

use super::policy::checked_policy;
use crate::adopted::refuse_moving_homes;
use crate::map::State;
use crate::shape::Shape;
use braid_base::{Bytes, DeviceClass};
use braid_format::superblock::{DeviceEntry, Layout, Superblock};
use braid_policy::{DeviceView, Policy};

/// Room that a volume without a size leaves on its devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Nothing but slots for moves.
    Nothing,
    /// With SSDs and disks: 20 % of the SSDs, or all of the SSDs if the volume shrinks by a ninth at most.
    /// Under a policy that mirrors everything: nothing.
    ForPolicies,
}

/// A new volume and other policies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomLeft {
    /// Possible growth of the volume under its policy.
    pub left: Bytes,
    /// All policies with their default settings, except for the active policy.
    pub policies: Vec<Fit>,
}

/// Fit of one policy on a volume, with the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fit {
    /// Name of the policy.
    pub policy: &'static str,
    /// True if the volume fits the policy.
    pub fits: bool,
    /// If false: a size of a volume on these devices that fits the policy, if any. A smaller volume has a
    /// smaller map, and a few more extents may fit.
    pub largest: Option<Bytes>,
    /// If false: required copies of the policy, if the volume has fewer.
    pub copies: Option<u8>,
}

/// Slots that no volume may count on: moves need free slots.
pub const SPARE_SLOTS: u32 = 4;
/// Share of slots kept free for moves: one in this many.
const SPARE_SHARE: u32 = 100;
/// Share of the SSDs left free: the need of `exclusive` and `inclusive`, and of a cache with `cache=20%`.
const SHARE: f64 = 0.2;
/// If the SSDs are at most one part in this many of all room (an eighth of the disks), all of the SSDs are
/// left free, for `cache` and `hystor`, too. The cost is small, and no smaller share would suffice.
const SMALL: u64 = 9;

/// Returns the largest volume on these devices under a policy, and the room on the devices that the policy
/// uses.
pub(crate) fn room(
    views: &[DeviceView],
    devices: &[DeviceEntry],
    policy: &dyn Policy,
    extent_size: Bytes,
    copies: u8,
) -> (Bytes, Bytes) {
    room_beside(views, devices, policy, |view| policy.extra_slots(view), extent_size, copies)
}

/// As [`room`], with an own number of slots for cached copies on each device.
fn room_beside(
    views: &[DeviceView],
    devices: &[DeviceEntry],
    policy: &dyn Policy,
    extra_slots: impl Fn(&DeviceView) -> u32,
    extent_size: Bytes,
    copies: u8,
) -> (Bytes, Bytes) {
    let keeps_addresses = |view: &DeviceView| devices[view.id.index()].layout == Layout::Tail;
    let room = |view: &DeviceView| {
        // On a device with a slot for each extent, no move waits for another, and cached copies lie
        // elsewhere.
        let others = match keeps_addresses(view) {
            true => 0,
            false => SPARE_SLOTS.max(view.slots / SPARE_SHARE) + extra_slots(view),
        };
        u64::from(view.free.saturating_sub(others))
    };
    let (all, largest) = views.iter().map(room).fold((0, 0), |(all, largest), r| (all + r, r.max(largest)));
    let by_room = match copies {
        1 => all,
        // The second copy lies on another device: the largest device cannot use more than the room of all the
        // rest.
        _ => (all / 2).min(all - largest),
    };
    // A device that keeps addresses has a slot for every byte of the volume. A device without room is leaving
    // or lost, and gets no data.
    let addresses = views.iter().filter(|view| keeps_addresses(view) && view.free > 0).map(room).min();
    let most = extent_size * by_room.min(addresses.unwrap_or(u64::MAX));
    (most, extent_size * views.iter().filter(|v| policy.uses(v)).map(room).sum::<u64>())
}

/// Size of a volume that leaves room for other policies.
pub(super) fn usual_size(
    views: &[DeviceView],
    devices: &[DeviceEntry],
    policy: &dyn Policy,
    extent_size: Bytes,
    copies: u8,
) -> Bytes {
    let (most, homes) = room(views, devices, policy, extent_size, copies);
    let usual = homes.min(most);
    if policy.copies() > 1 {
        return usual;
    }
    let beside = |share: f64| {
        let left = |view: &DeviceView| match view.class {
            DeviceClass::Ssd => (f64::from(view.slots) * share) as u32,
            DeviceClass::Hdd => 0,
        };
        let extra_slots = |view: &DeviceView| policy.extra_slots(view).max(left(view));
        usual.min(room_beside(views, devices, policy, extra_slots, extent_size, copies).0)
    };
    let has = |class| views.iter().any(|view| view.class == class && view.slots > 0);
    if !has(DeviceClass::Ssd) || !has(DeviceClass::Hdd) {
        return usual;
    }
    let (disks, part) = (beside(1.0), beside(SHARE));
    match (usual - disks) * SMALL <= usual {
        true => disks,
        // A volume too small to leave anything keeps its usual size.
        false if part == Bytes::ZERO => usual,
        false => part,
    }
}

/// Returns the room left by the size of a new volume, and the policies that could be chosen (as
/// `Volume::set_policy` judges).
pub fn room_left(superblock: &Superblock) -> RoomLeft {
    let shape = Shape::of(superblock);
    let views = State::new(&shape, superblock).views;
    let most = |policy: &dyn Policy| {
        let views: Vec<DeviceView> =
            views.iter().map(|view| DeviceView { free: view.slots, ..*view }).collect();
        room(&views, &superblock.devices, policy, shape.extent_size, shape.copies).0
    };
    let is_adopted = superblock.adopted().is_some();
    let fit = |&name: &&'static str| {
        let no = Fit { policy: name, fits: false, largest: None, copies: None };
        let text = if name == "static" { "static,ssd=50%" } else { name };
        let Ok(policy) = braid_policy::parse(text, &views) else { return no };
        if policy.copies() > shape.copies {
            return Fit { copies: Some(policy.copies()), ..no };
        }
        let is_refused = checked_policy(&*policy, shape.copies).is_err()
            || is_adopted && refuse_moving_homes(&*policy, &views).is_err();
        let largest = most(&*policy);
        match is_adopted || shape.volume_size <= largest {
            true => Fit { fits: !is_refused, ..no },
            false => Fit { largest: Some(largest).filter(|&size| size > Bytes::ZERO && !is_refused), ..no },
        }
    };
    let in_charge = superblock.policy.split(',').next().unwrap_or_default();
    let policies = braid_policy::NAMES.iter().filter(|&&name| name != in_charge).map(fit).collect();
    let left = match braid_policy::parse(&superblock.policy, &views) {
        Ok(policy) if !is_adopted => most(&*policy).saturating_sub(shape.volume_size),
        _ => Bytes::ZERO,
    };
    RoomLeft { left, policies }
}
