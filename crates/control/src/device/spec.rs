//! `PATH[,size=S][,model=M][,layout=tail]`: a device on the command line. A model is a name in the library or
//! a file: a model with a `/` or the ending `.toml` is a file.
//!
//! `memory` instead of a path is memory, which does not survive the daemon. The address of an NBD export
//! or of an RBD image instead of a path is a remote device. A comma in a path is written twice.

use crate::device::remote::{canonical, is_address, is_image};
use crate::model::library::find;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass};
use braid_format::superblock::Layout;
use braid_model::is_file;
use std::path::{Path, PathBuf};

/// A device for a volume, as specified by the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// SSD or disk.
    pub class: DeviceClass,
    /// Storage of the bytes.
    pub storage: Storage,
    /// Requested size.
    pub size: Option<Bytes>,
    /// Model for emulated timing: a name in the library, or the path of a file.
    pub model: Option<String>,
    /// Place of Braid's structures on the device; `None` for the start.
    pub layout: Option<Layout>,
}

/// Storage of a device's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Storage {
    /// A block device or a regular file by its path, or a remote device by its address.
    Path(PathBuf),
    /// Memory of the daemon.
    Memory,
}

/// Text for [`Storage::Memory`].
const MEMORY: &str = "memory";

impl DeviceSpec {
    /// Parses `PATH[,size=S][,model=M][,layout=tail]` as a device of `class`. Touches nothing.
    ///
    /// # Errors
    /// `Usage`: names the wrong part, and the remedy.
    pub fn parse(class: DeviceClass, text: &str) -> Result<DeviceSpec> {
        let usage = |problem: String| Error::new(ErrorKind::Usage, problem);
        let mut parts = words(text).into_iter();
        let storage = match parts.next().unwrap_or_default().as_str() {
            "" => return Err(usage(format!("--{class} '{text}' names no path: use {}", shape(class)))),
            MEMORY => Storage::Memory,
            path => Storage::Path(canonical(Path::new(path))?),
        };
        let mut spec = DeviceSpec { class, storage, size: None, model: None, layout: None };
        for part in parts {
            let part = part.as_str();
            let wrong =
                |why: &str| usage(format!("'{part}' in --{class} {text} {why}: use {}", shape(class)));
            let (key, value) = part.split_once('=').ok_or_else(|| {
                wrong("is not key=value (a comma in a path is written twice, as in a,,b.img)")
            })?;
            match key {
                "size" if spec.size.is_none() => {
                    let size = value.parse().map_err(|e| usage(format!("--{class} {text}: size: {e}")))?;
                    spec.size = Some(size);
                }
                "model" if spec.model.is_none() => {
                    // A file is read when the device is opened.
                    if !is_file(value) {
                        find(class, value).map_err(|e| usage(format!("--{class} {text}: {e}")))?;
                    }
                    spec.model = Some(value.to_owned());
                }
                "layout" if spec.layout.is_none() => {
                    spec.layout = Some(match value {
                        "head" => Layout::Head,
                        "tail" => Layout::Tail,
                        _ => return Err(wrong("layout=head or layout=tail")),
                    });
                }
                "size" | "model" | "layout" => return Err(wrong("is given twice")),
                "raid0" | "raid1" | "unit" => {
                    return Err(wrong("is for braid simulate only: a volume takes each disk as a device"));
                }
                "node" => {
                    return Err(wrong(
                        "is for braid simulate only: the devices of a volume are on the machine that serves \
                         the volume",
                    ));
                }
                _ => return Err(wrong("is not known")),
            }
        }
        if spec.storage == Storage::Memory && spec.size.is_none() {
            return Err(usage(format!(
                "--{class} {text}: memory needs a size, as in --{class} memory,size=1GiB"
            )));
        }
        if let Storage::Path(path) = &spec.storage
            && is_address(path)
            && (spec.size.is_some() && !is_image(path) || spec.model.is_some())
        {
            let problem = "a remote device has the speed, and an NBD export the size, that its server gives: \
                           leave model= out, and size= of an export";
            return Err(usage(format!("--{class} {text}: {problem}")));
        }
        Ok(spec)
    }

    /// Returns the specification as text for a daemon, with absolute paths.
    pub fn absolute_text(&self) -> Result<String> {
        let path = |path: &Path| Ok::<_, Error>(absolute(path)?.display().to_string().replace(',', ",,"));
        let mut text = match &self.storage {
            Storage::Path(own) => path(own)?,
            Storage::Memory => MEMORY.to_owned(),
        };
        if let Some(size) = self.size {
            text += &format!(",size={}", size.0);
        }
        match &self.model {
            Some(model) if is_file(model) => text += &format!(",model={}", path(Path::new(model))?),
            Some(model) => text += &format!(",model={model}"),
            None => {}
        }
        if self.layout == Some(Layout::Tail) {
            text += ",layout=tail";
        }
        Ok(text)
    }

