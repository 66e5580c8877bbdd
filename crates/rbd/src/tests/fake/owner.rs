//! The lock of an image and the clients of an image.

use super::{COOKIE, FakeHandle, of, string};
use crate::calls::{Handle, RawWatcher};
use std::ffi::{CString, c_char, c_int};
use std::sync::Arc;

/// The owner keeps the lock if it answers. A dead owner is shut out first.
pub(super) unsafe extern "C" fn rbd_lock_acquire(handle: Handle, mode: c_int) -> c_int {
    assert_eq!(mode, crate::calls::EXCLUSIVE);
    let handle = unsafe { of::<Arc<FakeHandle>>(handle) };
    let mut state = handle.image.lock();
    if state.shut_out.contains(&handle.client.address) {
        return -libc::ESHUTDOWN;
    }
    if let Some(owner) = state.owner.clone().filter(|owner| *owner != handle.client.address) {
        if state.watchers.iter().any(|watcher| watcher.address == owner) {
            return -libc::EROFS;
        }
        state.shut_out.insert(owner);
    }
    state.owner = Some(handle.client.address.clone());
    0
}

pub(super) unsafe extern "C" fn rbd_lock_get_owners(
    handle: Handle,
    mode: *mut c_int,
    owners: *mut *mut c_char,
    count: *mut usize,
) -> c_int {
    let Some(owner) = unsafe { of::<Arc<FakeHandle>>(handle) }.image.owner() else { return -libc::ENOENT };
    unsafe {
        assert!(*count > 0);
        (*mode, *count, *owners) = (crate::calls::EXCLUSIVE, 1, CString::new(owner).unwrap().into_raw());
    }
    0
}

pub(super) unsafe extern "C" fn rbd_lock_get_owners_cleanup(owners: *mut *mut c_char, count: usize) {
    for at in 0..count {
        drop(unsafe { CString::from_raw(*owners.add(at)) });
    }
}

pub(super) unsafe extern "C" fn rbd_lock_break(handle: Handle, _: c_int, owner: *const c_char) -> c_int {
    let (handle, owner) = unsafe { (of::<Arc<FakeHandle>>(handle), string(owner)) };
    let mut state = handle.image.lock();
    match &state.owner {
        None => return -libc::ENOENT,
        Some(other) if *other != owner => return -libc::EBUSY,
        Some(_) => {}
    }
    assert!(state.shut_out.contains(&owner), "the owner is shut out before the lock is broken");
    state.owner = None;
    0
}

pub(super) unsafe extern "C" fn rbd_watchers_list(
    handle: Handle,
    found: *mut RawWatcher,
    count: *mut usize,
) -> c_int {
    let state = unsafe { of::<Arc<FakeHandle>>(handle) }.image.lock();
    unsafe {
        assert!(state.watchers.len() <= *count);
        *count = state.watchers.len();
        for (at, watcher) in state.watchers.iter().enumerate() {
            let address = CString::new(watcher.address.clone()).unwrap().into_raw();
            *found.add(at) = RawWatcher { address, client: watcher.client as i64, cookie: COOKIE };
        }
    }
    0
}

pub(super) unsafe extern "C" fn rbd_watchers_list_cleanup(found: *mut RawWatcher, count: usize) {
    for at in 0..count {
        drop(unsafe { CString::from_raw((*found.add(at)).address) });
    }
}
