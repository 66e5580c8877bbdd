//! Images of a pool: made, listed, removed. The calls block: for commands, not for a shard.
#![allow(unsafe_code)]

use crate::calls::{Calls, NEW_IMAGE, RawImage, calls};
use crate::cluster::{Cluster, Pool, text};
use crate::device::Access;
use crate::error::{check, failed_as};
use crate::image::Image;
use crate::image_name::{ImageName, PoolName};
use braid_base::Bytes;
use std::ffi::CStr;
use std::io;
use std::ptr::null_mut;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Result of [`make_image`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// The image is new.
    New,
    /// The image existed with that size.
    Existing,
}

/// Makes an image with the exclusive lock and the other features that the `rbd` tool gives an image. Blocks.
///
/// # Errors
/// `AlreadyExists` if the image exists with another size; `NotFound` without cluster or pool; `Unsupported`
/// without Ceph's libraries; `TimedOut` after 60 s without an answer; else the error of the cluster, with
/// [`errno`](crate::errno).
pub fn make_image(image: &ImageName, size: Bytes) -> io::Result<Made> {
    make_with(calls()?, image, size)
}

pub(crate) fn make_with(calls: &'static Calls, image: &ImageName, size: Bytes) -> io::Result<Made> {
    let name = image.clone();
    in_time(&format!("make {image}"), move || make(&open_pool(calls, &name.place())?, &name, size))
}

fn make(pool: &Pool, name: &ImageName, size: Bytes) -> io::Result<Made> {
    let image = text(name.image())?;
    // Zero: objects of the size that the cluster's configuration says, 4 MiB by default.
    let mut order = 0;
    // SAFETY: the pool is open; the library copies the name and writes a number.
    let made = unsafe {
        (pool.cluster.calls.rbd_create2)(pool.handle, image.as_ptr(), size.0, NEW_IMAGE, &raw mut order)
    };
    if made != -libc::EEXIST {
        return check(made, || format!("make {name} of {size}")).map(|_| Made::New);
    }
    let again = pool.cluster.pool(&name.place())?;
    let found = Image::open(again, name, Access::ReadOnly)?.size()?;
    if found == size {
        return Ok(Made::Existing);
    }
    let problem =
        format!("{name} exists with {found}, not {size}: name another image, or leave the size out");
    Err(failed_as(io::ErrorKind::AlreadyExists, made.into(), problem))
}

/// Names of the images of a pool: `POOL` or `POOL/NAMESPACE`, with or without `rbd:` in front. Blocks.
///
/// # Errors
/// `InvalidInput` for a malformed name; `FileTooLarge` for a pool with more than 65,536 images; else as
/// [`make_image`].
pub fn images(pool: &str) -> io::Result<Vec<ImageName>> {
    images_with(calls()?, pool)
}

pub(crate) fn images_with(calls: &'static Calls, pool: &str) -> io::Result<Vec<ImageName>> {
    let name: PoolName =
        pool.parse().map_err(|problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
    in_time(&format!("list the images of {name}"), move || list(&open_pool(calls, &name)?, &name))
}

fn list(pool: &Pool, name: &PoolName) -> io::Result<Vec<ImageName>> {
    let mut room = 64;
    loop {
        let mut found = vec![RawImage { id: null_mut(), name: null_mut() }; room];
        let mut count = room;
        // SAFETY: the pool is open; the library writes at most `count` images, with strings of its own.
        let listed =
            unsafe { (pool.cluster.calls.rbd_list2)(pool.handle, found.as_mut_ptr(), &raw mut count) };
        if listed == -libc::ERANGE && room < MOST_IMAGES {
            room = (room * 4).min(MOST_IMAGES);
            continue;
        }
        if listed == -libc::ERANGE {
            let problem =
                format!("the pool {name} has more than {MOST_IMAGES} images: name the images one by one");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        check(listed, || format!("list the images of {name}"))?;
        let names = found.iter().take(count).map(|image| {
            // SAFETY: the library has written `count` images; each string ends with a zero byte.
            unsafe { CStr::from_ptr(image.name) }.to_string_lossy().into_owned()
        });
        // An image with a name that has no address is no device.
        let names = names.filter_map(|image| ImageName::of(name, &image).ok()).collect();
        // SAFETY: freed here and not used again.
        unsafe { (pool.cluster.calls.rbd_image_spec_list_cleanup)(found.as_mut_ptr(), count) };
        return Ok(names);
    }
}

/// Removes an image and its data. Blocks for as long as the cluster takes to remove the image's objects.
///
/// # Errors
/// `ResourceBusy` while a client uses the image, or for 30 s after a client was killed; `NotFound` without
/// cluster, pool or image; else as [`make_image`].
pub fn remove_image(image: &ImageName) -> io::Result<()> {
    remove_with(calls()?, image)
}

pub(crate) fn remove_with(calls: &'static Calls, image: &ImageName) -> io::Result<()> {
    let pool = open_pool(calls, &image.place())?;
    let name = text(image.image())?;
    // SAFETY: the pool is open; the library copies the name.
    let removed = unsafe { (calls.rbd_remove)(pool.handle, name.as_ptr()) };
    let kind = match -removed {
        libc::EBUSY => io::ErrorKind::ResourceBusy,
        libc::ENOTEMPTY => io::ErrorKind::DirectoryNotEmpty,
        libc::ENOENT => io::ErrorKind::NotFound,
        _ => return check(removed, || format!("remove {image}")).map(drop),
    };
    let problem = match kind {
        io::ErrorKind::ResourceBusy => "a client uses it, or was killed less than 30 s ago: stop the client",
        io::ErrorKind::DirectoryNotEmpty => "it has snapshots: remove them by `rbd snap purge`",
        _ => "it does not exist",
    };
    Err(failed_as(kind, removed.into(), format!("cannot remove {image}: {problem}")))
}

fn open_pool(calls: &'static Calls, name: &PoolName) -> io::Result<Pool> {
    Cluster::connect(calls)?.pool(name)
}

/// Result of `work` in a thread of its own, if there is one within [`LIMIT`]. The thread continues beyond.
fn in_time<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("rbd-pool".to_owned());
    thread.spawn(move || drop(sender.send(work())))?;
    receiver.recv_timeout(LIMIT).unwrap_or_else(|_| {
        let problem = format!("cannot {what}: no answer from the cluster for {LIMIT:?}: see `ceph -s`");
        Err(io::Error::new(io::ErrorKind::TimedOut, problem))
    })
}

/// Most images of a pool that are listed.
const MOST_IMAGES: usize = 65_536;
/// Longest time for making an image or listing a pool.
const LIMIT: Duration = Duration::from_secs(60);
