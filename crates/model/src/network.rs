//! Nodes joined by a network: when what one machine sends to another has arrived.
//!
//! Rules:
//! - Each node has one link, which all of its devices share, and which carries both ways at once: what a node
//!   sends and what it receives do not disturb each other.
//! - A direction of a link carries one transfer after another, in the order in which they begin, each for its
//!   bytes at the link's rate. A transfer begins on the links of both its ends, as soon as each is free, and
//!   has arrived when the later one is done and the latency has passed.
//! - The host of the volume has a link of its own if it is given a rate. Without one, guests are on as many
//!   machines as it takes, as the clients of a parallel file system.
//! - What stays on a machine takes no time.
//!
//! Left out: packets, their headers and losses; the switch, which carries whatever the links do; processors
//! and memory of nodes.

use crate::link::Link;
use crate::rate::Rate;
use braid_base::{Bytes, Nanos, NodeId};

/// What a network is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Of each node's link, each way.
    pub rate: Rate,
    /// From any machine to any other, on top of the bytes' time.
    pub latency: Nanos,
    /// Of the host's link, each way; none for one that is never the limit.
    pub host: Option<Rate>,
}

/// A network at work.
#[derive(Clone, Debug)]
pub struct Network {
    latency: Nanos,
    nodes: Vec<Duplex>,
    host: Option<Duplex>,
}

/// What a machine's link has carried.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Carried {
    /// Bytes that the machine sent.
    pub sent: Bytes,
    /// Bytes that it received.
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
    /// A network of so many nodes, and the host.
    pub fn new(params: &Params, nodes: usize) -> Network {
        let host = params.host.map(Duplex::new);
        Network { latency: params.latency, nodes: vec![Duplex::new(params.rate); nodes], host }
    }

    /// Has one machine send bytes to another, from `now` on or when their links are free; returns when they
    /// have arrived. `None` is the host. The bytes may be none, as those of a request to read.
    ///
    /// # Panics
    /// If there is no such node.
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

    /// What a machine's link has carried; none of a host without a link.
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
    fn bytes_take_their_time_and_the_latency_and_a_message_without_bytes_the_latency() {
        let mut network = network(None);
        assert_eq!(network.send(A, HOST, MILLI, micros(300)), micros(1_350));
        assert_eq!(network.send(HOST, B, Bytes::ZERO, micros(300)), micros(350));
    }

    #[test]
    fn a_link_carries_one_transfer_after_another_each_way() {
        let mut network = network(None);
        let sent = [A, A].map(|node| network.send(node, HOST, MILLI, Nanos::ZERO));
        assert_eq!(sent, [micros(1_050), micros(2_050)]);
        // The other way, and on the other node's link, nothing waits.
        assert_eq!(network.send(HOST, A, MILLI, Nanos::ZERO), micros(1_050));
        assert_eq!(network.send(B, HOST, MILLI, Nanos::ZERO), micros(1_050));
        let both = Some(Carried { sent: MILLI * 2, received: MILLI });
        assert_eq!(network.carried(A), both);
    }

    #[test]
    fn between_two_nodes_bytes_pass_both_links_at_once_and_arrive_with_the_later_one() {
        let mut network = network(None);
        network.send(HOST, B, MILLI * 3, Nanos::ZERO);
        assert_eq!(network.send(A, B, MILLI, Nanos::ZERO), micros(4_050));
        // The sender's link was done long before.
        assert_eq!(network.send(A, HOST, MILLI, micros(1_000)), micros(2_050));
    }

    #[test]
    fn a_link_of_the_host_is_shared_by_all_nodes() {
        let mut network = network(Some(Rate::from_mb(125)));
        let received = [A, B].map(|node| network.send(node, HOST, MILLI, Nanos::ZERO));
        assert_eq!(received, [micros(1_050), micros(2_050)]);
        assert_eq!(network.carried(HOST), Some(Carried { sent: Bytes::ZERO, received: MILLI * 2 }));
    }

    #[test]
    fn what_stays_on_a_machine_takes_no_time_and_no_link() {
        let mut network = network(Some(Rate::from_mb(125)));
        for machine in [A, HOST] {
            assert_eq!(network.send(machine, machine, MILLI, micros(7)), micros(7));
            assert_eq!(network.carried(machine), Some(Carried::default()));
        }
    }
}
