//! Daemons made of values, and requests to a dashboard on them.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use braid_control::{
    BackgroundReport, DeviceReport, Durability, Error, ErrorKind, GuestReport, OperationReport,
    RestingReport, StatusReport, VolumeName, VolumeReport,
};
use braid_web::{Access, Daemons, router};
use http_body_util::BodyExt;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::ServiceExt;

/// Volumes by name, with the requests that changed them.
#[derive(Default)]
pub struct Fake {
    pub volumes: Mutex<BTreeMap<VolumeName, Told>>,
    pub calls: Mutex<Vec<(String, braid_control::Request)>>,
    pub asked: AtomicUsize,
}

/// Behaviour of a daemon.
#[derive(Clone)]
pub enum Told {
    Report(Box<VolumeReport>),
    Error(Error),
    /// No answer for this time, then an error.
    Nothing(Duration),
}

impl Fake {
    pub fn with(volumes: &[(&str, Told)]) -> Arc<Fake> {
        let named = volumes.iter().map(|(name, told)| (name.parse().unwrap(), told.clone()));
        Arc::new(Fake { volumes: Mutex::new(named.collect()), ..Fake::default() })
    }

    pub fn set(&self, name: &str, told: Told) {
        self.volumes.lock().unwrap().insert(name.parse().unwrap(), told);
    }
}

impl Daemons for Fake {
    fn names(&self) -> braid_control::Result<Vec<VolumeName>> {
        Ok(self.volumes.lock().unwrap().keys().cloned().collect())
    }

    fn report(&self, name: &VolumeName) -> braid_control::Result<VolumeReport> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let told = self.volumes.lock().unwrap()[name].clone();
        match told {
            Told::Report(report) => Ok(*report),
            Told::Error(error) => Err(error),
            Told::Nothing(time) => {
                std::thread::sleep(time);
                Err(Error::new(ErrorKind::Io, "silent"))
            }
        }
    }

    fn call(&self, name: &VolumeName, request: braid_control::Request) -> braid_control::Result<Value> {
        self.calls.lock().unwrap().push((name.to_string(), request));
        Ok(serde_json::json!({ "done": true }))
    }
}

/// A healthy volume of an SSD and a disk.
pub fn status(name: &str) -> StatusReport {
    let device = |device: &str, class: &str| DeviceReport {
        device: device.to_owned(),
        path: format!("/dev/{class}"),
        class: class.to_owned(),
        state: "active".to_owned(),
        size_bytes: 1 << 30,
        guest_read_requests: 100,
        guest_read_bytes: 409_600,
        ..DeviceReport::default()
    };
    let guests = GuestReport {
        read: OperationReport { requests: 100, bytes: 409_600, ..OperationReport::default() },
        discard_requests: 3,
        cache_hits: 7,
        cache_misses: 9,
        latency_ns_counts: vec![(9_000, 60), (700_000, 39), (20_000_000_000, 1)],
        ..GuestReport::default()
    };
    let background = BackgroundReport {
        migrations: 1,
        migrated_bytes: 131_072,
        commits: 2,
        checkpoints: 1,
        ..BackgroundReport::default()
    };
    StatusReport {
        name: name.to_owned(),
        served: true,
        process_id: 7,
        uptime_seconds: 12.5,
        policy: "equi".to_owned(),
        size_bytes: 1 << 31,
        extent_bytes: 131_072,
        block_bytes: 4096,
        copies: 2,
        mapped_bytes: 1 << 20,
        durability: Durability::PowerCut,
        guests,
        background,
        devices: vec![device("d0", "ssd"), device("d1", "hdd")],
        ..StatusReport::default()
    }
}

pub fn served(status: StatusReport) -> Told {
    Told::Report(Box::new(VolumeReport::Served(Box::new(status))))
}

pub fn healthy(name: &str) -> Told {
    served(status(name))
}

pub fn at_rest(name: &str) -> RestingReport {
    RestingReport { name: name.to_owned(), ..RestingReport::default() }
}

pub const LOOPBACK: &str = "127.0.0.1:7070";

/// Access from this machine, without changes.
pub fn local() -> Access {
    Access::new(LOOPBACK.parse::<SocketAddr>().unwrap(), None, &[], false).unwrap()
}

/// A dashboard for this machine.
pub fn dashboard(daemons: Arc<Fake>) -> Router {
    router(daemons, local(), None)
}

/// A request with a host of this machine.
pub fn to(path: &str) -> axum::http::request::Builder {
    Request::builder().uri(path).header("host", "localhost:7070")
}

/// An answer in full.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Sends a request, and returns the answer with a body that may be endless.
pub async fn open(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.unwrap()
}

pub async fn send(router: &Router, request: Request<Body>) -> Answer {
    let (head, body) = open(router, request).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: head.status, headers: head.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

pub async fn get(router: &Router, path: &str) -> Answer {
    send(router, to(path).body(Body::empty()).unwrap()).await
}
