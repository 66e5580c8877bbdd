//! A mapped file in memory: data that this process stores there outlives the process.
//!
//! The file is locked for the life of the process. A new content is a new file that replaces the old one at
//! its path, so a process with the old file mapped keeps the whole file.
#![allow(unsafe_code)]

use crate::locked_file::{LockedFile, Missing};
use crate::open::failed;
use braid_base::Bytes;
use braid_runtime::LastingMemory;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file of a file system in memory, for one process at a time. The file must not become shorter while
/// mapped: only its owner and root may open it.
pub struct LastingFile {
    path: PathBuf,
    /// The file at `path`.
    own: RefCell<LockedFile>,
    /// File that is read until a new content begins, if the earlier content lies elsewhere.
    left: RefCell<Option<LockedFile>>,
    most: Bytes,
    life: [u8; 16],
    len: Cell<Bytes>,
    /// Address of the mapping of the whole file. Before the first [`LastingMemory::set_len`] the file is not
    /// mapped, and may be sparse: touching a hole could need memory that the machine does not have.
    mapped: Cell<Option<NonNull<u8>>>,
}

/// File in which the kernel shows the boot id of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl LastingFile {
    /// Opens or makes the file at `path`. At most its first `most` bytes count.
    ///
    /// # Errors
    /// If the file cannot be opened or made, is no regular file of this user's own, is in use by another
    /// process, or the machine has no boot id.
    pub fn open(path: &Path, most: Bytes) -> io::Result<LastingFile> {
        let life = boot_id()?;
        let own = LockedFile::open(path, Missing::Made)?;
        let len = Cell::new(len_of(&own, most)?);
        let (own, left, path) = (RefCell::new(own), RefCell::default(), path.to_owned());
        Ok(LastingFile { path, own, left, most, life, len, mapped: Cell::default() })
    }

    /// Reads the file at `left` instead, until a new content begins. Then `left` is removed.
    ///
    /// # Errors
    /// As [`LastingFile::open`], and if `left` does not exist: nothing has changed then.
    pub fn take_over(&self, left: &Path) -> io::Result<()> {
        let left = LockedFile::open(left, Missing::Refused)?;
        self.len.set(len_of(&left, self.most)?);
        self.left.replace(Some(left));
        Ok(())
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the next process finds the file.
    pub fn is_in_place(&self) -> bool {
        self.own.borrow().is_in_place()
    }

    /// Removes the file, unless another file has taken its place.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove(&self) -> io::Result<()> {
        self.own.borrow().remove()
    }

    fn unmap(&self) {
        self.unmap_all(self.len.get());
    }

    /// Unmaps all of the mapping, of length `len`.
    fn unmap_all(&self, len: Bytes) {
        if let Some(start) = self.mapped.take() {
            // SAFETY: mapped in `map` with this length; nothing refers to it any more. A failure leaves it
            // mapped.
            let _ = unsafe { munmap(start.as_ptr().cast(), len.as_usize()) };
        }
    }

    fn map(&self, file: &File, len: Bytes) -> io::Result<()> {
        fallocate(file, FallocateFlags::empty(), 0, len.0)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap(std::ptr::null_mut(), len.as_usize(), access, flags, file, 0) }?;
        self.mapped.set(NonNull::new(start.cast()));
        Ok(())
    }

    /// Writes before the file is mapped. A write that fails makes an old content count for less, and never
    /// for more: the next length begins a new content.
    fn write(&self, at: Bytes, from: &[u8]) {
        self.with_left(|file| drop(file.write_all_at(from, at.0)));
    }

    /// Calls `work` with the file to use before the first new content: the earlier file elsewhere if any,
    /// else the own file.
    fn with_left<T>(&self, work: impl FnOnce(&File) -> T) -> T {
        let left = self.left.borrow();
        work(left.as_ref().unwrap_or(&self.own.borrow()).file())
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
        let new = LockedFile::make(&self.path.with_extension("new"))?;
        let mapped = if len == Bytes::ZERO { Ok(()) } else { self.map(new.file(), len) };
        if mapped.is_err() {
            // Gives back the memory that `fallocate` took.
            new.file().set_len(0).map_err(|e| failed(new.path(), "empty", e))?;
        }
        // The old file is closed, and its lock released, once the new file is in its place.
        let replaced = new.replace(&self.own.borrow());
        let replaced = replaced.map(|new| drop(self.own.replace(new)));
        let removed = self.left.take().map_or(Ok(()), |left| left.remove());
        let is_whole = mapped.map_err(|e| failed(&self.path, &format!("have {len} for"), e));
        match is_whole.and(replaced).and(removed) {
            Ok(()) => self.len.set(len),
            Err(error) => {
                self.unmap_all(len);
                return Err(error);
            }
        }
        Ok(())
    }

    fn load(&self, at: Bytes, into: &mut [u8]) {
        into.fill(0);
        let mut done = 0;
        while done < into.len() {
            match self.with_left(|file| file.read_at(&mut into[done..], at.0 + done as u64)) {
                Ok(0) => return,
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // As if the file were empty.
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

/// Bytes of a file that count.
fn len_of(file: &LockedFile, most: Bytes) -> io::Result<Bytes> {
    let known = file.file().metadata().map_err(|e| failed(file.path(), "look at", e))?;
    Ok(Bytes(known.len()).min(most))
}

/// Boot id of the machine: a new number for each boot.
///
/// # Errors
/// If the kernel shows no boot id.
pub fn boot_id() -> io::Result<[u8; 16]> {
    let path = Path::new(BOOT_ID);
    let text = std::fs::read_to_string(path).map_err(|e| failed(path, "read", e))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    let number = number.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{BOOT_ID} has no valid boot id: '{}'", text.trim()),
        )
    })?;
    Ok(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn load(file: &LastingFile, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![1; len];
        file.load(Bytes(at), &mut bytes);
        bytes
    }

    #[test]
    fn stored_bytes_survive_reopen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = LastingFile::open(&path, Bytes(1 << 20)).unwrap();
        assert_eq!((file.len(), load(&file, 0, 3)), (Bytes::ZERO, vec![0; 3]));
        file.set_len(Bytes(10_000)).unwrap();
        file.store(Bytes(9_990), b"0123456789");
        file.publish(Bytes(8), u64::from_le_bytes(*b"abcdefgh"));
        drop(file);
        let file = LastingFile::open(&path, Bytes(1 << 20)).unwrap();
        assert_eq!(load(&file, 9_990, 10), b"0123456789");
        assert_eq!((load(&file, 8, 8), load(&file, 9_999, 3)), (b"abcdefgh".to_vec(), vec![b'9', 0, 0]));
        file.publish(Bytes(8), 7);
        assert_eq!(load(&file, 8, 8), 7u64.to_le_bytes());
        file.set_len(Bytes(20_000)).unwrap();
        assert_eq!(load(&file, 8, 8), [0; 8], "a new length is a new content");
    }

    #[test]
    fn oversized_file_is_limited_to_the_maximum_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        drop(LastingFile::open(&path, Bytes(4096)).unwrap());
        File::options().write(true).open(&path).unwrap().set_len(1 << 33).unwrap();
        assert_eq!(LastingFile::open(&path, Bytes(4096)).unwrap().len(), Bytes(4096));
    }

    #[test]
    fn link_directory_and_world_readable_file_are_refused() {
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
    fn impossible_length_leaves_an_empty_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = LastingFile::open(&dir.path().join("log"), Bytes(4096)).unwrap();
        file.set_len(Bytes(8192)).unwrap();
        file.set_len(Bytes(1 << 60)).unwrap_err();
        assert_eq!((file.len(), dir.path().join("log").metadata().unwrap().len()), (Bytes::ZERO, 0));
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "no other file is left");
    }

    /// Story: a daemon that served a copy of the volume began its log in the file that the original's daemon
    /// had mapped, and zeroed the file.
    #[test]
    fn lasting_file_is_locked_and_resize_replaces_the_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = LastingFile::open(&path, Bytes(8192)).unwrap();
        file.set_len(Bytes(8192)).unwrap();
        let error = LastingFile::open(&path, Bytes(8192)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        // A process without locks reads its open file to the end.
        let other = File::open(&path).unwrap();
        file.store(Bytes(0), b"abc");
        file.set_len(Bytes(4096)).unwrap();
        let mut bytes = [0; 3];
        other.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, load(&file, 0, 3)), (b"abc", vec![0; 3]));
        LastingFile::open(&path, Bytes(8192)).unwrap_err();
        // Another file at the path stays.
        std::fs::remove_file(&path).unwrap();
        assert!(!file.is_in_place());
        std::fs::write(&path, "another").unwrap();
        file.remove().unwrap();
        assert!(path.exists() && file.set_len(Bytes(4096)).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"another");
    }

    /// The log of the previous daemon lies in another directory. It is read there, and counts until the new
    /// log begins.
    #[test]
    fn a_file_elsewhere_is_read_until_a_new_content_begins() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("here"), dir.path().join("there"));
        let left = LastingFile::open(&there, Bytes(8192)).unwrap();
        left.set_len(Bytes(8192)).unwrap();
        left.store(Bytes(5), b"left");
        drop(left);
        let file = LastingFile::open(&here, Bytes(4096)).unwrap();
        file.take_over(&dir.path().join("nothing")).unwrap_err();
        file.take_over(&there).unwrap();
        assert_eq!((file.len(), load(&file, 5, 4)), (Bytes(4096), b"left".to_vec()));
        file.publish(Bytes(8), 7);
        assert_eq!(std::fs::read(&there).unwrap()[8..10], [7, 0]);
        LastingFile::open(&there, Bytes(4096)).unwrap_err();
        file.set_len(Bytes(4096)).unwrap();
        assert_eq!((there.exists(), load(&file, 5, 4)), (false, vec![0; 4]));
    }
}
