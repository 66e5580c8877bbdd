//! `name,key=value,…`: how a policy is written on the command line and in the superblock.

use std::fmt;
use std::str::FromStr;

/// The settings of a policy, taken one by one; what nobody takes is an error.
pub struct Settings {
    name: String,
    pairs: Vec<(String, String)>,
    known: Vec<&'static str>,
}

/// A policy or setting that is none: names the thing, the value and what would have been right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadSetting(String);

impl BadSetting {
    /// With a whole sentence.
    pub fn new(message: impl Into<String>) -> BadSetting {
        BadSetting(message.into())
    }

    pub(crate) fn unknown_policy(name: &str, names: &[&str]) -> BadSetting {
        BadSetting(format!("there is no policy '{name}': use one of {}", names.join(", ")))
    }
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSetting {}

impl Settings {
    /// Reads `name` or `name,key=value,…`.
    pub fn parse(text: &str) -> Result<Settings, BadSetting> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default().to_owned();
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return Err(BadSetting(format!("'{part}' in policy '{text}' is no key=value")));
            };
            if pairs.iter().any(|(known, _)| known == key) {
                return Err(BadSetting(format!("policy '{text}' sets {key} twice")));
            }
            pairs.push((key.to_owned(), value.to_owned()));
        }
        Ok(Settings { name, pairs, known: Vec::new() })
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of `key`, or `default` where it is not set. `expected` says what a value looks like.
    pub fn take<T: FromStr>(
        &mut self,
        key: &'static str,
        default: T,
        expected: &str,
    ) -> Result<T, BadSetting> {
        match self.take_text(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| self.bad(key, &text, expected)),
        }
    }

    /// A number within `low..=high`, or `default`.
    pub fn take_within(
        &mut self,
        key: &'static str,
        default: f64,
        low: f64,
        high: f64,
    ) -> Result<f64, BadSetting> {
        let expected = format!("a number from {low} to {high}");
        let value = self.take(key, default, &expected)?;
        if (low..=high).contains(&value) {
            Ok(value)
        } else {
            Err(self.bad(key, &value.to_string(), &expected))
        }
    }

    /// A share such as `80%` or `0.8`, from 0 to 1.
    pub fn take_share(&mut self, key: &'static str) -> Result<Option<f64>, BadSetting> {
        let Some(text) = self.take_text(key) else { return Ok(None) };
        let value = match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().map(|p| p / 100.0),
            None => text.parse::<f64>(),
        };
        match value {
            Ok(value) if (0.0..=1.0).contains(&value) => Ok(Some(value)),
            _ => Err(self.bad(key, &text, "a share such as 80% or 0.8")),
        }
    }

    /// The text of `key`, if it is set.
    pub fn take_text(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        let at = self.pairs.iter().position(|(k, _)| k == key)?;
        Some(self.pairs.remove(at).1)
    }

    /// Refuses whatever nobody has taken.
    pub fn finish(self) -> Result<(), BadSetting> {
        let Some((key, _)) = self.pairs.first() else { return Ok(()) };
        let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        Err(BadSetting(format!("policy {} has no setting '{key}': its settings are {known}", self.name)))
    }

    fn bad(&self, key: &str, value: &str, expected: &str) -> BadSetting {
        BadSetting(format!("setting {key}={value} of policy {}: use {expected}", self.name))
    }
}
