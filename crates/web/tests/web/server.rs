use crate::daemons::*;
use braid_control::ErrorKind;
use braid_web::serve;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Serves until the end of the process.
fn start() -> SocketAddr {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let fake = Fake::with(&[("vault", healthy("vault"))]);
        serve(fake, "127.0.0.1:0".parse().unwrap(), local(), None, move |address| {
            sender.send(address).unwrap()
        })
    });
    receiver.recv().unwrap()
}

/// Sends a request, and returns all bytes up to the end of the connection.
fn ask(address: SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut text = Vec::new();
    // A refused connection may end while the request is sent.
    let _sent = stream.write_all(head.as_bytes());
    let _read = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

const REQUEST: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn connections_are_bounded_and_a_place_becomes_free() {
    let address = start();
    assert!(ask(address, REQUEST).starts_with("HTTP/1.1 200 "));
    let mut idle: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Connections are accepted in order, so the idle ones have all places.
    assert_eq!(ask(address, REQUEST), "");
    idle.pop();
    let answered = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        ask(address, REQUEST).starts_with("HTTP/1.1 200 ")
    });
    assert!(answered, "a closed connection leaves its place");
}

#[test]
fn long_heads_are_refused() {
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\n\r\n", "x".repeat(40_000));
    let answer = ask(start(), &long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = serve(Fake::with(&[]), address, local(), None, |_| panic!("not ready")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}
