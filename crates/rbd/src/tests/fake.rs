//! A cluster in memory behind the functions of librados and librbd: same error numbers, same rules of the
//! lock, completions late and from threads of their own.
//!
//! A test has a pool of its own, by name. Faults are set on an image.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "each function has the contract of the function of the same name"
)]

mod owner;
mod requests;

use crate::calls::{Calls, Changed, EXCLUSIVE_LOCK, Handle, RawImage};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The functions.
pub(crate) static CALLS: Calls = Calls {
    rados_create,
    rados_conf_read_file: no_text,
    rados_conf_parse_env: no_text,
    rados_conf_set,
    rados_connect,
    rados_shutdown,
    rados_ioctx_create,
    rados_ioctx_set_namespace,
    rados_ioctx_destroy,
    rados_notify2,
    rados_buffer_free,
    rados_blocklist_add,
    rbd_open,
    rbd_open_read_only,
    rbd_close,
    rbd_get_size,
    rbd_get_features,
    rbd_get_id,
    rbd_update_watch,
    rbd_update_unwatch,
    rbd_lock_acquire: owner::rbd_lock_acquire,
    rbd_lock_get_owners: owner::rbd_lock_get_owners,
    rbd_lock_get_owners_cleanup: owner::rbd_lock_get_owners_cleanup,
    rbd_lock_break: owner::rbd_lock_break,
    rbd_watchers_list: owner::rbd_watchers_list,
    rbd_watchers_list_cleanup: owner::rbd_watchers_list_cleanup,
    rbd_aio_create_completion: requests::rbd_aio_create_completion,
    rbd_aio_get_return_value: requests::rbd_aio_get_return_value,
    rbd_aio_release: requests::rbd_aio_release,
    rbd_aio_read: requests::rbd_aio_read,
    rbd_aio_write: requests::rbd_aio_write,
    rbd_aio_flush: requests::rbd_aio_flush,
    rbd_aio_discard: requests::rbd_aio_discard,
    rbd_create2,
    rbd_remove,
    rbd_list2,
    rbd_image_spec_list_cleanup,
};

/// Pools with their images, for all tests.
static POOLS: Mutex<BTreeMap<String, BTreeMap<String, Arc<FakeImage>>>> = Mutex::new(BTreeMap::new());
/// Number of the last client.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

/// Makes an empty pool.
pub(crate) fn make_pool(pool: &str) {
    POOLS.lock().unwrap().insert(pool.to_owned(), BTreeMap::new());
}

/// Makes an image that can be locked.
pub(crate) fn make_image(pool: &str, image: &str, size: usize) -> Arc<FakeImage> {
    make_image_with(pool, image, size, EXCLUSIVE_LOCK)
}

pub(crate) fn make_image_with(pool: &str, image: &str, size: usize, features: u64) -> Arc<FakeImage> {
    let state = ImageState { bytes: vec![0; size], features, ..ImageState::default() };
    let made = Arc::new(FakeImage { state: Mutex::new(state), changed: Condvar::new() });
    POOLS.lock().unwrap().entry(pool.to_owned()).or_default().insert(image.to_owned(), made.clone());
    made
}

pub(crate) struct FakeImage {
    state: Mutex<ImageState>,
    changed: Condvar,
}

#[derive(Default)]
struct ImageState {
    bytes: Vec<u8>,
    features: u64,
    owner: Option<String>,
    watchers: Vec<FakeWatcher>,
    shut_out: BTreeSet<String>,
    /// While set, requests do not end, unless their client is shut out.
    is_hung: bool,
    /// Results of the next requests, in place of their work.
    results: Vec<c_int>,
    in_flight: usize,
    /// Registrations for changes of the header.
    registered: Vec<(u64, Changed, usize)>,
}

#[derive(Clone)]
struct FakeWatcher {
    address: String,
    client: u64,
    /// False for a client that hangs or was killed.
    answers: bool,
}

