//! The fields of a device with two rates.

use super::fields::Fields;
use crate::rates::Params;
use braid_base::DeviceClass;

pub(super) fn fields(params: &mut Params, f: &mut impl Fields) {
    let word = match params.class {
        DeviceClass::Ssd => "ssd",
        DeviceClass::Hdd => "hdd",
    };
    params.class = match f.word("class", word, &["ssd", "hdd"], "Class of the device") {
        "hdd" => DeviceClass::Hdd,
        _ => DeviceClass::Ssd,
    };
    params.read = f.rate("read_rate", params.read, "Bytes read, at any address");
    params.write = f.rate("write_rate", params.write, "Bytes written, at any address");
}
