//! Amounts of bytes in settings of `pass`: as a size, in sectors as in the paper, or as a share of the
//! volume.

use crate::{BadSetting, Settings};
use braid_base::Bytes;
use std::fmt;

/// Part of a volume, in the units of the paper and its users.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum VolumePart {
    Bytes(Bytes),
    /// Sectors of 512 bytes.
    Sectors(u64),
    /// Share of the volume.
    Share(f64),
}

const SECTOR: Bytes = Bytes(512);

impl VolumePart {
    /// Reads a setting, if present. Fails if the text is no amount, or the amount is zero or too large.
    pub fn take(settings: &mut Settings, key: &'static str) -> Result<Option<VolumePart>, BadSetting> {
        let Some(text) = settings.take_text(key) else { return Ok(None) };
        let amount = VolumePart::parse(&text).filter(|amount| amount.is_sound());
        amount.map(Some).ok_or_else(|| {
            BadSetting::new(format!(
                "setting {key} of policy pass: invalid amount '{text}': use sectors such as 400Ksectors, a size such as 256MiB, or a share of \
                 the volume such as 2%"
            ))
        })
    }

    /// Parses `256MiB`, `400Ksectors` (K is 1024) or `2%`.
    fn parse(text: &str) -> Option<VolumePart> {
        if let Some(count) = text.strip_suffix("sectors") {
            let (count, unit) = count.strip_suffix('K').map_or((count, 1), |count| (count, 1024));
            return count.parse::<u64>().ok()?.checked_mul(unit).map(VolumePart::Sectors);
        }
        match text.strip_suffix('%') {
            Some(percent) => format!("{percent}e-2").parse().ok().map(VolumePart::Share),
            None => text.parse().ok().map(VolumePart::Bytes),
        }
    }

    pub fn of(self, volume: Bytes) -> Bytes {
        match self {
            VolumePart::Bytes(bytes) => bytes,
            VolumePart::Sectors(sectors) => SECTOR * sectors,
            VolumePart::Share(share) => Bytes((volume.0 as f64 * share) as u64),
        }
    }

    fn is_sound(self) -> bool {
        match self {
            VolumePart::Bytes(bytes) => bytes > Bytes::ZERO,
            VolumePart::Sectors(sectors) => (1..=u64::MAX / SECTOR.0).contains(&sectors),
            VolumePart::Share(share) => share > 0.0 && share <= 1.0,
        }
    }

    pub fn twice(self) -> VolumePart {
        match self {
            VolumePart::Bytes(bytes) => VolumePart::Bytes(Bytes(bytes.0.saturating_mul(2))),
            VolumePart::Sectors(sectors) => VolumePart::Bytes(Bytes((SECTOR * sectors).0.saturating_mul(2))),
            VolumePart::Share(share) => VolumePart::Share((share * 2.0).min(1.0)),
        }
    }
}

impl fmt::Display for VolumePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VolumePart::Bytes(bytes) => write!(f, "{}B", bytes.0),
            VolumePart::Sectors(sectors) if sectors.is_multiple_of(1024) => {
                write!(f, "{}Ksectors", sectors / 1024)
            }
            VolumePart::Sectors(sectors) => write!(f, "{sectors}sectors"),
            VolumePart::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}