impl FakeImage {
    /// Gives the lock to a client of another host.
    pub(crate) fn lock_for(&self, address: &str, answers: bool) {
        let mut state = self.lock();
        state.owner = Some(address.to_owned());
        state.watchers.push(FakeWatcher { address: address.to_owned(), client: 1 << 40, answers });
    }

    /// The cluster forgets a client that has been silent.
    pub(crate) fn forget(&self, address: &str) {
        self.lock().watchers.retain(|watcher| watcher.address != address);
    }

    /// Another client takes the lock; with the former owner shut out, or not.
    pub(crate) fn take_over(&self, shuts_out: bool) {
        let mut state = self.lock();
        let former = state.owner.replace("other:0/1".to_owned()).expect("the image has an owner");
        if shuts_out {
            state.shut_out.insert(former);
        }
        self.changed.notify_all();
    }

    /// A client that was shut out is admitted, and has the lock again.
    pub(crate) fn admit_again(&self, address: &str) {
        let mut state = self.lock();
        state.shut_out.remove(address);
        state.owner = Some(address.to_owned());
    }

    /// Requests hang, or end again.
    pub(crate) fn hang(&self, is_hung: bool) {
        self.lock().is_hung = is_hung;
        self.changed.notify_all();
    }

    /// The next requests end with these results.
    pub(crate) fn end_next_with(&self, results: &[c_int]) {
        self.lock().results.extend(results.iter().rev());
    }

    /// Cuts or extends the image, and tells clients of this process.
    pub(crate) fn resize(&self, size: usize) {
        let registered = {
            let mut state = self.lock();
            state.bytes.resize(size, 0);
            state.registered.clone()
        };
        for (_, changed, context) in registered {
            // SAFETY: the context is valid until the registration ends.
            unsafe { changed(context as *mut c_void) };
        }
    }

    pub(crate) fn owner(&self) -> Option<String> {
        self.lock().owner.clone()
    }

    pub(crate) fn is_shut_out(&self, address: &str) -> bool {
        self.lock().shut_out.contains(address)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.lock().in_flight
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.lock().bytes[at..at + len].to_vec()
    }

    fn lock(&self) -> MutexGuard<'_, ImageState> {
        self.state.lock().unwrap()
    }
}

struct FakeClient {
    number: u64,
    address: String,
}

struct FakePool {
    client: Arc<FakeClient>,
    pool: String,
}

struct FakeHandle {
    client: Arc<FakeClient>,
    image: Arc<FakeImage>,
    name: String,
    is_read_only: bool,
}

/// # Safety
/// The handle was made from a `T` by one of these functions, and has not been freed.
unsafe fn of<'a, T>(handle: Handle) -> &'a T {
    // SAFETY: as the caller promises.
    unsafe { &*handle.cast() }
}

