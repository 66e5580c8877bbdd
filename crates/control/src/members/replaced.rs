//! A device to be replaced, and the device that takes over.

use crate::device::spec::{DeviceSpec, Storage};
use crate::state::state_dir::{DeviceRecord, VolumeRecord};
use crate::{Error, ErrorKind, Result};
use braid_base::{DeviceClass, DeviceId};

/// Returns the record of the old device and the new device's settings: the same class, with a path.
///
/// # Errors
/// `Usage` for an unknown place, memory or a layout; `Unsupported` for a volume on an adopted disk.
pub(crate) fn old_and_new(
    record: &VolumeRecord,
    device: DeviceId,
    text: &str,
) -> Result<(DeviceRecord, DeviceSpec)> {
    let Some(old) = record.devices.get(device.index()).filter(|old| !old.removed).cloned() else {
        let problem = format!(
            "volume '{}' has no device {device}: it has {}, from d0",
            record.name,
            record.devices.len()
        );
        return Err(Error::new(ErrorKind::Usage, problem));
    };
    if record.adopted().is_some() {
        let name = &record.name;
        if old.adopted {
            let problem = format!(
                "{device} is the disk that volume '{name}' adopted: this disk is the volume, and no other disk \
                 replaces it; if the disk is at another path now: braid device return {name} {device} PATH"
            );
            return Err(Error::new(ErrorKind::Unsupported, problem));
        }
        let problem = format!(
            "{device} belongs to a volume on an adopted disk: a lost SSD is removed there and another SSD added: \
             braid serve {name}, braid device remove {name} {device}, braid device add {name} --ssd PATH"
        );
        return Err(Error::new(ErrorKind::Unsupported, problem));
    }
    let class =
        old.class.parse::<DeviceClass>().map_err(|e| Error::new(ErrorKind::Corrupt, e.to_string()))?;
    let spec = DeviceSpec::parse(class, text)?;
    if spec.storage == Storage::Memory || spec.layout.is_some() {
        let problem = "a new device needs a path, and takes the layout of the replaced device: use PATH[,size=S][,model=M]";
        return Err(Error::new(ErrorKind::Usage, problem));
    }
    Ok((old, spec))
}
