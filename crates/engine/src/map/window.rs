//! A window: adjacent slots of a device that are being emptied for metadata. Free slots of the window are
//! taken at once, other slots as soon as they are free.

use super::space::Space;
use braid_base::DeviceId;
use std::ops::Range;

/// Slots of a window, and the slots gathered so far.
pub(super) struct Window {
    pub device: DeviceId,
    pub slots: Range<u32>,
    pub gathered: Vec<u32>,
}

/// First of `count` adjacent slots with the fewest taken.
pub(super) fn emptiest(
    space: &Space,
    device: DeviceId,
    count: u32,
    least: u32,
    metadata: &[Range<u32>],
) -> Option<u32> {
    let is_metadata = |index: u32| metadata.iter().any(|slots| slots.contains(&index));
    let (mut best, mut taken, mut start) = (None, 0, least);
    for index in least..space.slots(device) {
        if is_metadata(index) {
            (taken, start) = (0, index + 1);
            continue;
        }
        taken += u32::from(!space.is_free(device, index));
        if index + 1 - start > count {
            taken -= u32::from(!space.is_free(device, start));
            start += 1;
        }
        if index + 1 - start == count && best.is_none_or(|(fewest, _)| taken < fewest) {
            best = Some((taken, start));
        }
    }
    best.map(|(_, first)| first)
}