/// # Safety
/// The text ends with a zero byte.
unsafe fn string(text: *const c_char) -> String {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

fn give<T>(value: T) -> Handle {
    Box::into_raw(Box::new(value)).cast()
}

unsafe extern "C" fn no_text(_: Handle, text: *const c_char) -> c_int {
    assert!(text.is_null());
    0
}

unsafe extern "C" fn rados_create(cluster: *mut Handle, _: *const c_char) -> c_int {
    let number = CLIENTS.fetch_add(1, Ordering::Relaxed) + 1;
    unsafe { *cluster = give(Arc::new(FakeClient { number, address: format!("fake:0/{number}") })) };
    0
}

unsafe extern "C" fn rados_conf_set(_: Handle, option: *const c_char, value: *const c_char) -> c_int {
    assert!(!option.is_null() && !value.is_null());
    0
}

unsafe extern "C" fn rados_connect(_: Handle) -> c_int {
    0
}

unsafe extern "C" fn rados_shutdown(cluster: Handle) {
    drop(unsafe { Box::from_raw(cluster.cast::<Arc<FakeClient>>()) });
}

unsafe extern "C" fn rados_ioctx_create(cluster: Handle, pool: *const c_char, made: *mut Handle) -> c_int {
    let (client, pool) = unsafe { (of::<Arc<FakeClient>>(cluster).clone(), string(pool)) };
    if !POOLS.lock().unwrap().contains_key(&pool) {
        return -libc::ENOENT;
    }
    unsafe { *made = give(FakePool { client, pool }) };
    0
}

unsafe extern "C" fn rados_ioctx_set_namespace(_: Handle, namespace: *const c_char) {
    assert_eq!(unsafe { string(namespace) }, "");
}

unsafe extern "C" fn rados_ioctx_destroy(pool: Handle) {
    drop(unsafe { Box::from_raw(pool.cast::<FakePool>()) });
}

fn find(pool: &str, image: &str) -> Option<Arc<FakeImage>> {
    POOLS.lock().unwrap().get(pool)?.get(image).cloned()
}

unsafe extern "C" fn rados_notify2(
    pool: Handle,
    header: *const c_char,
    _: *const c_char,
    _: c_int,
    _: u64,
    reply: *mut *mut c_char,
    len: *mut usize,
) -> c_int {
    let (pool, header) = unsafe { (of::<FakePool>(pool), string(header)) };
    let image = find(&pool.pool, header.strip_prefix("rbd_header.").unwrap()).unwrap();
    let (present, silent): (Vec<_>, Vec<_>) =
        image.lock().watchers.iter().cloned().partition(|watcher| watcher.answers);
    let mut bytes = (present.len() as u32).to_le_bytes().to_vec();
    for watcher in present {
        bytes.extend(watcher.client.to_le_bytes().into_iter().chain(COOKIE.to_le_bytes()));
        bytes.extend(0u32.to_le_bytes());
    }
    bytes.extend((silent.len() as u32).to_le_bytes());
    for watcher in &silent {
        bytes.extend(watcher.client.to_le_bytes().into_iter().chain(COOKIE.to_le_bytes()));
    }
    unsafe {
        *len = bytes.len();
        *reply = libc::malloc(bytes.len()).cast();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (*reply).cast(), bytes.len());
    }
    if silent.is_empty() { 0 } else { -libc::ETIMEDOUT }
}

unsafe extern "C" fn rados_buffer_free(buffer: *mut c_char) {
    unsafe { libc::free(buffer.cast()) }
}

unsafe extern "C" fn rados_blocklist_add(_: Handle, address: *mut c_char, seconds: u32) -> c_int {
    let address = unsafe { string(address) };
    assert!(seconds > 3600, "a former owner stays shut out");
    for image in POOLS.lock().unwrap().values().flat_map(BTreeMap::values) {
        image.lock().shut_out.insert(address.clone());
        image.changed.notify_all();
    }
    0
}

unsafe fn open(pool: Handle, name: *const c_char, opened: *mut Handle, is_read_only: bool) -> c_int {
    let (pool, name) = unsafe { (of::<FakePool>(pool), string(name)) };
    let Some(image) = find(&pool.pool, &name) else { return -libc::ENOENT };
    let client = pool.client.clone();
    let watcher = FakeWatcher { address: client.address.clone(), client: client.number, answers: true };
    image.lock().watchers.push(watcher);
    unsafe { *opened = give(Arc::new(FakeHandle { client, image, name, is_read_only })) };
    0
}

unsafe extern "C" fn rbd_open(
    pool: Handle,
    name: *const c_char,
    opened: *mut Handle,
    _: *const c_char,
) -> c_int {
    unsafe { open(pool, name, opened, false) }
}

unsafe extern "C" fn rbd_open_read_only(
    pool: Handle,
    name: *const c_char,
    opened: *mut Handle,
    _: *const c_char,
) -> c_int {
    unsafe { open(pool, name, opened, true) }
}

