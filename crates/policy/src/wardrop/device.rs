//! State of a device in `wardrop`: R, Q and P of equation (1), with figures and saved state.
//!
//! The paper says nothing of restarts. Here R and P are saved: a version, then P and R of each device as
//! little-endian numbers of 8 bytes. An unknown R is NaN.

use crate::View;
use braid_base::ExtentId;

/// A device in equation (1).
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// R, in milliseconds; `None` before the first request.
    pub response_ms: Option<f64>,
    /// Q: share of the requests.
    pub share: f64,
    /// P: target share of the requests.
    pub target: f64,
    /// Requests of the present period.
    pub requests: u64,
    /// Sum of the response times of these requests, in milliseconds.
    pub requests_ms: f64,
    /// Extents still allowed to arrive in this period; if negative, allowed to leave.
    pub tokens: i64,
    /// New extents that P owes the device.
    pub owed: f64,
    /// True if the device sheds cold extents.
    pub is_filling_up: bool,
}

impl Device {
    /// Updates the exponential average: `(1 − weight) previous average + weight current sample`. The first
    /// sample is the first average.
    pub fn average(&mut self, sample_ms: f64, weight: f64) {
        let previous = self.response_ms.unwrap_or(sample_ms);
        self.response_ms = Some((1.0 - weight) * previous + weight * sample_ms);
    }

    /// Returns R. An unknown R is 0: the device then has no share of the requests, so the value has no
    /// effect.
    pub fn known_ms(&self) -> f64 {
        self.response_ms.unwrap_or(0.0)
    }

    pub fn figures(&self) -> Vec<(&'static str, f64)> {
        let response = self.response_ms.map(|response_ms| ("response_ms", response_ms));
        let others = [("share", self.share), ("target_share", self.target), ("tokens", self.tokens as f64)];
        response.into_iter().chain(others).collect()
    }
}

const VERSION: u8 = 2;
const SAVED: usize = 2 * size_of::<f64>();

pub fn save(devices: &[Device]) -> Vec<u8> {
    let numbers = devices.iter().flat_map(|d| [d.target, d.response_ms.unwrap_or(f64::NAN)]);
    [VERSION].into_iter().chain(numbers.flat_map(f64::to_le_bytes)).collect()
}

/// Restores P and R. Any bytes are accepted: a state of another version or number of devices is ignored, and
/// so is an impossible number.
pub fn restore(devices: &mut [Device], state: &[u8]) {
    let Some((&VERSION, numbers)) = state.split_first() else { return };
    if numbers.len() != SAVED * devices.len() {
        return;
    }
    for (device, bytes) in devices.iter_mut().zip(numbers.chunks_exact(SAVED)) {
        let (target, response_ms) = bytes.split_at(SAVED / 2);
        let number = |bytes: &[u8]| bytes.try_into().map_or(f64::NAN, f64::from_le_bytes);
        let (target, response_ms) = (number(target), number(response_ms));
        if (0.0..=1.0).contains(&target) {
            (device.target, device.share) = (target, target);
        }
        if (0.0..f64::MAX).contains(&response_ms) {
            device.response_ms = Some(response_ms);
        }
    }
}

/// Explains the place of an extent.
pub fn explain(devices: &[Device], extent: ExtentId, view: &View) -> String {
    let each = view.devices.iter().map(|d| {
        let Device { response_ms, share, target, tokens, .. } = &devices[d.id.index()];
        let response = response_ms.map_or("unknown".to_owned(), |r| format!("{r:.2} ms"));
        let (share, target) = (share * 100.0, target * 100.0);
        format!(
            "{} response time {response}, share {share:.1} %, target {target:.1} %, {tokens} token(s)",
            d.id
        )
    });
    let numbers = each.collect::<Vec<_>>().join("; ");
    let hot = view.homes.is_in_memory(extent);
    let next = match view.homes.home(extent).map(|home| (home, &devices[home.index()])) {
        None => "the next write allocates it: on a device with tokens, else by the target shares".to_owned(),
        Some((home, device)) if device.tokens < 0 && hot => {
            format!("{home} should lose load, so the extent may migrate while another device has tokens")
        }
        Some((home, device)) if device.is_filling_up && !hot => {
            format!("{home} is filling up, so the extent may migrate")
        }
        Some((home, device)) if device.tokens < 0 => {
            format!("the extent stays: {home} should lose load, but only hot extents move for this reason")
        }
        Some((home, _)) => format!("the extent stays: {home} sheds no load"),
    };
    let memory = if hot { "hot: in the memory cache" } else { "cold: not in the memory cache" };
    format!("{numbers}. The extent is {memory}; {next}")
}
