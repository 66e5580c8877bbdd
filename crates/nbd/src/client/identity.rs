//! Files of a client for TLS, in a folder by the convention of libnbd and qemu.
//!
//! The server's certificate must be of the authority in the folder and for the name in the address. No other
//! authority is trusted, and nothing older than TLS 1.2 is spoken. No session is resumed.

use super::address::TlsAddress;
use crate::tls::{CA_CERT, CA_CRL, Layer};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

/// File of the client's certificate, with certificates between it and the authority's, if any.
const CLIENT_CERT: &str = "client-cert.pem";
/// File of the client's private key.
const CLIENT_KEY: &str = "client-key.pem";
/// Longest file that is read, in bytes.
const FILE_LONGEST: u64 = 1 << 20;

/// Identity of a client, and the servers that the client trusts.
pub struct ClientIdentity {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl ClientIdentity {
    /// Reads the files. Without certificate and key, the client has no name; the server decides.
    ///
    /// # Errors
    /// Errors of reading; `InvalidInput` for a file with the wrong content. Names the file and the remedy.
    pub fn read(address: &TlsAddress) -> io::Result<ClientIdentity> {
        let folder = address.certificates.as_path();
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(folder, CA_CERT)? {
            roots.add(certificate).map_err(|error| wrong(folder, CA_CERT, error))?;
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .with_crls(revoked(folder)?)
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| wrong(folder, CA_CRL, error))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_webpki_verifier(verifier);
        let mut config = match own_files(folder)? {
            None => config.with_no_client_auth(),
            Some((chain, key)) => config
                .with_client_auth_cert(chain, key)
                .map_err(|error| wrong(folder, &format!("{CLIENT_CERT} with {CLIENT_KEY}"), error))?,
        };
        config.resumption = Resumption::disabled();
        let server = ServerName::try_from(address.server.clone()).map_err(|error| {
            let problem = format!("TLS: `{}` is no name of a server: {error}", address.server);
            io::Error::new(ErrorKind::InvalidInput, problem)
        })?;
        Ok(ClientIdentity { config: Arc::new(config), server })
    }

    /// Starts the client's side of a connection.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn layer(&self) -> io::Result<Layer> {
        let connection = ClientConnection::new(self.config.clone(), self.server.clone());
        Ok(Layer::new(connection.map_err(io::Error::other)?))
    }
}

/// Certificate and key of the client: both or none.
fn own_files(folder: &Path) -> io::Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>> {
    match (read(folder, CLIENT_CERT)?, read(folder, CLIENT_KEY)?) {
        (None, None) => Ok(None),
        (Some(_), Some(key)) => {
            let key =
                PrivateKeyDer::from_pem_slice(&key).map_err(|error| wrong(folder, CLIENT_KEY, error))?;
            Ok(Some((certificates(folder, CLIENT_CERT)?, key)))
        }
        (Some(_), None) => Err(wrong(folder, CLIENT_KEY, "the file of the certificate's key is missing")),
        (None, Some(_)) => Err(wrong(folder, CLIENT_CERT, "the file of the key's certificate is missing")),
    }
}

fn certificates(folder: &Path, file: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let Some(content) = read(folder, file)? else {
        return Err(io::Error::new(ErrorKind::NotFound, wrong(folder, file, "the file is missing")));
    };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    match all.map_err(|error| wrong(folder, file, error))? {
        all if all.is_empty() => Err(wrong(folder, file, "it holds no certificate in PEM")),
        all => Ok(all),
    }
}

/// Revoked certificates, if the folder has a list.
fn revoked(folder: &Path) -> io::Result<Vec<CertificateRevocationListDer<'static>>> {
    let Some(content) = read(folder, CA_CRL)? else { return Ok(Vec::new()) };
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&content).collect();
    match lists.map_err(|error| wrong(folder, CA_CRL, error))? {
        lists if lists.is_empty() && !content.is_empty() => {
            Err(wrong(folder, CA_CRL, "it holds no list of revoked certificates in PEM"))
        }
        lists => Ok(lists),
    }
}

/// Content of a file. `None` if there is no file of this name.
fn read(folder: &Path, file: &str) -> io::Result<Option<Vec<u8>>> {
    let failed = |error: io::Error| io::Error::new(error.kind(), wrong(folder, file, error));
    let opened = match File::open(folder.join(file)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut content = Vec::new();
    opened.take(FILE_LONGEST + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > FILE_LONGEST {
        return Err(wrong(folder, file, format!("it has more than {FILE_LONGEST} bytes")));
    }
    Ok(Some(content))
}

fn wrong(folder: &Path, file: &str, problem: impl Display) -> io::Error {
    let path = folder.join(file);
    let problem = format!("TLS: {}: {problem}: make the files with braid tls client", path.display());
    io::Error::new(ErrorKind::InvalidInput, problem)
}
