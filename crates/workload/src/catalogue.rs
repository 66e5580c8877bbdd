//! The list of workloads by name.

use crate::{
    Workload, checkpoint, db2, dbench, diurnal, email, ext3_file, financial1, financial2, hot_cold, iometer,
    netapp, postmark, random, refill, sequential, tpcc, tpch, websearch, webserver, zipf,
};
use braid_base::{BadSetting, Settings};

/// Description of a workload, for people.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Name.
    pub name: &'static str,
    /// Summary of the imitated load, in one line.
    pub summary: &'static str,
    /// Settings in groups: the workload's own settings, and groups shared with other workloads.
    pub groups: &'static [&'static [Setting]],
}

/// Description of a setting, for people.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name.
    pub key: &'static str,
    /// Default value. Empty if there is no default value: setting the key selects another mode.
    pub default: &'static str,
    /// Meaning.
    pub meaning: &'static str,
}

impl About {
    /// Returns all settings, group by group.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> {
        self.groups.iter().flat_map(|group| group.iter())
    }
}

/// Creates a workload from `name` or `name,key=value,…` and a seed.
///
/// # Errors
/// Fails for an unknown name or setting, or a value outside the limits. The error states the accepted values.
pub fn parse(text: &str, seed: u64) -> Result<Workload, BadSetting> {
    let mut settings = Settings::parse("workload", text)?;
    let Some((_, make)) = WORKLOADS.iter().find(|(about, _)| about.name == settings.name()) else {
        let names = WORKLOADS.iter().map(|(about, _)| about.name);
        return Err(BadSetting::unknown_name("workload", settings.name(), names));
    };
    let workload = make(&mut settings, seed)?;
    settings.finish()?;
    Ok(workload)
}

/// Returns the descriptions of all workloads.
pub fn names() -> impl Iterator<Item = &'static About> {
    WORKLOADS.iter().map(|(about, _)| about)
}

type Make = fn(&mut Settings, u64) -> Result<Workload, BadSetting>;

const WORKLOADS: &[(About, Make)] = &[
    (random::ABOUT, random::new),
    (sequential::ABOUT, sequential::new),
    (zipf::ABOUT, zipf::new),
    (hot_cold::ABOUT, hot_cold::new),
    (diurnal::ABOUT, diurnal::new),
    (refill::ABOUT, refill::new),
    (iometer::ABOUT, iometer::new),
    (dbench::ABOUT, dbench::new),
    (netapp::ABOUT, netapp::new),
    (postmark::ABOUT, postmark::new),
    (email::ABOUT, email::new),
    (tpcc::ABOUT, tpcc::new),
    (tpch::ABOUT, tpch::new),
    (ext3_file::ABOUT, ext3_file::new),
    (financial1::ABOUT, financial1::new),
    (financial2::ABOUT, financial2::new),
    (websearch::ABOUT, websearch::new),
    (db2::ABOUT, db2::new),
    (webserver::ABOUT, webserver::new),
    (checkpoint::ABOUT, checkpoint::new),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_settings_are_the_accepted_settings() {
        for (about, make) in WORKLOADS {
            let mut settings = Settings::parse("workload", about.name).expect(about.name);
            make(&mut settings, 1).expect(about.name);
            let mut taken = settings.finish().expect("nothing was set");
            let mut told: Vec<&str> = about.settings().map(|setting| setting.key).collect();
            taken.sort_unstable();
            taken.dedup();
            told.sort_unstable();
            assert_eq!(taken, told, "{}", about.name);
        }
    }

    #[test]
    fn imitating_workloads_have_names_ending_in_like() {
        let own = ["random", "sequential", "zipf", "hot-cold", "diurnal", "refill", "checkpoint"];
        let stray: Vec<&str> =
            names().map(|about| about.name).filter(|n| !own.contains(n) && !n.ends_with("-like")).collect();
        assert!(stray.is_empty(), "{stray:?}");
    }

    #[test]
    fn unknown_workload_is_rejected_with_known_names() {
        let error = parse("zipff", 1).expect_err("no such workload").to_string();
        assert!(error.contains("'zipff'") && error.contains("random, sequential, zipf"), "{error}");
    }
}
