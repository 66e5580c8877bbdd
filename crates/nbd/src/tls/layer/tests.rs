//! A layer with a client of rustls, and no sockets.

#[path = "../../../tests/support/certificates.rs"]
mod certificates;

use super::*;
use crate::tls::{Tls, TlsFiles, names_in};
use certificates::{Authority, Identity, Wanted};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::cell::RefCell;
use std::sync::Arc;

fn files(authority: &Authority, identity: &Identity) -> TlsFiles {
    TlsFiles {
        ca_cert: authority.pem.clone().into_bytes(),
        ca_crl: Vec::new(),
        server_cert: identity.certificate.clone().into_bytes(),
        server_key: identity.key.clone().into_bytes(),
    }
}

/// A layer and its client, before the handshake. Without a name, the client has no certificate.
fn pair(name: Option<&str>) -> (Layer, ClientConnection) {
    let authority = Authority::new();
    let layer =
        Tls::new(&files(&authority, &authority.sign(&Wanted::server())), &[]).unwrap().layer().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match name {
        None => config.with_no_client_auth(),
        Some(name) => {
            let wanted = Wanted { names: &["host.example.org"], ..Wanted::client(name) };
            let identity = authority.sign(&wanted);
            let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    (layer, client)
}

/// Bytes of the client for the network.
fn sent_by(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Bytes of the layer for the network.
fn sent_by_layer(layer: &mut Layer) -> Vec<u8> {
    let bytes = RefCell::new(Vec::new());
    let send = |slices: &[IoSlice<'_>]| {
        slices.iter().for_each(|slice| bytes.borrow_mut().extend_from_slice(slice));
        Ok(Some(slices.iter().map(|slice| slice.len()).sum()))
    };
    assert!(layer.flush(&send).unwrap());
    bytes.into_inner()
}

fn give(client: &mut ClientConnection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets().unwrap();
    }
}

/// Gives bytes of the network to the layer, as many at a time as fit into `piece` and the room. Returns the
/// plain bytes.
fn receive(layer: &mut Layer, bytes: &[u8], piece: usize) -> io::Result<Vec<u8>> {
    let (mut plain, mut into) = (Vec::new(), [0; 5_000]);
    for part in bytes.chunks(piece.min(WIRE)) {
        layer.room()[..part.len()].copy_from_slice(part);
        layer.received(part.len());
        if layer.is_handshaking() {
            layer.advance()?;
        }
        while let Some(count) = layer.read(&mut into)? {
            if count == 0 {
                break;
            }
            plain.extend_from_slice(&into[..count]);
        }
    }
    Ok(plain)
}

fn shake_hands(layer: &mut Layer, client: &mut ClientConnection, piece: usize) -> io::Result<()> {
    while layer.is_handshaking() || client.is_handshaking() {
        receive(layer, &sent_by(client), piece)?;
        give(client, &sent_by_layer(layer));
    }
    Ok(())
}

#[test]
fn bytes_pass_in_both_directions_however_they_are_cut() {
    for piece in [1, 5, 1_000, usize::MAX] {
        let (mut layer, mut client) = pair(Some("good"));
        shake_hands(&mut layer, &mut client, piece).unwrap();
        assert_eq!(names_in(layer.peer().unwrap()), ["good", "host.example.org"]);
        let content: Vec<u8> = (0..200_000u32).map(|at| ((at * 31) >> 3) as u8).collect();
        let mut received = Vec::new();
        for part in content.chunks(50_000) {
            client.writer().write_all(part).unwrap();
            received.extend(receive(&mut layer, &sent_by(&mut client), piece).unwrap());
        }
        assert!(received == content, "pieces of {piece}");
        let (mut rest, mut back) = (&content[..], Vec::new());
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(16));
            rest = &rest[layer.write(&[IoSlice::new(head), IoSlice::new(tail)]).unwrap()..];
            for part in sent_by_layer(&mut layer).chunks(10_000) {
                give(&mut client, part);
                let mut into = vec![0; 20_000];
                while let Ok(count) = client.reader().read(&mut into) {
                    back.extend_from_slice(&into[..count]);
                }
            }
        }
        assert!(back == content, "pieces of {piece}");
    }
}

