//! Spans that may have dirty cached copies. If the SSDs are lost, the disk may be older than flushed data in
//! these spans, and in no other span.
//!
//! The table names a span durably before a block of the span becomes dirty; for a busy span this costs
//! nothing more. The name is dropped some time after the last block of the span was written back and the disk
//! was flushed. If the table cannot be written, no block becomes dirty any more: writes go to the disk.

use crate::buffer::buffer;
use crate::core::Durable;
use crate::devices::{Deadline, Member};
use crate::map::State;
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};
use braid_format::dirty_spans::{decode, encode, half};
use braid_format::superblock::{RegionKind, Superblock};
use braid_format::{SpanId, Uuid};
use braid_policy::Origin;
use braid_runtime::{Device, Runtime, Semaphore};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

/// Interval between searches for spans without dirty blocks.
const CLEAR_EVERY: Nanos = Nanos::from_secs(10);

/// The table of a volume on an adopted disk.
pub(crate) struct DirtySpans {
    /// Location of the table; `None` if its device is absent.
    place: Option<(DeviceId, Bytes)>,
    spans: u32,
    table: RefCell<DirtySpanTable>,
    /// One task writes at a time.
    writer: Semaphore,
}

#[derive(Default)]
struct DirtySpanTable {
    /// Sequence of the half that was written last, or tried.
    sequence: u64,
    /// Spans that the table names durably.
    named: BTreeSet<SpanId>,
    /// Further spans that the next table names.
    wanted: BTreeSet<SpanId>,
    /// Spans in which a write began that makes blocks dirty, since the last call of `idle`.
    touched: BTreeSet<SpanId>,
    /// True if the table could not be written.
    has_failed: bool,
}

/// A write that makes blocks of an extent dirty. Counts as a dirty block, so the table names the span until
/// the write ends.
pub(crate) struct Dirtying<'a>(Option<(&'a RefCell<State>, ExtentId)>);

impl Drop for Dirtying<'_> {
    fn drop(&mut self) {
        if let Some((state, extent)) = self.0 {
            state.borrow_mut().count_dirty(extent, true, false);
        }
    }
}

impl DirtySpans {
    /// Reads the table from its device; `None` for a volume without an adopted disk. If a half is invalid, it
    /// may have been the newer half, and every span is named.
    ///
    /// # Errors
    /// `Io` if the table cannot be read.
    pub async fn load<D: Device>(
        members: &[Member<D>],
        superblock: &Superblock,
    ) -> Result<Option<DirtySpans>> {
        if superblock.adopted().is_none() {
            return Ok(None);
        }
        let region = superblock.region(RegionKind::DirtySpans, 0);
        let region = region.filter(|region| members[region.device.index()].is_current());
        let mut table = DirtySpanTable::default();
        if let Some(region) = region {
            let member = &members[region.device.index()];
            let (sequence, named) = read(member, region.offset, superblock).await?;
            table.sequence = sequence;
            table.named.extend(named);
        }
        Ok(Some(DirtySpans {
            place: region.map(|region| (region.device, region.offset)),
            spans: superblock.spans(),
            table: RefCell::new(table),
            writer: Semaphore::new(1),
        }))
    }

    /// Ranges of the volume in named spans.
    pub fn ranges(&self, shape: &Shape) -> Vec<Range<Bytes>> {
        let named: Vec<SpanId> = self.table.borrow().named.iter().copied().collect();
        let runs = named.chunk_by(|a, b| a.0 + 1 == b.0);
        let range = |run: &[SpanId]| {
            let end = shape.bytes_of_span(run[run.len() - 1]).end.min(shape.volume_size);
            shape.bytes_of_span(run[0]).start..end
        };
        runs.map(range).collect()
    }

    /// True if the device of the table is present. Without the table nothing is known of any span.
    pub fn is_there(&self) -> bool {
        self.place.is_some()
    }

    /// True if a span may have dirty cached copies.
    pub fn names(&self, span: SpanId) -> bool {
        self.table.borrow().named.contains(&span)
    }

    /// Begins a write, if the table names the span. Returns `None` if the table has to be written first, and
    /// `Some(false)` if the table cannot be written.
    fn begin(&self, span: SpanId) -> Option<bool> {
        let mut table = self.table.borrow_mut();
        if self.place.is_none() || table.has_failed {
            return Some(false);
        }
        if !table.named.contains(&span) && !planted(Bug::DirtySpanUnnamed) {
            table.wanted.insert(span);
            return None;
        }
        table.touched.insert(span);
        Some(true)
    }

    /// Spans without a dirty block. From now on, new writes that make blocks dirty are noted.
    fn idle(&self, has_dirty: impl Fn(SpanId) -> bool) -> Vec<SpanId> {
        let mut table = self.table.borrow_mut();
        table.touched.clear();
        table.named.iter().copied().filter(|span| !has_dirty(*span)).collect()
    }

    /// Drops idle spans from the next table, except for spans in which a write has begun. Returns true if any
    /// span is dropped.
    fn forget(&self, idle: &[SpanId]) -> bool {
        let mut table = self.table.borrow_mut();
        let DirtySpanTable { named, touched, .. } = &mut *table;
        let before = named.len();
        for span in idle.iter().filter(|span| !touched.contains(span)) {
            named.remove(span);
        }
        named.len() < before
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Waits until the span of an extent is named durably, before blocks of the extent become dirty. Returns
    /// `None` if the span cannot be named: the write must go to the home.
    pub async fn begin_dirtying(&self, extent: ExtentId) -> Option<Dirtying<'_>> {
        let Some(spans) = &self.dirty_spans else { return Some(Dirtying(None)) };
        let span = self.store.shape.span_of(extent);
        loop {
            match spans.begin(span) {
                Some(true) => {
                    self.store.state.borrow_mut().count_dirty(extent, false, true);
                    return Some(Dirtying(Some((&self.store.state, extent))));
                }
                Some(false) => return None,
                None => self.write_dirty_spans(spans, Some(span)).await,
            }
        }
    }

