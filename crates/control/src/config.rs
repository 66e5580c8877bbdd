//! Configuration of a volume on this machine: the settings with which the volume is served and attached.
//!
//! ```toml
//! [serve]
//! nbd = ["127.0.0.1:10809"]
//! vhost-user = "/run/vault-vm.sock"
//! cache = 1000
//! readahead = "second"
//! ahead = "32MiB"
//! clients = 64
//! tls = "/etc/braid/tls"
//! tls-clients = ["backup=vault:ro", "web1=vault"]
//! ssd-model = "sata-ssd"
//! hdd-model = "exos-x20"
//!
//! [attach]
//! via = "ublk"
//! mount = "/srv/vault"
//! options = "noatime,nodev"
//! ```
//!
//! The file is `NAME.toml` in the directory of [`VolumeConfig::file`]. Every key is optional, and an option
//! of the command line overrides its key. Options that give data up have no key: an administrator decides
//! each time.

use crate::served::address::{MachineSocket, NbdAddress};
use crate::served::options::ServeOptions;
use crate::served::via::Via;
use crate::state::state_dir::VolumeName;
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_engine::Readahead;
use braid_fuse::MountOptions;
use braid_nbd::tls::ClientRule;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::fmt::Display;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The configuration of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeConfig {
    /// Settings of `braid serve`.
    pub serve: ServeConfig,
    /// Settings of `braid attach`.
    pub attach: AttachConfig,
}

/// Settings of `braid serve`; `None`, or an empty list, for the default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServeConfig {
    /// As [`ServeOptions::nbd`].
    #[serde(deserialize_with = "addresses")]
    pub nbd: Vec<NbdAddress>,
    /// As [`ServeOptions::vhost_user`].
    #[serde(deserialize_with = "machine")]
    pub vhost_user: Option<MachineSocket>,
    /// As [`ServeOptions::cache_extents`].
    #[serde(deserialize_with = "cache")]
    pub cache: Option<usize>,
    /// As [`ServeOptions::readahead`].
    #[serde(deserialize_with = "parsed")]
    pub readahead: Option<Readahead>,
    /// As [`ServeOptions::ahead`].
    #[serde(deserialize_with = "parsed")]
    pub ahead: Option<Bytes>,
    /// As [`ServeOptions::clients`].
    #[serde(deserialize_with = "clients")]
    pub clients: Option<usize>,
    /// As [`ServeOptions::tls`].
    #[serde(deserialize_with = "directory")]
    pub tls: Option<PathBuf>,
    /// As [`ServeOptions::tls_clients`].
    #[serde(deserialize_with = "tls_clients")]
    pub tls_clients: Vec<ClientRule>,
    /// As [`ServeOptions::ssd_model`].
    pub ssd_model: Option<String>,
    /// As [`ServeOptions::hdd_model`].
    pub hdd_model: Option<String>,
}

/// Settings of `braid attach`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttachConfig {
    /// Kind of the block device.
    #[serde(deserialize_with = "parsed")]
    pub via: Option<Via>,
    /// Directory to mount the file system on.
    #[serde(deserialize_with = "directory")]
    pub mount: Option<PathBuf>,
    /// Options of the mount.
    #[serde(deserialize_with = "parsed")]
    pub options: Option<MountOptions>,
}

