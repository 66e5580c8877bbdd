//! The directory of a server's certificates, with the file names that libnbd and qemu expect.

use crate::{Error, ErrorKind, Result};
use braid_nbd::tls::{CA_CERT, CA_CRL, SERVER_CERT, SERVER_KEY, TlsFiles};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Longest file: thousands of certificates.
const LONGEST: u64 = 1 << 20;

/// A directory of certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TlsDirectory(pub PathBuf);

/// State of the files: equal as long as nobody replaces or writes a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TlsStamp([Option<FileStamp>; 4]);

/// State of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FileStamp {
    device: u64,
    inode: u64,
    len: u64,
    /// Last change of the file, in seconds since 1970, and nanoseconds.
    changed: [i64; 2],
}

impl TlsDirectory {
    /// Returns the present state of the files.
    pub fn stamp(&self) -> TlsStamp {
        TlsStamp([CA_CERT, CA_CRL, SERVER_CERT, SERVER_KEY].map(|name| {
            let found = std::fs::metadata(self.0.join(name)).ok()?;
            let changed = [found.ctime(), found.ctime_nsec()];
            Some(FileStamp { device: found.dev(), inode: found.ino(), len: found.len(), changed })
        }))
    }

    /// Reads the files. The list of revoked certificates may be missing.
    ///
    /// # Errors
    /// `Usage` if a file is missing, too long or no file, or if the key is not private; `Io` if a file cannot
    /// be read. Each names the file and the remedy.
    pub fn read(&self) -> Result<TlsFiles> {
        let wanted = |name: &str| {
            let path = self.0.join(name);
            read(&path, name == SERVER_KEY)?.ok_or_else(|| {
                let problem = format!("TLS: {} is missing: make it with braid tls init", path.display());
                Error::new(ErrorKind::Usage, problem)
            })
        };
        Ok(TlsFiles {
            ca_cert: wanted(CA_CERT)?,
            ca_crl: read(&self.0.join(CA_CRL), false)?.unwrap_or_default(),
            server_cert: wanted(SERVER_CERT)?,
            server_key: wanted(SERVER_KEY)?,
        })
    }
}

/// Reads a file; `None` if there is none. A private key must be closed to others than its owner and group.
pub(super) fn read(path: &Path, is_key: bool) -> Result<Option<Vec<u8>>> {
    let shown = path.display();
    let failed = |error: &io::Error| Error::io(format_args!("TLS: reading {shown}"), error);
    let wrong = |problem: String| Err(Error::new(ErrorKind::Usage, format!("TLS: {shown}: {problem}")));
    // A pipe in the place of a file must not hang the daemon.
    let opened = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let file: File = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let found = file.metadata().map_err(|error| failed(&error))?;
    if !found.is_file() || found.len() > LONGEST {
        return wrong(format!("not a file of at most {LONGEST} bytes: give the file in PEM"));
    }
    let mode = found.mode() & 0o777;
    if is_key && mode & 0o027 != 0 {
        return wrong(format!("mode {mode:04o} opens the private key to other users: chmod 600 {shown}"));
    }
    let mut content = Vec::new();
    file.take(LONGEST).read_to_end(&mut content).map_err(|error| failed(&error))?;
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, mode: u32) {
        std::fs::write(path, "content").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn key_open_to_others_is_refused_with_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join(SERVER_KEY);
        for mode in [0o644, 0o604, 0o666, 0o601, 0o620] {
            write(&key, mode);
            let error = read(&key, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(&format!("chmod 600 {}", key.display())), "{error}");
            assert_eq!(read(&key, false), Ok(Some(b"content".to_vec())), "a certificate may be open");
        }
        for mode in [0o600, 0o400, 0o640] {
            write(&key, mode);
            assert_eq!(read(&key, true), Ok(Some(b"content".to_vec())), "{mode:o}");
        }
    }

    #[test]
    fn missing_long_and_special_files_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!(read(&path, false), Ok(None));
        std::fs::create_dir(&path).unwrap();
        assert_eq!(read(&path, false).unwrap_err().kind(), ErrorKind::Usage);
        let long = directory.path().join("long");
        File::create(&long).unwrap().set_len(LONGEST + 1).unwrap();
        assert_eq!(read(&long, false).unwrap_err().kind(), ErrorKind::Usage);
    }

    #[test]
    fn stamp_changes_if_a_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let files = TlsDirectory(directory.path().to_owned());
        let empty = files.stamp();
        write(&directory.path().join(CA_CRL), 0o600);
        let first = files.stamp();
        assert_ne!(empty, first);
        assert_eq!(first, files.stamp());
        let new = directory.path().join("new");
        write(&new, 0o600);
        std::fs::rename(new, directory.path().join(CA_CRL)).unwrap();
        assert_ne!(first, files.stamp());
    }
}
