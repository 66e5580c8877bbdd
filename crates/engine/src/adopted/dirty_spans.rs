//! The spans that may have dirty extra copies. Of these the disk may be older than what was flushed if the
//! SSDs are lost, and of no others.
//!
//! The table is durable before a block of a span becomes dirty, and for a busy span that costs nothing more.
//! Its bit is cleared some time after the last block of the span was written back and the disk was flushed.
//! If the table cannot be written, no block becomes dirty any more: writes go to the disk.

use crate::copies::{Deadline, Member};
use crate::core::Core;
use crate::create::buffer;
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
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How often spans are looked for that have no dirty block any more.
const CLEAR_EVERY: Nanos = Nanos::from_secs(10);

/// The table of a volume on an adopted disk.
pub(crate) struct DirtySpans {
    /// Where it lies; none if that device is not there.
    place: Option<(DeviceId, Bytes)>,
    spans: u32,
    table: RefCell<Table>,
    /// One task writes at a time.
    writer: Semaphore,
}

#[derive(Default)]
struct Table {
    /// Of the half that was written last, or tried.
    sequence: u64,
    /// Spans that it names, durably.
    named: BTreeSet<SpanId>,
    /// Spans that the next one names, too.
    wanted: BTreeSet<SpanId>,
    /// Writes under way that make blocks dirty.
    writes: BTreeMap<SpanId, u32>,
    /// Spans in which a write made blocks dirty since they were last looked at.
    touched: BTreeSet<SpanId>,
    /// It could not be written.
    has_failed: bool,
}

/// A write that makes blocks of a span dirty. The table names the span until it ends.
pub(crate) struct Dirtying<'a>(Option<(&'a DirtySpans, SpanId)>);

impl Drop for Dirtying<'_> {
    fn drop(&mut self) {
        let Some((spans, span)) = self.0 else { return };
        let mut table = spans.table.borrow_mut();
        let writes = table.writes.get_mut(&span).expect("a write that ends has begun");
        *writes -= 1;
        if *writes == 0 {
            table.writes.remove(&span);
        }
    }
}

