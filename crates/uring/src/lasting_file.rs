//! A file in memory, mapped: what this process stores there outlives it.
#![allow(unsafe_code)]

use crate::open::failed;
use braid_base::Bytes;
use braid_runtime::LastingMemory;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::cell::Cell;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file of a file system in memory, for one process at a time. It must not become shorter while it is
/// mapped: only its owner and root may open it.
pub struct LastingFile {
    path: PathBuf,
    file: File,
    life: [u8; 16],
    len: Cell<Bytes>,
    /// Where it is mapped, all of it. Before the first [`LastingMemory::set_len`] it is not, and may be
    /// sparse: to touch a hole could need memory that is not there.
    mapped: Cell<Option<NonNull<u8>>>,
}

/// Where the kernel says which life of the machine it is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl LastingFile {
    /// Opens or makes the file at `path`, of which `most` bytes count at most.
    ///
    /// # Errors
    /// If the file cannot be had, is no regular file of this user's own, or the machine has no boot id.
    pub fn open(path: &Path, most: Bytes) -> io::Result<LastingFile> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags as i32);
        let file = options.open(path).map_err(|e| failed(path, "open", e))?;
        let known = file.metadata().map_err(|e| failed(path, "look at", e))?;
        let is_own =
            known.uid() == rustix::process::geteuid().as_raw() && known.permissions().mode() & 0o77 == 0;
        if !known.is_file() || !is_own {
            let problem = format!(
                "{} is no regular file that this user alone may open: see which user made it, and remove it",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        let life = boot_id()?;
        let (path, len, mapped) = (path.to_owned(), Cell::new(Bytes(known.len()).min(most)), Cell::default());
        Ok(LastingFile { path, file, life, len, mapped })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn unmap(&self) {
        if let Some(start) = self.mapped.take() {
            // SAFETY: mapped in `set_len` with this length; nothing refers to it any more. A failure leaves
            // it mapped.
            let _ = unsafe { munmap(start.as_ptr().cast(), self.len.get().as_usize()) };
        }
    }

    fn map(&self, len: Bytes) -> io::Result<()> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap(std::ptr::null_mut(), len.as_usize(), access, flags, &self.file, 0) }?;
        self.mapped.set(NonNull::new(start.cast()));
        Ok(())
    }

    /// Before the file is mapped. What was not written makes an old content count for less, and never for
    /// more: the next length begins a new one.
    fn write(&self, at: Bytes, from: &[u8]) {
        drop(self.file.write_all_at(from, at.0));
    }

    fn check(&self, at: Bytes, len: usize) {
        let end = at.checked_add(Bytes::of_len(len));
        assert!(end.is_some_and(|end| end <= self.len.get()), "{len} bytes at {at:?} of {}", self.len.get());
    }
}

impl LastingMemory for LastingFile {
    fn life(&self) -> [u8; 16] {
        self.life
    }

    fn len(&self) -> Bytes {
        self.len.get()
    }

    fn set_len(&self, len: Bytes) -> io::Result<()> {
        self.unmap();
        self.len.set(Bytes::ZERO);
        self.file.set_len(0).map_err(|e| failed(&self.path, "empty", e))?;
        if len == Bytes::ZERO {
            return Ok(());
        }
        let mapped = fallocate(&self.file, FallocateFlags::empty(), 0, len.0).map_err(io::Error::from);
        let mapped = mapped.and_then(|()| self.map(len));
        if let Err(error) = mapped {
            // What was taken goes back.
            self.file.set_len(0).map_err(|e| failed(&self.path, "empty", e))?;
            return Err(failed(&self.path, &format!("have {len} for"), error));
        }
        self.len.set(len);
        Ok(())
    }

    fn load(&self, at: Bytes, into: &mut [u8]) {
        into.fill(0);
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], at.0 + done as u64) {
                Ok(0) => return,
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // As if nothing were there.
                Err(_) => return into.fill(0),
            }
        }
    }

    #[inline]
    fn store(&self, at: Bytes, from: &[u8]) {
        self.check(at, from.len());
        let Some(start) = self.mapped.get() else { return self.write(at, from) };
        let to = start.as_ptr().wrapping_add(at.as_usize());
        // SAFETY: the range was checked and lies in the mapping, to which nothing holds a reference; `from`
        // lies elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    #[inline]
    fn publish(&self, at: Bytes, word: u64) {
        self.check(at, 8);
        assert!(at.is_aligned(Bytes(8)), "a word is published at a multiple of eight, and not at {at:?}");
        let Some(start) = self.mapped.get() else { return self.write(at, &word.to_le_bytes()) };
        let to = start.as_ptr().wrapping_add(at.as_usize()).cast::<u64>();
        // SAFETY: eight aligned bytes of the mapping, as checked; other processes only read the file once
        // this one has ended.
        unsafe { AtomicU64::from_ptr(to) }.store(word.to_le(), Ordering::Release);
    }
}

impl fmt::Debug for LastingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

impl Drop for LastingFile {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// The number of this life of the machine.
fn boot_id() -> io::Result<[u8; 16]> {
    let path = Path::new(BOOT_ID);
    let text = std::fs::read_to_string(path).map_err(|e| failed(path, "read", e))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    let number = number.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{BOOT_ID} holds no boot id: '{}'", text.trim()))
    })?;
    Ok(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &LastingFile, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![1; len];
        file.load(Bytes(at), &mut bytes);
        bytes
    }

    #[test]
    fn what_is_stored_is_there_when_the_file_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = LastingFile::open(&path, Bytes(1 << 20)).unwrap();
        assert_eq!((file.len(), load(&file, 0, 3)), (Bytes::ZERO, vec![0; 3]));
        file.set_len(Bytes(10_000)).unwrap();
        file.store(Bytes(9_990), b"0123456789");
        file.publish(Bytes(8), u64::from_le_bytes(*b"abcdefgh"));
        // As after a death: nothing is unmapped or synchronised.
        std::mem::forget(file);
        let file = LastingFile::open(&path, Bytes(1 << 20)).unwrap();
        assert_eq!(load(&file, 9_990, 10), b"0123456789");
        assert_eq!((load(&file, 8, 8), load(&file, 9_999, 3)), (b"abcdefgh".to_vec(), vec![b'9', 0, 0]));
        file.publish(Bytes(8), 7);
        assert_eq!(load(&file, 8, 8), 7u64.to_le_bytes());
        file.set_len(Bytes(20_000)).unwrap();
        assert_eq!(load(&file, 8, 8), [0; 8], "a new length is a new content");
    }

    #[test]
    fn of_a_file_longer_than_any_log_only_the_beginning_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        drop(LastingFile::open(&path, Bytes(4096)).unwrap());
        File::options().write(true).open(&path).unwrap().set_len(1 << 33).unwrap();
        assert_eq!(LastingFile::open(&path, Bytes(4096)).unwrap().len(), Bytes(4096));
    }

    #[test]
    fn a_link_a_directory_and_a_file_that_others_may_open_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("log"), dir.path().join("link"));
        drop(LastingFile::open(&file, Bytes(4096)).unwrap());
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(LastingFile::open(&link, Bytes(4096)).is_err());
        assert!(LastingFile::open(dir.path(), Bytes(4096)).is_err());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = LastingFile::open(&file, Bytes(4096)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_length_that_cannot_be_had_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = LastingFile::open(&dir.path().join("log"), Bytes(4096)).unwrap();
        file.set_len(Bytes(8192)).unwrap();
        file.set_len(Bytes(1 << 60)).unwrap_err();
        assert_eq!((file.len(), file.file.metadata().unwrap().len()), (Bytes::ZERO, 0));
    }
}
