//! An open image: calls that block, for the thread that keeps the image.
#![allow(unsafe_code)]

use crate::calls::{Calls, EXCLUSIVE, EXCLUSIVE_LOCK, Handle, RawWatcher};
use crate::cluster::{Pool, text};
use crate::device::Access;
use crate::error::{check, failed, failed_as};
use crate::image_name::ImageName;
use crate::keeper::Orders;
use braid_base::Bytes;
use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// An image, closed when dropped. Closing waits for all requests in flight and releases the lock.
pub(crate) struct Image {
    name: ImageName,
    handle: Handle,
    /// Number of the registration for changes of the header, and the orders that a change writes to.
    registration: Option<(u64, Arc<Orders>)>,
    pool: Pool,
}

impl Image {
    pub(crate) fn open(pool: Pool, name: &ImageName, access: Access) -> io::Result<Image> {
        let calls = pool.cluster.calls;
        let opening = match access {
            Access::ReadWrite => calls.rbd_open,
            Access::ReadOnly => calls.rbd_open_read_only,
        };
        let (text, mut handle) = (text(name.image())?, null_mut());
        // SAFETY: the pool is open; the library copies the name and writes a handle; no snapshot is named.
        let opened = unsafe { opening(pool.handle, text.as_ptr(), &raw mut handle, null()) };
        if opened == -libc::ENOENT {
            let (pool, image) = (name.place(), name.image());
            let problem = format!(
                "{name} does not exist: see `rbd ls {pool}`, or create the image by `rbd create {pool}/{image} --size …`"
            );
            return Err(failed_as(io::ErrorKind::NotFound, opened.into(), problem));
        }
        check(opened, || format!("open {name}"))?;
        Ok(Image { name: name.clone(), handle, registration: None, pool })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn name(&self) -> &ImageName {
        &self.name
    }

    pub(crate) fn size(&self) -> io::Result<Bytes> {
        let mut size = 0;
        // SAFETY: the image is open; the library writes a number.
        let asked = unsafe { (self.calls().rbd_get_size)(self.handle, &raw mut size) };
        check(asked, || format!("ask for the size of {}", self.name))?;
        Ok(Bytes(size))
    }

    /// Refuses an image without the feature exclusive-lock.
    pub(crate) fn check_lockable(&self) -> io::Result<()> {
        let mut features = 0;
        // SAFETY: the image is open; the library writes a number.
        let asked = unsafe { (self.calls().rbd_get_features)(self.handle, &raw mut features) };
        check(asked, || format!("ask for the features of {}", self.name))?;
        if features & EXCLUSIVE_LOCK != 0 {
            return Ok(());
        }
        let (pool, image) = (self.name.place(), self.name.image());
        let problem = format!(
            "{} has no exclusive lock, so a second writer could not be kept away: enable the lock by `rbd \
             feature enable {pool}/{image} exclusive-lock`",
            self.name
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, problem))
    }

    /// Address of the client that holds the lock.
    pub(crate) fn owner(&self) -> io::Result<Option<String>> {
        let (mut mode, mut owners, mut count) = (0, [null_mut::<c_char>(); OWNERS], OWNERS);
        // SAFETY: the image is open; the library writes at most `count` strings of its own.
        let asked = unsafe {
            let owners = owners.as_mut_ptr();
            (self.calls().rbd_lock_get_owners)(self.handle, &raw mut mode, owners, &raw mut count)
        };
        match -asked {
            libc::ENOENT => return Ok(None),
            libc::EBUSY => return Err(self.locked_by_hand()),
            _ => check(asked, || format!("ask for the owner of {}", self.name))?,
        };
        // SAFETY: the library has written `count` strings that end with a zero byte, freed here and not used
        // again.
        let owner = unsafe {
            let owner = (count > 0).then(|| CStr::from_ptr(owners[0]).to_string_lossy().into_owned());
            (self.calls().rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count);
            owner
        };
        Ok(owner)
    }

    fn locked_by_hand(&self) -> io::Error {
        let (pool, image) = (self.name.place(), self.name.image());
        let problem = format!(
            "{} is locked by hand: see `rbd lock ls {pool}/{image}`, and remove the lock by `rbd lock rm`",
            self.name
        );
        failed_as(io::ErrorKind::ResourceBusy, (-libc::EBUSY).into(), problem)
    }

