//! Devices on nodes: what a request takes by hand, what crosses the network and what does not, and
//! simulations of many nodes.

use braid_base::{Bytes, DeviceClass, GIB, KIB, Nanos, NodeId, SECTOR};
use braid_emulated::{Emulated, Networked, Shared};
use braid_lab::{DeviceSetup, Error, ErrorKind, Load, Outcome, Setup, WarmUp, parse_network, simulate};
use braid_model::network::{Carried, Network};
use braid_runtime::{Arena, Buf, Device, Geometry, Runtime, join_all};
use braid_sim::{Hollow, Payload, World};
use std::rc::Rc;

const A: Option<NodeId> = Some(NodeId(0));
const B: Option<NodeId> = Some(NodeId(1));
/// 1 ms on a link of 1 Gbit/s is 125 KB; what is read are 125 sectors, which take 512 µs.
const LEN: Bytes = Bytes(64_000);
const ON_LINK: Nanos = Nanos::from_micros(512);
const LATENCY: Nanos = Nanos::from_micros(50);
/// At the 10 GB/s and 2 GB/s of the model.
const READ: Nanos = Nanos(6_400);
const WRITE: Nanos = Nanos(32_000);

type Drive = Networked<World, Rc<Emulated<World, Hollow>>>;

/// Two devices of node 0 and one of node 1, joined by links of 1 Gbit/s.
struct Bench {
    world: World,
    network: Rc<Shared<World>>,
    drives: [Drive; 3],
    buf: Buf,
}

impl Bench {
    async fn new(world: World) -> Bench {
        let params = parse_network("1Gbit,latency=50us").expect("a network");
        let network = Rc::new(Shared::new(world.clone(), Network::new(&params, 2)));
        let drive = |node| {
            let geometry = Geometry {
                size: GIB,
                class: DeviceClass::Ssd,
                alignment: SECTOR,
                memory_alignment: Bytes(1),
            };
            let hollow = Hollow::new(geometry, Payload::Nothing);
            hollow.set_data(Bytes::ZERO..GIB, None);
            let model = braid_model::by_name("ws-ros-ssd").expect("a model").build(GIB, 1);
            Networked::on(Rc::new(Emulated::new(world.clone(), hollow, model)), network.clone(), node)
        };
        let drives = [drive(A), drive(A), drive(B)];
        let buf = Arena::new(KIB * 64).alloc(LEN).await;
        Bench { world, network, drives, buf }
    }

    async fn time(&self, work: impl Future<Output = std::io::Result<()>>) -> Nanos {
        let begun = self.world.now();
        work.await.expect("nothing fails");
        self.world.now() - begun
    }

    fn carried(&self) -> [Carried; 2] {
        [A, B].map(|node| self.network.carried(node).expect("a node has a link"))
    }
}

/// Runs something in a world of its own.
fn bench<T: 'static>(work: impl AsyncFnOnce(Bench) -> T + 'static) -> T {
    let world = World::in_order(1);
    let result = world.block_on({
        let world = world.clone();
        async move { work(Bench::new(world).await).await }
    });
    world.halt();
    result
}

#[test]
fn request_time_is_network_plus_device_time() {
    let [read, write, flush] = bench(async |bench| {
        let drive = &bench.drives[0];
        [
            bench.time(drive.read(Bytes::ZERO, &bench.buf)).await,
            bench.time(drive.write(Bytes::ZERO, &bench.buf)).await,
            bench.time(drive.flush()).await,
        ]
    });
    assert_eq!(read, LATENCY + READ + ON_LINK + LATENCY);
    assert_eq!(write, ON_LINK + LATENCY + WRITE + LATENCY);
    assert_eq!(flush, LATENCY + LATENCY);
}

#[test]
fn only_devices_of_the_same_node_share_a_link() {
    let [same, others] = bench(async |bench| {
        let Bench { drives, buf, .. } = &bench;
        let both = async |one: &Drive, other: &Drive| {
            let reads = [one, other].map(|drive| drive.read(Bytes::ZERO, buf));
            join_all(reads.into_iter()).await.into_iter().collect()
        };
        [bench.time(both(&drives[0], &drives[1])).await, bench.time(both(&drives[0], &drives[2])).await]
    });
    let one = LATENCY + READ + ON_LINK + LATENCY;
    assert_eq!((same, others), (one + ON_LINK, one));
}

#[test]
fn only_moves_between_nodes_use_the_links() {
    let (inside, carried_inside, between, carried, moved) = bench(async |bench| {
        let Bench { drives, buf, network, .. } = &bench;
        let copy = async |from: &Drive, to: &Drive| {
            from.read_to_move(Bytes::ZERO, buf).await?;
            to.write_moved(Bytes::ZERO, buf, from.node()).await
        };
        let inside = bench.time(copy(&drives[0], &drives[1])).await;
        let carried_inside = bench.carried();
        let between = bench.time(copy(&drives[1], &drives[2])).await;
        (inside, carried_inside, between, bench.carried(), network.moved())
    });
    let (asked, answered) = (LATENCY + LATENCY, LATENCY + LATENCY);
    assert_eq!(inside, asked + READ + WRITE + answered);
    assert_eq!(carried_inside, [Carried::default(); 2]);
    assert_eq!(between, asked + READ + ON_LINK + LATENCY + WRITE + answered);
    let (sent, received) = ((LEN, Bytes::ZERO), (Bytes::ZERO, LEN));
    assert_eq!(carried, [sent, received].map(|(sent, received)| Carried { sent, received }));
    assert_eq!(moved, LEN);
}

