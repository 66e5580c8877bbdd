//! An NBD client over a Unix socket: one request at a time, or a burst without a wait for replies.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection to an export.
pub struct Client {
    stream: UnixStream,
    cookie: u64,
}

/// Result of a request: a value, or the server's error number; an `io::Error` if the connection failed.
pub type Reply<T> = io::Result<Result<T, u32>>;

impl Client {
    /// Connects, and negotiates an export.
    ///
    /// # Errors
    /// Errors of the socket, and unexpected replies of the server.
    pub fn open(socket: &Path, export: &str) -> io::Result<Client> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Client { stream, cookie: 0 };
        let greeting: [u8; 18] = client.take()?;
        if greeting[..8] != *b"NBDMAGIC" || greeting[8..16] != *b"IHAVEOPT" {
            return Err(io::Error::other("no newstyle server"));
        }
        let mut words = FIXED_NEWSTYLE_NO_ZEROES.to_be_bytes().to_vec();
        words.extend(b"IHAVEOPT");
        words.extend(OPT_EXPORT_NAME.to_be_bytes());
        words.extend((export.len() as u32).to_be_bytes());
        words.extend(export.as_bytes());
        client.stream.write_all(&words)?;
        let _size_and_flags: [u8; 10] = client.take()?;
        Ok(client)
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Reply<Vec<u8>> {
        self.send(CMD_READ, offset, length, &[])?;
        let error = self.reply()?;
        if error != 0 {
            return Ok(Err(error));
        }
        let mut bytes = vec![0; length as usize];
        self.stream.read_exact(&mut bytes)?;
        Ok(Ok(bytes))
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Reply<()> {
        self.write_unanswered(offset, bytes)?;
        self.ended()
    }

    /// Sends a write, without waiting for the reply.
    pub fn write_unanswered(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.send(CMD_WRITE, offset, bytes.len() as u32, bytes)
    }

    pub fn flush(&mut self) -> Reply<()> {
        self.send(CMD_FLUSH, 0, 0, &[])?;
        self.ended()
    }

    fn send(&mut self, command: u16, offset: u64, length: u32, bytes: &[u8]) -> io::Result<()> {
        self.cookie += 1;
        let mut words = REQUEST_MAGIC.to_be_bytes().to_vec();
        words.extend([0, 0]);
        words.extend(command.to_be_bytes());
        words.extend(self.cookie.to_be_bytes());
        words.extend(offset.to_be_bytes());
        words.extend(length.to_be_bytes());
        words.extend(bytes);
        self.stream.write_all(&words)
    }

    fn ended(&mut self) -> Reply<()> {
        let error = self.reply()?;
        Ok(if error == 0 { Ok(()) } else { Err(error) })
    }

    /// Receives a simple reply; returns its error number.
    fn reply(&mut self) -> io::Result<u32> {
        let reply: [u8; 16] = self.take()?;
        if reply[..4] != REPLY_MAGIC.to_be_bytes() || reply[8..] != self.cookie.to_be_bytes() {
            return Err(io::Error::other("no reply to this request"));
        }
        Ok(u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]]))
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Longest request; a longer request hangs, because the engine's own deadlines end after a minute.
const PATIENCE: Duration = Duration::from_secs(100);

const FIXED_NEWSTYLE_NO_ZEROES: u32 = 3;
const OPT_EXPORT_NAME: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_FLUSH: u16 = 3;