    /// The client at `address`, if the client watches the image. A client with the lock watches the image
    /// until the client ends, or has been silent for 30 s (`osd_client_watch_timeout`).
    pub(crate) fn watcher(&self, address: &str) -> io::Result<Option<Watcher>> {
        let none = RawWatcher { address: null_mut(), client: 0, cookie: 0 };
        let (mut watchers, mut count) = (vec![none; WATCHERS], WATCHERS);
        // SAFETY: the image is open; the library writes at most `count` watchers, with strings of its own.
        let asked =
            unsafe { (self.calls().rbd_watchers_list)(self.handle, watchers.as_mut_ptr(), &raw mut count) };
        check(asked, || format!("ask for the clients of {}", self.name))?;
        let found = watchers.iter().take(count).find(|watcher| {
            // SAFETY: the library has written `count` watchers; each string ends with a zero byte.
            unsafe { CStr::from_ptr(watcher.address) }.to_bytes() == address.as_bytes()
        });
        let found = found.map(|watcher| Watcher { client: watcher.client as u64, cookie: watcher.cookie });
        // SAFETY: freed here and not used again.
        unsafe { (self.calls().rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), count) };
        Ok(found)
    }

    /// True if the client answers a notification about the image within [`ANSWER_MS`]. The notification has
    /// no content, by which every client reads the header of the image again.
    pub(crate) fn answers(&self, watcher: Watcher) -> io::Result<bool> {
        let mut id = [0u8; ID];
        // SAFETY: the image is open; the library writes a string of at most `ID` bytes.
        let asked = unsafe { (self.calls().rbd_get_id)(self.handle, id.as_mut_ptr().cast(), ID) };
        check(asked, || format!("ask for the id of {}", self.name))?;
        let id = CStr::from_bytes_until_nul(&id).map_err(io::Error::other)?;
        let header = text(&format!("rbd_header.{}", id.to_string_lossy()))?;
        let (mut reply, mut len) = (null_mut::<c_char>(), 0);
        // SAFETY: the pool is open; the library copies the name and writes a buffer of its own.
        let notified = unsafe {
            let (reply, len) = (&raw mut reply, &raw mut len);
            (self.calls().rados_notify2)(self.pool.handle, header.as_ptr(), null(), 0, ANSWER_MS, reply, len)
        };
        let mut is_acknowledged = false;
        if !reply.is_null() {
            // SAFETY: the library has written `len` bytes, freed here and not used again.
            unsafe {
                is_acknowledged = acknowledges(std::slice::from_raw_parts(reply.cast(), len), watcher);
                (self.calls().rados_buffer_free)(reply);
            }
        }
        if notified != -libc::ETIMEDOUT {
            check(notified, || format!("ask the clients of {}", self.name))?;
        }
        Ok(is_acknowledged)
    }

    /// Shuts the owner out of the cluster, then removes the owner's lock. No error if the owner has released
    /// the lock.
    pub(crate) fn take_from(&self, owner: &str) -> io::Result<()> {
        self.pool.cluster.shut_out(owner)?;
        let address = text(owner)?;
        // SAFETY: the image is open; the library copies the string.
        let broken = unsafe { (self.calls().rbd_lock_break)(self.handle, EXCLUSIVE, address.as_ptr()) };
        // The owner may have released the lock, or another client may have broken and taken the lock.
        if ![-libc::ENOENT, -libc::EBUSY].contains(&broken) {
            check(broken, || format!("break the lock of {}", self.name))?;
        }
        // librbd has shut the owner out a second time, which shortens the time to Ceph's hour.
        self.pool.cluster.shut_out(owner)
    }

    /// Takes the lock, and keeps the lock when other clients ask for it. librbd breaks the lock of a dead
    /// owner by itself, after shutting the owner out.
    ///
    /// # Errors
    /// `ResourceBusy` if the owner refuses.
    pub(crate) fn acquire(&self) -> io::Result<()> {
        // SAFETY: the image is open.
        let acquired = unsafe { (self.calls().rbd_lock_acquire)(self.handle, EXCLUSIVE) };
        match -acquired {
            libc::EROFS | libc::EBUSY | libc::EAGAIN => Err(self.busy(acquired, "another client")),
            _ if acquired < 0 => Err(failed(acquired.into(), &format!("take the lock of {}", self.name))),
            _ => Ok(()),
        }
    }

    /// The error for an image with an owner that is alive.
    pub(crate) fn busy(&self, result: i32, owner: &str) -> io::Error {
        let problem = format!(
            "{} is in use by {owner}: stop the other user, or take the image over by force, which shuts the \
             other user out",
            self.name
        );
        failed_as(io::ErrorKind::ResourceBusy, result.into(), problem)
    }

    /// Writes to `orders` whenever the header of the image changes: its size, for example.
    pub(crate) fn announce_changes(&mut self, orders: &Arc<Orders>) -> io::Result<()> {
        let (orders, mut number) = (orders.clone(), 0);
        let context = Arc::as_ptr(&orders).cast_mut().cast();
        // SAFETY: the image is open, and keeps the orders until the registration has ended.
        let asked =
            unsafe { (self.calls().rbd_update_watch)(self.handle, &raw mut number, changed, context) };
        check(asked, || format!("watch the header of {}", self.name))?;
        self.registration = Some((number, orders));
        Ok(())
    }

    fn calls(&self) -> &'static Calls {
        self.pool.cluster.calls
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // A failure to close leaves nothing to be done: the cluster forgets the client after 30 s of silence.
        if let Some((number, _)) = &self.registration {
            // SAFETY: the image is open, and the registration belongs to the image.
            unsafe { (self.calls().rbd_update_unwatch)(self.handle, *number) };
        }
        // SAFETY: the image is open, and its keeper has been told that the shard starts no more requests.
        unsafe { (self.calls().rbd_close)(self.handle) };
    }
}

