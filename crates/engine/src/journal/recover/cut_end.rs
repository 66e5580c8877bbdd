//! The end of a device that was cut: which extents are lost there.

use crate::buffer::buffer;
use crate::devices::{Deadline, Member};
use crate::map::State;
use crate::shape::Shape;
use crate::{Error, Result};
use braid_base::{Bytes, ExtentId};
use braid_runtime::{Arena, Device};

/// Extents lost at the end of a cut device, of a volume with one required copy. The search goes down from the
/// highest slot in use, as long as slots hold nothing but zeros. The first slot with other bytes, and all
/// slots before, were not cut.
///
/// # Errors
/// `Io` if a slot cannot be read.
pub(crate) async fn lost_at_end<D: Device>(
    member: &Member<D>,
    shape: &Shape,
    state: &State,
) -> Result<Vec<ExtentId>> {
    if state.map.is_of_adopted() {
        return Ok(Vec::new());
    }
    let on_device = |(extent, entry): (ExtentId, braid_format::map_page::Entry)| {
        let slot = state.space.locate(entry.home).filter(|slot| slot.device == member.id)?;
        Some((slot.index, extent))
    };
    let mut used: Vec<(u32, ExtentId)> = state.map.iter().filter_map(on_device).collect();
    used.sort_unstable_by(|a, b| b.cmp(a));
    let buf = buffer(shape.extent_size.min(Arena::LARGEST)).await;
    let mut lost = Vec::new();
    'slots: for (index, extent) in used {
        let (at, mut done) = (member.slot_offset(index, shape.extent_size), Bytes::ZERO);
        while done < shape.extent_size {
            let piece = buf.slice(Bytes::ZERO..buf.len().min(shape.extent_size - done));
            let read = member.read(at + done, &piece, Deadline::Only).await;
            read.map_err(|e| Error::io(format_args!("{} could not be read at its end", member.id), &e))?;
            if !piece.with_bytes(|bytes| bytes.iter().all(|&byte| byte == 0)) {
                break 'slots;
            }
            done += piece.len();
        }
        lost.push(extent);
    }
    lost.sort_unstable();
    Ok(lost)
}
