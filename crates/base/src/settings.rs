//! `name,key=value,flag,…`: form of a policy or a workload on the command line, and of a policy in the
//! superblock.

use crate::quantity::parse_quantity;
use crate::{Bytes, Nanos};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Settings of a named policy or workload, taken one by one. Settings not taken are an error.
pub struct Settings {
    /// Kind of the named object, for messages: `policy`, `workload`.
    kind: &'static str,
    name: String,
    pairs: Vec<(String, String)>,
    /// Settings without a value.
    flags: Vec<String>,
    /// Settings of a preset, for keys not in `pairs`.
    preset: Vec<(String, String)>,
    known: Vec<&'static str>,
}

/// An unknown name or setting: names the setting, the value and the expected form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadSetting(String);

impl BadSetting {
    /// Makes an error of a whole sentence.
    pub fn new(message: impl Into<String>) -> BadSetting {
        BadSetting(message.into())
    }

    /// Adds a clause, for example a reference for further reading.
    #[must_use]
    pub fn and(self, clause: &str) -> BadSetting {
        BadSetting(format!("{}; {clause}", self.0))
    }

    /// Error for a `name` that is none of the `names` of its kind.
    pub fn unknown_name<'a>(kind: &str, name: &str, names: impl IntoIterator<Item = &'a str>) -> BadSetting {
        let names: Vec<&str> = names.into_iter().collect();
        BadSetting(format!("unknown {kind} '{name}': use one of {}", names.join(", ")))
    }
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSetting {}

impl Settings {
    /// Reads `name` or `name,key=value,flag,…`. `kind` is the word for messages: `policy`, `workload`.
    pub fn parse(kind: &'static str, text: &str) -> Result<Settings, BadSetting> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default().to_owned();
        let (mut pairs, mut flags): (Vec<(String, String)>, Vec<String>) = (Vec::new(), Vec::new());
        for part in parts {
            let (key, value) = part.split_once('=').map_or((part, None), |(key, value)| (key, Some(value)));
            if pairs.iter().any(|(known, _)| known == key) || flags.iter().any(|known| known == key) {
                return Err(BadSetting(format!("{kind} '{text}' sets {key} twice")));
            }
            match value {
                Some(value) => pairs.push((key.to_owned(), value.to_owned())),
                None => flags.push(key.to_owned()),
            }
        }
        Ok(Settings { kind, name, pairs, flags, preset: Vec::new(), known: Vec::new() })
    }