/// Called by a thread of librbd.
unsafe extern "C" fn changed(orders: *mut c_void) {
    // SAFETY: the orders live until the registration of this function has ended.
    unsafe { &*orders.cast_const().cast::<Orders>() }.look();
}

/// A client that watches an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watcher {
    client: u64,
    cookie: u64,
}

/// True if the reply to a notification lists the watcher's acknowledgement. The reply begins with the number
/// of acknowledgements (32 bits, little-endian). Each has a client, a cookie (64 bits), and a text with its
/// length (32 bits).
fn acknowledges(reply: &[u8], watcher: Watcher) -> bool {
    let mut rest = reply;
    let Some(count) = take(&mut rest).map(u32::from_le_bytes) else { return false };
    for _ in 0..count {
        let (Some(client), Some(cookie)) = (take(&mut rest), take(&mut rest)) else { return false };
        if (u64::from_le_bytes(client), u64::from_le_bytes(cookie)) == (watcher.client, watcher.cookie) {
            return true;
        }
        let Some(len) = take(&mut rest).map(u32::from_le_bytes) else { return false };
        let Some(next) = rest.get(len as usize..) else { return false };
        rest = next;
    }
    false
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

/// Most owners of a lock: an exclusive lock has one.
const OWNERS: usize = 4;
/// Most clients of an image that are looked at. More clients are an error.
const WATCHERS: usize = 1024;
/// Most bytes of an image's id.
const ID: usize = 128;
/// How long an owner of the lock may take to answer, in ms. librbd answers within a millisecond.
const ANSWER_MS: u64 = 3000;

#[cfg(test)]
mod reply_tests {
    use super::*;

    #[test]
    fn acknowledgement_is_found_and_cut_replies_are_harmless() {
        let mut reply = 2u32.to_le_bytes().to_vec();
        for (client, cookie, text) in [(7u64, 70u64, &b"abc"[..]), (8, 80, b"")] {
            reply.extend(client.to_le_bytes().into_iter().chain(cookie.to_le_bytes()));
            reply.extend((text.len() as u32).to_le_bytes().into_iter().chain(text.iter().copied()));
        }
        reply.extend(1u32.to_le_bytes().into_iter().chain(9u64.to_le_bytes()).chain(90u64.to_le_bytes()));
        let asked = |reply: &[u8], client, cookie| acknowledges(reply, Watcher { client, cookie });
        assert!(asked(&reply, 7, 70) && asked(&reply, 8, 80));
        assert!(!asked(&reply, 9, 90) && !asked(&reply, 7, 80));
        for cut in 0..reply.len() {
            assert!(!asked(&reply[..cut], 9, 90), "{cut}");
        }
        assert!(!asked(&[0xff; 40], 1, 1));
    }
}
