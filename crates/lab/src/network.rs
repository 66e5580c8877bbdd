//! `RATE[,latency=TIME][,host=RATE]`: the network of devices on nodes, from its text to its traffic.

use crate::outcome::{LinkOutcome, NetworkOutcome};
use crate::{Error, Result, Setup};
use braid_base::{Bytes, Nanos, NodeId};
use braid_emulated::Shared;
use braid_model::Rate;
use braid_model::network::{Carried, Network, Params};
use braid_sim::World;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::str::FromStr;

/// The nodes of a simulation, and their network.
pub(crate) struct Nodes {
    pub network: Rc<Shared<World>>,
    params: Params,
    /// Nodes that have devices.
    nodes: BTreeSet<NodeId>,
}

/// Traffic of a network up to one moment.
pub(crate) struct Snapshot {
    moved: Bytes,
    links: Vec<(Option<NodeId>, Carried)>,
}

impl Nodes {
    /// Nodes of a setup with devices on these nodes; `None` if all devices are the host's.
    ///
    /// # Errors
    /// If there are nodes without a network, or a network without nodes.
    pub fn of(setup: &Setup, world: &World, devices: &[Option<NodeId>]) -> Result<Option<Nodes>> {
        let nodes: BTreeSet<NodeId> = devices.iter().flatten().copied().collect();
        let (params, last) = match (setup.network, nodes.last()) {
            (Some(params), Some(last)) => (params, last),
            (None, None) => return Ok(None),
            (None, Some(node)) => {
                return Err(Error::setup(format!(
                    "devices are on node {} without a network: use {SHAPE}, or no node=",
                    node.0
                )));
            }
            (Some(_), None) => {
                return Err(Error::setup(
                    "a network without nodes: give devices node=K or node=K-L, or no --network",
                ));
            }
        };
        let network = Network::new(&params, last.index() + 1);
        Ok(Some(Nodes { network: Rc::new(Shared::new(world.clone(), network)), params, nodes }))
    }

    /// Traffic up to now.
    pub fn snapshot(&self) -> Snapshot {
        let machines = self.nodes.iter().map(|&node| Some(node)).chain([None]);
        let carried = |machine| self.network.carried(machine).map(|carried| (machine, carried));
        Snapshot { moved: self.network.moved(), links: machines.filter_map(carried).collect() }
    }

    /// Traffic since `before`, a period of `seconds`.
    pub fn outcome(&self, before: &Snapshot, seconds: f64) -> NetworkOutcome {
        let after = self.snapshot();
        let link = |((machine, before), (_, after)): (&(Option<NodeId>, Carried), &(_, Carried))| {
            let rate = machine.map_or(self.params.host, |_| Some(self.params.rate));
            let most = rate.map_or(f64::INFINITY, |rate| rate.0 as f64 * seconds);
            let (sent, received) = (after.sent - before.sent, after.received - before.received);
            LinkOutcome {
                node: machine.map(|node| node.to_string()),
                sent_bytes: sent.0,
                received_bytes: received.0,
                // A transfer is counted at its beginning.
                send_utilisation: (sent.0 as f64 / most).min(1.0),
                receive_utilisation: (received.0 as f64 / most).min(1.0),
            }
        };
        NetworkOutcome {
            moved_bytes: (after.moved - before.moved).0,
            links: before.links.iter().zip(&after.links).map(link).collect(),
        }
    }
}

/// Reads `RATE[,latency=TIME][,host=RATE]`, as in `10Gbit,latency=50us`.
///
/// # Errors
/// Names the wrong part and the remedy.
pub fn parse_network(text: &str) -> Result<Params> {
    let wrong = |why: String| Error::setup(format!("--network {text}: {why}; use {SHAPE}"));
    let mut parts = text.split(',').map(str::trim);
    let rate = rate(parts.next().unwrap_or_default()).map_err(wrong)?;
    let (mut latency, mut host) = (None, None);
    for part in parts {
        let twice = match part.split_once('=').unwrap_or_default() {
            ("latency", time) => latency.replace(latency_of(time).map_err(wrong)?).is_some(),
            ("host", text) => host.replace(self::rate(text).map_err(wrong)?).is_some(),
            _ => return Err(wrong(format!("'{part}' is not known"))),
        };
        if twice {
            return Err(wrong(format!("'{part}' is given twice")));
        }
    }
    Ok(Params { rate, latency: latency.unwrap_or(Nanos::ZERO), host })
}

/// Reads a number of bits per second.
fn rate(text: &str) -> std::result::Result<Rate, String> {
    let parsed = UNITS.iter().find_map(|(unit, factor)| {
        let split = text.len().checked_sub(unit.len()).filter(|&at| text.is_char_boundary(at))?;
        let (number, found) = text.split_at(split);
        let bits = number.trim_end().parse::<f64>().ok()? * factor;
        found.eq_ignore_ascii_case(unit).then_some(bits / 8.0)
    });
    let bytes = parsed.filter(|bytes| (SLOWEST..=FASTEST).contains(bytes));
    let rate = bytes.map(|bytes| Rate(bytes as u64));
    rate.ok_or_else(|| format!("'{text}' is not a rate: use 1Mbit to 10000Gbit"))
}

fn latency_of(text: &str) -> std::result::Result<Nanos, String> {
    let latency = Nanos::from_str(text).map_err(|error| error.to_string())?;
    let fits = latency <= LONGEST;
    fits.then_some(latency).ok_or_else(|| format!("a latency of {latency}: use at most {LONGEST}"))
}

/// Decimal, as usual for networks.
const UNITS: [(&str, f64); 2] = [("Mbit", 1e6), ("Gbit", 1e9)];
/// Slowest rate in bytes per second: below, a request would take longer than any deadline.
const SLOWEST: f64 = 125_000.0;
/// Fastest rate in bytes per second: faster than any memory.
const FASTEST: f64 = 1.25e12;
/// Longest latency: a round trip of the world takes less.
const LONGEST: Nanos = Nanos::from_secs(1);
const SHAPE: &str = "--network RATE[,latency=TIME][,host=RATE], as in --network 10Gbit,latency=50us";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_a_rate_and_perhaps_a_latency_and_a_rate_of_the_host() {
        let ten = Rate(1_250_000_000);
        let plain = Params { rate: ten, latency: Nanos::ZERO, host: None };
        assert_eq!(parse_network("10Gbit").unwrap(), plain);
        let latency = Nanos::from_micros(50);
        let full = Params { latency, host: Some(Rate(312_500_000)), ..plain };
        assert_eq!(parse_network("10gbit, host=2500Mbit, latency=50us").unwrap(), full);
    }

    #[test]
    fn invalid_network_is_rejected_with_the_expected_form() {
        for (text, expected) in [
            ("", "''"),
            ("10", "'10'"),
            ("10GB", "'10GB'"),
            ("0Gbit", "'0Gbit'"),
            ("-1Gbit", "'-1Gbit'"),
            ("nanGbit", "'nanGbit'"),
            ("1e99Gbit", "10000Gbit"),
            ("10Gbit,latency=soon", "'soon'"),
            ("10Gbit,latency=2s", "at most 1"),
            ("10Gbit,latency=1us,latency=1us", "twice"),
            ("10Gbit,host=ü", "'ü'"),
            ("10Gbit,jitter=1us", "'jitter=1us'"),
        ] {
            let error = parse_network(text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("--network RATE"), "{text}: {error}");
        }
    }
}
