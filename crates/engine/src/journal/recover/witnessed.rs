//! What the witness says to recovery: which batches were promised, and what the image of the map lacks if the
//! journal is lost.
//!
//! The witness and the journal judge each other. A journal that ends before a batch that the witness names has
//! lost batches. A witness that is older than the page that the journal's proof names has lost pages.

use super::{Mode, Recovery, Source, corrupt, unread};
use crate::copies::Deadline;
use crate::create::buffer;
use crate::journal::images;
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_format::Invalid;
use braid_format::proof::{self, Witnessed};
use braid_format::superblock::RegionKind;
use braid_format::witness::{self, Witness};
use braid_runtime::Device;
use std::io;

/// The newest witness on a device that is current and has no ring in use. Also why a newer page may be lost: a
/// page cannot be read, or none of the pages that were written is valid.
pub(super) async fn read<D: Device>(
    source: &Source<'_, D>,
    has_ring: impl Fn(DeviceId) -> bool,
) -> (Option<(DeviceId, Witness)>, Option<(DeviceId, io::Error)>) {
    let (mut newest, mut doubt) = (None, None);
    if source.superblock.copies > 1 {
        return (newest, doubt);
    }
    for (device, offset) in images(source.superblock, RegionKind::Proof) {
        let member = &source.members[device.index()];
        if !member.is_current() || has_ring(device) {
            continue;
        }
        let (buf, mut found, mut invalid) = (buffer(witness::SIZE).await, None, Vec::new());
        for page in 0..proof::PAGES {
            if let Err(error) = member.read(offset + witness::SIZE * page, &buf, Deadline::Only).await {
                doubt = Some((device, error));
                continue;
            }
            match buf.with_bytes(|bytes| witness::decode(bytes, source.superblock.volume)) {
                Ok(witness) => found = found.max(Some(witness)),
                Err(Invalid::Absent) => {}
                // One page may be torn: nothing depended on that page yet.
                Err(wrong) => invalid.push(wrong),
            }
        }
        if let Some(wrong) = invalid.first().filter(|_| invalid.len() as u64 == proof::PAGES) {
            doubt = Some((device, io::Error::new(io::ErrorKind::InvalidData, wrong.to_string())));
        }
        newest = found.map(|witness| (device, witness)).or(newest);
    }
    (newest, doubt)
}

/// The witness, if the journal is lost with its device. Then the witness is needed: a page that may be newer and
/// cannot be read is refused. A repair goes on without that page, and says so in the second value.
pub(super) async fn read_without_journal<D: Device>(
    source: &Source<'_, D>,
) -> Result<(Option<(DeviceId, Witness)>, Option<String>)> {
    let (newest, doubt) = read(source, |_| false).await;
    // After a shutdown the image of the map is complete.
    let Some((device, error)) = doubt.filter(|_| !source.clean) else { return Ok((newest, None)) };
    if source.mode == Mode::Strict && error.kind() == io::ErrorKind::InvalidData {
        let what =
            format_args!("no page of the witness of the lost journal, on {device}, is valid ({error})");
        return Err(corrupt(source.superblock, what));
    }
    if source.mode == Mode::Strict {
        let what = format_args!("the witness of the lost journal, on {device},");
        return Err(unread(source.superblock, what, &error));
    }
    let warning = format!(
        "the witness of the lost journal could not be read from {device} ({error}): what was flushed since the last checkpoint may \
         read as zeros or as older bytes"
    );
    Ok((newest, Some(warning)))
}

/// Refuses a journal that ends before a batch that was durable. A repair goes on, and says so.
pub(super) fn refuse_lost_batches<D: Device>(
    source: &Source<'_, D>,
    journal: DeviceId,
    newest: u64,
    (witness, recovery): (Option<&(DeviceId, Witness)>, &mut Recovery),
) -> Result<u64> {
    let by_device = witness.map_or(0, |(_, witness)| witness.promised);
    let promised = by_device.max(source.noted);
    if promised <= newest || planted(Bug::WitnessIgnored) {
        return Ok(newest);
    }
    let by = match witness {
        Some((device, _)) if by_device == promised => device.to_string(),
        _ => "this host".to_owned(),
    };
    let name = &source.superblock.name;
    let text = format!(
        "the journal of volume '{name}' on {journal} lacks {} batch(es) that were promised: it ends with batch {newest}, and {by} has noted batch {promised}; {journal} has lost \
         what it had said was durable, or was restored to an older state",
        promised - newest
    );
    if source.mode == Mode::Strict {
        let remedy = format!(
            "bring the device back as it was, or go on with what is there: braid check {name} --repair; replace {journal}, or switch off its write cache"
        );
        return Err(Error::new(ErrorKind::Corrupt, format!("{text}: {remedy} (nothing was changed)")));
    }
    recovery.warnings.push(text);
    Ok(promised)
}

/// Refuses a device whose witness is older than the page that it had made durable, as the journal's proof
/// knows. A repair goes on, and says so.
///
/// Two places are written in turn. A power cut may tear the newest page, and leave the one before in the
/// other place: so the page before the one that is named is no reason.
pub(super) fn refuse_lost_witness<D: Device>(
    source: &Source<'_, D>,
    journal: DeviceId,
    named: Option<(u64, Witnessed)>,
    (witness, recovery): (Option<&(DeviceId, Witness)>, &mut Recovery),
) -> Result<()> {
    let superblock = source.superblock;
    let (Some((epoch, page)), Some((device, found))) = (named, witness) else { return Ok(()) };
    let is_older = (found.epoch, found.number.saturating_add(1)) < (epoch, u64::from(page.number));
    let is_compared = page.device == *device && page.number > 1 && superblock.adopted().is_none();
    if !is_older || !is_compared || source.clean || planted(Bug::WitnessIgnored) {
        return Ok(());
    }
    let name = &superblock.name;
    let text = format!(
        "{device} of volume '{name}' lost what it had said was durable, or was restored to an older state: its witness has \
         page {} of opening {}, and had page {} of opening {epoch}, as the journal on {journal} knows; what was flushed since \
         may read as zeros or as older bytes",
        found.number, found.epoch, page.number
    );
    if source.mode == Mode::Strict {
        let remedy = format!(
            "bring the device back as it was, or go on with what is there: braid check {name} --repair; replace {device}, or switch off its write cache"
        );
        return Err(Error::new(ErrorKind::Corrupt, format!("{text}: {remedy} (nothing was changed)")));
    }
    recovery.warnings.push(text);
    Ok(())
}
