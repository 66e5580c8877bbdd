//! The address of an export: a URI, after the URI document of the NetworkBlockDevice project.
//!
//! ```text
//! nbd://HOST[:PORT]/EXPORT
//! nbd+unix:///EXPORT?socket=PATH
//! nbds://HOST[:PORT]/EXPORT?tls-certificates=DIRECTORY[&tls-hostname=NAME]
//! nbds+unix:///EXPORT?socket=PATH&tls-certificates=DIRECTORY[&tls-hostname=NAME]
//! ```
//!
//! Two spellings of one address are equal and print alike: scheme and host in lower case, the default port
//! left out, paths without empty parts, everything else but plain characters percent-encoded.
//!
//! Deviations from libnbd, each because an address is kept and used again later: paths are absolute, the host
//! and the folder of certificates are named, and unknown parameters are refused instead of ignored.

use braid_uring::Destination;
use std::ffi::OsStr;
use std::fmt;
use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Address of an export. Made from text by [`FromStr`], and printed as canonical text.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    destination: Destination,
    export: String,
    tls: Option<TlsAddress>,
}

/// Parts of an address with TLS.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TlsAddress {
    /// Folder with the client's files.
    pub certificates: PathBuf,
    /// Name in the server's certificate.
    pub server: String,
}

impl Address {
    /// True if the text starts with the scheme of an address, in any case of letters.
    pub fn is_address(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| split_scheme(text, scheme.name).is_some())
    }

    /// Location of the server.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Name of the export; empty for the server's default export.
    pub fn export(&self) -> &str {
        &self.export
    }

    /// Parts for TLS. `None` if the connection is plain.
    pub(super) fn tls(&self) -> Option<&TlsAddress> {
        self.tls.as_ref()
    }
}

/// A scheme, and the forms of its addresses.
struct Scheme {
    name: &'static str,
    socket: Socket,
    tls: bool,
    form: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Socket {
    Tcp,
    Unix,
}

const SCHEMES: [Scheme; 4] = [
    Scheme { name: "nbd", socket: Socket::Tcp, tls: false, form: "nbd://HOST[:PORT]/EXPORT" },
    Scheme { name: "nbd+unix", socket: Socket::Unix, tls: false, form: "nbd+unix:///EXPORT?socket=PATH" },
    Scheme {
        name: "nbds",
        socket: Socket::Tcp,
        tls: true,
        form: "nbds://HOST[:PORT]/EXPORT?tls-certificates=DIRECTORY",
    },
    Scheme {
        name: "nbds+unix",
        socket: Socket::Unix,
        tls: true,
        form: "nbds+unix:///EXPORT?socket=PATH&tls-certificates=DIRECTORY",
    },
];

/// Port of the protocol.
const PORT: u16 = 10_809;
/// Longest name of an export, in bytes: the protocol's limit of strings.
const EXPORT_LONGEST: usize = 4096;
/// Name in the certificate of a server behind a Unix socket, unless the address gives another name.
const UNIX_SERVER: &str = "localhost";

impl FromStr for Address {
    type Err = String;

    /// Reads an address.
    ///
    /// # Errors
    /// Names the wrong part and the remedy.
    fn from_str(text: &str) -> Result<Address, String> {
        let found = SCHEMES.iter().find_map(|scheme| Some((scheme, split_scheme(text, scheme.name)?)));
        let Some((scheme, rest)) = found else {
            let forms = SCHEMES.map(|scheme| scheme.form).join(", ");
            return Err(format!("`{text}` is no address of an export: write {forms}"));
        };
        parse(scheme, rest).map_err(|problem| format!("`{text}`: {problem}: write {}", scheme.form))
    }
}

/// Returns the text behind `scheme://`.
fn split_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(scheme.len())?;
    if head.eq_ignore_ascii_case(scheme) { rest.strip_prefix("://") } else { None }
}

fn parse(scheme: &Scheme, rest: &str) -> Result<Address, String> {
    if let Some(wrong) = rest.chars().find(|c| *c == '#' || c.is_control() || *c == ' ') {
        return Err(format!("{wrong:?} must be percent-encoded, as %{:02X}", wrong as u32));
    }
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = before.split_at(before.find('/').unwrap_or(before.len()));
    let mut parameters = parameters(query)?;
    let destination = match scheme.socket {
        Socket::Tcp => tcp(authority)?,
        Socket::Unix if !authority.is_empty() => {
            return Err(format!("a Unix socket has no host, but `{authority}` stands in its place"));
        }
        Socket::Unix => Destination::Unix(take_path(&mut parameters, "socket")?),
    };
    let tls = if scheme.tls { Some(tls(&mut parameters, &destination)?) } else { None };
    if let Some((name, _)) = parameters.first() {
        return Err(format!("the parameter `{name}` is unknown to this scheme: leave it out"));
    }
    let export = decode_text(path.strip_prefix('/').unwrap_or(path), "the export's name")?;
    if export.len() > EXPORT_LONGEST {
        return Err(format!("the export's name has {} bytes: at most {EXPORT_LONGEST}", export.len()));
    }
    Ok(Address { destination, export, tls })
}

