//! Content of a device, as libblkid names it: a file system, a member of an array, an encrypted volume, swap
//! space, a partition table.
//!
//! The library belongs to util-linux, which every Linux distribution has, so Braid loads the library at run
//! time. A crate over libblkid would need its header and libclang for each build. Without the library no
//! content has a name: the caller still sees bytes other than zero.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// Content with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// `ext4`, `linux_raid_member`, `LVM2_member`, `crypto_LUKS`, `swap` …; of a partition table `gpt` or
    /// `dos`.
    pub kind: String,
    /// Use of the content.
    pub usage: Usage,
    /// Label, if the content has one.
    pub label: Option<String>,
}

/// Use of a content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// A file system.
    FileSystem,
    /// Member of an array, a volume group, a pool or a cache.
    Member,
    /// Another content with a single name.
    Other,
    /// A device cut into partitions.
    PartitionTable,
    /// Several signatures; none is certain to be the newest.
    Ambiguous,
}

impl Content {
    /// As the object of a sentence: `an ext4 file system ("backup")`.
    pub fn describe(&self) -> String {
        let label = self.label.as_ref().map_or_else(String::new, |label| format!(" (\"{label}\")"));
        let kind = &self.kind;
        match self.usage {
            Usage::FileSystem => format!("a file system of type {kind}{label}"),
            Usage::Member => format!("a member of an array, pool or volume group ({kind}){label}"),
            Usage::Other => format!("content of type {kind}{label}"),
            Usage::PartitionTable => format!("a partition table of type {kind}"),
            Usage::Ambiguous => "several signatures of file systems or arrays".to_owned(),
        }
    }
}

/// Content that libblkid finds on the device or in the file. Reads for as long as the device takes.
///
/// None if libblkid names no content, the device cannot be read, or the machine has no libblkid.
pub fn content(path: &Path) -> Option<Content> {
    let library = LIBRARY.get_or_init(Library::load).as_ref()?;
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path is a string that ends with a zero byte.
    let probe = Probe { library, handle: unsafe { (library.new_probe)(path.as_ptr()) } };
    if probe.handle.is_null() {
        return None;
    }
    probe.ask()
}

/// An open probe, freed when dropped.
struct Probe<'a> {
    library: &'a Library,
    handle: *mut c_void,
}

impl Probe<'_> {
    fn ask(&self) -> Option<Content> {
        // SAFETY: the handle is a probe that has not been freed.
        let found = unsafe {
            (self.library.superblocks)(self.handle, 1);
            (self.library.superblock_flags)(self.handle, LABEL | TYPE | USAGE);
            (self.library.partitions)(self.handle, 1);
            (self.library.probe)(self.handle)
        };
        match found {
            0 => self.found(),
            AMBIGUOUS => Some(Content { kind: "ambiguous".to_owned(), usage: Usage::Ambiguous, label: None }),
            _ => None,
        }
    }

    fn found(&self) -> Option<Content> {
        let Some(kind) = self.value(c"TYPE") else {
            let kind = self.value(c"PTTYPE")?;
            return Some(Content { kind, usage: Usage::PartitionTable, label: None });
        };
        let usage = usage_of(&kind, self.value(c"USAGE").as_deref());
        Some(Content { kind, usage, label: self.value(c"LABEL") })
    }

    fn value(&self, name: &CStr) -> Option<String> {
        let mut text: *const c_char = null();
        // SAFETY: the handle is a probe; the library writes a pointer to a string of its own.
        let missing = unsafe { (self.library.value)(self.handle, name.as_ptr(), &raw mut text, null_mut()) };
        if missing != 0 || text.is_null() {
            return None;
        }
        // SAFETY: the string ends with a zero byte, and lives until the probe is freed.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
    }
}

