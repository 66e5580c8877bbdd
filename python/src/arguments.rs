//! Arguments by name, each as a text of the command line.

use crate::failure::{bad_argument, exception};
use braid_base::DeviceClass;
use braid_lab::{Beyond, DeviceSetup, Load, Prefill, Setup, Trace, parse_network};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

/// Given arguments by name. Reading an argument removes it from the map.
pub struct Arguments<'py> {
    py: Python<'py>,
    texts: BTreeMap<String, String>,
}

impl<'py> Arguments<'py> {
    /// Arguments not read yet.
    pub fn new(py: Python<'py>, texts: BTreeMap<String, String>) -> Arguments<'py> {
        Arguments { py, texts }
    }

    /// Value of `name`, if given.
    pub fn take<T: FromStr<Err: Display>>(&mut self, name: &str) -> PyResult<Option<T>> {
        let Some(text) = self.texts.remove(name) else { return Ok(None) };
        let value = text.parse().map_err(|e| bad_argument(self.py, format!("{name}={text}: {e}")))?;
        Ok(Some(value))
    }

    /// Whole number `name`, if given.
    pub fn number<T: FromStr>(&mut self, name: &str) -> PyResult<Option<T>> {
        let Some(text) = self.texts.remove(name) else { return Ok(None) };
        let wrong = |_| {
            let bits = 8 * size_of::<T>();
            bad_argument(self.py, format!("{name}={text}: use a whole number from 0 to 2^{bits} - 1"))
        };
        Ok(Some(text.parse().map_err(wrong)?))
    }

    /// Sets `value` where `name` was given.
    pub fn set<T: FromStr<Err: Display>>(&mut self, name: &str, value: &mut T) -> PyResult<()> {
        if let Some(given) = self.take(name)? {
            *value = given;
        }
        Ok(())
    }

    /// Whether a switch was set.
    pub fn switch(&mut self, name: &str) -> PyResult<bool> {
        self.choice(name, &[("True", true), ("False", false)]).map(|on| on.unwrap_or(false))
    }

    /// Value of `name`, one of `choices`, if given.
    pub fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> PyResult<Option<T>> {
        let Some(text) = self.texts.remove(name) else { return Ok(None) };
        let found = choices.iter().find(|(choice, _)| *choice == text);
        let names = || choices.iter().map(|(choice, _)| *choice).collect::<Vec<_>>().join(", ");
        let wrong = || bad_argument(self.py, format!("{name}={text}: use one of {}", names()));
        Ok(Some(found.ok_or_else(wrong)?.1))
    }

    /// Refuses arguments not read by now.
    pub fn end(mut self) -> PyResult<()> {
        match self.texts.pop_first() {
            None => Ok(()),
            Some((name, text)) => Err(bad_argument(self.py, format!("{name}={text}: no such argument"))),
        }
    }
}

/// Setup described by the arguments of `simulate`.
pub fn setup(
    py: Python<'_>,
    ssds: &[String],
    hdds: &[String],
    texts: BTreeMap<String, String>,
) -> PyResult<Setup> {
    let kinds = ssds.iter().map(|text| DeviceSetup::parse(DeviceClass::Ssd, text));
    let kinds = kinds.chain(hdds.iter().map(|text| DeviceSetup::parse(DeviceClass::Hdd, text)));
    let devices = kinds.collect::<Result<Vec<_>, _>>().map_err(|error| exception(py, &error))?;
    let mut given = Arguments::new(py, texts);
    let policy = given.take("policy")?.unwrap_or_else(|| braid_lab::DEFAULT_POLICY.to_owned());
    let load = load(&mut given)?;
    let mut setup = Setup::new(devices, policy, load);
    let network = given.take::<String>("network")?.map(|text| parse_network(&text));
    setup.network = network.transpose().map_err(|error| exception(py, &error))?;
    setup.seed = given.number("seed")?.unwrap_or(setup.seed);
    setup.copies = given.number("copies")?.unwrap_or(setup.copies);
    setup.cache_extents = given.number("cache")?.unwrap_or(setup.cache_extents);
    setup.outstanding = given.number("outstanding")?.unwrap_or(setup.outstanding);
    setup.requests = given.number("requests")?;
    setup.processors = given.number("processors")?;
    given.set("readahead", &mut setup.readahead)?;
    given.set("ahead", &mut setup.ahead)?;
    given.set("dram", &mut setup.dram)?;
    given.set("extent", &mut setup.extent_size)?;
    given.set("block", &mut setup.block_size)?;
    given.set("warm_up", &mut setup.warm_up)?;
    given.set("speed", &mut setup.speed)?;
    setup.size = given.take("size")?;
    setup.prefill_policy = given.take("prefill_policy")?;
    setup.duration = given.take("duration")?;
    setup.interval = given.take("interval")?;
    setup.verify = given.switch("verify")?;
    let prefills = [("none", Prefill::None), ("used", Prefill::Used), ("all", Prefill::All)];
    setup.prefill = given.choice("prefill", &prefills)?.unwrap_or(setup.prefill);
    let ends = [("refuse", Beyond::Refuse), ("wrap", Beyond::Wrap), ("drop", Beyond::Drop)];
    setup.beyond = given.choice("beyond", &ends)?.unwrap_or(setup.beyond);
    given.end()?;
    Ok(setup)
}

fn load(given: &mut Arguments<'_>) -> PyResult<Load> {
    let (clients, think) = (given.number("clients")?, given.take("think")?);
    let strict = given.switch("strict")?;
    let (repeat, max_gap) = (given.number("repeat")?.unwrap_or(1), given.take("max_gap")?);
    let compact = given.choice("compact", &[("True", true), ("False", false)])?.unwrap_or(true);
    let load = match (given.take::<String>("workload")?, given.take::<PathBuf>("trace")?) {
        (Some(text), None) => Load::Workload(text),
        (None, Some(path)) => {
            let mut trace = Trace { compact, repeat, max_gap, ..Trace::new(path) };
            trace.options.strict = strict;
            Load::Trace(trace)
        }
        (Some(_), Some(_)) => {
            return Err(bad_argument(given.py, "a simulation has one load: workload= or trace=".to_owned()));
        }
        (None, None) => {
            let problem = "a simulation needs a load: workload=NAME or trace=FILE";
            return Err(bad_argument(given.py, problem.to_owned()));
        }
    };
    Ok(load.with_clients(clients, think))
}