impl DirtySpans {
    /// The table as it lies on its device; none for a volume without an adopted disk. If a half of it is not
    /// valid, which may have been the newer one, it names every span.
    ///
    /// # Errors
    /// `Io` if it cannot be read.
    pub async fn load<D: Device>(
        members: &[Member<D>],
        superblock: &Superblock,
    ) -> Result<Option<DirtySpans>> {
        if superblock.adopted().is_none() {
            return Ok(None);
        }
        let region = superblock.region(RegionKind::DirtySpans, 0);
        let region = region.filter(|region| members[region.device.index()].is_current());
        let mut table = Table::default();
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

    /// The ranges of the volume that it names.
    pub fn ranges(&self, shape: &Shape) -> Vec<Range<Bytes>> {
        let named: Vec<SpanId> = self.table.borrow().named.iter().copied().collect();
        let runs = named.chunk_by(|a, b| a.0 + 1 == b.0);
        let range = |run: &[SpanId]| {
            let end = shape.bytes_of_span(run[run.len() - 1]).end.min(shape.volume_size);
            shape.bytes_of_span(run[0]).start..end
        };
        runs.map(range).collect()
    }

    /// Whether the device of the table is there. Without the table nothing is known of any span.
    pub fn is_there(&self) -> bool {
        self.place.is_some()
    }

    /// Whether a span may have dirty extra copies.
    pub fn names(&self, span: SpanId) -> bool {
        self.table.borrow().named.contains(&span)
    }

    /// Begins a write, if the table names the span. `None` if it has to be written before, `Some(false)` if
    /// it cannot be.
    fn begin(&self, span: SpanId) -> Option<bool> {
        let mut table = self.table.borrow_mut();
        if self.place.is_none() || table.has_failed {
            return Some(false);
        }
        if !table.named.contains(&span) && !planted(Bug::DirtySpanUnnamed) {
            table.wanted.insert(span);
            return None;
        }
        *table.writes.entry(span).or_default() += 1;
        table.touched.insert(span);
        Some(true)
    }

    /// Spans without a dirty block and without a write that makes one. From now on it is known whether one
    /// begins.
    fn idle(&self, has_dirty: impl Fn(SpanId) -> bool) -> Vec<SpanId> {
        let mut table = self.table.borrow_mut();
        table.touched.clear();
        let is_idle = |span: &&SpanId| !table.writes.contains_key(span) && !has_dirty(**span);
        table.named.iter().filter(is_idle).copied().collect()
    }

    /// The next table does not name those of them in which no write has begun. Whether there are any.
    fn forget(&self, idle: &[SpanId]) -> bool {
        let mut table = self.table.borrow_mut();
        let Table { named, touched, .. } = &mut *table;
        let before = named.len();
        for span in idle.iter().filter(|span| !touched.contains(span)) {
            named.remove(span);
        }
        named.len() < before
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Waits until the loss of the SSDs would not go unnoticed if blocks of an extent become dirty. None if
    /// that cannot be: then the write must go to the home.
    pub async fn begin_dirtying(&self, extent: ExtentId) -> Option<Dirtying<'_>> {
        let Some(spans) = &self.dirty_spans else { return Some(Dirtying(None)) };
        let span = self.shape.span_of(extent);
        loop {
            match spans.begin(span) {
                Some(true) => return Some(Dirtying(Some((spans, span)))),
                Some(false) => return None,
                None => self.write_dirty_spans(spans, Some(span)).await,
            }
        }
    }

    /// Writes the table with what is wanted in it, unless it names `span` by now.
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
        let volume = self.devices.superblock().volume;
        let bytes = encode(volume, spans.spans, sequence, named.iter().copied());
        let buf = buffer(Bytes::of_len(bytes.len())).await;
        buf.copy_from_slice(Bytes::ZERO, &bytes);
        let at = region + half(spans.spans) * (sequence % 2);
        let written = async {
            let member = self.member(device);
            self.device_write(member, at, &buf, Origin::Background).await?;
            self.flush_member(member, "the table of dirty spans").await
        };
        let written = written.await;
        let mut table = spans.table.borrow_mut();
        match written {
            // A span that was forgotten meanwhile is named on the device: no harm.
            Ok(()) => table.named = named,
            Err(error) => {
                tracing::error!(%error, "no block becomes dirty any more: writes go to the disk");
                table.has_failed = true;
            }
        }
    }

    /// Takes spans out of the table that have had no dirty block for a while, until the volume closes.
    pub async fn keep_dirty_spans_few(&self) {
        while !self.jobs.are_ending() {
            self.pause(self.rt.now() + CLEAR_EVERY, || false).await;
            if !self.jobs.are_ending() && self.clear_dirty_spans().await.is_err() {
                // No commit succeeds any more.
                return;
            }
        }
    }

    /// Takes spans out of the table that have no dirty block. What was written back is flushed first.
    pub async fn clear_dirty_spans(&self) -> Result<()> {
        let Some(spans) = &self.dirty_spans else { return Ok(()) };
        let idle = spans.idle(|span| self.state.borrow().has_dirty(span));
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

/// What the newer half names, and its sequence; every span if one of them is not valid.
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

/// Refuses to open without SSDs on which alone newer bytes may lie than on the disk.
pub(crate) fn refuse_dirty(
    superblock: &Superblock,
    without: &[DeviceId],
    older: &[Range<Bytes>],
) -> Result<()> {
    let (Some(first), false) = (without.first(), older.is_empty()) else { return Ok(()) };
    let total: Bytes = older.iter().map(|range| range.end - range.start).sum();
    let text = format!(
        "volume '{}' lacks {first}, and the disk may be older than what was flushed in {} range(s), {total} in all: {}; bring the SSD back, or give \
         up what lies on it alone (--distrust {first})",
        superblock.name,
        older.len(),
        describe(older)
    );
    Err(Error::new(ErrorKind::Degraded, text))
}

/// The first of some ranges, for people.
fn describe(ranges: &[Range<Bytes>]) -> String {
    const SHOWN: usize = 8;
    let shown = ranges.iter().take(SHOWN).map(|range| format!("{} to {}", range.start.0, range.end.0));
    let more = if ranges.len() > SHOWN { ", …" } else { "" };
    format!("bytes {}{more}", shown.collect::<Vec<_>>().join(", "))
}
