//! Question about a served volume: its devices with their models, its policy, and the homes of the
//! recording's extents.

use super::Arguments;
use super::scratch::Scratch;
use braid_base::{Bytes, DeviceClass};
use braid_control::{
    Client, DeviceReport, Error, ErrorKind, OperationReport, Result, StateDir, StatusReport, VolumeName,
};
use braid_lab::advice::{InUse, Question};
use braid_lab::{DeviceSetup, Size};

/// A served volume.
pub struct Served {
    name: VolumeName,
    /// Unit of placement.
    pub extent: Bytes,
    devices: Vec<DeviceSetup>,
}

/// Most extents whose homes are asked for: each costs a request to the daemon.
const MOST_ASKED: usize = 1 << 16;

impl Served {
    /// Reads the volume's devices and models before the recording.
    ///
    /// # Errors
    /// `NotServed` without a daemon. `Invalid` if a device is missing or otherwise not in use. `Usage` if a
    /// device has no model, with the way to make one.
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
                        "{} of volume '{name}' is {}: advice needs a volume with all devices in use: braid status {name}",
                        device.device, device.state
                    ),
                ));
            }
            let class: DeviceClass = device.class.parse().map_err(|_| {
                Error::new(ErrorKind::Unsupported, format!("a device of class {}", device.class))
            })?;
            let given = if class == DeviceClass::Ssd { &arguments.ssd_model } else { &arguments.hdd_model };
            let model = match device.model.as_deref().map(|model| (model, model.strip_prefix(OWN))) {
                // The volume's record has the text of its own models.
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
                write_cache: true,
                count: 1,
                nodes: None,
                group: None,
            });
        }
        Ok(Served { name: name.clone(), extent: Bytes(status.extent_bytes), devices })
    }

    /// Total requests and latency of guests' reads and writes until now.
    pub fn totals(state: &StateDir, name: &VolumeName) -> Result<Totals> {
        let guests = Client::connect(state, name)?.status()?.guests;
        let time = |of: &OperationReport| of.requests as f64 * of.latency.latency_ns_mean as f64;
        Ok(Totals {
            requests: guests.read.requests + guests.write.requests,
            time_ns: time(&guests.read) + time(&guests.write),
        })
    }

    /// Builds the question, with the present state of the volume.
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

    /// Returns the extents with homes on SSDs, and the extents without a home.
    fn homes(&self, client: &mut Client, touched: &[u64], size: Bytes) -> Result<(Vec<u64>, Vec<u64>)> {
        let (mut on_ssd, mut empty) = (Vec::new(), Vec::new());
        for &extent in touched {
            let at = self.extent * extent;
            // Extents beyond the end belong to another volume's recording; the question is then refused.
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

/// Totals of guests' reads and writes since the daemon started.
#[derive(Clone, Copy)]
pub struct Totals {
    requests: u64,
    time_ns: f64,
}

impl Totals {
    /// Mean latency in nanoseconds since `before`; none without requests.
    pub fn since(self, before: Totals) -> Option<f64> {
        let requests = self.requests.saturating_sub(before.requests);
        (requests > 0).then(|| (self.time_ns - before.time_ns).max(0.0) / requests as f64)
    }
}

/// Prefix of the name of a model that came from a file.
const OWN: &str = "own:";

/// Bytes of homes on SSDs: used bytes there without extra copies.
fn homes_on_ssd(status: &StatusReport) -> Bytes {
    let used = status.devices.iter().filter(|device| device.class == "ssd").map(|device| device.used_bytes);
    Bytes(used.sum::<u64>().saturating_sub(status.extra_bytes))
}

fn not_served(name: &VolumeName, error: Error) -> Error {
    if error.kind() != ErrorKind::NotServed {
        return error;
    }
    let problem = format!(
        "{error}; advice records the volume in use: braid serve {name}. For a recording without the volume, leave out the name, and give \
         devices with --ssd and --hdd"
    );
    Error::new(ErrorKind::NotServed, problem)
}

fn without_model(name: &VolumeName, device: &DeviceReport, class: DeviceClass) -> Error {
    let DeviceReport { device, path, .. } = device;
    let problem = format!(
        "{device} of volume '{name}' ({path}) has no timing model: give a model with --{class}-model: the most similar of braid device show, or \
         a model measured by `braid device calibrate {path} --output mine.toml` (only reads; best while the volume is not served)"
    );
    Error::new(ErrorKind::Usage, problem)
}