    /// Writes the table with the wanted spans, unless the table names `span` already.
    async fn write_dirty_spans(&self, spans: &DirtySpans, span: Option<SpanId>) {
        let Some((device, region)) = spans.place else { return };
        let _alone = spans.writer.acquire(1).await;
        let (named, sequence) = {
            let mut table = spans.table.borrow_mut();
            if table.has_failed || span.is_some_and(|span| table.named.contains(&span)) {
                return;
            }
            table.sequence += 1;
            let wanted = std::mem::take(&mut table.wanted);
            (&table.named | &wanted, table.sequence)
        };
        let volume = self.store.devices.superblock().volume;
        let bytes = encode(volume, spans.spans, sequence, named.iter().copied());
        let buf = buffer(Bytes::of_len(bytes.len())).await;
        buf.copy_from_slice(Bytes::ZERO, &bytes);
        let at = region + half(spans.spans) * (sequence % 2);
        let written = async {
            let member = self.store.member(device);
            self.device_write(member, at, &buf, Origin::Background).await?;
            self.flush_member(member, "the table of dirty spans").await
        };
        let written = written.await;
        let mut table = spans.table.borrow_mut();
        match written {
            // A span that was dropped meanwhile is named on the device: harmless.
            Ok(()) => table.named = named,
            Err(error) => {
                tracing::error!(%error, "blocks can no longer become dirty: writes go to the disk");
                table.has_failed = true;
            }
        }
    }

    /// Drops spans without dirty blocks from the table from time to time, until the volume closes.
    pub async fn keep_dirty_spans_few(&self) {
        while !self.jobs.are_ending() {
            self.pause(self.rt.now() + CLEAR_EVERY, || false).await;
            if !self.jobs.are_ending() && self.clear_dirty_spans().await.is_err() {
                // No commit succeeds any more.
                return;
            }
        }
    }

    /// Drops spans without dirty blocks from the table. Written-back blocks are flushed first.
    pub async fn clear_dirty_spans(&self) -> Result<()> {
        let Some(spans) = &self.dirty_spans else { return Ok(()) };
        let idle = spans.idle(|span| self.store.state.borrow().has_dirty(span));
        if idle.is_empty() {
            return Ok(());
        }
        self.commit(Origin::Background).await?;
        if spans.forget(&idle) {
            self.write_dirty_spans(spans, None).await;
        }
        Ok(())
    }
}

/// Returns the sequence and the spans of the newer half; every span if either half is invalid.
async fn read<D: Device>(
    member: &Member<D>,
    region: Bytes,
    superblock: &Superblock,
) -> Result<(u64, Vec<SpanId>)> {
    let (spans, mut are_valid, mut newest) = (superblock.spans(), true, (0, Vec::new()));
    let buf = buffer(half(spans)).await;
    for at in [region, region + half(spans)] {
        let read = member.read(at, &buf, Deadline::Only).await;
        read.map_err(|e| Error::io(format_args!("the table of dirty spans on {}", member.id), &e))?;
        match buf.with_bytes(|bytes| decode(bytes, superblock.volume, spans)) {
            Ok(found) => newest = newest.max(found),
            Err(_) => are_valid = false,
        }
    }
    if !are_valid {
        newest.1 = (0..spans).map(SpanId).collect();
    }
    Ok(newest)
}

/// Writes a table that names no span.
pub(crate) async fn write_empty_table<D: Device>(
    device: &D,
    region: Bytes,
    volume: Uuid,
    spans: u32,
) -> Result<()> {
    let failed = |e| Error::io("the table of dirty spans could not be written", &e);
    for sequence in [1, 2] {
        let bytes = encode(volume, spans, sequence, std::iter::empty());
        let buf = buffer(Bytes::of_len(bytes.len())).await;
        buf.copy_from_slice(Bytes::ZERO, &bytes);
        device.write(region + half(spans) * (sequence % 2), &buf).await.map_err(failed)?;
    }
    device.flush().await.map_err(failed)
}

/// Refuses an opening without SSDs that may hold newer data than the disk.
pub(crate) fn refuse_dirty(
    superblock: &Superblock,
    without: &[DeviceId],
    older: &[Range<Bytes>],
) -> Result<()> {
    let (Some(first), false) = (without.first(), older.is_empty()) else { return Ok(()) };
    let total: Bytes = older.iter().map(|range| range.end - range.start).sum();
    let text = format!(
        "volume '{}' lacks {first}, and the disk may be older than the last flush in {} range(s), {total} \
         in all: {}; bring the SSD back, or exclude it, which loses data on it alone (--distrust {first})",
        superblock.name,
        older.len(),
        describe(older)
    );
    Err(Error::new(ErrorKind::Degraded, text))
}

/// The first of some ranges, for a message.
fn describe(ranges: &[Range<Bytes>]) -> String {
    const SHOWN: usize = 8;
    let shown = ranges.iter().take(SHOWN).map(|range| format!("{} to {}", range.start.0, range.end.0));
    let more = if ranges.len() > SHOWN { ", …" } else { "" };
    format!("bytes {}{more}", shown.collect::<Vec<_>>().join(", "))
}
