//! An opening begins again: with a device brought up to date that lost flushes ([`Forgetful`]), without a
//! device that cannot be written, or once the devices are taken over from another daemon.
//!
//! An SSD at the end of its life is often readable and takes no write. The superblocks are the first writes
//! of an opening. If one of them fails, that attempt ends, and the opening begins again as if the device
//! were not given. For the other devices that is an interrupted opening, followed by an opening with a
//! missing device. So the rules for a missing device decide whether the volume can do without the device,
//! the others note the loss before `Open`, and nothing is read from the device.
//!
//! An attempt that ended wrote no data. What the devices said before the first attempt therefore still
//! holds, and is carried over: an opening that was interrupted by a crash would not know that any more. The
//! device that is left out may be the only one whose superblock says that another device is older: that is
//! carried over, too. A repair must not give up what the device could still say: it would be lost, though
//! the device can be read.
//!
//! An opening that may take the devices over from another daemon announces its number first, and waits until
//! that daemon has noticed ([`super::enter`]). What the attempt had read may be older by then.

use super::assemble::Highest;
use super::{LeftLog, OpenOptions};
use crate::journal::{Forgetful, Recovered};
use crate::{Error, ErrorKind, Recovery, Result};
use braid_base::{DeviceId, ExtentId};
use braid_runtime::Device;
use std::rc::Rc;

/// What the attempts of an opening have found out so far.
#[derive(Default)]
pub(crate) struct Attempts {
    /// The devices that lack what they had acknowledged: they are brought up to date.
    pub forgetful: Vec<Forgetful>,
    /// What attempts that ended with such devices had to tell.
    warnings: Vec<String>,
    /// The devices that are left out, the last one last.
    unwritten: Vec<LeftOut>,
    /// Whether the volume had been shut down before the first attempt.
    pub clean: bool,
    /// Whether another daemon may have had the volume open then.
    pub may_be_open: bool,
    /// How often what the devices say did not fit together, while another daemon may have had the volume
    /// open.
    pub readings: u32,
    /// Why the devices were no volume in the last one of these readings.
    pub refused: Option<Error>,
    /// The devices were taken over from another daemon that may have had the volume open: the number of the
    /// opening that did so, and the batch that would have followed those in the journal before.
    pub taken_over: Option<(u64, u64)>,
    /// Devices that were cut: an attempt has written the superblock copy whose absence told.
    pub cut: Vec<DeviceId>,
    /// The highest numbers that an attempt has given.
    pub highest: Highest,
    /// The pending log as the last attempt read it: a device that failed a flush has put the log in doubt
    /// since.
    pub left_log: Option<Rc<LeftLog>>,
    /// The extents that the last attempt would have given up.
    lost: Vec<ExtentId>,
}

/// A device that could not be written.
struct LeftOut {
    id: DeviceId,
    name: String,
    error: Error,
}

/// How an attempt ended.
pub(crate) enum Refusal<D> {
    /// The volume cannot be opened.
    Final(Error),
    /// What the devices say does not fit together, so that the volume would be refused by this error, if
    /// there is one. Another daemon may have written meanwhile; nothing was changed.
    Disagreeing(Option<Error>),
    /// The devices are taken over from another daemon, which changes nothing any more: what they say counts
    /// now. No data was written.
    TakenOver { found_next: u64, highest: Highest, left_log: Rc<LeftLog>, cut: Vec<DeviceId> },
    /// These devices lack what they had acknowledged; nothing was changed. With warnings.
    Forgetful(Vec<Forgetful>, Vec<String>),
    /// A device could not be written; no data was.
    Unwritten(Box<Unwritten<D>>),
}

/// A device that could not be written, and what the attempt had found out.
pub(crate) struct Unwritten<D> {
    pub device: Option<Rc<D>>,
    pub id: DeviceId,
    pub error: Error,
    pub clean: bool,
    pub may_be_open: bool,
    pub cut: Vec<DeviceId>,
    pub highest: Highest,
    pub left_log: Rc<LeftLog>,
    /// Devices that are there and lack something. Their own superblocks may not say so.
    pub outdated: Vec<DeviceId>,
    pub lost: Vec<ExtentId>,
}

impl<D> From<Error> for Refusal<D> {
    fn from(error: Error) -> Refusal<D> {
        Refusal::Final(error)
    }
}

/// Whether what was read of the journal does not fit together: the devices are damaged, or another daemon has
/// written meanwhile.
pub(crate) fn disagrees(recovered: &Result<Recovered>) -> bool {
    match recovered {
        Ok(recovered) => !recovered.forgetful.is_empty(),
        Err(error) => error.kind() == ErrorKind::Corrupt,
    }
}

impl Attempts {
    /// Takes note of what ended an attempt: a device that is left out, or devices that are brought up to
    /// date.
    ///
    /// # Errors
    /// Why the volume cannot be opened.
    pub fn begin_again<D: Device>(
        &mut self,
        refusal: Refusal<D>,
        (given, options): (&mut Vec<Rc<D>>, &mut OpenOptions),
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

    /// An error of an opening that may have company.
    fn in_company(&self, error: Error) -> Error {
        if self.readings == 0 || error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let text = format!(
            "{error}; another daemon may serve the volume (on another host, or through another name of the devices): \
             stop that one before a repair"
        );
        Error::new(ErrorKind::Corrupt, text)
    }

    /// An error of an attempt that lacks a device because that cannot be written.
    fn explain(&self, error: Error) -> Error {
        if self.unwritten.is_empty() {
            return error;
        }
        let (each, without) = match self.unwritten.len() {
            1 => ("it", "it"),
            _ => ("each", "them"),
        };
        let text = format!(
            "{}: make {each} writable again (blockdev --setrw, mount -o remount,rw), or copy {each} whole to another device \
             (ddrescue) and give the copy instead; without {without}: {error}",
            self.described(),
        );
        Error::new(error.kind(), text)
    }

    fn described(&self) -> String {
        let describe =
            |LeftOut { id, name, error, .. }: &LeftOut| format!("{name} ({id}) cannot be written ({error})");
        self.unwritten.iter().map(describe).collect::<Vec<_>>().join(", ")
    }

    /// Refuses to give up extents of which a device that cannot be written may still know.
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

    /// Tells which devices are left out, or brought up to date.
    pub fn report(&self, recovery: &mut Recovery) {
        recovery.warnings.splice(..0, self.warnings.iter().cloned());
        recovery.forgetful.extend(self.forgetful.iter().map(|found| found.device));
        let tell = |LeftOut { id, name, error, .. }: &LeftOut| {
            format!("{name} ({id}) cannot be written, and the volume goes on without it: {error}; replace it")
        };
        recovery.warnings.extend(self.unwritten.iter().map(tell));
    }
}
