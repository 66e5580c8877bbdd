//! A client by hand: sends any bytes, well formed or not.

use braid_nbd::wire::options::*;
use braid_nbd::wire::*;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub struct RawClient {
    pub stream: UnixStream,
}

/// A reply, or a part of one.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Cookie and error.
    Simple(u64, u32),
    /// Cookie, flags, type and payload.
    Part(u64, u16, u16, Vec<u8>),
}

impl RawClient {
    /// Connects, and reads the greeting.
    pub fn connect(socket: &Path) -> RawClient {
        let stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a time limit");
        let mut client = RawClient { stream };
        let mut seen = [0; 18];
        client.stream.read_exact(&mut seen).expect("a greeting");
        assert_eq!(seen, greeting());
        client
    }

    /// Connects and negotiates: the default export, simple replies.
    pub fn simple(socket: &Path) -> RawClient {
        let mut client = RawClient::connect(socket);
        client.send(&3u32.to_be_bytes());
        client.send(&encode_option(NBD_OPT_EXPORT_NAME, b""));
        client.receive(10);
        client
    }

    /// Connects and negotiates: structured replies and `base:allocation`.
    pub fn structured(socket: &Path) -> RawClient {
        let mut client = RawClient::connect(socket);
        let context = b"base:allocation";
        let name = [&3u32.to_be_bytes(), b"vol".as_slice()].concat();
        let one = 1u32.to_be_bytes();
        let len = (context.len() as u32).to_be_bytes();
        client.send(&3u32.to_be_bytes());
        client.send(&encode_option(NBD_OPT_STRUCTURED_REPLY, &[]));
        client.send(&encode_option(NBD_OPT_SET_META_CONTEXT, &[&name[..], &one, &len, context].concat()));
        client.send(&encode_option(NBD_OPT_GO, &[&name[..], &[0, 0]].concat()));
        let (acks, mut seen) = (3, 0);
        while seen < acks {
            let head = client.receive(20);
            let reply = u32::from_be_bytes(head[12..16].try_into().unwrap());
            let len = u32::from_be_bytes(head[16..20].try_into().unwrap());
            client.receive(len as usize);
            assert!(reply < 1 << 31, "an option was refused: {reply:#x}");
            seen += usize::from(reply == NBD_REP_ACK);
        }
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server receives");
    }

    pub fn request(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, len: u32) {
        self.send(&Request { flags, command, cookie, offset, len }.encode());
    }

    pub fn receive(&mut self, len: usize) -> Vec<u8> {
        self.try_receive(len).expect("the server sends")
    }

    pub fn try_receive(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The next reply; of a simple one the head only.
    pub fn reply(&mut self) -> Reply {
        let head = self.receive(16);
        let (magic, cookie) = (&head[..4], u64::from_be_bytes(head[8..16].try_into().unwrap()));
        if magic == NBD_SIMPLE_REPLY_MAGIC.to_be_bytes() {
            return Reply::Simple(cookie, u32::from_be_bytes(head[4..8].try_into().unwrap()));
        }
        assert_eq!(magic, NBD_STRUCTURED_REPLY_MAGIC.to_be_bytes(), "{head:?}");
        let flags = u16::from_be_bytes(head[4..6].try_into().unwrap());
        let kind = u16::from_be_bytes(head[6..8].try_into().unwrap());
        let len = u32::from_be_bytes(self.receive(4).try_into().unwrap());
        Reply::Part(cookie, flags, kind, self.receive(len as usize))
    }

    /// Waits until the server closes.
    pub fn expect_close(&mut self) {
        let mut rest = Vec::new();
        if let Err(error) = self.stream.read_to_end(&mut rest) {
            assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "the server does not close");
        }
    }
}
