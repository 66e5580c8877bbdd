//! An authority for the certificates of NBD servers and clients: `ca-cert.pem` and `ca-key.pem`.
//!
//! Nothing is overwritten: a lost key locks clients out. All files have mode 0600. Keys are ECDSA P-256,
//! which every client of today knows, and which makes short handshakes.

use crate::tls::files::read;
use crate::{Error, ErrorKind, Result};
use braid_nbd::tls::{CA_CERT, SERVER_CERT, SERVER_KEY};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use serde::Serialize;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// File of the authority's private key.
const CA_KEY: &str = "ca-key.pem";
/// File of a client's certificate.
const CLIENT_CERT: &str = "client-cert.pem";
/// File of a client's private key.
const CLIENT_KEY: &str = "client-key.pem";

/// Days of an authority's validity: longer than that of a certificate.
const AUTHORITY_DAYS: u32 = 7300;
/// Largest validity of a certificate in days.
pub const MOST_DAYS: u32 = 3650;
/// Names of a server that only its own machine uses.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Longest name of a client: the limit of a common name.
const LONGEST_NAME: usize = 64;
const DAY: Duration = Duration::from_secs(86_400);

/// Report of new files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TlsReport {
    /// Directory of the files.
    pub directory: PathBuf,
    /// The new files.
    pub files: Vec<PathBuf>,
    /// Names in the new certificate.
    pub names: Vec<String>,
    /// Validity of the new certificate in days.
    pub valid_days: u32,
}

/// Makes an authority in `directory`, unless one is there, and a server's certificate with these names and
/// addresses; with none for this machine alone.
///
/// # Errors
/// `Usage` for a malformed name; `Invalid` if a file is there already, or an authority without its key; `Io`.
pub fn tls_init(directory: &Path, names: &[String], days: u32) -> Result<TlsReport> {
    let names: Vec<String> = match names {
        [] => LOCAL.map(str::to_owned).to_vec(),
        names => names.to_vec(),
    };
    names.iter().try_for_each(|name| check_host(name))?;
    make_directory(directory)?;
    let is_new = !exists(&directory.join(CA_CERT)) && !exists(&directory.join(CA_KEY));
    let (authority, mut files) =
        if is_new { Authority::make()? } else { (Authority::load(directory)?, vec![]) };
    let params = CertificateParams::new(names.clone()).map_err(|error| cannot(&error))?;
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    let (certificate, key) = authority.sign(params, "Braid NBD server", usage, days)?;
    files.extend([(SERVER_KEY, key), (SERVER_CERT, certificate)]);
    let files = write_all(directory, &files)?;
    Ok(TlsReport { directory: directory.to_owned(), files, names, valid_days: days })
}

/// Makes a directory of its own for a client in the authority's `directory`: certificate, key and the
/// authority's certificate.
///
/// # Errors
/// `Usage` for a malformed name; `Invalid` if the client's directory has files already, or the authority or
/// its key is missing; `Io`.
pub fn tls_client(directory: &Path, name: &str, days: u32) -> Result<TlsReport> {
    check_client(name)?;
    let authority = Authority::load(directory)?;
    let params = CertificateParams::default();
    let (certificate, key) = authority.sign(params, name, ExtendedKeyUsagePurpose::ClientAuth, days)?;
    let own = directory.join(name);
    make_directory(&own)?;
    let files = [(CA_CERT, authority.certificate), (CLIENT_KEY, key), (CLIENT_CERT, certificate)];
    let files = write_all(&own, &files)?;
    Ok(TlsReport { directory: own, files, names: vec![name.to_owned()], valid_days: days })
}

/// An authority that can sign.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate in PEM.
    certificate: String,
}

