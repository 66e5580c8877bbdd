//! Repeats an attempt of an opening: with a device resynchronised after lost flushes ([`Forgetful`]), without
//! an unwritable device, or after a takeover from another daemon.
//!
//! An SSD at the end of its life is often readable but not writable. The superblocks are the first writes of
//! an opening. If a superblock write fails, the attempt ends, and the opening begins again without that
//! device. The other devices see an interrupted opening, followed by an opening with a missing device. The
//! rules for a missing device decide whether the volume can be served. The other devices note the loss before
//! `Open`, and nothing is read from the unwritable device.
//!
//! An ended attempt wrote no data, so the statements of the devices before the first attempt still hold and
//! are carried over. An opening interrupted by a crash would have forgotten them. The device left out may be
//! the only device with a superblock that calls another device older: the statement is carried over, too. A
//! repair must not declare data lost if the device left out could still describe the data: the device is
//! readable.
//!
//! An opening that may take the devices over from another daemon first announces its generation, and waits
//! until that daemon has noticed ([`super::enter`]). Everything that the attempt had read may be outdated by
//! then, so the devices are read again.

use super::{Highest, LeftLog, OpenOptions};
use crate::journal::{Forgetful, Replayed};
use crate::{Error, ErrorKind, Recovery, Result};
use braid_base::{DeviceId, ExtentId};
use braid_runtime::Device;
use std::cell::Cell;
use std::rc::Rc;

/// Findings of the attempts of one opening so far.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Devices that lack acknowledged writes: the opening resynchronises them.
    pub forgetful: Vec<Forgetful>,
    /// Warnings of attempts that ended because of such devices.
    warnings: Vec<String>,
    /// Devices that are left out, the last one last.
    unwritten: Vec<LeftOut>,
    /// True if the volume had been shut down before the first attempt.
    pub clean: bool,
    /// True if another daemon may have had the volume open before the first attempt.
    pub may_be_open: bool,
    /// True if the opening has watched the superblocks, and no other host has renewed its lease.
    pub watched: Cell<bool>,
    /// Number of readings with contradictory devices, while another daemon may have had the volume open.
    pub readings: u32,
    /// Reason of the last of these refusals.
    pub refused: Option<Error>,
    /// Set if the devices were taken over from another daemon that may have had the volume open: the
    /// generation of the takeover, and the number of the batch that would have followed the journal before
    /// it.
    pub taken_over: Option<(u64, u64)>,
    /// Devices that were cut. An attempt has written the superblock copy whose absence revealed the cut.
    pub cut: Vec<DeviceId>,
    /// Highest numbers that an attempt has given.
    pub highest: Highest,
    /// The pending log as read by the last attempt. A device that failed a flush has put the log in doubt
    /// since.
    pub left_log: Option<Rc<LeftLog>>,
    /// Extents that the last attempt would have declared lost.
    lost: Vec<ExtentId>,
}

/// Device that could not be written.
struct LeftOut {
    id: DeviceId,
    name: String,
    error: Error,
}

/// Result of a stage of an attempt.
pub(super) type Attempted<T, D> = std::result::Result<T, Refusal<D>>;

/// End of an attempt.
pub(crate) enum Refusal<D> {
    /// The volume cannot be opened.
    Final(Error),
    /// The devices contradict each other: the volume would be refused with this error, if there is one.
    /// Another daemon may have written meanwhile. Nothing was changed.
    Disagreeing(Option<Error>),
    /// The devices were taken over from another daemon, which changes nothing any more: a new reading counts.
    /// No data was written.
    TakenOver { found_next: u64, highest: Highest, left_log: Rc<LeftLog>, cut: Vec<DeviceId> },
    /// These devices lack acknowledged writes. Nothing was changed. The strings are warnings.
    Forgetful(Vec<Forgetful>, Vec<String>),
    /// A device could not be written. No data was written.
    Unwritten(Box<Unwritten<D>>),
}

/// Unwritable device, with the findings of the attempt.
pub(crate) struct Unwritten<D> {
    pub device: Option<Rc<D>>,
    pub id: DeviceId,
    pub error: Error,
    pub clean: bool,
    pub may_be_open: bool,
    pub cut: Vec<DeviceId>,
    pub highest: Highest,
    pub left_log: Rc<LeftLog>,
    /// Devices that are present and lack writes. Their own superblocks may not say so.
    pub outdated: Vec<DeviceId>,
    pub lost: Vec<ExtentId>,
}

impl<D> From<Error> for Refusal<D> {
    fn from(error: Error) -> Refusal<D> {
        Refusal::Final(error)
    }
}

