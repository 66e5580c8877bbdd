//! Channel for messages from this side: the configuration of the disk has changed.
//!
//! The library `vhost` takes the other side's socket, but hides the socket in a type that sends other
//! messages only. Two messages are therefore known here: the one that brings the socket
//! (VHOST_USER_SET_BACKEND_REQ_FD), and the one that goes through it
//! (VHOST_USER_BACKEND_CONFIG_CHANGE_MSG). Each is a head without a body.

use braid_uring::{Ring, Stream};
use std::io::{self, IoSlice};

/// VHOST_USER_SET_BACKEND_REQ_FD.
pub(crate) const SET_BACKEND_REQ_FD: u32 = 21;
/// VHOST_USER_BACKEND_CONFIG_CHANGE_MSG.
const CONFIG_CHANGE: u32 = 2;
/// Length of a message's head: code, flags and length of the body, in the byte order of the machine.
pub(crate) const HEAD_LEN: usize = 12;
/// Flags: version of the protocol, and the mark of an answer.
const VERSION: u32 = 1;
const ANSWER: u32 = 4;

/// The channel.
pub(crate) struct Channel {
    socket: Stream,
}

impl Channel {
    /// Receives the message that waits in `stream` and brings the channel, and answers if `is_answered`.
    ///
    /// # Errors
    /// If the message has a body or no socket, or if the other side takes no answer. The connection must end.
    pub fn receive(ring: &Ring, stream: &Stream, is_answered: bool) -> io::Result<Channel> {
        let invalid = |problem: &str| io::Error::other(format!("message {SET_BACKEND_REQ_FD}: {problem}"));
        let mut head = [0; HEAD_LEN];
        let (received, file) = stream.try_recv_with_file(&mut head)?;
        if received != HEAD_LEN || head[8..] != [0; 4] {
            return Err(invalid("a body"));
        }
        let file = file.ok_or_else(|| invalid("no file"))?;
        let socket = Stream::from_fd(ring, file).map_err(|_| invalid("a file that is no socket"))?;
        if is_answered {
            send(stream, &[SET_BACKEND_REQ_FD, VERSION | ANSWER, size_of::<u64>() as u32, 0, 0])?;
        }
        Ok(Channel { socket })
    }

    /// Tells the other side that the configuration has changed. The other side asks for it, and tells the
    /// guest.
    ///
    /// # Errors
    /// If the other side does not read the channel.
    pub fn tell_change(&self) -> io::Result<()> {
        send(&self.socket, &[CONFIG_CHANGE, VERSION, 0])
    }
}

/// Sends words at once, or not at all.
fn send(socket: &Stream, words: &[u32]) -> io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    match socket.try_send(&[IoSlice::new(&bytes)])? {
        Some(sent) if sent == bytes.len() => Ok(()),
        _ => Err(io::Error::other("the virtual machine does not receive messages")),
    }
}