#[test]
fn bytes_to_send_are_bounded() {
    let (mut layer, mut client) = pair(Some("good"));
    shake_hands(&mut layer, &mut client, usize::MAX).unwrap();
    let content = vec![7; 1 << 20];
    let taken = layer.write(&[IoSlice::new(&content)]).unwrap();
    assert_eq!(taken, UNSENT);
    assert_eq!(layer.write(&[IoSlice::new(&content)]).unwrap(), 0);
    let full = |_: &[IoSlice<'_>]| Ok(None);
    assert!(!layer.flush(&full).unwrap() && layer.has_unsent());
    let encrypted = sent_by_layer(&mut layer).len();
    assert!((UNSENT..UNSENT + 1_000).contains(&encrypted), "{encrypted}");
    assert!(!layer.has_unsent());
}

#[test]
fn client_without_certificate_is_told_why() {
    let (mut layer, mut client) = pair(None);
    let error = shake_hands(&mut layer, &mut client, usize::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("certificate"), "{error}");
    let mut answer = &sent_by_layer(&mut layer)[..];
    client.read_tls(&mut answer).unwrap();
    let told = client.process_new_packets().unwrap_err().to_string();
    assert!(told.contains("CertificateRequired"), "{told}");
}

#[test]
fn changed_record_is_an_error_for_good_and_earlier_bytes_count() {
    let (mut layer, mut client) = pair(Some("good"));
    shake_hands(&mut layer, &mut client, usize::MAX).unwrap();
    client.writer().write_all(b"first").unwrap();
    let mut bytes = sent_by(&mut client);
    client.writer().write_all(b"second").unwrap();
    let mut second = sent_by(&mut client);
    second[7] ^= 1;
    bytes.extend(second);
    layer.room()[..bytes.len()].copy_from_slice(&bytes);
    layer.received(bytes.len());
    let mut into = [0; 100];
    assert_eq!(layer.read(&mut into).unwrap(), Some(5));
    assert_eq!(&into[..5], b"first");
    for _ in 0..2 {
        assert_eq!(layer.read(&mut into).unwrap_err().kind(), ErrorKind::InvalidData);
    }
    assert!(layer.has_unsent(), "the client will hear of it");
}

#[test]
fn announced_end_is_told_from_missing_bytes() {
    let (mut layer, mut client) = pair(Some("good"));
    shake_hands(&mut layer, &mut client, usize::MAX).unwrap();
    assert_eq!(layer.read(&mut [0; 10]).unwrap(), None);
    client.writer().write_all(b"last").unwrap();
    client.send_close_notify();
    let mut bytes = sent_by(&mut client);
    bytes.extend_from_slice(b"bytes behind the end");
    layer.room()[..bytes.len()].copy_from_slice(&bytes);
    layer.received(bytes.len());
    let mut into = [0; 3];
    assert_eq!(layer.read(&mut into).unwrap(), Some(3));
    assert_eq!(layer.read(&mut into).unwrap(), Some(1));
    assert_eq!(layer.read(&mut into).unwrap(), Some(0));
    assert_eq!(layer.read(&mut into).unwrap(), Some(0));
}

#[test]
fn end_within_a_handshake_is_an_error_without_a_loop() {
    let (mut layer, mut client) = pair(Some("good"));
    let hello = sent_by(&mut client);
    receive(&mut layer, &hello[..hello.len() - 1], usize::MAX).unwrap();
    let (mut layer, _) = pair(Some("good"));
    // A plain alert: the end. Then bytes without end.
    let bytes = [&[21, 3, 3, 0, 2, 1, 0][..], &[22; 30_000]].concat();
    layer.room()[..bytes.len()].copy_from_slice(&bytes);
    layer.received(bytes.len());
    assert!(layer.advance().is_err());
}

#[test]
fn wrong_files_are_refused_with_file_and_remedy() {
    let authority = Authority::new();
    let identity = authority.sign(&Wanted::server());
    let right = files(&authority, &identity);
    let other = authority.sign(&Wanted::server());
    let cases = [
        (TlsFiles { ca_cert: Vec::new(), ..right.clone() }, "ca-cert.pem"),
        (TlsFiles { ca_cert: b"text".to_vec(), ..right.clone() }, "ca-cert.pem"),
        (TlsFiles { ca_crl: b"text".to_vec(), ..right.clone() }, "ca-crl.pem"),
        (TlsFiles { server_cert: Vec::new(), ..right.clone() }, "server-cert.pem"),
        (TlsFiles { server_key: Vec::new(), ..right.clone() }, "server-key.pem"),
        (TlsFiles { server_key: right.server_cert.clone(), ..right.clone() }, "server-key.pem"),
        (TlsFiles { server_key: other.key.into_bytes(), ..right.clone() }, "server-key.pem"),
    ];
    for (number, (files, name)) in cases.iter().enumerate() {
        let error = Tls::new(files, &[]).err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("braid tls init"), "case {number}: {error}");
    }
    let expires = Tls::new(&right, &[]).unwrap().expires();
    assert_eq!(expires, Some(7_258_118_400), "the year 2200");
}
