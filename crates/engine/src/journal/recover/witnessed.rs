//! The witness in recovery: which batches were promised, and what the map image lacks if the journal is lost.
//!
//! Witness and journal judge each other. A journal that ends before a batch that the witness names has lost
//! batches. A witness that is older than the page that the journal's proof names has lost pages.

use super::{Mode, Recovery, RecoveryInput, corrupt, unread};
use crate::buffer::buffer;
use crate::devices::Deadline;
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

/// The two pages of a witness on one device.
pub(super) struct Pages {
    device: DeviceId,
    newest: Option<Witness>,
    /// Error of a page that cannot be read.
    unread: Option<io::Error>,
    /// Places of pages that were written and are not valid, and why.
    invalid: Vec<(u64, Invalid)>,
}

impl Pages {
    /// Returns the reason why no page counts, if both places hold invalid pages. A single invalid page may be
    /// torn.
    fn both_invalid(&self) -> Option<&Invalid> {
        let (_, why) = self.invalid.first().filter(|_| self.invalid.len() as u64 == proof::PAGES)?;
        Some(why)
    }
}

/// Reads the pages on each current device without a ring in use.
pub(super) async fn read<D: Device>(
    input: &RecoveryInput<'_, D>,
    has_ring: impl Fn(DeviceId) -> bool,
) -> Vec<Pages> {
    let mut all = Vec::new();
    if input.superblock.copies > 1 {
        return all;
    }
    for (device, offset) in images(input.superblock, RegionKind::Proof) {
        let member = &input.members[device.index()];
        if !member.is_current() || has_ring(device) {
            continue;
        }
        let mut pages = Pages { device, newest: None, unread: None, invalid: Vec::new() };
        let buf = buffer(witness::SIZE).await;
        for page in 0..proof::PAGES {
            if let Err(error) = member.read(offset + witness::SIZE * page, &buf, Deadline::Only).await {
                pages.unread = Some(error);
                continue;
            }
            match buf.with_bytes(|bytes| witness::decode(bytes, input.superblock.volume)) {
                Ok(witness) => pages.newest = pages.newest.max(Some(witness)),
                Err(Invalid::Absent) => {}
                Err(wrong) => pages.invalid.push((page, wrong)),
            }
        }
        all.push(pages);
    }
    all
}

/// Returns the witness that counts.
pub(super) fn newest(all: &[Pages]) -> Option<(DeviceId, &Witness)> {
    all.iter().rev().find_map(|pages| Some((pages.device, pages.newest.as_ref()?)))
}

/// Reads the witness, if the journal is lost with its device. The witness is then needed: an unreadable page
/// that may be newer is refused. A repair continues without that page, and returns a warning as the second
/// value.
pub(super) async fn read_without_journal<D: Device>(
    input: &RecoveryInput<'_, D>,
) -> Result<(Option<(DeviceId, Witness)>, Option<String>)> {
    let all = read(input, |_| false).await;
    let newest = newest(&all).map(|(device, witness)| (device, witness.clone()));
    let why = |pages: Pages| {
        let not_valid = |wrong: &Invalid| io::Error::new(io::ErrorKind::InvalidData, wrong.to_string());
        let invalid = pages.both_invalid().map(not_valid);
        Some((pages.device, invalid.or(pages.unread)?))
    };
    let doubt = all.into_iter().rev().find_map(why);
    // After a shutdown the map image is complete.
    let Some((device, error)) = doubt.filter(|_| !input.clean) else { return Ok((newest, None)) };
    if input.mode == Mode::Strict && error.kind() == io::ErrorKind::InvalidData {
        let what =
            format_args!("no page of the witness of the lost journal, on {device}, is valid ({error})");
        return Err(corrupt(input.superblock, what));
    }
    if input.mode == Mode::Strict {
        let what = format_args!("the witness of the lost journal, on {device},");
        return Err(unread(input.superblock, what, &error));
    }
    let warning = format!(
        "the witness of the lost journal could not be read from {device} ({error}): data flushed since the \
         last checkpoint may read as zeros or as older bytes"
    );
    Ok((newest, Some(warning)))
}

