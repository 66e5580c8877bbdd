//! A served volume as a question: its devices with their models, its policy, and where the extents of the
//! recording lie.

use super::Arguments;
use super::scratch::Scratch;
use braid_base::{Bytes, DeviceClass};
use braid_control::{
    Client, DeviceReport, Error, ErrorKind, OperationReport, Result, StateDir, StatusReport, VolumeName,
};
use braid_lab::advice::{InUse, Question};
use braid_lab::{DeviceSetup, Size};

/// A volume that is served.
pub struct Served {
    name: VolumeName,
    /// The unit of placement.
    pub extent: Bytes,
    devices: Vec<DeviceSetup>,
}

/// Extents whose place is asked for, at most: each is a request to the daemon.
const MOST_ASKED: usize = 1 << 16;

impl Served {
    /// What is known of the volume before it is recorded.
    ///
    /// # Errors
    /// `NotServed`. `Invalid` if a device is missing. `Usage` if one has no model, with the way to make one.
    pub fn of(
        state: &StateDir,
        name: &VolumeName,
        arguments: &Arguments,
        scratch: &Scratch,
    ) -> Result<Served> {
        let status = Client::connect(state, name).map_err(|error| not_served(name, error))?.status()?;
        let models = state.load(name).map(|record| record.models).unwrap_or_default();
        let mut devices = Vec::new();
        for (number, device) in status.devices.iter().enumerate() {
            let is_used = matches!(device.state.as_str(), "active" | "slow");
            if !is_used {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!(
                        "{} of volume '{name}' is {}: advice is for a volume whose devices are all in use; braid status {name} says more",
                        device.device, device.state
                    ),
                ));
            }
            let class: DeviceClass = device.class.parse().map_err(|_| {
                Error::new(ErrorKind::Unsupported, format!("a device of class {}", device.class))
            })?;
            let given = if class == DeviceClass::Ssd { &arguments.ssd_model } else { &arguments.hdd_model };
            let model = match device.model.as_deref().map(|model| (model, model.strip_prefix(OWN))) {
                // The text of the volume's own model stands in its record.
                Some((_, Some(own))) if models.contains_key(own) => {
                    scratch.write(&format!("model-{number}.toml"), &models[own])?.display().to_string()
                }
                Some((model, None)) => model.to_owned(),
                _ => given.clone().ok_or_else(|| without_model(name, device, class))?,
            };
            let size = Size::Bytes(Bytes(device.size_bytes));
            devices.push(DeviceSetup {
                class,
                size,
                model,
                lower: false,
                count: 1,
                nodes: None,
                group: None,
            });
        }
        Ok(Served { name: name.clone(), extent: Bytes(status.extent_bytes), devices })
    }

    /// What guests have read and written until now.
    pub fn totals(state: &StateDir, name: &VolumeName) -> Result<Totals> {
        let guests = Client::connect(state, name)?.status()?.guests;
        let time = |of: &OperationReport| of.requests as f64 * of.latency.latency_ns_mean as f64;
        Ok(Totals {
            requests: guests.read.requests + guests.write.requests,
            time_ns: time(&guests.read) + time(&guests.write),
        })
    }

    /// The question, with the volume as it is now.
    pub fn asked(self, state: &StateDir, usual: Question) -> Result<Question> {
        let mut client = Client::connect(state, &self.name)?;
        let status = client.status()?;
        let (touched_on_ssd, touched_empty) = match usual.window.touched() {
            Some(touched) if touched.len() <= MOST_ASKED && status.copies == 1 => {
                let (on_ssd, empty) = self.homes(&mut client, touched, Bytes(status.size_bytes))?;
                (Some(on_ssd), empty)
            }
            _ => (None, Vec::new()),
        };
        let volume = InUse {
            size: Bytes(status.size_bytes),
            mapped: Bytes(status.mapped_bytes),
            on_ssd: homes_on_ssd(&status),
            touched_on_ssd,
            touched_empty,
            chooses_mode: status.guard.is_some(),
        };
        Ok(Question {
            devices: self.devices,
            present_policy: status.guard.as_ref().map_or(&status.policy, |guard| &guard.mode).clone(),
            volume: Some(volume),
            block_size: Bytes(status.block_bytes),
            copies: status.copies,
            cache_extents: (status.cache_limit_bytes / status.extent_bytes.max(1)) as usize,
            ..usual
        })
    }

    /// Which of these extents have their homes on SSDs, and which have none.
    fn homes(&self, client: &mut Client, touched: &[u64], size: Bytes) -> Result<(Vec<u64>, Vec<u64>)> {
        let (mut on_ssd, mut empty) = (Vec::new(), Vec::new());
        for &extent in touched {
            let at = self.extent * extent;
            // What lies beyond is another volume's; the question is refused with that.
            if at >= size {
                break;
            }
            match client.explain(at)?.home {
                None => empty.push(extent),
                Some(home) => on_ssd.extend((home.class == "ssd").then_some(extent)),
            }
        }
        Ok((on_ssd, empty))
    }
}

/// Reads and writes of guests since the daemon started.
#[derive(Clone, Copy)]
pub struct Totals {
    requests: u64,
    time_ns: f64,
}

impl Totals {
    /// Their mean latency since then in nanoseconds; none if there were none.
    pub fn since(self, before: Totals) -> Option<f64> {
        let requests = self.requests.saturating_sub(before.requests);
        (requests > 0).then(|| (self.time_ns - before.time_ns).max(0.0) / requests as f64)
    }
}

/// What stands before the name of a model that came from a file.
const OWN: &str = "own:";

/// Homes on SSDs: what is in use there, but for extra copies.
fn homes_on_ssd(status: &StatusReport) -> Bytes {
    let used = status.devices.iter().filter(|device| device.class == "ssd").map(|device| device.used_bytes);
    Bytes(used.sum::<u64>().saturating_sub(status.extra_bytes))
}

fn not_served(name: &VolumeName, error: Error) -> Error {
    if error.kind() != ErrorKind::NotServed {
        return error;
    }
    let problem = format!(
        "{error}; advice records it while it is used: braid serve {name}. For a recording without the volume, leave its name out and name \
         devices with --ssd and --hdd"
    );
    Error::new(ErrorKind::NotServed, problem)
}

fn without_model(name: &VolumeName, device: &DeviceReport, class: DeviceClass) -> Error {
    let DeviceReport { device, path, .. } = device;
    let problem = format!(
        "{device} of volume '{name}' ({path}) has no model of its timing: give one with --{class}-model, the most alike of braid device show, or \
         one that `braid device calibrate {path} --output mine.toml` measures (it reads; best while the volume is not served)"
    );
    Error::new(ErrorKind::Usage, problem)
}