/// A web server on SSDs and disks, as many of each as nodes, for a few seconds with pauses.
fn web(nodes: Option<(&str, &str)>, policy: &str) -> Setup {
    let (node, network) = nodes.unwrap_or_default();
    let device = |class, text: &str| DeviceSetup::parse(class, &format!("{text}{node}")).expect("a device");
    let devices = vec![
        device(DeviceClass::Ssd, "8GB,model=ws-ros-ssd,count=4"),
        device(DeviceClass::Hdd, "32GB,model=ws-ros-hdd,count=4"),
    ];
    let load = "webserver-like,clients=4,requests=endless,burst=20000,pause=1s,span=2GiB".to_owned();
    Setup {
        network: nodes.map(|_| parse_network(network).expect("a network")),
        cache_extents: 0,
        prefill_policy: Some("own".to_owned()),
        verify: true,
        duration: Some(Nanos::from_secs(8)),
        ..Setup::new(devices, policy, Load::Workload(load))
    }
}

fn run(setup: &Setup) -> Outcome {
    simulate(setup).expect("the load fits").outcome
}

const ONE_OF_EACH: &str = ",node=0-3";
const EVENLY: &str = "working-set,stripe=even,count=extent";

#[test]
fn reorganization_stays_within_nodes_with_ssd_and_disk() {
    let setup = web(Some((ONE_OF_EACH, "10Gbit,latency=20us")), EVENLY);
    let outcome = run(&setup);
    let network = outcome.network.as_ref().expect("there are nodes");
    assert!(outcome.background.migrated_bytes > 20_000_000, "{:?}", outcome.background);
    assert_eq!(network.moved_bytes, 0);
    // What the links carried was for guests, and the map.
    let sent: u64 = network.links.iter().map(|link| link.sent_bytes).sum();
    assert!(sent >= outcome.read.bytes && sent < outcome.read.bytes + outcome.background.migrated_bytes / 2);
    assert!(outcome.verified_bytes > 0);
    assert_eq!(outcome, run(&setup), "the same setup gives the same outcome");
}

#[test]
fn data_without_local_partner_moves_between_nodes() {
    let mut setup = web(Some((ONE_OF_EACH, "10Gbit")), EVENLY);
    setup.devices[1].nodes = Some(4..=7);
    let outcome = run(&setup);
    let moved = outcome.network.expect("there are nodes").moved_bytes;
    let migrated = outcome.background.migrated_bytes;
    assert!(moved >= migrated && migrated > 20_000_000, "{moved} of {migrated}");
}

#[test]
fn slow_network_or_host_link_limits_throughput_with_note() {
    let limited = |network: &str| {
        let mut setup = web(Some((ONE_OF_EACH, network)), "stripe");
        setup.load = Load::Workload("random,read=100%,size=128KiB,span=1GiB,clients=64".to_owned());
        (setup.verify, setup.warm_up) = (false, WarmUp::Time(Nanos::from_secs(1)));
        let outcome = run(&setup);
        assert!(outcome.notes.iter().any(|note| note.contains("network")), "{:?}", outcome.notes);
        outcome.throughput_bytes_per_second / 1e6
    };
    let all = limited("1Gbit");
    assert!((450.0..=501.0).contains(&all), "{all} MB/s over four links of 125");
    let host = limited("10Gbit,host=1Gbit");
    assert!((120.0..=126.0).contains(&host), "{host} MB/s over one link of 125");
}

#[test]
fn very_fast_network_barely_changes_throughput() {
    let throughput = |nodes| run(&web(nodes, EVENLY)).throughput_bytes_per_second;
    let (nodes, one) = (throughput(Some((ONE_OF_EACH, "10000Gbit"))), throughput(None));
    assert!((nodes / one - 1.0).abs() < 0.02, "{nodes} on nodes, {one} on one host");
}

#[test]
fn a_thousand_devices_on_five_hundred_nodes_run() {
    let device = |class, text: &str| DeviceSetup::parse(class, text).expect("a device");
    let devices = vec![
        device(DeviceClass::Ssd, "64GB,model=ws-ros-ssd,count=500,node=0-499"),
        device(DeviceClass::Hdd, "512GB,model=ws-ros-hdd,count=500,node=0-499"),
    ];
    let load =
        Load::Workload("checkpoint,clients=64,state=64MiB,rounds=2,reads=1,wait=2s,compute=0s".to_owned());
    let mut setup = Setup::new(devices, "working-set", load);
    setup.network = Some(parse_network("100Gbit,latency=5us").expect("a network"));
    let outcome = run(&setup);
    let network = outcome.network.expect("there are nodes");
    assert_eq!((outcome.devices.len(), network.links.len()), (1000, 500));
    assert_eq!(outcome.devices[999].node.as_deref(), Some("n499"));
    assert!(outcome.all.requests > 10_000);
    assert!(network.links.iter().filter(|link| link.received_bytes > 0).count() > 400);
}

#[test]
fn nodes_without_a_network_and_a_network_without_nodes_are_refused() {
    let refused = |setup: &Setup| {
        let error: Error = simulate(setup).expect_err("it cannot be");
        assert_eq!(error.kind(), ErrorKind::Setup);
        error.to_string()
    };
    let mut nodes = web(Some((ONE_OF_EACH, "10Gbit")), EVENLY);
    nodes.network = None;
    assert!(refused(&nodes).contains("--network"));
    let mut network = web(None, EVENLY);
    network.network = Some(parse_network("10Gbit").expect("a network"));
    assert!(refused(&network).contains("node="));
}
