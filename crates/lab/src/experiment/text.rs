//! Declarations as text: read from a file in TOML, and written back. Texts and lists of a file are never
//! freed, like those of constants.

use super::{Experiment, Origin, Pair, Paper, Published};
use crate::{Error, Prefill, Result};
use braid_base::{Bytes, DeviceClass};
use braid_engine::Readahead;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Display;
use std::str::FromStr;

impl Experiment {
    /// Reads an experiment from a text in TOML, with the fields of [`Experiment`]. The declaration is
    /// checked: everything mentioned by its claims, baselines and series exists, and each of its simulations
    /// can be set up.
    ///
    /// # Errors
    /// Names the line and the error.
    pub fn from_toml(toml: &str) -> Result<&'static Experiment> {
        let deserializer = toml::Deserializer::parse(toml.to_owned().leak());
        let experiment = deserializer.and_then(Experiment::deserialize);
        Experiment::checked(experiment.map_err(|error| Error::setup(error.to_string()))?)
    }

    /// As [`Experiment::from_toml`], from a text in JSON.
    ///
    /// # Errors
    /// As [`Experiment::from_toml`].
    pub fn from_json(json: &str) -> Result<&'static Experiment> {
        let experiment: std::result::Result<Experiment, _> = serde_json::from_str(json.to_owned().leak());
        Experiment::checked(experiment.map_err(|error| Error::setup(error.to_string()))?)
    }

    fn checked(experiment: Experiment) -> Result<&'static Experiment> {
        experiment.check()?;
        Ok(Box::leak(Box::new(experiment)))
    }

    /// The declaration in TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a declaration has texts, numbers and lists alone")
    }
}

pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<&'static str, D::Error> {
    String::deserialize(from).map(|text| &*text.leak())
}

pub(super) fn option<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<&'static str>, D::Error> {
    Option::<String>::deserialize(from).map(|text| text.map(|text| &*text.leak()))
}

pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> std::result::Result<&'static [T], D::Error> {
    Vec::<T>::deserialize(from).map(|list| &*list.leak())
}

pub(super) fn texts<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<&'static [&'static str], D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    Ok(texts.into_iter().map(|text| &*text.leak()).collect::<Vec<&'static str>>().leak())
}

pub(super) fn pair<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Pair, D::Error> {
    <(String, String)>::deserialize(from).map(|(of, to)| (&*of.leak(), &*to.leak()))
}

pub(super) fn pairs<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<&'static [Pair], D::Error> {
    let pairs = Vec::<(String, String)>::deserialize(from)?;
    let leaked = |(of, to): (String, String)| -> Pair { (of.leak(), to.leak()) };
    Ok(pairs.into_iter().map(leaked).collect::<Vec<Pair>>().leak())
}

pub(super) fn paper<'de: 'static, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<&'static Paper, D::Error> {
    Paper::deserialize(from).map(|paper| &*Box::leak(Box::new(paper)))
}

pub(super) fn is_empty<T>(list: &[T]) -> bool {
    list.is_empty()
}

/// Values with a text form.
pub(super) mod parsed {
    use super::*;

    pub fn serialize<T: Text, S: Serializer>(value: &T, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&value.text())
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T: Text>(from: D) -> std::result::Result<T, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Optional values with a text form.
pub(super) mod parsed_option {
    use super::*;

    pub fn serialize<T: Text, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        value.as_ref().map(Text::text).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T: Text>(
        from: D,
    ) -> std::result::Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

/// Devices: `"ssd 80GB,model=x25-m"`.
pub(super) mod devices {
    use super::*;

    pub fn serialize<S: Serializer>(
        devices: &[(DeviceClass, &'static str)],
        to: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        to.collect_seq(devices.iter().map(|(class, text)| format!("{class} {text}")))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> std::result::Result<&'static [(DeviceClass, &'static str)], D::Error> {
        let device = |text: String| {
            let (class, device) = text.split_once(' ').ok_or_else(|| {
                serde::de::Error::custom(format!(
                    "'{text}' is no device: use ssd SIZE,model=M or hdd SIZE,model=M"
                ))
            })?;
            let class = class.parse().map_err(serde::de::Error::custom)?;
            Ok((class, &*device.trim().to_owned().leak()))
        };
        let devices = Vec::<String>::deserialize(from)?.into_iter().map(device);
        Ok(devices.collect::<std::result::Result<Vec<_>, D::Error>>()?.leak())
    }
}

/// A value with a text form that is read back unchanged.
pub(super) trait Text: FromStr<Err: Display> {
    fn text(&self) -> String;
}

impl Text for Bytes {
    fn text(&self) -> String {
        format!("{}B", self.0)
    }
}

impl Text for Readahead {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for DeviceClass {
    fn text(&self) -> String {
        self.to_string()
    }
}

// Defaults of missing fields: as in `braid simulate`.

pub(super) fn nothing() -> Prefill {
    Prefill::None
}

pub(super) fn readahead() -> Readahead {
    Readahead::default()
}

pub(super) fn cache_extents() -> usize {
    100
}

pub(super) fn block_size() -> Bytes {
    Bytes(4 << 10)
}

pub(super) fn one() -> u8 {
    1
}

pub(super) fn of_paper() -> Origin {
    Origin::Paper
}

pub(super) fn words() -> Published {
    Published::Words
}

pub(super) fn is_words(published: &Published) -> bool {
    *published == Published::Words
}