/// What a kind of content is used for. The library calls a pool of ZFS a file system, and a cache of bcache
/// something else.
fn usage_of(kind: &str, usage: Option<&str>) -> Usage {
    match usage {
        _ if kind.ends_with("_member") || kind.starts_with("bcache") => Usage::Member,
        Some("raid") => Usage::Member,
        Some("filesystem") => Usage::FileSystem,
        _ => Usage::Other,
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is a probe, and is used no more.
            unsafe { (self.library.free_probe)(self.handle) }
        }
    }
}

/// `BLKID_SUBLKS_LABEL`, `_TYPE` and `_USAGE` of blkid.h, and its result for several signatures.
const LABEL: c_int = 1 << 1;
const TYPE: c_int = 1 << 5;
const USAGE: c_int = 1 << 7;
const AMBIGUOUS: c_int = -2;

/// Functions of libblkid that are called here. The library is never unloaded.
struct Library {
    new_probe: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    free_probe: unsafe extern "C" fn(*mut c_void),
    superblocks: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    superblock_flags: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    partitions: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    probe: unsafe extern "C" fn(*mut c_void) -> c_int,
    value: unsafe extern "C" fn(*mut c_void, *const c_char, *mut *const c_char, *mut usize) -> c_int,
}

static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();

impl Library {
    fn load() -> Option<Library> {
        // SAFETY: the constructors of libblkid and of what it needs have no conditions.
        let library = unsafe { libc::dlopen(c"libblkid.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library was loaded above.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        // SAFETY: each is a function with the parameters and the result that blkid.h declares; the interface
        // of this version of the library does not change.
        unsafe {
            Some(Library {
                new_probe: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_char) -> *mut c_void,
                >(symbol(c"blkid_new_probe_from_filename")?),
                free_probe: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(symbol(
                    c"blkid_free_probe",
                )?),
                superblocks: setter(symbol(c"blkid_probe_enable_superblocks")?),
                superblock_flags: setter(symbol(c"blkid_probe_set_superblocks_flags")?),
                partitions: setter(symbol(c"blkid_probe_enable_partitions")?),
                probe: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(
                    symbol(c"blkid_do_safeprobe")?,
                ),
                value: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, *const c_char, *mut *const c_char, *mut usize) -> c_int,
                >(symbol(c"blkid_probe_lookup_value")?),
            })
        }
    }
}

/// # Safety
/// `symbol` is a function of a probe and a number that gives a number.
unsafe fn setter(symbol: *mut c_void) -> unsafe extern "C" fn(*mut c_void, c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, c_int) -> c_int>(symbol) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_label_is_reported_and_zeros_are_empty() {
        if LIBRARY.get_or_init(Library::load).is_none() {
            eprintln!("SKIPPED: this machine has no libblkid");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let mut bytes = vec![0; 1 << 20];
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(content(&path), None);
        // `mkswap`: version 1, the last page, at byte 1024; the label at 1052.
        bytes[1024] = 1;
        bytes[1028] = 255;
        bytes[1052..1057].copy_from_slice(b"spare");
        bytes[4086..4096].copy_from_slice(b"SWAPSPACE2");
        std::fs::write(&path, &bytes).unwrap();
        let found = content(&path).unwrap();
        assert_eq!(
            (found.kind.as_str(), found.usage, found.label.as_deref()),
            ("swap", Usage::Other, Some("spare"))
        );
        assert_eq!(content(&dir.path().join("none")), None);
    }

    #[test]
    fn a_member_of_an_array_is_told_from_a_file_system() {
        for (kind, usage, expected) in [
            ("linux_raid_member", Some("raid"), Usage::Member),
            ("LVM2_member", Some("raid"), Usage::Member),
            ("zfs_member", Some("filesystem"), Usage::Member),
            ("bcache", Some("other"), Usage::Member),
            ("ext4", Some("filesystem"), Usage::FileSystem),
            ("crypto_LUKS", Some("crypto"), Usage::Other),
            ("swap", None, Usage::Other),
        ] {
            assert_eq!(usage_of(kind, usage), expected, "{kind}");
        }
    }
}
