//! Nodes joined by a network: arrival times of transfers between machines.
//!
//! Rules:
//! - Each node has one link, shared by all of its devices. The link carries both directions at once: sent and
//!   received bytes do not disturb each other.
//! - A direction of a link carries one transfer after another, in the order of their starts, each for its
//!   bytes at the link's rate. A transfer begins on the links of both its ends, as soon as each link is free.
//!   The transfer arrives when the later link is done and the latency has passed.
//! - The host of the volume has a link of its own if a rate is given. Without a rate, guests run on as many
//!   machines as necessary, like the clients of a parallel file system.
//! - Transfers within a machine take no time.
//!
//! Left out: packets, their headers and losses; the switch, which never limits the links; processors and
//! memory of nodes.

use crate::link::Link;
use crate::rate::Rate;
use braid_base::{Bytes, Nanos, NodeId};

/// The properties of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// The rate of each node's link, in each direction.
    pub rate: Rate,
    /// The latency from any machine to any other, in addition to the bytes' time.
    pub latency: Nanos,
    /// The rate of the host's link, in each direction; `None` for a link that is never the limit.
    pub host: Option<Rate>,
}

/// A network at work.
#[derive(Clone, Debug)]
pub struct Network {
    latency: Nanos,
    nodes: Vec<Duplex>,
    host: Option<Duplex>,
}

/// The bytes carried by a machine's link.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Carried {
    /// Bytes that the machine sent.
    pub sent: Bytes,
    /// Bytes that the machine received.
    pub received: Bytes,
}

/// The two directions of a link.
#[derive(Clone, Debug)]
struct Duplex {
    sends: Link,
    receives: Link,
    carried: Carried,
}

impl Network {
    /// A network of `nodes` nodes, and the host.
    pub fn new(params: &Params, nodes: usize) -> Network {
        let host = params.host.map(Duplex::new);
        Network { latency: params.latency, nodes: vec![Duplex::new(params.rate); nodes], host }
    }

    /// Sends bytes from one machine to another, from `now` on or when the links are free. Returns the time of
    /// arrival. `None` is the host. The length may be zero, as for a request to read.
    ///
    /// # Panics
    /// If a node does not exist.
    pub fn send(&mut self, from: Option<NodeId>, to: Option<NodeId>, len: Bytes, now: Nanos) -> Nanos {
        if from == to {
            return now;
        }
        let mut arrived = now;
        if let Some(link) = self.link(from) {
            link.carried.sent += len;
            arrived = arrived.max(link.sends.carry(len, now));
        }
        if let Some(link) = self.link(to) {
            link.carried.received += len;
            arrived = arrived.max(link.receives.carry(len, now));
        }
        arrived + self.latency
    }

    /// The bytes carried by a machine's link; `None` for a host without a link.
    pub fn carried(&self, machine: Option<NodeId>) -> Option<Carried> {
        let link = match machine {
            Some(node) => self.nodes.get(node.index()),
            None => self.host.as_ref(),
        };
        link.map(|link| link.carried)
    }

    fn link(&mut self, machine: Option<NodeId>) -> Option<&mut Duplex> {
        match machine {
            Some(node) => Some(&mut self.nodes[node.index()]),
            None => self.host.as_mut(),
        }
    }
}

impl Duplex {
    fn new(rate: Rate) -> Duplex {
        let link = Link::new(rate, Nanos::ZERO);
        Duplex { sends: link.clone(), receives: link, carried: Carried::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<NodeId> = Some(NodeId(0));
    const B: Option<NodeId> = Some(NodeId(1));
    const HOST: Option<NodeId> = None;
    /// 1 ms on a link of 1 Gbit/s.
    const MILLI: Bytes = Bytes(125_000);

    fn network(host: Option<Rate>) -> Network {
        let params = Params { rate: Rate::from_mb(125), latency: Nanos::from_micros(50), host };
        Network::new(&params, 2)
    }

    fn micros(time: u64) -> Nanos {
        Nanos::from_micros(time)
    }

    #[test]
    fn message_takes_latency_plus_transfer_time() {
        let mut network = network(None);
        assert_eq!(network.send(A, HOST, MILLI, micros(300)), micros(1_350));
        assert_eq!(network.send(HOST, B, Bytes::ZERO, micros(300)), micros(350));
    }

    #[test]
    fn link_carries_transfers_in_turn_per_direction() {
        let mut network = network(None);
        let sent = [A, A].map(|node| network.send(node, HOST, MILLI, Nanos::ZERO));
        assert_eq!(sent, [micros(1_050), micros(2_050)]);
        // The other direction, and the other node's link, have no queue.
        assert_eq!(network.send(HOST, A, MILLI, Nanos::ZERO), micros(1_050));
        assert_eq!(network.send(B, HOST, MILLI, Nanos::ZERO), micros(1_050));
        let both = Some(Carried { sent: MILLI * 2, received: MILLI });
        assert_eq!(network.carried(A), both);
    }

    #[test]
    fn transfer_between_nodes_ends_with_the_later_link() {
        let mut network = network(None);
        network.send(HOST, B, MILLI * 3, Nanos::ZERO);
        assert_eq!(network.send(A, B, MILLI, Nanos::ZERO), micros(4_050));
        // The sender's link was done long before.
        assert_eq!(network.send(A, HOST, MILLI, micros(1_000)), micros(2_050));
    }

    #[test]
    fn host_link_is_shared_by_all_nodes() {
        let mut network = network(Some(Rate::from_mb(125)));
        let received = [A, B].map(|node| network.send(node, HOST, MILLI, Nanos::ZERO));
        assert_eq!(received, [micros(1_050), micros(2_050)]);
        assert_eq!(network.carried(HOST), Some(Carried { sent: Bytes::ZERO, received: MILLI * 2 }));
    }

    #[test]
    fn local_message_takes_no_time_and_uses_no_link() {
        let mut network = network(Some(Rate::from_mb(125)));
        for machine in [A, HOST] {
            assert_eq!(network.send(machine, machine, MILLI, micros(7)), micros(7));
            assert_eq!(network.carried(machine), Some(Carried::default()));
        }
    }
}