/// True if the recovered journal contradicts the devices: either the devices are damaged, or another daemon
/// has written meanwhile.
pub(crate) fn disagrees(recovered: &Result<Replayed>) -> bool {
    match recovered {
        Ok(recovered) => !recovered.forgetful.is_empty(),
        Err(error) => error.kind() == ErrorKind::Corrupt,
    }
}

impl Attempts {
    /// Notes the end of an attempt, and prepares the next: without an unwritable device, or with devices to
    /// resynchronise.
    ///
    /// # Errors
    /// The reason, if the volume cannot be opened.
    pub fn begin_again<D: Device>(
        &mut self,
        refusal: Refusal<D>,
        given: &mut Vec<Rc<D>>,
        options: &mut OpenOptions,
    ) -> Result<()> {
        let ended = match refusal {
            Refusal::Final(error) => return Err(self.explain(self.in_company(error))),
            Refusal::Disagreeing(error) => {
                self.readings += 1;
                self.refused = error;
                return Ok(());
            }
            Refusal::TakenOver { found_next, highest, left_log, cut } => {
                self.cut.extend(cut);
                self.taken_over = Some((highest.epoch, found_next));
                self.highest = self.highest.beyond(highest);
                self.left_log = Some(left_log);
                return Ok(());
            }
            Refusal::Forgetful(found, warnings) => {
                self.forgetful.extend(found);
                self.warnings.extend(warnings);
                return Ok(());
            }
            Refusal::Unwritten(ended) => *ended,
        };
        let Unwritten { device, id, error, .. } = ended;
        let at = device.and_then(|it| given.iter().position(|device| Rc::ptr_eq(&it, device)));
        let Some(at) = at else { return Err(self.explain(error)) };
        given.remove(at);
        let name = options.names.remove(at);
        if let Some(disk) = options.adopted.as_mut().filter(|disk| disk.place > at) {
            disk.place -= 1;
        }
        tracing::error!("{name} ({id}) cannot be written: opening the volume without it: {error}");
        self.unwritten.push(LeftOut { id, name, error });
        self.clean |= ended.clean;
        self.may_be_open |= ended.may_be_open;
        self.cut.extend(ended.cut);
        self.highest = self.highest.beyond(ended.highest);
        self.left_log = Some(ended.left_log);
        options.outdated.extend(ended.outdated);
        self.lost = ended.lost;
        Ok(())
    }

    /// Adds to an error of corruption that another daemon may serve the volume.
    fn in_company(&self, error: Error) -> Error {
        if self.readings == 0 || error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let text = format!(
            "{error}; another daemon may serve the volume (on another host, or through another name of the \
             devices): stop that daemon before a repair"
        );
        Error::new(ErrorKind::Corrupt, text)
    }

    /// Adds the unwritable devices, and the remedy, to the error of an attempt without them.
    fn explain(&self, error: Error) -> Error {
        if self.unwritten.is_empty() {
            return error;
        }
        let (each, without) = match self.unwritten.len() {
            1 => ("it", "it"),
            _ => ("each", "them"),
        };
        let text = format!(
            "{}: make {each} writable again (blockdev --setrw, mount -o remount,rw), or copy {each} whole \
             to another device (ddrescue) and give the copy instead; without {without}: {error}",
            self.described(),
        );
        Error::new(error.kind(), text)
    }

    fn described(&self) -> String {
        let describe =
            |LeftOut { id, name, error, .. }: &LeftOut| format!("{name} ({id}) cannot be written ({error})");
        self.unwritten.iter().map(describe).collect::<Vec<_>>().join(", ")
    }

    /// Refuses to declare extents lost that an unwritable device may still describe.
    pub fn refuse_more_lost(&self, lost: &[ExtentId]) -> Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let known = |extent: &&ExtentId| self.lost.binary_search(extent).is_err();
        match lost.iter().filter(known).count() {
            0 => Ok(()),
            count => {
                let text = format!("{count} extent(s) would be lost (nothing was changed)");
                Err(Error::new(ErrorKind::Degraded, text))
            }
        }
    }

    /// Reports the devices that are left out or resynchronised.
    pub fn report(&self, recovery: &mut Recovery) {
        recovery.warnings.splice(..0, self.warnings.iter().cloned());
        recovery.forgetful.extend(self.forgetful.iter().map(|found| found.device));
        let tell = |LeftOut { id, name, error, .. }: &LeftOut| {
            format!(
                "{name} ({id}) cannot be written, and the volume continues without it: {error}; replace it"
            )
        };
        recovery.warnings.extend(self.unwritten.iter().map(tell));
    }
}