    /// Returns the name for messages.
    pub fn name(&self) -> String {
        self.storage.name()
    }
}

impl Storage {
    /// Returns the name for messages and status: the path, or `memory`.
    pub fn name(&self) -> String {
        match self {
            Storage::Path(path) => path.display().to_string(),
            Storage::Memory => MEMORY.to_owned(),
        }
    }
}

/// Splits at single commas. A double comma is a comma in a part.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut rest) = (vec![String::new()], text.chars().peekable());
    while let Some(c) = rest.next() {
        match (c, words.last_mut()) {
            (',', Some(word)) if rest.next_if_eq(&',').is_some() => word.push(','),
            (',', _) => words.push(String::new()),
            (_, Some(word)) => word.push(c),
            (_, None) => {}
        }
    }
    words
}

/// Makes a path absolute; an address gets its one spelling. Symbolic links stay: links in /dev/disk/by-id are
/// more stable than their targets.
///
/// # Errors
/// `Usage` if the path is not UTF-8: records and replies are text.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    if is_address(path) {
        return canonical(path);
    }
    let absolute = std::path::absolute(path).map_err(|e| Error::io(path.display(), &e))?;
    if absolute.to_str().is_some() {
        return Ok(absolute);
    }
    let problem = format!("the path {absolute:?} is not UTF-8: rename it, or use a symbolic link to it");
    Err(Error::new(ErrorKind::Usage, problem))
}

/// Quotes a path as one word of a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@,=%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

fn shape(class: DeviceClass) -> String {
    format!("--{class} PATH[,size=10GiB][,model=NAME|FILE.toml][,layout=head|tail]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::GIB;
    use std::path::Path;

    fn ssd(text: &str) -> Result<DeviceSpec> {
        DeviceSpec::parse(DeviceClass::Ssd, text)
    }

    #[test]
    fn a_path_may_have_a_size_and_a_model() {
        let spec = ssd("/dev/sdb").unwrap();
        assert_eq!((spec.storage, spec.size, spec.model), (Storage::Path("/dev/sdb".into()), None, None));
        let spec = ssd("fast.img,model=x25-m,size=2GiB").unwrap();
        assert_eq!(spec.storage, Storage::Path(Path::new("fast.img").into()));
        assert_eq!((spec.size, spec.model.as_deref()), (Some(GIB * 2), Some("x25-m")));
        assert_eq!(spec.layout, None);
        assert_eq!(ssd("/dev/sdb,layout=tail").unwrap().layout, Some(Layout::Tail));
        assert_eq!(ssd("memory,size=1GiB").unwrap().storage, Storage::Memory);
    }

    /// Regression: a path with a comma could not be given.
    #[test]
    fn a_comma_in_a_path_is_written_twice() {
        let spec = ssd("/a,,b,,,size=1GiB,model=x25-m").unwrap();
        assert_eq!((spec.storage.clone(), spec.size), (Storage::Path("/a,b,".into()), Some(GIB)));
        assert_eq!(ssd(&spec.absolute_text().unwrap()).unwrap(), spec);
        assert!(ssd("com,ma.img").unwrap_err().to_string().contains("written twice"));
    }

    #[test]
    fn non_utf8_path_is_refused_by_name() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/tmp/x\xff.img"));
        let error = absolute(path).unwrap_err();
        assert!(error.kind() == ErrorKind::Usage && error.to_string().contains(r"x\xFF.img"), "{error}");
    }

    #[test]
    fn device_spec_errors_name_the_valid_form() {
        for (text, expected) in [
            ("", "--ssd PATH"),
            ("a.img,size", "key=value"),
            ("a.img,size=big", "'big'"),
            ("a.img,size=1GiB,size=2GiB", "size=2GiB"),
            ("a.img,layout=middle", "layout=tail"),
            ("a.img,colour=red", "colour"),
            ("a.img,raid0=4", "--ssd PATH"),
            ("a.img,node=0", "braid simulate"),
            ("a.img,model=x26", "x25-m"),
            ("a.img,model=mba3073", "--hdd"),
            ("memory", "size=1GiB"),
        ] {
            let error = ssd(text).unwrap_err();
            assert!(error.to_string().contains(expected), "{text}: {error}");
            assert_eq!(error.exit_status(), 2, "{text}");
        }
    }
}
