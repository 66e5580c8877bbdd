//! Latency over the size of the SSD: the sizes to try, and the size above which more does not pay.

use crate::{DeviceSetup, Size};
use braid_base::{Bytes, DeviceClass, MIB};

/// Interesting sizes, as a share of the data: below, next to nothing is on the SSD; above, all data is.
const OF_INTEREST: std::ops::RangeInclusive<f64> = 0.04..=1.3;
/// Most doublings and halvings of the present size.
const MOST_DOUBLINGS: i32 = 20;

/// Factor of the lowest latency of the curve up to which a size is large enough.
const NEAR: f64 = 1.1;

/// Factors of the present size to try, rising: the interesting sizes, the next larger size, and the present
/// size.
pub(crate) fn factors(devices: &[DeviceSetup], data: Bytes) -> Vec<f64> {
    let ssds = devices.iter().filter(|device| device.class == DeviceClass::Ssd);
    let share = |device: &DeviceSetup| match device.size {
        Size::Bytes(bytes) => bytes.0 as f64 / data.0.max(1) as f64,
        Size::Share(share) => share,
    };
    let present: f64 = ssds.map(|device| share(device) * device.count as f64).sum();
    let all = (-MOST_DOUBLINGS..=MOST_DOUBLINGS).map(|power| 2f64.powi(power));
    let is_tried = |factor: &f64| {
        *factor == 1.0
            || (OF_INTEREST.start() <= &(factor * present) && factor * present / 2.0 < *OF_INTEREST.end())
    };
    if present > 0.0 { all.filter(is_tried).collect() } else { Vec::new() }
}

/// The devices, with the size of SSDs multiplied by `factor`, and with another model if given.
pub(crate) fn scaled(devices: &[DeviceSetup], factor: f64, model: Option<&str>) -> Vec<DeviceSetup> {
    let scale = |device: &DeviceSetup| {
        if device.class != DeviceClass::Ssd {
            return device.clone();
        }
        let size = match device.size {
            Size::Bytes(bytes) if factor == 1.0 => Size::Bytes(bytes),
            Size::Bytes(bytes) => Size::Bytes(Bytes((bytes.0 as f64 * factor) as u64).align_up(MIB)),
            Size::Share(share) => Size::Share(share * factor),
        };
        let model = model.map_or_else(|| device.model.clone(), str::to_owned);
        DeviceSetup { size, model, ..device.clone() }
    };
    devices.iter().map(scale).collect()
}

/// Index of the smallest size from which on larger sizes gain less than a tenth, given latencies by rising
/// size. `None` if the largest size still gains.
pub(crate) fn knee(latencies: &[f64]) -> Option<usize> {
    let lowest = latencies.iter().copied().fold(f64::INFINITY, f64::min);
    let place = latencies.iter().position(|&latency| latency <= lowest * NEAR)?;
    (latencies.len() > 1 && place + 1 < latencies.len()).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knee_is_size_before_gains_drop_below_a_tenth() {
        assert_eq!(knee(&[9.0, 5.0, 2.1, 2.0, 2.0]), Some(2));
        assert_eq!(knee(&[2.0, 2.0, 2.0]), Some(0), "any size will do");
        assert_eq!(knee(&[9.0, 5.0, 2.1, 1.0]), None, "the largest still gains");
        assert_eq!((knee(&[]), knee(&[1.0])), (None, None));
        assert_eq!(knee(&[4.0, 1.0, 3.0]), Some(1), "more may be worse");
    }

    #[test]
    fn curve_sizes_range_from_fraction_to_excess_of_data() {
        let ssd = |text| [DeviceSetup::parse(DeviceClass::Ssd, text).unwrap()];
        let of = |text, data| factors(&ssd(text), Bytes(data));
        assert_eq!(of("20%,model=x25-m", 1000), [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]);
        // Two of 8 GiB for 1 GiB of data.
        let large = of("8GiB,model=x25-m,count=2", 1 << 30);
        assert_eq!(large, [1.0 / 256.0, 1.0 / 128.0, 1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0, 0.125, 1.0]);
        let none = [DeviceSetup::parse(DeviceClass::Hdd, "1GiB,model=mba3073").unwrap()];
        assert_eq!(factors(&none, Bytes(1000)), [0.0; 0]);
    }

    #[test]
    fn scaling_changes_only_ssd_sizes_and_models() {
        let parse = |class, text| DeviceSetup::parse(class, text).unwrap();
        let devices = [
            parse(DeviceClass::Ssd, "10MiB,model=x25-m"),
            parse(DeviceClass::Ssd, "20%,model=x25-m"),
            parse(DeviceClass::Hdd, "1GiB,model=mba3073"),
        ];
        let half = scaled(&devices, 0.25, Some("sata-ssd"));
        assert_eq!((half[0].size, half[1].size), (Size::Bytes(MIB * 3), Size::Share(0.05)));
        assert_eq!((half[0].model.as_str(), &half[2]), ("sata-ssd", &devices[2]));
    }
}
