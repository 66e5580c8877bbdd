//! Texts in rooms of fixed length: UTF-8, padded with zeros, at least one zero at the end.

use crate::Invalid;

/// Encodes `text`, padded to `ROOM` bytes.
///
/// # Panics
/// If the text does not leave one zero at the end: creation checks the length.
pub(crate) fn encode<const ROOM: usize>(text: &str) -> [u8; ROOM] {
    assert!(text.len() < ROOM, "text of {} bytes for a room of {ROOM}", text.len());
    let mut room = [0; ROOM];
    room[..text.len()].copy_from_slice(text.as_bytes());
    room
}

/// The text in `room`. `what` names the text in the error.
pub(crate) fn decode(room: &[u8], what: &str) -> Result<String, Invalid> {
    let wrong = |why: &str| Invalid::Value(format!("{what}: {why}"));
    let len = room.iter().position(|&byte| byte == 0).ok_or_else(|| wrong("text without an end"))?;
    std::str::from_utf8(&room[..len]).map(str::to_owned).map_err(|_| wrong("text is not UTF-8"))
}
