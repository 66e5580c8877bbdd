//! NBD addresses of a volume (`unix:PATH` or `HOST:PORT`) and the URI for clients.

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
        braid_nbd::check_address(address).map_err(|error| usage(error.to_string()))?;
        Ok(NbdAddress::Tcp(address))
    }
}

/// Returns the URI of a volume's NBD export at a listening address.
pub(crate) fn nbd_uri(name: &VolumeName, address: &Address) -> String {
    match address {
        Address::Unix(path) => format!("nbd+unix:///{name}?socket={}", escape(path)),
        Address::Tcp(address) => format!("nbd://{address}/{name}"),
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
    fn nbd_addresses_are_unix_sockets_or_loopback_ports() {
        assert_eq!("unix:/run/v.sock".parse(), Ok(NbdAddress::Unix("/run/v.sock".into())));
        assert!(matches!("127.0.0.1:10809".parse(), Ok(NbdAddress::Tcp(a)) if a.port() == 10809));
        for (wrong, expected) in
            [("10809", "HOST:PORT"), ("0.0.0.0:10809", "127.0.0.1"), ("host:port", "HOST:PORT")]
        {
            let error = wrong.parse::<NbdAddress>().unwrap_err();
            assert!(error.to_string().contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_uri_names_the_export_and_the_socket() {
        let name = "vault".parse().unwrap();
        let uri = nbd_uri(&name, &Address::Unix("/run/my disk/nbd.sock".into()));
        assert_eq!(uri, "nbd+unix:///vault?socket=/run/my%20disk/nbd.sock");
        let uri = nbd_uri(&name, &Address::Tcp("127.0.0.1:10809".parse().unwrap()));
        assert_eq!(uri, "nbd://127.0.0.1:10809/vault");
    }
}
