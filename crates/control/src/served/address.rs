//! Addresses of a volume: for NBD (`unix:PATH` or `HOST:PORT`) with the URI for clients, and for a virtual
//! machine.

use crate::{Error, ErrorKind, Result, VolumeName};
use braid_uring::Address;
use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An address to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NbdAddress {
    /// The file of a Unix socket.
    Unix(PathBuf),
    /// A TCP address of this machine; port 0 lets the system choose.
    Tcp(SocketAddr),
}

impl FromStr for NbdAddress {
    type Err = Error;
    fn from_str(text: &str) -> Result<NbdAddress> {
        let usage = |problem: String| Error::new(ErrorKind::Usage, problem);
        if let Some(path) = text.strip_prefix("unix:") {
            let path = std::path::absolute(path).map_err(|e| usage(format!("{text}: {e}: use unix:PATH")))?;
            return Ok(NbdAddress::Unix(path));
        }
        let mut found = text.to_socket_addrs().map_err(|error| {
            usage(format!("{text}: {error}: use unix:PATH or HOST:PORT, as in 127.0.0.1:10809"))
        })?;
        let address = found.next().ok_or_else(|| usage(format!("{text}: the host has no address")))?;
        Ok(NbdAddress::Tcp(address))
    }
}

/// Refuses addresses that other machines reach, for NBD without TLS.
///
/// # Errors
/// `Usage`, with the remedy.
pub(crate) fn check_local(addresses: &[NbdAddress]) -> Result<()> {
    for address in addresses {
        if let NbdAddress::Tcp(address) = address {
            let checked = braid_nbd::check_address(*address);
            checked.map_err(|error| Error::new(ErrorKind::Usage, error.to_string()))?;
        }
    }
    Ok(())
}

/// Encryption of an NBD export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encryption {
    /// Clients need TLS.
    Tls,
    /// All bytes are plain.
    None,
}

/// The socket for a virtual machine: `PATH`, or `PATH,group` if members of the socket's group may connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineSocket {
    /// The file of the Unix socket.
    pub path: PathBuf,
    /// True if members of the socket's group may connect, not its owner and root alone.
    pub for_group: bool,
}

impl FromStr for MachineSocket {
    type Err = Error;
    fn from_str(text: &str) -> Result<MachineSocket> {
        let (path, for_group) = text.strip_suffix(",group").map_or((text, false), |path| (path, true));
        let path = std::path::absolute(path)
            .map_err(|e| Error::new(ErrorKind::Usage, format!("{text}: {e}: use PATH or PATH,group")))?;
        Ok(MachineSocket { path, for_group })
    }
}

/// Returns the URI of a volume's NBD export at a listening address.
pub(crate) fn nbd_uri(name: &VolumeName, address: &Address, encryption: Encryption) -> String {
    let scheme = if encryption == Encryption::Tls { "nbds" } else { "nbd" };
    match address {
        Address::Unix(path) => format!("{scheme}+unix:///{name}?socket={}", escape(path)),
        Address::Tcp(address) => format!("{scheme}://{address}/{name}"),
    }
}

/// Percent-encodes every byte but `/`, letters, digits and the marks that have no meaning in a URI's query.
fn escape(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                text.push(byte as char)
            }
            _ => write!(text, "%{byte:02X}").expect("a string takes all that is written to it"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nbd_addresses_are_unix_sockets_or_ports() {
        assert_eq!("unix:/run/v.sock".parse(), Ok(NbdAddress::Unix("/run/v.sock".into())));
        assert!(matches!("127.0.0.1:10809".parse(), Ok(NbdAddress::Tcp(a)) if a.port() == 10809));
        for wrong in ["10809", "host:port"] {
            let error = wrong.parse::<NbdAddress>().unwrap_err();
            assert!(error.to_string().contains("HOST:PORT"), "{wrong}: {error}");
        }
    }

    #[test]
    fn group_is_a_word_after_the_path() {
        let socket = |text: &str| text.parse::<MachineSocket>().unwrap();
        assert_eq!(socket("/run/vm.sock"), MachineSocket { path: "/run/vm.sock".into(), for_group: false });
        assert_eq!(socket("/run/a,b,group"), MachineSocket { path: "/run/a,b".into(), for_group: true });
        assert!(socket("vm.sock").path.is_absolute() && "".parse::<MachineSocket>().is_err());
    }

    #[test]
    fn a_uri_names_the_export_and_the_socket() {
        let name = "vault".parse().unwrap();
        let socket = Address::Unix("/run/my disk/nbd.sock".into());
        let port = Address::Tcp("127.0.0.1:10809".parse().unwrap());
        for (encryption, scheme) in [(Encryption::None, "nbd"), (Encryption::Tls, "nbds")] {
            let uri = nbd_uri(&name, &socket, encryption);
            assert_eq!(uri, format!("{scheme}+unix:///vault?socket=/run/my%20disk/nbd.sock"));
            let uri = nbd_uri(&name, &port, encryption);
            assert_eq!(uri, format!("{scheme}://127.0.0.1:10809/vault"));
        }
    }
}