impl VolumeConfig {
    /// Returns the path of a volume's configuration, which need not exist: in `BRAID_CONFIG_DIR`, else in
    /// `/etc/braid` for root and in `$XDG_CONFIG_HOME/braid` for other users. `None` if the user has no home
    /// directory.
    pub fn file(name: &VolumeName) -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let of_user = || {
            let root = rustix::process::geteuid().is_root().then(|| PathBuf::from("/etc"));
            root.or_else(|| set("XDG_CONFIG_HOME")).or_else(|| Some(set("HOME")?.join(".config")))
        };
        let directory = set("BRAID_CONFIG_DIR").or_else(|| Some(of_user()?.join("braid")))?;
        Some(directory.join(format!("{name}.toml")))
    }

    /// Reads the configuration of a volume; the default if there is no file.
    ///
    /// # Errors
    /// `Usage` for an unknown key or a wrong value: names file, line, key and remedy. `Io` if the file cannot
    /// be read.
    pub fn read(name: &VolumeName) -> Result<VolumeConfig> {
        let Some(file) = VolumeConfig::file(name) else { return Ok(VolumeConfig::default()) };
        match std::fs::read_to_string(&file) {
            Ok(text) => {
                tracing::info!("volume '{name}' is configured by {}", file.display());
                VolumeConfig::parse(&text, &file)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(VolumeConfig::default()),
            Err(error) => Err(Error::io(format_args!("the configuration {}", file.display()), &error)),
        }
    }

    fn parse(text: &str, file: &Path) -> Result<VolumeConfig> {
        toml::from_str(text).map_err(|error| {
            let place = error.span().map(|span| place(text, &span)).unwrap_or_default();
            let (file, what) = (file.display(), error.message().trim());
            let problem = format!("{file}{place}: {what}: correct or remove the key");
            Error::new(ErrorKind::Usage, problem)
        })
    }
}

/// Line and key of an error, as the middle of a message.
fn place(text: &str, span: &Range<usize>) -> String {
    let end = text[span.start..].find('\n').map_or(text.len(), |length| span.start + length);
    let lines: Vec<&str> = text[..end].lines().collect();
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let key = |line: &&str| {
        let key = line.split_once('=').map(|(key, _)| key.trim())?;
        (!key.is_empty() && key.chars().all(is_bare)).then(|| format!(", {key}"))
    };
    // A list may continue on later lines, which begin with a value.
    let continues = lines.last().is_some_and(|line| !line.trim_start().starts_with(char::is_alphabetic));
    let searched = if continues { lines.len() } else { 1 };
    let key = lines.iter().rev().take(searched).find_map(key).unwrap_or_default();
    format!(", line {}{key}", text[..span.start].matches('\n').count() + 1)
}

/// Parses a value that is written as a text.
fn parsed<'de, D, T>(value: D) -> std::result::Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(value)?.parse().map(Some).map_err(D::Error::custom)
}

fn addresses<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Vec<NbdAddress>, D::Error> {
    let address = |text: String| {
        // The directory in which the daemon is started must not matter.
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.starts_with('/')) {
            return Err(D::Error::custom(format!("'{path}' is relative: use unix:/PATH")));
        }
        text.parse().map_err(D::Error::custom)
    };
    Vec::<String>::deserialize(value)?.into_iter().map(address).collect()
}

fn tls_clients<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Vec<ClientRule>, D::Error> {
    let rules = Vec::<String>::deserialize(value)?;
    rules.iter().map(|rule| rule.parse().map_err(D::Error::custom)).collect()
}

fn machine<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Option<MachineSocket>, D::Error> {
    let text = String::deserialize(value)?;
    if !text.starts_with('/') {
        return Err(D::Error::custom(format!("'{text}' is relative: use /PATH")));
    }
    text.parse().map(Some).map_err(D::Error::custom)
}

fn directory<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(value)?;
    if !path.is_absolute() {
        return Err(D::Error::custom(format!("'{}' is relative: use /DIRECTORY", path.display())));
    }
    Ok(Some(path))
}

fn cache<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Option<usize>, D::Error> {
    within(value, 0..=ServeOptions::MOST_CACHE_EXTENTS)
}

fn clients<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Option<usize>, D::Error> {
    within(value, 1..=ServeOptions::MOST_CLIENTS)
}