/// Waits for the requests in flight, as librbd does.
unsafe extern "C" fn rbd_close(handle: Handle) -> c_int {
    let handle = unsafe { Box::from_raw(handle.cast::<Arc<FakeHandle>>()) };
    let waiting = |state: &mut ImageState| state.in_flight > 0;
    let mut state = handle.image.changed.wait_while(handle.image.lock(), waiting).unwrap();
    let address = &handle.client.address;
    state.watchers.retain(|watcher| watcher.address != *address);
    if state.owner.as_ref() == Some(address) {
        state.owner = None;
    }
    0
}

unsafe extern "C" fn rbd_get_size(handle: Handle, size: *mut u64) -> c_int {
    unsafe { *size = of::<Arc<FakeHandle>>(handle).image.lock().bytes.len() as u64 };
    0
}

unsafe extern "C" fn rbd_get_features(handle: Handle, features: *mut u64) -> c_int {
    unsafe { *features = of::<Arc<FakeHandle>>(handle).image.lock().features };
    0
}

unsafe extern "C" fn rbd_get_id(handle: Handle, id: *mut c_char, len: usize) -> c_int {
    let name = CString::new(unsafe { of::<Arc<FakeHandle>>(handle) }.name.clone()).unwrap();
    let bytes = name.as_bytes_with_nul();
    assert!(bytes.len() <= len);
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), id.cast(), bytes.len()) };
    0
}

unsafe extern "C" fn rbd_update_watch(
    handle: Handle,
    number: *mut u64,
    changed: Changed,
    context: *mut c_void,
) -> c_int {
    let handle = unsafe { of::<Arc<FakeHandle>>(handle) };
    handle.image.lock().registered.push((handle.client.number, changed, context as usize));
    unsafe { *number = handle.client.number };
    0
}

unsafe extern "C" fn rbd_update_unwatch(handle: Handle, number: u64) -> c_int {
    let handle = unsafe { of::<Arc<FakeHandle>>(handle) };
    handle.image.lock().registered.retain(|(registered, ..)| *registered != number);
    0
}

unsafe extern "C" fn rbd_create2(
    pool: Handle,
    name: *const c_char,
    size: u64,
    features: u64,
    order: *mut c_int,
) -> c_int {
    let (pool, name) = unsafe { (of::<FakePool>(pool), string(name)) };
    if find(&pool.pool, &name).is_some() {
        return -libc::EEXIST;
    }
    make_image_with(&pool.pool, &name, size as usize, features);
    unsafe { *order = 22 };
    0
}

unsafe extern "C" fn rbd_remove(pool: Handle, name: *const c_char) -> c_int {
    let (pool, name) = unsafe { (of::<FakePool>(pool), string(name)) };
    let Some(image) = find(&pool.pool, &name) else { return -libc::ENOENT };
    if !image.lock().watchers.is_empty() {
        return -libc::EBUSY;
    }
    POOLS.lock().unwrap().get_mut(&pool.pool).unwrap().remove(&name);
    0
}

unsafe extern "C" fn rbd_list2(pool: Handle, found: *mut RawImage, count: *mut usize) -> c_int {
    let pools = POOLS.lock().unwrap();
    let images = &pools[&unsafe { of::<FakePool>(pool) }.pool];
    let room = unsafe { std::mem::replace(&mut *count, images.len()) };
    if images.len() > room {
        return -libc::ERANGE;
    }
    for (at, name) in images.keys().enumerate() {
        let name = CString::new(name.clone()).unwrap().into_raw();
        unsafe { *found.add(at) = RawImage { id: null_mut(), name } };
    }
    0
}

unsafe extern "C" fn rbd_image_spec_list_cleanup(found: *mut RawImage, count: usize) {
    for at in 0..count {
        drop(unsafe { CString::from_raw((*found.add(at)).name) });
    }
}

/// Cookie of each watcher.
const COOKIE: u64 = 77;
