//! The devices of a trace: ASUs, disks, files. Each device has a label, for selection by people, and a number
//! in order of first appearance, for internal use.

use crate::Error;
use crate::problems::Reason;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cmp::Ordering;

/// Labels of the devices met so far.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    numbers: HashMap<Box<[u8]>, u16, FixedState>,
    labels: Vec<String>,
    /// Device of the last record, as a shortcut: usually also the device of the next record.
    last: Option<u16>,
    /// True if the trace has more than [`MOST_DEVICES`] devices.
    is_overrun: bool,
}

/// Limit of devices: the range of a number of 16 bits. Traces of clouds have some thousands of disks. A trace
/// above the limit ends with an error.
pub(crate) const MOST_DEVICES: usize = 1 << 16;
const LONGEST_LABEL: usize = 255;

impl Devices {
    /// Returns the number of the device with the given label, and adds a new device if needed.
    pub(crate) fn number(&mut self, label: &[u8]) -> Result<u16, Reason> {
        if let Some(last) = self.last
            && self.labels[usize::from(last)].as_bytes() == label
        {
            return Ok(last);
        }
        let number = match self.numbers.get(label) {
            Some(&number) => number,
            None => self.add(label)?,
        };
        self.last = Some(number);
        Ok(number)
    }

    fn add(&mut self, label: &[u8]) -> Result<u16, Reason> {
        if self.labels.len() >= MOST_DEVICES {
            self.is_overrun = true;
            return Err("more than 65536 devices");
        }
        if label.is_empty() || label.len() > LONGEST_LABEL {
            return Err("the device has no name, or a name of more than 255 bytes");
        }
        let text = std::str::from_utf8(label).map_err(|_| "the device's name is not UTF-8")?;
        if text.chars().any(char::is_control) {
            return Err("the device's name has control characters");
        }
        let number = self.labels.len() as u16;
        self.numbers.insert(label.into(), number);
        self.labels.push(text.to_owned());
        Ok(number)
    }

    /// Fails if the trace has too many devices: the records of the other devices would be left out.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.is_overrun {
            true => Err(Error::Options(format!(
                "the trace has more than {MOST_DEVICES} devices: divide the trace by device, or name \
                 another --format if the trace has fewer"
            ))),
            false => Ok(()),
        }
    }

    /// Returns all labels, by number.
    pub(crate) fn labels(&self) -> &[String] {
        &self.labels
    }
}

/// Layout order of devices: numeric labels first, by number, then all other labels in alphabetical order.
pub(crate) fn layout_order(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}
