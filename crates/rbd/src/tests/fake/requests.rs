//! Requests: they run in threads of their own, late, and call back.

use super::{FakeHandle, ImageState, give, of};
use crate::calls::{Completed, Handle};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

struct FakeCompletion {
    done: Completed,
    context: usize,
    result: isize,
}

pub(super) unsafe extern "C" fn rbd_aio_create_completion(
    context: *mut c_void,
    done: Completed,
    made: *mut Handle,
) -> c_int {
    unsafe { *made = give(FakeCompletion { done, context: context as usize, result: 0 }) };
    0
}

pub(super) unsafe extern "C" fn rbd_aio_get_return_value(completion: Handle) -> isize {
    unsafe { of::<FakeCompletion>(completion) }.result
}

pub(super) unsafe extern "C" fn rbd_aio_release(completion: Handle) {
    drop(unsafe { Box::from_raw(completion.cast::<FakeCompletion>()) });
}

/// Runs `work` in a thread of its own, late, and calls back.
fn later(
    handle: Handle,
    completion: Handle,
    is_write: bool,
    work: impl FnOnce(&mut Vec<u8>) -> isize + Send + 'static,
) -> c_int {
    let handle = unsafe { of::<Arc<FakeHandle>>(handle) }.clone();
    let completion = completion as usize;
    handle.image.lock().in_flight += 1;
    thread::spawn(move || {
        thread::sleep(Duration::from_micros(completion as u64 / 64 % 200));
        let result = handle.run(is_write, work);
        let completion = completion as Handle;
        unsafe {
            (*completion.cast::<FakeCompletion>()).result = result;
            let FakeCompletion { done, context, .. } = of(completion);
            done(completion, *context as *mut c_void);
        }
        handle.image.lock().in_flight -= 1;
        handle.image.changed.notify_all();
    });
    0
}

impl FakeHandle {
    fn run(&self, is_write: bool, work: impl FnOnce(&mut Vec<u8>) -> isize) -> isize {
        let address = &self.client.address;
        let hangs = |state: &mut ImageState| state.is_hung && !state.shut_out.contains(address);
        let mut state = self.image.changed.wait_while(self.image.lock(), hangs).unwrap();
        if state.shut_out.contains(address) {
            return -libc::ESHUTDOWN as isize;
        }
        if is_write && (self.is_read_only || state.owner.as_ref() != Some(address)) {
            return -libc::EROFS as isize;
        }
        match state.results.pop() {
            Some(result) => result as isize,
            None => work(&mut state.bytes),
        }
    }
}

pub(super) unsafe extern "C" fn rbd_aio_read(
    handle: Handle,
    at: u64,
    len: usize,
    buf: *mut c_char,
    done: Handle,
) -> c_int {
    let buf = buf as usize;
    later(handle, done, false, move |bytes| {
        let end = bytes.len().min(at as usize + len);
        let part = &bytes[end.min(at as usize)..end];
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), buf as *mut u8, part.len()) };
        part.len() as isize
    })
}

pub(super) unsafe extern "C" fn rbd_aio_write(
    handle: Handle,
    at: u64,
    len: usize,
    buf: *const c_char,
    done: Handle,
) -> c_int {
    let buf = buf as usize;
    later(handle, done, true, move |bytes| {
        let from = unsafe { std::slice::from_raw_parts(buf as *const u8, len) };
        let end = bytes.len().min(at as usize + len);
        let part = &mut bytes[end.min(at as usize)..end];
        part.copy_from_slice(&from[..part.len()]);
        0
    })
}

pub(super) unsafe extern "C" fn rbd_aio_flush(handle: Handle, done: Handle) -> c_int {
    later(handle, done, false, |_| 0)
}

pub(super) unsafe extern "C" fn rbd_aio_discard(handle: Handle, at: u64, len: u64, done: Handle) -> c_int {
    later(handle, done, true, move |bytes| {
        bytes[at as usize..(at + len) as usize].fill(0);
        0
    })
}