fn tcp(authority: &str) -> Result<Destination, String> {
    if authority.contains('@') {
        return Err("a user's name before the host is not supported: leave it out".to_owned());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (number, port) = rest.split_once(']').ok_or("the bracket `[` is not closed")?;
            let number: Ipv6Addr =
                number.parse().map_err(|_| format!("`{number}` is no IPv6 address (without a zone)"))?;
            (number.to_string(), port)
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            (host_name(host)?, port)
        }
    };
    let port = match port {
        "" | ":" => PORT,
        port => match port.strip_prefix(':').map(|digits| (digits, digits.parse())) {
            Some((digits, Ok(port))) if port > 0 && digits.bytes().all(|c| c.is_ascii_digit()) => port,
            _ => return Err(format!("`{port}` is no port from :1 to :65535")),
        },
    };
    Ok(Destination::Tcp { host, port })
}

fn host_name(text: &str) -> Result<String, String> {
    let host = decode_text(text, "the host")?.to_ascii_lowercase();
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
    match host.as_str() {
        "" => Err("the host is missing".to_owned()),
        _ if host.bytes().all(is_plain) => Ok(host),
        _ => Err(format!(
            "`{text}` is no host: a name or IPv4 address in ASCII, or an IPv6 address in brackets"
        )),
    }
}

fn tls(parameters: &mut Vec<(String, Vec<u8>)>, destination: &Destination) -> Result<TlsAddress, String> {
    let certificates = take_path(parameters, "tls-certificates")?;
    let server = match (take(parameters, "tls-hostname"), destination) {
        (Some(name), _) => {
            let text = String::from_utf8_lossy(&name).into_owned();
            // An IPv6 address has no brackets here.
            text.parse::<Ipv6Addr>().map_or_else(|_| host_name(&text), |number| Ok(number.to_string()))?
        }
        (None, Destination::Tcp { host, .. }) => host.clone(),
        (None, Destination::Unix(_)) => UNIX_SERVER.to_owned(),
    };
    Ok(TlsAddress { certificates, server })
}

/// Names and decoded values.
fn parameters(query: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if found.iter().any(|(known, _)| known == name) {
            return Err(format!("the parameter `{name}` stands there twice"));
        }
        found.push((name.to_owned(), decode(value)?));
    }
    Ok(found)
}

fn take(parameters: &mut Vec<(String, Vec<u8>)>, name: &str) -> Option<Vec<u8>> {
    let at = parameters.iter().position(|(known, _)| known == name)?;
    Some(parameters.remove(at).1)
}

fn take_path(parameters: &mut Vec<(String, Vec<u8>)>, name: &str) -> Result<PathBuf, String> {
    let value = take(parameters, name).ok_or_else(|| format!("the parameter `{name}` is missing"))?;
    let path = Path::new(OsStr::from_bytes(&value));
    if !path.is_absolute() {
        return Err(format!("the path of `{name}` must be absolute, not `{}`", path.display()));
    }
    // Without empty parts and without `.`.
    Ok(path.components().collect())
}

fn decode_text(text: &str, what: &str) -> Result<String, String> {
    String::from_utf8(decode(text)?).map_err(|_| format!("{what} is not in UTF-8"))
}

/// Replaces %XX by bytes.
fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|&c| (c as char).to_digit(16));
        match (digit(0), digit(1)) {
            (Some(high), Some(low)) if high + low > 0 => bytes.push((high * 16 + low) as u8),
            _ => return Err("`%` is followed by two hexadecimal digits, and %00 is no character".to_owned()),
        }
        rest = &after[2..];
    }
    Ok(bytes)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = Encoded(self.export.as_bytes());
        let s = if self.tls.is_some() { "s" } else { "" };
        let default = match &self.destination {
            Destination::Tcp { host, port } => {
                let bracket = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "nbd{s}://{}{host}{}", bracket.0, bracket.1)?;
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{export}")?;
                host
            }
            Destination::Unix(path) => {
                write!(f, "nbd{s}+unix:///{export}?socket={}", Encoded(path.as_os_str().as_bytes()))?;
                UNIX_SERVER
            }
        };
        let Some(tls) = &self.tls else { return Ok(()) };
        let mark = if matches!(self.destination, Destination::Unix(_)) { '&' } else { '?' };
        write!(f, "{mark}tls-certificates={}", Encoded(tls.certificates.as_os_str().as_bytes()))?;
        if tls.server != default {
            write!(f, "&tls-hostname={}", Encoded(tls.server.as_bytes()))?;
        }
        Ok(())
    }
}

