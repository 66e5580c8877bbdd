//! Certificates of a served volume: read at the start, and anew when their files change. Certificates expire,
//! and a renewal must not interrupt guests.

use crate::served::ServedVolume;
use crate::tls::files::{TlsDirectory, TlsStamp};
use crate::{Error, ErrorKind, Result};
use braid_base::Nanos;
use braid_nbd::tls::{ClientRule, SERVER_CERT, Tls, TlsFiles};
use braid_runtime::Runtime;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

/// Time between two looks for changed files.
const LOOK_AGAIN: Nanos = Nanos::from_secs(5);
/// Days before the end of a certificate in which the log warns.
const WARNED_DAYS: i64 = 30;
const DAY_SECONDS: i64 = 86_400;

/// Certificates in use.
pub(crate) struct Certificates {
    directory: TlsDirectory,
    rules: Vec<ClientRule>,
    /// State of the files before they were read.
    stamp: TlsStamp,
    tls: Tls,
}

impl Certificates {
    /// Reads the certificates of a directory.
    ///
    /// # Errors
    /// `Usage` if a file is missing or has the wrong content, or if the key is not private; `Io` if a file
    /// cannot be read.
    pub fn open(directory: &Path, rules: &[ClientRule]) -> Result<Certificates> {
        let directory = TlsDirectory(directory.to_owned());
        let stamp = directory.stamp();
        let tls = make(&directory, &directory.read()?, rules)?;
        Ok(Certificates { directory, rules: rules.to_vec(), stamp, tls })
    }

    /// Returns the TLS of the NBD server.
    pub fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Gives the NBD server changed certificates for as long as the daemon runs. Reads files in a thread of
    /// its own: their file system may hang. Wrong files change nothing but the log.
    pub async fn keep(mut self, served: Rc<ServedVolume>) {
        while !served.end().has_begun() {
            served.ring().sleep(LOOK_AGAIN).await;
            let directory = self.directory.clone();
            let found = served.aside(move || Ok((directory.stamp(), directory))).await;
            let Ok((stamp, directory)) = found else { continue };
            if stamp == self.stamp {
                continue;
            }
            self.stamp = stamp;
            let read = served.aside(move || directory.read()).await;
            match read.and_then(|files| make(&self.directory, &files, &self.rules)) {
                Ok(tls) => {
                    tracing::info!("new connections use the changed certificates");
                    served.frontends().set_tls(tls);
                }
                Err(error) => tracing::error!("the certificates in use stay: {error}"),
            }
        }
    }
}

fn make(directory: &TlsDirectory, files: &TlsFiles, rules: &[ClientRule]) -> Result<Tls> {
    let place = directory.0.display();
    let wrong = |error| Error::new(ErrorKind::Usage, format!("{place}: {error}"));
    let tls = Tls::new(files, rules).map_err(wrong)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    match tls.expires().map(|expires| (expires - now).div_euclid(DAY_SECONDS)) {
        Some(days) if days < 0 => tracing::error!(
            "{place}/{SERVER_CERT} has expired, so clients refuse this server: move {SERVER_CERT} and its key \
             away, and run braid tls init {place}"
        ),
        Some(days) if days < WARNED_DAYS => tracing::warn!(
            "{place}/{SERVER_CERT} expires in {days} days: move {SERVER_CERT} and its key away, and run braid \
             tls init {place}"
        ),
        _ => {}
    }
    Ok(tls)
}
