//! A server by hand: negotiates as it should, then does what a test tells.
#![allow(dead_code, reason = "each test binary uses its part")]

use braid_nbd::wire::options::*;
use braid_nbd::wire::*;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

/// Flags of an export with everything that a device uses, for one connection.
pub const FLAGS: u16 = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_TRIM;
/// Size of the export.
pub const SIZE: u64 = 1 << 20;

/// A server in a thread of its own, for a given number of connections. Joined when dropped.
pub struct Scripted {
    socket: PathBuf,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Scripted {
    /// Accepts `connections` one after the other, each in a thread of its own, and runs the script on each.
    pub fn start(connections: usize, script: impl Fn(usize, Peer) + Send + Sync + 'static) -> Scripted {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("scripted.sock");
        let listener = UnixListener::bind(&socket).expect("a listener");
        let thread = std::thread::spawn(move || {
            let script = &script;
            std::thread::scope(|scope| {
                for number in 0..connections {
                    let stream = listener.accept().expect("a connection").0;
                    stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a time limit");
                    stream.set_write_timeout(Some(Duration::from_secs(300))).expect("a time limit");
                    scope.spawn(move || script(number, Peer { stream }));
                }
            });
        });
        Scripted { socket, thread: Some(thread), _directory: directory }
    }

    /// Negotiates an export with [`FLAGS`] on one connection, then runs the script.
    pub fn serving(structured: bool, script: impl Fn(Peer) + Send + Sync + 'static) -> Scripted {
        Scripted::start(1, move |_, mut peer| {
            peer.negotiate(FLAGS, structured);
            script(peer);
        })
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///vol?socket={}", self.socket.display())
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        assert!(ended.is_ok() || std::thread::panicking(), "the server's thread panicked");
    }
}

/// A connected client, seen from the server.
pub struct Peer {
    pub stream: UnixStream,
}

impl Peer {
    /// Greets and answers options, up to NBD_OPT_GO.
    pub fn negotiate(&mut self, flags: u16, structured: bool) {
        self.send(&greeting());
        self.receive(4);
        loop {
            let (option, _) = self.option();
            let mut reply = Vec::new();
            match option {
                NBD_OPT_GO => {
                    let (size, flags) = (SIZE.to_be_bytes(), flags.to_be_bytes());
                    put_option_reply(&mut reply, option, NBD_REP_INFO, &[&[0, 0], &size, &flags]);
                    put_option_reply(&mut reply, option, NBD_REP_ACK, &[]);
                    return self.send(&reply);
                }
                NBD_OPT_STRUCTURED_REPLY if structured => {
                    put_option_reply(&mut reply, option, NBD_REP_ACK, &[]);
                }
                _ => put_option_reply(&mut reply, option, NBD_REP_ERR_UNSUP, &[]),
            }
            self.send(&reply);
        }
    }

    /// The next option, and its content.
    pub fn option(&mut self) -> (u32, Vec<u8>) {
        let head = self.receive(OptionHead::LEN);
        let head = OptionHead::decode(&head.try_into().expect("a head")).expect("an option");
        (head.option, self.receive(head.len as usize))
    }

    /// The next request, and its payload.
    pub fn request(&mut self) -> (Request, Vec<u8>) {
        self.try_request().expect("a request")
    }

    pub fn try_request(&mut self) -> io::Result<(Request, Vec<u8>)> {
        let head = self.try_receive(Request::LEN)?;
        let request = Request::decode(&head.try_into().expect("a head")).expect("a request");
        let payload = if request.command == NBD_CMD_WRITE { request.len } else { 0 };
        Ok((request, self.try_receive(payload as usize)?))
    }

    pub fn receive(&mut self, len: usize) -> Vec<u8> {
        self.try_receive(len).expect("the client sends")
    }

    fn try_receive(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        // The client may have given up.
        let _ = self.stream.write_all(bytes);
    }

    pub fn reply(&mut self, head: Head) {
        self.send(head.as_bytes());
    }

    /// Waits until the client ends the connection, and returns what it sent until then.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let ended = self.stream.read_to_end(&mut rest).map_err(|error| error.kind());
        assert!(ended != Err(io::ErrorKind::WouldBlock), "the client does not close");
        rest
    }
}