    /// If `flag` is named, `settings` (`key=value,…`) replace the defaults of their keys. A key set beside
    /// the flag keeps its own value, in any order of the two. Call before the keys are taken. Returns true if
    /// the flag is named.
    pub fn take_preset(&mut self, flag: &'static str, settings: &str) -> Result<bool, BadSetting> {
        let is_named = self.take_flag(flag)?;
        if is_named {
            let pairs = settings.split(',').filter_map(|setting| setting.split_once('='));
            self.preset.extend(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
        }
        Ok(is_named)
    }

    /// Renames `old` to `new`, unless `new` is set, too: the volume may have been written before the key was
    /// renamed. Call before the keys are taken.
    pub fn rename(&mut self, old: &str, new: &str) {
        let has_new = self.is_set(new);
        if let Some((key, _)) = self.pairs.iter_mut().find(|(key, _)| key == old && !has_new) {
            new.clone_into(key);
        }
    }

    /// The name before the first comma.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the value of `key`, or `default` if not set. `expected` describes a valid value.
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

    /// Takes a number within `low..=high`, or `default`.
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

    /// Takes a share such as `80%` or `0.8`, from 0 to 1.
    pub fn take_share(&mut self, key: &'static str) -> Result<Option<f64>, BadSetting> {
        let Some(text) = self.take_text(key) else { return Ok(None) };
        let value = match text.strip_suffix('%') {
            // Parsed with an exponent, not by a division: 99.9 / 100 is not the number next to 0.999, and
            // exceeds a limit of 0.999.
            Some(percent) => format!("{percent}e-2").parse::<f64>(),
            None => text.parse::<f64>(),
        };
        match value {
            Ok(value) if (0.0..=1.0).contains(&value) => Ok(Some(value)),
            _ => Err(self.bad(key, &text, "a share such as 80% or 0.8")),
        }
    }

    /// Takes a count such as `1000`, `10K` or `2.5M` (thousands, millions, `G` thousand millions) within
    /// `range`, or `default`.
    pub fn take_count(
        &mut self,
        key: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, BadSetting> {
        match self.take_text(key) {
            None => Ok(default),
            Some(text) => self.read_count(key, &text, range),
        }
    }

    /// Reads a count within `range` from the `text` of `key`: for settings that may be a count or a word.
    pub fn read_count(
        &self,
        key: &'static str,
        text: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, BadSetting> {
        const UNITS: &[(&str, u64)] = &[("", 1), ("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
        let expected = || format!("a number from {} to {}, such as 500 or 10K", range.start(), range.end());
        let value = parse_quantity(text, UNITS, "a count").ok().filter(|value| range.contains(value));
        value.ok_or_else(|| self.bad(key, text, &expected()))
    }

    /// Takes a size such as `4KiB` within `range`, or `default`.
    pub fn take_bytes(
        &mut self,
        key: &'static str,
        default: Bytes,
        range: RangeInclusive<Bytes>,
    ) -> Result<Bytes, BadSetting> {
        let expected = format!("a size from {} to {}", range.start(), range.end());
        self.take_in(key, default, range, |text| text.parse().ok(), &expected)
    }

    /// Takes a time such as `5ms` within `range`, or `default`.
    pub fn take_time(
        &mut self,
        key: &'static str,
        default: Nanos,
        range: RangeInclusive<Nanos>,
    ) -> Result<Nanos, BadSetting> {
        let expected = format!("a time from {} to {}, such as 5ms", range.start(), range.end());
        self.take_in(key, default, range, |text| text.parse().ok(), &expected)
    }

    fn take_in<T: PartialOrd>(
        &mut self,
        key: &'static str,
        default: T,
        range: RangeInclusive<T>,
        read: impl Fn(&str) -> Option<T>,
        expected: &str,
    ) -> Result<T, BadSetting> {
        let Some(text) = self.take_text(key) else { return Ok(default) };
        match read(&text) {
            Some(value) if range.contains(&value) => Ok(value),
            _ => Err(self.bad(key, &text, expected)),
        }
    }

    /// Takes a flag, a setting without a value. True if `key` is named.
    pub fn take_flag(&mut self, key: &'static str) -> Result<bool, BadSetting> {
        if let Some(value) = self.take_text(key) {
            return Err(self.bad(key, &value, &format!("{key} without a value")));
        }
        let at = self.flags.iter().position(|flag| flag == key);
        Ok(at.map(|at| self.flags.remove(at)).is_some())
    }

    /// Takes the text of `key`, if set.
    pub fn take_text(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        let taken = |pairs: &mut Vec<(String, String)>| {
            let at = pairs.iter().position(|(k, _)| k == key)?;
            Some(pairs.remove(at).1)
        };
        let preset = taken(&mut self.preset);
        taken(&mut self.pairs).or(preset)
    }

    /// True if `key` is set and not yet taken.
    pub fn is_set(&self, key: &str) -> bool {
        self.pairs.iter().any(|(k, _)| k == key)
    }

    /// Takes `key` if set to the word, and returns true. For settings that may be a word or another value.
    pub fn is(&mut self, key: &'static str, word: &str) -> bool {
        let pairs = if self.is_set(key) { &self.pairs } else { &self.preset };
        let is_word = pairs.iter().any(|(k, value)| k == key && value == word);
        is_word && self.take_text(key).is_some()
    }

    /// True if the key has been asked for.
    pub fn has_known(&self, key: &str) -> bool {
        self.known.contains(&key)
    }

    /// First key not yet taken.
    pub fn left(&self) -> Option<&str> {
        self.pairs.first().map(|(key, _)| key).or(self.flags.first()).map(String::as_str)
    }

    /// Refuses settings not taken. Returns the keys that were asked for, in the order of the calls.
    pub fn finish(self) -> Result<Vec<&'static str>, BadSetting> {
        let Settings { kind, name, .. } = &self;
        if let Some(flag) = self.flags.iter().find(|flag| self.known.contains(&flag.as_str())) {
            return Err(BadSetting(format!("setting {flag} of {kind} {name} has no value: use {flag}=…")));
        }
        let Some(key) = self.left() else { return Ok(self.known) };
        let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        Err(BadSetting(format!("{kind} {name} has no setting '{key}': its settings are {known}")))
    }

    /// Error for an invalid `value` of `key`; `expected` describes a valid value.
    pub fn bad(&self, key: &str, value: &str, expected: &str) -> BadSetting {
        BadSetting(format!("setting {key}={value} of {} {}: use {expected}", self.kind, self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GIB, KIB};

    fn settings(text: &str) -> Settings {
        Settings::parse("workload", text).expect(text)
    }

    #[test]
    fn settings_are_taken_by_key_and_the_rest_is_refused() {
        let mut s = settings("zipf,requests=10M,size=8KiB,pause=5ms,read=70%");
        assert_eq!(s.take_count("requests", 1, 1..=u64::MAX), Ok(10_000_000));
        assert_eq!(s.take_bytes("size", KIB, KIB..=GIB), Ok(KIB * 8));
        assert_eq!(s.take_time("pause", Nanos::ZERO, Nanos::ZERO..=Nanos::MAX), Ok(Nanos::from_millis(5)));
        let error = s.finish().expect_err("read was not taken").to_string();
        assert!(error.contains("'read'") && error.contains("requests, size, pause"), "{error}");
    }

    #[test]
    fn error_for_value_outside_limits_names_limits() {
        let error = |text: &str| {
            let mut s = settings(text);
            let taken =
                s.take_count("n", 1, 1..=64).map(|_| ()).and(s.take_bytes("s", KIB, KIB..=GIB).map(|_| ()));
            taken.expect_err(text).to_string()
        };
        for part in ["n=65", "workload x", "1 to 64"] {
            assert!(error("x,n=65").contains(part), "{part}: {}", error("x,n=65"));
        }
        assert!(error("x,n=0").contains("1 to 64") && error("x,n=-1").contains("1 to 64"));
        assert!(error("x,s=2GiB").contains("1 KiB to 1 GiB"));
        assert!(error("x,n=NaN").contains("1 to 64") && error("x,n=").contains("1 to 64"));
    }

    /// Story: `short-lived=99.9%` exceeded its limit of 99.9 %, because a percentage was divided by 100, and
    /// so rounded twice.
    #[test]
    fn percentage_equals_fraction_exactly() {
        for thousandths in 0..=1000 {
            let (whole, tenth) = (thousandths / 10, thousandths % 10);
            let share = |text: String| settings(&text).take_share("n");
            let fraction = f64::from(thousandths) / 1000.0;
            assert_eq!(share(format!("x,n={whole}.{tenth}%")), Ok(Some(fraction)));
            assert_eq!(share(format!("x,n={fraction}")), Ok(Some(fraction)));
        }
        for bad in ["%", "-1%", "100.1%", "inf%", "NaN%", "x%", "1e"] {
            assert!(settings(&format!("x,n={bad}")).take_share("n").is_err(), "{bad}");
        }
    }

    #[test]
    fn preset_replaces_defaults_but_not_explicit_settings() {
        let taken = |text: &str| {
            let mut s = settings(text);
            let named = s.take_preset("as-published", "n=7,size=off,unused=1").expect(text);
            let off = s.is("size", "off");
            let size = if off { Bytes::ZERO } else { s.take_bytes("size", GIB, KIB..=GIB).expect(text) };
            let n = s.take_count("n", 1, 1..=64).expect(text);
            s.finish().expect(text);
            (named, n, size)
        };
        assert_eq!(taken("x"), (false, 1, GIB));
        assert_eq!(taken("x,as-published"), (true, 7, Bytes::ZERO));
        for text in ["x,as-published,n=5,size=4KiB", "x,size=4KiB,n=5,as-published"] {
            assert_eq!(taken(text), (true, 5, KIB * 4), "{text}");
        }
        assert!(settings("x,as-published=1").take_preset("as-published", "n=7").is_err());
    }

    #[test]
    fn a_key_set_twice_is_refused() {
        for twice in ["static,ssd=1,ssd=2", "static,ssd,ssd", "static,ssd=1,ssd"] {
            let error = Settings::parse("policy", twice).err().expect(twice).to_string();
            assert!(error.contains("sets ssd twice"), "{error}");
        }
    }

    #[test]
    fn flag_takes_no_value_and_key_needs_value() {
        let mut given = settings("x,quick");
        assert_eq!((given.take_flag("quick"), given.take_flag("slow")), (Ok(true), Ok(false)));
        assert_eq!(given.finish(), Ok(vec!["quick", "slow"]));
        let error = settings("x,quick=1").take_flag("quick").expect_err("it has a value").to_string();
        assert_eq!(error, "setting quick=1 of workload x: use quick without a value");
        let mut without = settings("x,n");
        assert_eq!(without.take_count("n", 1, 1..=64), Ok(1));
        let error = without.finish().expect_err("n has no value").to_string();
        assert_eq!(error, "setting n of workload x has no value: use n=…");
        let error = settings("x,nosuch").finish().expect_err("there is no such flag").to_string();
        assert_eq!(error, "workload x has no setting 'nosuch': its settings are none");
    }
}