/// Refuses a journal that ends before a durable batch. A repair continues with a warning. Returns the newest
/// batch that was promised.
pub(super) fn refuse_lost_batches<D: Device>(
    input: &RecoveryInput<'_, D>,
    journal: DeviceId,
    newest: u64,
    witness: Option<(DeviceId, &Witness)>,
    recovery: &mut Recovery,
) -> Result<u64> {
    let by_device = witness.map_or(0, |(_, witness)| witness.promised);
    let promised = by_device.max(input.noted);
    if promised <= newest || planted(Bug::WitnessIgnored) {
        return Ok(newest);
    }
    let by = match witness {
        Some((device, _)) if by_device == promised => device.to_string(),
        _ => "this host".to_owned(),
    };
    let name = &input.superblock.name;
    let text = format!(
        "the journal of volume '{name}' on {journal} lacks {} batch(es) that were promised: it ends with \
         batch {newest}, and {by} has recorded batch {promised}; {journal} has lost acknowledged durable \
         writes, or was restored to an older state",
        promised - newest
    );
    if input.mode == Mode::Strict {
        let remedy = format!(
            "bring the device back in its former state, or continue with the present data: braid check \
             {name} --repair; replace {journal}, or disable its write cache"
        );
        return Err(Error::new(ErrorKind::Corrupt, format!("{text}: {remedy} (nothing was changed)")));
    }
    recovery.warnings.push(text);
    Ok(promised)
}

/// Refuses a device whose witness is older than its own durable page, which the journal's proof names. A
/// repair continues with a warning.
///
/// Not refused:
///
/// - The page before the named page. Two places are written in turn: a power cut may tear the newest page,
///   and leave the page before in the other place.
/// - A torn page in the place of the named page, if the named page was alone: the next page overwrote it.
/// - A device without any page: the device was replaced, and has no page of the witness yet.
pub(super) fn refuse_lost_witness<D: Device>(
    input: &RecoveryInput<'_, D>,
    journal: DeviceId,
    named: Option<(u64, Witnessed)>,
    all: &[Pages],
    recovery: &mut Recovery,
) -> Result<()> {
    let superblock = input.superblock;
    let Some((epoch, page)) = named else { return Ok(()) };
    let Some(pages) = all.iter().find(|pages| pages.device == page.device) else { return Ok(()) };
    let is_new =
        |found: &Witness| (found.epoch, found.number.saturating_add(1)) >= (epoch, u64::from(page.number));
    let may_be_torn =
        page.alone && pages.invalid.iter().any(|(place, _)| *place == u64::from(page.number) % proof::PAGES);
    let is_compared = page.number > 1 && superblock.adopted().is_none() && !input.clean;
    if !is_compared
        || may_be_torn
        || pages.newest.as_ref().is_some_and(is_new)
        || planted(Bug::WitnessIgnored)
    {
        return Ok(());
    }
    let (device, number, name) = (page.device, page.number, &superblock.name);
    let known = format!("page {number} of opening {epoch}, according to the journal on {journal}");
    let (text, error) = match (&pages.unread, &pages.newest, pages.both_invalid()) {
        (Some(error), ..) => {
            let what = format!("the witness on {device} (with {known})");
            (format!("a page of {what} could not be read ({error})"), unread(superblock, what, error))
        }
        (None, Some(found), _) => {
            let text = format!(
                "{device} of volume '{name}' lost acknowledged durable writes, or was restored to an older \
                 state: its witness has page {} of opening {}, and had {known}",
                found.number, found.epoch
            );
            let remedy = format!(
                "bring the device back in its former state, or continue with the present data: braid check \
                 {name} --repair; replace {device}, or disable its write cache"
            );
            let refused = format!("{text}; {LOST}: {remedy} (nothing was changed)");
            (text, Error::new(ErrorKind::Corrupt, refused))
        }
        (None, None, Some(wrong)) => {
            let text = format!("no page of the witness on {device} (with {known}) is valid ({wrong})");
            (text.clone(), corrupt(superblock, text))
        }
        (None, None, None) => return Ok(()),
    };
    if input.mode == Mode::Strict {
        return Err(error);
    }
    recovery.warnings.push(format!("{text}; {LOST}"));
    Ok(())
}

/// Consequence of a lost witness, for messages.
const LOST: &str = "data flushed since may read as zeros or as older bytes";