/// Bytes, percent-encoded but for plain characters.
struct Encoded<'a>(&'a [u8]);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                    write!(f, "{}", byte as char)?;
                }
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> String {
        text.parse::<Address>().unwrap_or_else(|e| panic!("{e}")).to_string()
    }

    #[test]
    fn spellings_of_one_address_print_alike() {
        let cases: &[(&[&str], &str)] = &[
            (
                &["nbd://Host:10809/vol", "NBD://host/vol", "nbd://host:/v%6Fl", "nbd://h%6fst/vol"],
                "nbd://host/vol",
            ),
            (&["nbd://host", "nbd://host/", "nbd://host?"], "nbd://host/"),
            (&["nbd://host//vol"], "nbd://host//vol"),
            (&["nbd://[::1]:10810/", "nbd://[0:0::0001]:10810"], "nbd://[::1]:10810/"),
            (
                &["nbd+unix:///vol?socket=/run//a.sock", "nbd+unix:///vol?socket=%2Frun/./a.sock"],
                "nbd+unix:///vol?socket=/run/a.sock",
            ),
            (&["nbd+unix://?socket=/a+b%20c"], "nbd+unix:///?socket=/a%2Bb%20c"),
            (
                &[
                    "nbds://host/v?tls-certificates=/pki/&tls-hostname=HOST",
                    "nbds://host/v?tls-hostname=host&tls-certificates=/pki",
                ],
                "nbds://host/v?tls-certificates=/pki",
            ),
            (
                &["nbds+unix:///v?tls-hostname=other&tls-certificates=/pki&socket=/s"],
                "nbds+unix:///v?socket=/s&tls-certificates=/pki&tls-hostname=other",
            ),
        ];
        for (spellings, expected) in cases {
            for text in *spellings {
                assert_eq!(canonical(text), *expected, "{text}");
                assert!(Address::is_address(text));
            }
        }
    }

    #[test]
    fn address_gives_its_parts() {
        let address: Address = "nbd://[fe80::1]/a%2Fb%25".parse().unwrap();
        assert_eq!(*address.destination(), Destination::Tcp { host: "fe80::1".to_owned(), port: 10_809 });
        assert_eq!(address.export(), "a/b%");
        assert_eq!(address.tls(), None);
        let address: Address = "nbds+unix:///?socket=/s&tls-certificates=/pki".parse().unwrap();
        assert_eq!(*address.destination(), Destination::Unix("/s".into()));
        let tls = TlsAddress { certificates: "/pki".into(), server: "localhost".to_owned() };
        assert_eq!(address.tls(), Some(&tls));
    }

    #[test]
    fn wrong_addresses_are_refused() {
        let long = format!("nbd://host/{}", "x".repeat(EXPORT_LONGEST + 1));
        for text in [
            "",
            "/dev/sda",
            "nbd:/host",
            "nbd:///vol",
            "nbd://:1/vol",
            "nbd://host:0/",
            "nbd://host:65536/",
            "nbd://host:+1/",
            "nbd://host:x/",
            "nbd://me@host/",
            "nbd://[::1/",
            "nbd://[::1]1/",
            "nbd://[host]/",
            "nbd://::1/",
            "nbd://ho%20st/",
            "nbd://host/a#b",
            "nbd://host/a b",
            "nbd://host/%",
            "nbd://host/%4",
            "nbd://host/%4g",
            "nbd://host/%00",
            "nbd://host/%ff",
            "nbd://host/?socket=/s",
            "nbd://host/?tls-certificates=/pki",
            "nbd+unix:///vol",
            "nbd+unix:///vol?socket=",
            "nbd+unix:///vol?socket=s",
            "nbd+unix://host/vol?socket=/s",
            "nbd+unix:///vol?socket=/s&socket=/t",
            "nbd+unix:///vol?socket=/s&sockt=/t",
            "nbds://host/vol",
            "nbds://host/vol?tls-certificates=pki",
            "nbds://host/vol?tls-certificates=/pki&tls-hostname=",
            "nbds://host/vol?tls-certificates=/pki&tls-psk-file=/x",
            "nbds+unix:///?tls-certificates=/pki",
            &long,
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        assert!(!Address::is_address("/dev/sda") && !Address::is_address("nbdx://h/"));
    }

    proptest! {
        #[test]
        fn printed_address_is_read_back(
            host in "[a-z0-9][a-z0-9.-]{0,20}", port in 1u16.., export in "\\PC{0,40}",
            socket in prop::collection::vec(1u8.., 0..40), shape in 0..4,
        ) {
            let socket = PathBuf::from(OsStr::from_bytes(&[b"/s", &socket[..]].concat()));
            let socket: PathBuf = socket.components().collect();
            let certificates = socket.clone();
            let destination = if shape < 2 { Destination::Tcp { host, port } } else { Destination::Unix(socket) };
            let tls = (shape % 2 == 1).then(|| TlsAddress { certificates, server: "a.b".to_owned() });
            let address = Address { destination, export, tls };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn any_text_is_read_without_panic(text in "(nbds?(\\+unix)?://)?[a-z%0-9\\[\\]:/?&=#@é]{0,40}") {
            if let Ok(address) = text.parse::<Address>() {
                let printed = address.to_string();
                prop_assert_eq!(printed.parse(), Ok(address));
                prop_assert!(Address::is_address(&text));
            }
        }
    }
}
