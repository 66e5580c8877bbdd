//! A device without bytes: stores a volume's metadata whole, and guests' data not at all or as tags.
//!
//! For simulations in which the place of data matters and the content does not. Of guests' data, the device
//! keeps a tag of 8 bytes for each sector (see [`SectorTags`]), or nothing. The memory of a simulation
//! follows the amount of mapped data, or not even that, and never the number of requests.
//!
//! Operations take no time: [`braid_emulated`](../braid_emulated/index.html) adds time. A power cut loses
//! nothing, because no power is cut here: [`crate::Disk`] is the device for power cuts.

use crate::image::{Blank, Image};
use crate::sector_tags::SectorTags;
use braid_base::Bytes;
use braid_runtime::{Buf, Device, Geometry};
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;

/// The part of guests' data that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// The first word of each sector: reads return the word, and leave the rest of the buffer alone.
    Tags,
    /// Nothing: reads leave the buffer alone.
    Nothing,
}

/// A device without bytes.
pub struct Hollow {
    geometry: Geometry,
    payload: Payload,
    /// Start and end of the slots: guests' data, except …
    slots: Cell<(Bytes, Bytes)>,
    /// … these regions, in which the volume keeps its metadata.
    regions: RefCell<Vec<Range<Bytes>>>,
    /// Content outside the data.
    metadata: RefCell<Image>,
    tags: RefCell<SectorTags>,
    /// Number of the write of guests' data, from now, that is lost; 0: none.
    lost_write: Cell<u64>,
}

impl Hollow {
    /// Creates a device of zeros that keeps everything, until [`Hollow::set_data`] names the range of
    /// guests' data.
    ///
    /// # Panics
    /// If the alignment is smaller than a sector: tags are by sector.
    pub fn new(geometry: Geometry, payload: Payload) -> Hollow {
        assert!(geometry.alignment >= braid_base::SECTOR, "a tag belongs to a whole sector");
        Hollow {
            geometry,
            payload,
            slots: Cell::new((Bytes::ZERO, Bytes::ZERO)),
            regions: RefCell::default(),
            metadata: RefCell::new(Image::new(Blank::Zeros)),
            tags: RefCell::default(),
            lost_write: Cell::new(0),
        }
    }

    /// Injects a fault: the write of guests' data with this number from now succeeds without effect. The
    /// first number is 1.
    pub fn lose_write(&self, number: u64) {
        self.lost_write.set(number);
    }

    fn is_lost(&self) -> bool {
        let left = self.lost_write.get();
        self.lost_write.set(left.saturating_sub(1));
        left == 1
    }

    /// From now on keeps only the payload of these slots, except in `regions`. Bytes that the slots held
    /// whole can no longer be read.
    pub fn set_data(&self, slots: Range<Bytes>, regions: impl IntoIterator<Item = Range<Bytes>>) {
        let mut regions: Vec<Range<Bytes>> = regions.into_iter().collect();
        regions.sort_by_key(|region| region.start);
        // Neighbours are merged, because every request searches the list.
        regions.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        self.slots.set((slots.start, slots.end));
        *self.regions.borrow_mut() = regions;
    }

    /// True if a range lies in the data.
    ///
    /// # Panics
    /// If the range crosses a border of the data: no slot does.
    fn is_data(&self, offset: Bytes, len: Bytes) -> bool {
        let lies_in = |start: Bytes, end: Bytes| {
            let inside = start <= offset && offset + len <= end;
            assert!(inside || offset + len <= start || end <= offset, "{len:?} at {offset:?} cross a border");
            inside
        };
        let (start, end) = self.slots.get();
        lies_in(start, end) && !self.regions.borrow().iter().any(|region| lies_in(region.start, region.end))
    }
}

impl Device for Hollow {
    const ALWAYS_ANSWERS: bool = true;

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn expect(&self, offset: Bytes) {
        if self.payload == Payload::Tags {
            self.tags.borrow().expect(offset);
        }
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.geometry.check(offset, into.len())?;
        match self.payload {
            _ if !self.is_data(offset, into.len()) => {
                into.with_bytes_mut(|bytes| self.metadata.borrow().read(offset, bytes));
            }
            Payload::Tags => into.with_bytes_mut(|bytes| self.tags.borrow().read(offset, bytes)),
            Payload::Nothing => {}
        }
        Ok(())
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        self.geometry.check(offset, from.len())?;
        match self.payload {
            _ if !self.is_data(offset, from.len()) => {
                from.with_bytes(|bytes| self.metadata.borrow_mut().write(offset, bytes));
            }
            _ if self.is_lost() => {}
            Payload::Tags => from.with_bytes(|bytes| self.tags.borrow_mut().write(offset, bytes)),
            Payload::Nothing => {}
        }
        Ok(())
    }

    async fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.geometry.check(offset, len)?;
        if self.payload == Payload::Tags && self.is_data(offset, len) {
            self.tags.borrow_mut().set(offset, len, DISCARDED);
        }
        Ok(())
    }
}

/// The tag of discarded sectors. No writer uses the tag, so a test exposes code that relies on discarded
/// content.
const DISCARDED: u64 = u64::MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;
    use braid_base::{DeviceClass, KIB, MIB, SECTOR};
    use braid_runtime::Arena;

    fn read_back(payload: Payload) -> (u8, u64, u8) {
        let world = World::new(1);
        world.block_on(async move {
            let device = Hollow::new(
                Geometry {
                    size: MIB,
                    class: DeviceClass::Ssd,
                    alignment: SECTOR,
                    memory_alignment: Bytes(1),
                },
                payload,
            );
            let regions = [KIB * 640..KIB * 704, KIB * 512..KIB * 576, KIB * 576..KIB * 592];
            device.set_data(KIB * 512..MIB, regions);
            let buf = Arena::new(MIB).alloc(KIB * 4).await;
            buf.with_bytes_mut(|bytes| bytes.fill(0x11));
            device.write(KIB * 600, &buf).await.unwrap();
            let mut metadata = 0x11;
            for place in [KIB * 8, KIB * 512, KIB * 588, KIB * 640] {
                buf.with_bytes_mut(|bytes| bytes.fill(0x11));
                device.write(place, &buf).await.unwrap();
                buf.with_bytes_mut(|bytes| bytes.fill(0x22));
                device.read(place, &buf).await.unwrap();
                metadata = buf.with_bytes(|bytes| metadata.max(bytes[4000]));
            }
            buf.with_bytes_mut(|bytes| bytes.fill(0x22));
            device.read(KIB * 600, &buf).await.unwrap();
            let tag = buf.with_bytes(|bytes| u64::from_le_bytes(*bytes[512..].first_chunk().unwrap()));
            (metadata, tag, buf.with_bytes(|bytes| bytes[4000]))
        })
    }

    #[test]
    fn metadata_is_kept_whole_and_data_as_far_as_asked() {
        assert_eq!(read_back(Payload::Tags), (0x11, 0x1111_1111_1111_1111, 0x22));
        assert_eq!(read_back(Payload::Nothing), (0x11, 0x2222_2222_2222_2222, 0x22));
    }
}
