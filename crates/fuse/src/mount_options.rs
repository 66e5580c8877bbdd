//! Options of a mount, written as in `/etc/fstab`.

use rustix::mount::MountFlags;
use std::ffi::{CStr, CString};
use std::fmt;
use std::str::FromStr;

/// Options of a mount: `noatime,nodev,discard`. Options of the kernel become flags; a file system gets all
/// other options, and refuses unknown ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    text: String,
    flags: MountFlags,
    of_file_system: CString,
}

/// Options of the kernel, with their flags.
const FLAGS: &[(&str, MountFlags)] = &[
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME),
    ("lazytime", MountFlags::LAZYTIME),
    ("nosymfollow", MountFlags::NOSYMFOLLOW),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
];

/// Options that say what a mount without options does.
const DEFAULTS: &[&str] = &["defaults", "rw", "suid", "dev", "exec", "async"];

impl Default for MountOptions {
    /// No options.
    fn default() -> MountOptions {
        MountOptions { text: String::new(), flags: MountFlags::empty(), of_file_system: CString::default() }
    }
}

impl MountOptions {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn flags(&self) -> MountFlags {
        self.flags
    }

    /// Options for the file system, if any.
    pub(crate) fn of_file_system(&self) -> Option<&CStr> {
        (!self.of_file_system.is_empty()).then_some(&self.of_file_system)
    }
}

impl FromStr for MountOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<MountOptions, String> {
        let (mut flags, mut others) = (MountFlags::empty(), Vec::new());
        for option in text.split(',') {
            match FLAGS.iter().find(|(name, _)| *name == option) {
                Some((_, flag)) => flags |= *flag,
                None if DEFAULTS.contains(&option) => {}
                None if option.is_empty() || option.contains(char::is_whitespace) => {
                    return Err(format!("'{text}': use options without blanks, as in noatime,nodev"));
                }
                None => others.push(option),
            }
        }
        let of_file_system = CString::new(others.join(",")).map_err(|_| "a zero byte in the options")?;
        Ok(MountOptions { text: text.to_owned(), flags, of_file_system })
    }
}

impl fmt::Display for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_options_of_the_file_system_are_separated() {
        let options: MountOptions = "defaults,noatime,data=journal,ro,discard".parse().unwrap();
        assert_eq!(options.flags(), MountFlags::NOATIME | MountFlags::RDONLY);
        assert_eq!(options.of_file_system(), Some(c"data=journal,discard"));
        let options: MountOptions = "rw,nodev".parse().unwrap();
        assert_eq!((options.flags(), options.of_file_system()), (MountFlags::NODEV, None));
        assert_eq!(MountOptions::default().of_file_system(), None);
    }

    #[test]
    fn blanks_and_empty_options_are_refused() {
        for text in ["", "ro,", "noatime nodev"] {
            assert!(text.parse::<MountOptions>().unwrap_err().contains("noatime,nodev"), "{text}");
        }
    }
}