impl Authority {
    /// Makes a new authority. Returns its files, too, with their contents.
    fn make() -> Result<(Authority, Vec<(&'static str, String)>)> {
        let key = KeyPair::generate().map_err(|error| cannot(&error))?;
        let mut params = valid_for(CertificateParams::default(), "Braid NBD authority", AUTHORITY_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(|error| cannot(&error))?.pem();
        let files = vec![(CA_KEY, key.serialize_pem()), (CA_CERT, certificate.clone())];
        Ok((Authority { issuer: Issuer::new(params, key), certificate }, files))
    }

    /// Reads the authority of a directory.
    fn load(directory: &Path) -> Result<Authority> {
        let text = |name: &str, is_key| {
            let path = directory.join(name);
            let content = read(&path, is_key)?.and_then(|content| String::from_utf8(content).ok());
            content.ok_or_else(|| {
                let problem = format!(
                    "{} is missing or no PEM: put the authority's file there, or make a new authority in an \
                     empty directory with braid tls init",
                    path.display()
                );
                Error::new(ErrorKind::Invalid, problem)
            })
        };
        let (certificate, key) = (text(CA_CERT, false)?, text(CA_KEY, true)?);
        let wrong = |error: rcgen::Error| {
            let place = directory.display();
            Error::new(
                ErrorKind::Invalid,
                format!("{CA_CERT} and {CA_KEY} in {place}: {error}: restore them"),
            )
        };
        let key = KeyPair::from_pem(&key).map_err(wrong)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key).map_err(wrong)?;
        Ok(Authority { issuer, certificate })
    }

    /// Makes a certificate for `usage`. Returns certificate and key in PEM.
    fn sign(
        &self,
        params: CertificateParams,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
        days: u32,
    ) -> Result<(String, String)> {
        let mut params = valid_for(params, name, days);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(|error| cannot(&error))?;
        let certificate: Certificate =
            params.signed_by(&key, &self.issuer).map_err(|error| cannot(&error))?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

/// Names the subject, and sets the validity: from yesterday, for clients whose clock is late.
fn valid_for(mut params: CertificateParams, name: &str, days: u32) -> CertificateParams {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(now.as_secs());
    (params.not_before, params.not_after) = (now - DAY, now + DAY * days);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Accepts addresses and host names.
fn check_host(name: &str) -> Result<()> {
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(is_allowed) && !label.starts_with('-')
    };
    if name.parse::<IpAddr>().is_ok() || name.len() <= 253 && name.split('.').all(is_label) {
        return Ok(());
    }
    let problem = format!("--server {name}: use a host name or an address, as clients write it in the URI");
    Err(Error::new(ErrorKind::Usage, problem))
}

/// Accepts names that are safe as a directory, in a log, and in `--tls-client`.
fn check_client(name: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    let is_plain = name.bytes().all(is_allowed) && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if is_plain && name.len() <= LONGEST_NAME {
        return Ok(());
    }
    let problem = format!(
        "'{name}': the name of a client has 1 to {LONGEST_NAME} letters, digits, '.', '-', '_' and '@', and \
         begins with a letter or digit"
    );
    Err(Error::new(ErrorKind::Usage, problem))
}

/// Makes a directory for its owner alone, unless it exists.
fn make_directory(directory: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| Error::io(format_args!("making {}", directory.display()), &error))
}

/// Writes new files, all or none. Returns their paths.
fn write_all(directory: &Path, files: &[(&str, String)]) -> Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| directory.join(name)).collect();
    if let Some(there) = paths.iter().find(|path| exists(path)) {
        let problem = format!(
            "{} exists, and nothing is overwritten: move the file away, or choose another directory or name",
            there.display()
        );
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    for (number, (path, (_, content))) in paths.iter().zip(files).enumerate() {
        if let Err(error) = write_new(path, content) {
            // The first failure counts.
            paths[..number].iter().for_each(|path| drop(std::fs::remove_file(path)));
            return Err(Error::io(format_args!("writing {}", path.display()), &error));
        }
    }
    Ok(paths)
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(content.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // The first failure counts.
        let _ = std::fs::remove_file(path);
    }
    written
}

/// True for a file, and for a link that leads nowhere.
fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn cannot(error: &rcgen::Error) -> Error {
    Error::new(ErrorKind::Invalid, format!("making a certificate: {error}"))
}
