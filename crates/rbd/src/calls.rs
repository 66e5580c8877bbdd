//! Functions of librados and librbd, loaded at run time.
//!
//! The declarations are of Ceph 16 and later. The interface of these versions of the libraries (`.so.2` and
//! `.so.1`) does not change.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::sync::OnceLock;

/// A cluster, a pool, an image or a completion of the libraries.
pub(crate) type Handle = *mut c_void;

/// Called by a thread of librbd when a request has ended.
pub(crate) type Completed = unsafe extern "C" fn(Handle, *mut c_void);

/// Called by a thread of librbd when the header of an image has changed.
pub(crate) type Changed = unsafe extern "C" fn(*mut c_void);

/// `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawWatcher {
    pub(crate) address: *mut c_char,
    pub(crate) client: i64,
    pub(crate) cookie: u64,
}

/// `rbd_image_spec_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawImage {
    pub(crate) id: *mut c_char,
    pub(crate) name: *mut c_char,
}

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub(crate) const EXCLUSIVE: c_int = 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub(crate) const EXCLUSIVE_LOCK: u64 = 1 << 2;
/// Features of a new image, as the `rbd` tool makes images: layering, exclusive-lock, object-map, fast-diff,
/// deep-flatten. Without an object map, removing an image of 10 TiB takes 2.6 million requests.
pub(crate) const NEW_IMAGE: u64 = 1 | EXCLUSIVE_LOCK | 1 << 3 | 1 << 4 | 1 << 5;

/// Declares the table of functions, and loads the table from the two libraries.
macro_rules! calls {
    ($($library:ident $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions by name: from the libraries, or of a cluster in memory for tests.
        pub(crate) struct Calls {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Calls {
            fn of(libraries: &Libraries) -> Result<Calls, String> {
                Ok(Calls {
                    // SAFETY: a function with the parameters and the result of the library's header.
                    $($name: unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            libraries.$library.symbol(concat!(stringify!($name), "\0"))?,
                        )
                    },)*
                })
            }
        }
    };
}

calls! {
    rados rados_create(*mut Handle, *const c_char) -> c_int;
    rados rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados rados_conf_parse_env(Handle, *const c_char) -> c_int;
    rados rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados rados_connect(Handle) -> c_int;
    rados rados_shutdown(Handle);
    rados rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados rados_ioctx_set_namespace(Handle, *const c_char);
    rados rados_ioctx_destroy(Handle);
    rados rados_notify2(Handle, *const c_char, *const c_char, c_int, u64, *mut *mut c_char, *mut usize) -> c_int;
    rados rados_buffer_free(*mut c_char);
    rados rados_blocklist_add(Handle, *mut c_char, u32) -> c_int;
    rbd rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd rbd_close(Handle) -> c_int;
    rbd rbd_get_size(Handle, *mut u64) -> c_int;
    rbd rbd_get_features(Handle, *mut u64) -> c_int;
    rbd rbd_get_id(Handle, *mut c_char, usize) -> c_int;
    rbd rbd_update_watch(Handle, *mut u64, Changed, *mut c_void) -> c_int;
    rbd rbd_update_unwatch(Handle, u64) -> c_int;
    rbd rbd_lock_acquire(Handle, c_int) -> c_int;
    rbd rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    rbd rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
    rbd rbd_lock_break(Handle, c_int, *const c_char) -> c_int;
    rbd rbd_watchers_list(Handle, *mut RawWatcher, *mut usize) -> c_int;
    rbd rbd_watchers_list_cleanup(*mut RawWatcher, usize);
    rbd rbd_aio_create_completion(*mut c_void, Completed, *mut Handle) -> c_int;
    rbd rbd_aio_get_return_value(Handle) -> isize;
    rbd rbd_aio_release(Handle);
    rbd rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
    rbd rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
    rbd rbd_aio_flush(Handle, Handle) -> c_int;
    rbd rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
    rbd rbd_create2(Handle, *const c_char, u64, u64, *mut c_int) -> c_int;
    rbd rbd_remove(Handle, *const c_char) -> c_int;
    rbd rbd_list2(Handle, *mut RawImage, *mut usize) -> c_int;
    rbd rbd_image_spec_list_cleanup(*mut RawImage, usize);
}

/// The functions of the libraries of this machine. The first call loads the libraries: some 50 ms.
///
/// # Errors
/// `Unsupported`, naming the packages, if a library is missing or older than Ceph 16.
pub(crate) fn calls() -> io::Result<&'static Calls> {
    static CALLS: OnceLock<Result<Calls, String>> = OnceLock::new();
    let loaded = CALLS.get_or_init(|| Calls::of(&Libraries::load()?));
    loaded.as_ref().map_err(|problem| {
        let remedy =
            "install Ceph's client (packages librados2 and librbd1, or ceph-common), version 16 or later";
        io::Error::new(
            io::ErrorKind::Unsupported,
            format!("RBD images need Ceph's libraries: {problem}: {remedy}"),
        )
    })
}

struct Libraries {
    rados: Library,
    rbd: Library,
}

impl Libraries {
    fn load() -> Result<Libraries, String> {
        Ok(Libraries { rados: Library::load(c"librados.so.2")?, rbd: Library::load(c"librbd.so.1")? })
    }
}

/// A loaded library, never unloaded: threads of the library may run until the process ends.
struct Library(*mut c_void);

impl Library {
    fn load(name: &CStr) -> Result<Library, String> {
        // SAFETY: the constructors of the libraries and of their own libraries have no conditions.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() { Err(last_problem()) } else { Ok(Library(library)) }
    }

    /// Address of a function, by a name with a zero byte at its end.
    fn symbol(&self, name: &str) -> Result<*mut c_void, String> {
        // SAFETY: the library is loaded, and the name ends with a zero byte.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr().cast()) };
        if symbol.is_null() { Err(last_problem()) } else { Ok(symbol) }
    }
}

/// The loader's own words about its last failure.
fn last_problem() -> String {
    // SAFETY: the loader's message is a string of its own, valid until the next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_and_function_are_errors() {
        assert!(Library::load(c"libbraid-is-not-there.so.1").is_err());
        let library = Library::load(c"libc.so.6").or_else(|_| Library::load(c"libc.so")).unwrap();
        assert!(library.symbol("malloc\0").is_ok());
        assert!(library.symbol("rados_is_not_here\0").is_err());
    }

    #[test]
    fn functions_load_if_the_libraries_are_there() {
        let are_there = Libraries::load().is_ok();
        assert_eq!(
            calls().map(drop).map_err(|error| error.kind()),
            if are_there { Ok(()) } else { Err(io::ErrorKind::Unsupported) }
        );
    }
}
