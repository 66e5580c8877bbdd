//! A server with TLS, and a client by hand that speaks TLS.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::certificates::{Authority, Identity, Wanted};
use crate::support::raw::RawClient;
use crate::support::{Running, Setup};
use braid_nbd::tls::{ClientRule, TlsFiles};
use braid_nbd::wire::options::*;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// A server with TLS, and its authority.
pub struct Secured {
    pub server: Running,
    pub authority: Authority,
}

impl Secured {
    pub fn start(setup: Setup, rules: &[&str]) -> Secured {
        Secured::start_with(setup, rules, |_| String::new())
    }

    /// `revoked` makes the list of revoked certificates.
    pub fn start_with(setup: Setup, rules: &[&str], revoked: impl Fn(&Authority) -> String) -> Secured {
        let authority = Authority::new();
        let identity = authority.sign(&Wanted::server());
        let files = TlsFiles {
            ca_cert: authority.pem.clone().into_bytes(),
            ca_crl: revoked(&authority).into_bytes(),
            server_cert: identity.certificate.into_bytes(),
            server_key: identity.key.into_bytes(),
        };
        let rules: Vec<ClientRule> = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        Secured { server: Running::start_with(setup, Some((files, rules))), authority }
    }

    pub fn socket(&self) -> &Path {
        &self.server.socket
    }

    /// Connects as the client of this name, up to the end of the TLS handshake.
    pub fn connect(&self, name: &str) -> TlsClient {
        let identity = self.authority.sign(&Wanted::client(name));
        self.connect_as(Some(&identity)).expect("a TLS handshake")
    }

    /// Connects with any certificate, or none. An error of the server may come with the first read only.
    pub fn connect_as(&self, identity: Option<&Identity>) -> io::Result<TlsClient> {
        let mut client = start_tls(self.socket());
        let connection = ClientConnection::new(client_config(&self.authority, identity), host());
        let mut connection = connection.expect("a client");
        while connection.is_handshaking() {
            connection.complete_io(&mut client.stream)?;
        }
        Ok(TlsClient { stream: StreamOwned::new(connection, client.stream) })
    }
}

/// Connects, and sends STARTTLS.
pub fn start_tls(socket: &Path) -> RawClient {
    let mut client = RawClient::connect(socket);
    client.send(&3u32.to_be_bytes());
    client.send(&encode_option(NBD_OPT_STARTTLS, &[]));
    let reply = client.receive(20);
    assert_eq!(reply[12..16], NBD_REP_ACK.to_be_bytes());
    client
}

pub fn host() -> rustls::pki_types::ServerName<'static> {
    "localhost".try_into().expect("a name")
}

pub fn client_config(authority: &Authority, identity: Option<&Identity>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    Arc::new(match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(vec![certificate], key).expect("a key that fits")
        }
    })
}

/// A client by hand within TLS.
pub struct TlsClient {
    pub stream: StreamOwned<ClientConnection, UnixStream>,
}

impl TlsClient {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).expect("the server receives");
    }

    pub fn try_receive(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn receive(&mut self, len: usize) -> Vec<u8> {
        self.try_receive(len).expect("the server sends")
    }

    /// Sends an option. Returns type and content of the first reply.
    pub fn option(&mut self, option: u32, content: &[u8]) -> (u32, Vec<u8>) {
        self.send(&encode_option(option, content));
        self.option_reply()
    }

    pub fn option_reply(&mut self) -> (u32, Vec<u8>) {
        let head = self.receive(20);
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        (number(12), self.receive(number(16) as usize))
    }

    /// Asks for the default export in the oldest way. Returns the transmission flags.
    pub fn begin(&mut self) -> u16 {
        self.send(&encode_option(NBD_OPT_EXPORT_NAME, b""));
        let reply = self.receive(10);
        u16::from_be_bytes([reply[8], reply[9]])
    }

    pub fn request(&mut self, command: u16, cookie: u64, offset: u64, len: u32) {
        let request = braid_nbd::wire::Request { flags: 0, command, cookie, offset, len };
        self.send(&request.encode());
    }

    /// Error of the next simple reply.
    pub fn error(&mut self) -> u32 {
        let head = self.receive(16);
        u32::from_be_bytes(head[4..8].try_into().expect("four bytes"))
    }

    /// Waits for the end. Returns true if the server announced the end.
    pub fn is_ended_cleanly(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => {
                assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "the server does not close");
                false
            }
        }
    }
}
