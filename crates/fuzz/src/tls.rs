//! Input of a server's TLS: bytes of a stranger, before any certificate was shown.

use braid_nbd::tls::{Layer, Tls, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static SERVER: Tls = server();
}

/// A handshake with any bytes, which arrive in pieces: no data passes, answers are bounded, and an error
/// stays.
pub fn stranger(bytes: &[u8]) {
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let mut layer = SERVER.with(|tls| tls.layer()).expect("a configuration that fits itself");
    let (mut answered, mut has_failed) = (0, false);
    for part in stream.chunks(usize::from(piece) * 16 + 1) {
        if has_failed {
            assert!(layer.advance().is_err(), "an error has gone");
            break;
        }
        let room = layer.room();
        room[..part.len()].copy_from_slice(part);
        layer.received(part.len());
        has_failed = layer.advance().is_err();
        answered += answer(&mut layer);
        assert!(answered < 64 << 10, "a stranger got {answered} bytes");
        assert!(layer.is_handshaking() && layer.peer().is_none(), "a stranger got in");
    }
}

/// Bytes that the layer sends.
fn answer(layer: &mut Layer) -> usize {
    let count = RefCell::new(0);
    let send = |slices: &[std::io::IoSlice<'_>]| {
        let len = slices.iter().map(|slice| slice.len()).sum();
        *count.borrow_mut() += len;
        Ok(Some(len))
    };
    assert!(layer.flush(&send).is_ok(), "the network took all");
    count.into_inner()
}

/// Hellos of clients: of rustls, alone and cut into records, and of a client of TLS 1.2 by hand.
pub fn hellos() -> Vec<Vec<u8>> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("memory takes all");
    let record = |content: &[u8]| [&[22, 3, 3, 0, content.len() as u8][..], content].concat();
    let pieces: Vec<u8> = hello[5..].chunks(40).flat_map(record).collect();
    let suites = [0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x13];
    let groups = [0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 4, 3];
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 6], &suites, &[1, 0, 0, groups.len() as u8], &groups].concat();
    let old = record(&[&[1, 0, 0, body.len() as u8][..], &body].concat());
    [hello, pieces, old].into_iter().map(|stream| [vec![255], stream].concat()).collect()
}

fn server() -> Tls {
    let make = || -> Result<TlsFiles, rcgen::Error> {
        let (ca_key, key) = (KeyPair::generate()?, KeyPair::generate()?);
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_cert = ca.self_signed(&ca_key)?.pem().into_bytes();
        let own = CertificateParams::new(["localhost".to_owned()])?;
        let server_cert = own.signed_by(&key, &Issuer::new(ca, ca_key))?.pem().into_bytes();
        Ok(TlsFiles {
            ca_cert,
            ca_crl: Vec::new(),
            server_cert,
            server_key: key.serialize_pem().into_bytes(),
        })
    };
    let files = make().expect("keys and certificates");
    Tls::new(&files, &[]).expect("files that fit")
}
