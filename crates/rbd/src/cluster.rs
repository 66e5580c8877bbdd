//! A connection to a cluster, and a pool of the cluster. All calls block: not for a shard.
#![allow(unsafe_code)]

use crate::calls::{Calls, Handle};
use crate::error::{check, failed_as};
use crate::image_name::PoolName;
use std::ffi::CString;
use std::io;
use std::ptr::{null, null_mut};
use std::rc::Rc;

/// A connection, closed when dropped.
pub(crate) struct Cluster {
    pub(crate) calls: &'static Calls,
    handle: Handle,
}

impl Cluster {
    /// Connects as the environment and the configuration say, within [`CONNECT_SECONDS`].
    pub(crate) fn connect(calls: &'static Calls) -> io::Result<Rc<Cluster>> {
        let client = client_of(&std::env::var("CEPH_ARGS").unwrap_or_default());
        let client = client.map(|name| text(&name)).transpose()?;
        let mut handle = null_mut();
        // SAFETY: the library writes a handle, and copies the name.
        let created = unsafe {
            (calls.rados_create)(&raw mut handle, client.as_ref().map_or(null(), |name| name.as_ptr()))
        };
        check(created, || "prepare a connection to the Ceph cluster".to_owned())?;
        let cluster = Cluster { calls, handle };
        cluster.configure()?;
        // SAFETY: the handle is configured and not yet connected.
        let connected = unsafe { (calls.rados_connect)(handle) };
        if connected == -libc::ENOENT {
            let problem = "cannot connect to the Ceph cluster: no monitor or no key is known: put mon_host into \
                           /etc/ceph/ceph.conf, and the client's key into /etc/ceph, or set CEPH_CONF";
            return Err(failed_as(io::ErrorKind::NotFound, connected.into(), problem.to_owned()));
        }
        check(connected, || "connect to the Ceph cluster".to_owned())?;
        Ok(Rc::new(cluster))
    }

    fn configure(&self) -> io::Result<()> {
        // SAFETY: the handle is not yet connected; no path means the usual places.
        let read = unsafe { (self.calls.rados_conf_read_file)(self.handle, null()) };
        // Without a file the environment may say enough; the connection tells.
        if read != -libc::ENOENT {
            check(read, || "read the configuration of Ceph (CEPH_CONF, /etc/ceph/ceph.conf)".to_owned())?;
        }
        // SAFETY: as above; no name means CEPH_ARGS.
        let parsed = unsafe { (self.calls.rados_conf_parse_env)(self.handle, null()) };
        check(parsed, || "use CEPH_ARGS".to_owned())?;
        for (option, value) in SETTINGS {
            let (option, value) = (text(option)?, text(value)?);
            // SAFETY: both are strings that end with a zero byte.
            let set = unsafe { (self.calls.rados_conf_set)(self.handle, option.as_ptr(), value.as_ptr()) };
            check(set, || format!("set {option:?} of Ceph's client"))?;
        }
        Ok(())
    }

    /// Opens a pool. The pool keeps the connection.
    pub(crate) fn pool(self: &Rc<Cluster>, name: &PoolName) -> io::Result<Pool> {
        let (pool, namespace) = (text(&name.pool)?, text(&name.namespace)?);
        let mut handle = null_mut();
        // SAFETY: the cluster is connected; the library copies the name and writes a handle.
        let created = unsafe { (self.calls.rados_ioctx_create)(self.handle, pool.as_ptr(), &raw mut handle) };
        if created == -libc::ENOENT {
            let problem = format!(
                "the Ceph cluster has no pool {0}: create the pool by `ceph osd pool create {0}` and `rbd pool \
                 init {0}`",
                name.pool
            );
            return Err(failed_as(io::ErrorKind::NotFound, created.into(), problem));
        }
        check(created, || format!("open the pool {}", name.pool))?;
        // SAFETY: the handle is a pool; the library copies the name.
        unsafe { (self.calls.rados_ioctx_set_namespace)(handle, namespace.as_ptr()) };
        Ok(Pool { cluster: self.clone(), handle })
    }

    /// Shuts a client out of the whole cluster for [`SHUT_OUT_SECONDS`]. Returns once no disk of the cluster
    /// accepts a request of the client ahead of a later request of this connection.
    pub(crate) fn shut_out(&self, address: &str) -> io::Result<()> {
        let text = text(address)?;
        // SAFETY: the cluster is connected; the library reads the string, though its header lacks `const`.
        let added = unsafe {
            (self.calls.rados_blocklist_add)(self.handle, text.as_ptr().cast_mut(), SHUT_OUT_SECONDS)
        };
        check(added, || format!("shut out the client {address}, which holds the lock of the image")).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: pools hold the cluster, so none is left. A handle that never connected is freed, too.
        unsafe { (self.calls.rados_shutdown)(self.handle) }
    }
}

/// An open pool, closed when dropped.
pub(crate) struct Pool {
    pub(crate) cluster: Rc<Cluster>,
    pub(crate) handle: Handle,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: images hold the pool, so none is left.
        unsafe { (self.cluster.calls.rados_ioctx_destroy)(self.handle) }
    }
}

/// A string for the libraries.
pub(crate) fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// The client named by `CEPH_ARGS`: librados reads all options from there but the name of the client.
fn client_of(arguments: &str) -> Option<String> {
    let mut words = arguments.split_whitespace().peekable();
    let mut client = None;
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (word, words.peek().map(|&value| value.to_owned())),
        };
        match option {
            "--id" | "--user" | "-i" => client = value,
            "--name" | "-n" => client = value.map(|value| value.trim_start_matches("client.").to_owned()),
            _ => {}
        }
    }
    client
}

/// Longest time for connecting, in seconds. Ceph's own limit is 300.
pub(crate) const CONNECT_SECONDS: &str = "30";

/// Time for which a former owner of an image's lock is shut out: 30 days. By Ceph's own limit of one hour, a
/// virtual machine that was suspended with a request in flight could write after the hour.
const SHUT_OUT_SECONDS: u32 = 30 * 24 * 3600;

/// Settings of this client, whatever the configuration says.
const SETTINGS: &[(&str, &str)] = &[
    ("client_mount_timeout", CONNECT_SECONDS),
    // See the crate's documentation.
    ("rbd_cache", "false"),
    // librbd itself breaks the lock of an owner that dies just before the lock is taken: the owner is shut
    // out first. The time is Ceph's hour: Ceph 16 refuses another `rbd_blocklist_expire_seconds` than zero.
    ("rbd_blocklist_on_break_lock", "true"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_named_by_any_spelling() {
        for (arguments, client) in [
            ("", None),
            ("--id braid", Some("braid")),
            ("--conf /x --id=braid", Some("braid")),
            ("-n client.a.b", Some("a.b")),
            ("--name=client.braid --keyring k", Some("braid")),
            ("--id", None),
        ] {
            assert_eq!(client_of(arguments).as_deref(), client, "{arguments}");
        }
    }
}
