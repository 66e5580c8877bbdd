//! The fields of a memory.

use super::fields::Fields;
use crate::dram::Params;
use braid_base::Nanos;

pub(super) fn fields(params: &mut Params, f: &mut impl Fields) {
    let second = Nanos::from_secs(1);
    params.rate = f.rate("rate", params.rate, "Bytes read and written");
    params.command = f.time(
        "command",
        params.command,
        Nanos(1)..=second,
        "Busy time of the memory for each request: bounds the request rate",
    );
    params.latency =
        f.time("latency", params.latency, Nanos::ZERO..=second, "Additional time of each request");
}
