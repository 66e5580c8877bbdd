//! Use of the SSDs: homes, cached copies of blocks, or both.

use super::Equi;
use crate::{BadSetting, Policy, Settings};

/// Mode of the policy. For most loads one of the three is near the best. A simulation of the load finds the
/// mode; no rule was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Mode {
    /// The SSDs hold homes only.
    #[default]
    Tier,
    /// A fifth of the SSDs holds cached copies of blocks, as under `exclusive`; the rest holds homes.
    Mixed,
    /// The SSDs hold cached copies only: a write-back cache.
    Cache,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::Tier, Mode::Mixed, Mode::Cache];

    fn name(self) -> &'static str {
        match self {
            Mode::Tier => "tier",
            Mode::Mixed => "mixed",
            Mode::Cache => "cache",
        }
    }

    /// Returns the share of the SSDs for cached copies.
    pub fn copies(self) -> f64 {
        match self {
            Mode::Tier => 0.0,
            Mode::Mixed => 0.2,
            Mode::Cache => 1.0,
        }
    }

    /// Reads the setting `mode` (tier), or `auto`, which begins as `tier`. The flag is true for `auto`.
    pub fn take(settings: &mut Settings) -> Result<(Mode, bool), BadSetting> {
        let Some(text) = settings.take_text("mode") else { return Ok((Mode::default(), false)) };
        if text == "auto" {
            return Ok((Mode::default(), true));
        }
        let named = Mode::ALL.into_iter().find(|mode| mode.name() == text);
        named
            .map(|mode| (mode, false))
            .ok_or_else(|| settings.bad("mode", &text, "tier, mixed, cache or auto"))
    }
}

impl Equi {
    /// Returns the settings for a mode and wishes, for a simulation in which time passes `haste` times as
    /// fast.
    pub(super) fn written(&self, mode: &str, haste: u32, wishes: &str) -> String {
        let usual = mode == Mode::default().name();
        let text = self.constants.hastened(haste).written()
            + wishes
            + &if usual { String::new() } else { format!(",mode={mode}") };
        text.trim_start_matches(',').to_owned()
    }

    /// Returns the requested mode.
    pub(super) fn asked_mode(&self) -> &'static str {
        if self.is_auto { "auto" } else { self.mode.name() }
    }

    pub(super) fn in_each_mode(&self, haste: u32) -> Vec<String> {
        let modes = if self.has_choice { &Mode::ALL[..] } else { &[] };
        let wishes = self.wishes.hastened(haste);
        let written = |mode: &Mode| self.written(mode.name(), haste, &wishes);
        modes.iter().map(|mode| crate::as_written(self.name(), &written(mode))).collect()
    }

    pub(super) fn go_on_in(&mut self, place: usize) {
        if let Some(&mode) = Mode::ALL.get(place) {
            self.mode = mode;
            self.copies.resize(mode.copies());
        }
    }

    pub(super) fn mode_place(&self) -> usize {
        Mode::ALL.iter().position(|&mode| mode == self.mode).unwrap_or(0)
    }

    pub(super) fn mode_name(&self) -> &'static str {
        self.mode.name()
    }
}
