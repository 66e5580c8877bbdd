//! The state shared by all requests.

use crate::access::Access;
use crate::advice::Advisor;
use crate::alerts::Alerts;
use crate::history::History;
use crate::readers::Readers;
use crate::survey::{Shared, Survey};
use crate::verdict::{Health, judge};
use braid_control::{Result, VolumeName};

/// Volumes, their history, alerts and advice, open pages, and the conditions of access.
pub(crate) struct Dashboard {
    pub survey: Survey,
    pub history: History,
    pub alerts: Alerts,
    pub advisor: Advisor,
    pub readers: Readers,
    pub access: Access,
}

impl Dashboard {
    /// Returns the reports of all volumes, or why there is none, with the verdicts.
    pub async fn reports(&self) -> Result<(Vec<(VolumeName, Shared)>, Health)> {
        let reports = self.survey.all().await?;
        let judged = reports.iter().map(|(name, report)| judge(name.as_str(), report.as_deref()));
        let health = Health::of(judged.collect());
        Ok((reports, health))
    }
}