fn within<'de, D: Deserializer<'de>>(
    value: D,
    range: RangeInclusive<usize>,
) -> std::result::Result<Option<usize>, D::Error> {
    let number = i64::deserialize(value)?;
    let allowed = usize::try_from(number).ok().filter(|number| range.contains(number));
    let problem = || D::Error::custom(format!("{number}: use {} to {}", range.start(), range.end()));
    allowed.map(Some).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<VolumeConfig> {
        VolumeConfig::parse(text, Path::new("/etc/braid/vault.toml"))
    }

    #[test]
    fn every_key_is_read() {
        let text = "[serve]\nnbd = [\"unix:/run/v.sock\"]\nvhost-user = \"/run/m.sock,group\"\ncache = 7\nreadahead = \"off\"\nahead = \"32MiB\"\n\
                    clients = 9\ntls = \"/t\"\ntls-clients = [\"a=v:ro\"]\nssd-model = \"a\"\nhdd-model = \"b\"\n\
                    [attach]\nvia = \"loop\"\nmount = \"/srv/v\"\noptions = \"ro,noatime\"\n";
        let config = parse(text).unwrap();
        let serve = ServeConfig {
            nbd: vec![NbdAddress::Unix("/run/v.sock".into())],
            vhost_user: "/run/m.sock,group".parse().ok(),
            cache: Some(7),
            readahead: Some(Readahead::Off),
            ahead: Some(Bytes(32 << 20)),
            clients: Some(9),
            tls: Some("/t".into()),
            tls_clients: vec!["a=v:ro".parse().unwrap()],
            ssd_model: Some("a".to_owned()),
            hdd_model: Some("b".to_owned()),
        };
        let options = "ro,noatime".parse().ok();
        let attach = AttachConfig { via: Some(Via::Loop), mount: Some("/srv/v".into()), options };
        assert_eq!(config, VolumeConfig { serve, attach });
        assert_eq!(parse(""), Ok(VolumeConfig::default()));
    }

    #[test]
    fn wrong_keys_and_values_are_refused_with_file_line_key_and_remedy() {
        for (text, parts) in [
            ("[serve]\n\nchache = 1", &["line 3, chache", "expected one of", "`cache`"][..]),
            ("[served]\ncache = 1", &["line 1", "served", "`serve`"]),
            ("[serve]\ndistrust = [\"d1\"]", &["line 2, distrust", "unknown field"]),
            ("[serve]\ncache = 1000001", &["line 2, cache", "use 0 to 1000000"]),
            ("[serve]\ncache = -1", &["line 2, cache", "use 0 to 1000000"]),
            ("[serve]\nclients = 0", &["line 2, clients", "use 1 to 256"]),
            ("[serve]\nclients = \"many\"", &["line 2, clients", "expected i64"]),
            ("[serve]\nahead = \"much\"", &["line 2, ahead", "such as"]),
            ("[serve]\nreadahead = \"third\"", &["line 2, readahead", "first, second or off"]),
            ("[serve]\nnbd = [\n  \"10809\",\n]", &["line 2, nbd", "HOST:PORT"]),
            ("[serve]\nnbd = [\n  \"unix:/a=b\",\n  7,\n]", &["line 4, nbd", "expected a string"]),
            ("[serve]\nnbd = [\"unix:v.sock\"]", &["line 2, nbd", "relative"]),
            ("[serve]\ntls = \"tls\"", &["line 2, tls", "relative"]),
            ("[serve]\ntls-clients = [\"a\"]", &["line 2, tls-clients", "NAME=EXPORT"]),
            ("[serve]\nvhost-user = \"m.sock\"", &["line 2, vhost-user", "relative"]),
            ("[attach]\nvia = \"nbd\"", &["line 2, via", "ublk or loop"]),
            ("[attach]\nmount = \"srv\"", &["line 2, mount", "relative"]),
            ("[serve\n", &["line "]),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            let always = ["/etc/braid/vault.toml", "correct or remove the key"];
            for part in parts.iter().chain(&always) {
                assert!(error.to_string().contains(part), "{part}: {text}: {error}");
            }
        }
    }
}
