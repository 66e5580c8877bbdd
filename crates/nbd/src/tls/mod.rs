//! TLS for the connections of a server: certificates, and the clients that may come.
//!
//! Every client needs a certificate of the authority. TLS 1.3 and 1.2 by rustls, with the algorithms of ring;
//! nothing older. No session is resumed, so each connection shows its certificate, and no tickets are sent.

mod clients;
mod layer;

pub use clients::ClientRule;
pub use layer::Layer;

use crate::handshake::Access;
use crate::refusal::Refusal;
use braid_engine::{Error, ErrorKind, Result};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig as RustlsConfig, ServerConnection};
use std::rc::Rc;
use std::sync::Arc;

/// File of the authority's certificates, by the convention of libnbd and qemu.
pub const CA_CERT: &str = "ca-cert.pem";
/// File of certificates that the authority revoked. Optional.
pub const CA_CRL: &str = "ca-crl.pem";
/// File of the server's certificate, with certificates between it and the authority's, if any.
pub const SERVER_CERT: &str = "server-cert.pem";
/// File of the server's private key.
pub const SERVER_KEY: &str = "server-key.pem";

/// Contents of a server's files, in PEM.
#[derive(Clone)]
pub struct TlsFiles {
    /// Content of [`CA_CERT`].
    pub ca_cert: Vec<u8>,
    /// Content of [`CA_CRL`]; empty if nothing was revoked.
    pub ca_crl: Vec<u8>,
    /// Content of [`SERVER_CERT`].
    pub server_cert: Vec<u8>,
    /// Content of [`SERVER_KEY`].
    pub server_key: Vec<u8>,
}

/// TLS of a server. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    config: Arc<RustlsConfig>,
    rules: Rc<[ClientRule]>,
    expires: Option<i64>,
}

impl Tls {
    /// Makes the TLS of a server. Without `rules`, all clients with a certificate of the authority may use
    /// the export.
    ///
    /// # Errors
    /// `Invalid` if a file has the wrong content, or the files do not fit each other: names the file and the
    /// remedy.
    pub fn new(files: &TlsFiles, rules: &[ClientRule]) -> Result<Tls> {
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(CA_CERT, &files.ca_cert)? {
            roots.add(certificate).map_err(|error| wrong(CA_CERT, error))?;
        }
        let revoked: std::result::Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(&files.ca_crl).collect();
        let revoked = revoked.map_err(|error| wrong(CA_CRL, error))?;
        if revoked.is_empty() && !files.ca_crl.is_empty() {
            return Err(wrong(CA_CRL, "it holds no list of revoked certificates in PEM"));
        }
        // A list speaks for its own authority alone: clients of the other authorities stay welcome.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .with_crls(revoked)
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| wrong(CA_CRL, error))?;
        let chain = certificates(SERVER_CERT, &files.server_cert)?;
        let expires = chain.first().and_then(|certificate| clients::expiry_of(certificate));
        let key =
            PrivateKeyDer::from_pem_slice(&files.server_key).map_err(|error| wrong(SERVER_KEY, error))?;
        let mut config = RustlsConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(SERVER_CERT, error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| wrong(&format!("{SERVER_CERT} with {SERVER_KEY}"), error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Tls { config: Arc::new(config), rules: rules.into(), expires })
    }

    /// End of the server certificate's validity in seconds since 1970. `None` if unknown.
    pub fn expires(&self) -> Option<i64> {
        self.expires
    }

    /// Starts the server's side of a connection.
    ///
    /// # Errors
    /// If the system has no random numbers, or the configuration does not fit itself.
    pub fn layer(&self) -> std::io::Result<Layer> {
        let connection = ServerConnection::new(self.config.clone()).map_err(std::io::Error::other)?;
        Ok(Layer::new(connection))
    }

    /// Rights of a client with this certificate at `export`.
    ///
    /// # Errors
    /// For a client without rights.
    pub(crate) fn access(&self, export: &str, names: &[String]) -> std::result::Result<Access, Refusal> {
        clients::access(&self.rules, export, names).ok_or_else(|| Refusal {
            reason: format!("the client's certificate names {}: not allowed on this server", shown(names)),
            remedy: match names.first() {
                Some(name) => format!("allow the client by --tls-client {}={export}", printable(name)),
                None => "give the client a certificate with a name (braid tls client)".to_owned(),
            },
        })
    }
}

/// Names of a certificate in a message.
const NAMES_SHOWN: usize = 3;
/// Characters of a name in a message: all of a common name.
const NAME_SHOWN: usize = 64;

fn shown(names: &[String]) -> String {
    match names {
        [] => "nobody".to_owned(),
        names => {
            let quoted = names.iter().take(NAMES_SHOWN).map(|name| format!("\"{}\"", printable(name)));
            quoted.collect::<Vec<_>>().join(", ")
        }
    }
}

/// A name for readers: the client chose it, so it may be long, or hold what a terminal would obey.
pub(crate) fn printable(name: &str) -> String {
    name.chars().take(NAME_SHOWN).collect::<String>().escape_debug().to_string()
}

/// Names in a client's certificate.
pub(crate) fn names_in(certificate: &CertificateDer<'_>) -> Vec<String> {
    clients::names_in(certificate)
}

fn certificates(file: &str, content: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    let all = all.map_err(|error| wrong(file, error))?;
    if all.is_empty() {
        return Err(wrong(file, "it holds no certificate in PEM"));
    }
    Ok(all)
}

fn wrong(file: &str, problem: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("TLS: {file}: {problem}: make the files with braid tls init"))
}
