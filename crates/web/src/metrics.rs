//! Metrics of all volumes in the OpenMetrics format, made at the scrape from the daemons' reports.
//!
//! Names follow the conventions of Prometheus: base units, `_total` for counters, `_ratio` for shares.
//! `docs/metrics.md` lists all names, which a test compares.

mod figures;

use crate::survey::Shared;
use crate::verdict::judge;
use braid_control::{DeviceReport, StatusReport, VolumeName, VolumeReport};
use figures::{DEVICE, STATES, VOLUME, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashMap;
use std::fmt;

/// Type of the content.
pub(crate) const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the latency histogram in seconds: memory cache, SSDs, disks, queues before disks.
const BOUNDS: [f64; 16] =
    [1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0, 10.0];

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];
type NoExemplars = Option<HashMap<usize, Exemplar<Vec<(String, String)>, f64>>>;

/// Returns the metrics of all volumes.
pub(crate) fn openmetrics(reports: Vec<(VolumeName, Shared)>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape { reports }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all that is written to it");
    text
}

/// The reports of one scrape.
#[derive(Debug)]
struct Scrape {
    reports: Vec<(VolumeName, Shared)>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.volumes(&mut encoder)?;
        for figure in VOLUME {
            let values = self.served().map(|(name, status)| ([("volume", name)], (figure.value)(status)));
            family(&mut encoder, figure.name, figure.help, figure.unit.as_ref(), values)?;
        }
        self.guests(&mut encoder)?;
        for figure in DEVICE {
            let values = self.devices().map(|(labels, device)| (labels, (figure.value)(device)));
            family(&mut encoder, figure.name, figure.help, figure.unit.as_ref(), values)?;
        }
        self.states(&mut encoder)?;
        self.responses(&mut encoder)?;
        self.policies(&mut encoder)
    }
}

impl Scrape {
    fn served(&self) -> impl Iterator<Item = (&str, &StatusReport)> {
        self.reports.iter().filter_map(|(name, report)| match report.as_deref() {
            Ok(VolumeReport::Served(status)) => Some((name.as_str(), &**status)),
            _ => None,
        })
    }

    fn devices(&self) -> impl Iterator<Item = (Labels<'_, 3>, &DeviceReport)> {
        self.served().flat_map(|(name, status)| {
            status.devices.iter().map(move |device| {
                ([("volume", name), ("device", &device.device[..]), ("class", &device.class[..])], device)
            })
        })
    }

    /// Figures of all volumes, served or not.
    fn volumes(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let each = |value: fn(&VolumeName, &Shared) -> bool| {
            self.reports
                .iter()
                .map(move |(name, report)| ([("volume", name.as_str())], Value::of(value(name, report))))
        };
        let is_served = |_: &VolumeName, report: &Shared| {
            matches!(report.as_deref(), Ok(VolumeReport::Served(_) | VolumeReport::Silent(_)))
        };
        family(encoder, "braid_volume_served", "1 if a daemon serves the volume", None, each(is_served))?;
        let answers =
            |_: &VolumeName, report: &Shared| matches!(report.as_deref(), Ok(VolumeReport::Served(_)));
        family(encoder, "braid_volume_up", "1 if the volume's daemon answers", None, each(answers))?;
        let is_whole = |name: &VolumeName, report: &Shared| judge(name.as_str(), report.as_deref()).is_whole;
        let help = "0 if braid status NAME would exit with an error: data is lost, stale or out of reach";
        family(encoder, "braid_volume_whole", help, None, each(is_whole))
    }

    /// Requests of guests by kind, and their latency.
    fn guests(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let kinds = |discards: bool| {
            self.served().flat_map(move |(name, status)| {
                let guests = &status.guests;
                let mut all = vec![
                    ("read", guests.read.requests, guests.read.bytes),
                    ("write", guests.write.requests, guests.write.bytes),
                ];
                if discards {
                    all.push(("flush", guests.flush.requests, 0));
                    all.push(("discard", guests.discard_requests, 0));
                }
                all.into_iter().map(move |(kind, requests, bytes)| {
                    ([("volume", name), ("operation", kind)], requests, bytes)
                })
            })
        };
        let requests = kinds(true).map(|(labels, requests, _)| (labels, Value::Count(requests)));
        family(encoder, "braid_guest_requests", "Requests of guests", None, requests)?;
        let bytes = kinds(false).map(|(labels, _, bytes)| (labels, Value::Count(bytes)));
        family(encoder, "braid_guest", "Bytes read and written by guests", Some(&Unit::Bytes), bytes)?;
        if self.served().next().is_none() {
            return Ok(());
        }
        let help = "Latency of guests' reads, writes and flushes, from arrival to reply";
        let unit = Unit::Seconds;
        let mut descriptor =
            encoder.encode_descriptor("braid_guest_latency", help, Some(&unit), MetricType::Histogram)?;
        for (name, status) in self.served() {
            let labels = [("volume", name)];
            let (sum, count, buckets) = histogram(&status.guests.latency_ns_counts);
            let none: NoExemplars = None;
            descriptor.encode_family(&labels)?.encode_histogram(sum, count, &buckets, none.as_ref())?;
        }
        Ok(())
    }

    /// A state set: 1 for the present state.
    fn states(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let states = self.devices().flat_map(|(labels, device)| {
            STATES.iter().map(move |state| {
                let [volume, place, class] = labels;
                ([volume, place, class, ("state", *state)], Value::of(device.state == *state))
            })
        });
        family(encoder, "braid_device_state", "1 for the present state of the device", None, states)
    }

    /// Response times of devices, since their daemon started.
    fn responses(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let responses = self.devices().flat_map(|(labels, device)| {
            let response = &device.response;
            let quantiles = [
                ("0.5", response.response_ns_p50),
                ("0.95", response.response_ns_p95),
                ("0.99", response.response_ns_p99),
                ("0.999", response.response_ns_p999),
                ("1", response.response_ns_max),
            ];
            quantiles.into_iter().map(move |(quantile, ns)| {
                let [volume, place, class] = labels;
                ([volume, place, class, ("quantile", quantile)], Value::Gauge(Some(ns as f64 / 1e9)))
            })
        });
        let help = "Response time of guests' requests at the device since the daemon started";
        family(encoder, "braid_device_response", help, Some(&Unit::Seconds), responses)
    }

    /// Figures of the policy, whose names carry their units.
    fn policies(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let figures = self.devices().flat_map(|(labels, device)| {
            device.policy_figures.iter().map(move |(figure, value)| {
                let [volume, place, class] = labels;
                ([volume, place, class, ("figure", figure.as_str())], Value::Gauge(Some(*value)))
            })
        });
        let help = "The policy's figures for the device: names and units are those of docs/json.md";
        family(encoder, "braid_policy_figure", help, None, figures)
    }
}

/// Encodes the values of a family. Values that are unknown are absent, and a family without values too.
fn family<'a, const N: usize>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    values: impl Iterator<Item = (Labels<'a, N>, Value)>,
) -> fmt::Result {
    let mut known = values.filter(|(_, value)| !matches!(value, Value::Gauge(None))).peekable();
    let Some((_, first)) = known.peek() else { return Ok(()) };
    let kind = match first {
        Value::Count(_) | Value::Total(_) => MetricType::Counter,
        Value::Gauge(_) => MetricType::Gauge,
    };
    let mut descriptor = encoder.encode_descriptor(name, help, unit, kind)?;
    for (labels, value) in known {
        let mut metric = descriptor.encode_family(&labels)?;
        match value {
            Value::Count(count) => {
                let none: Option<&Exemplar<Labels<'a, N>, u64>> = None;
                metric.encode_counter(&count, none)?;
            }
            Value::Total(total) => {
                let none: Option<&Exemplar<Labels<'a, N>, f64>> = None;
                metric.encode_counter(&total, none)?;
            }
            Value::Gauge(value) => metric.encode_gauge(&value.unwrap_or_default())?,
        }
    }
    Ok(())
}

/// Sum in seconds, count, and the number of requests up to each bound and above the bound before.
fn histogram(counts: &[(u64, u64)]) -> (f64, u64, Vec<(f64, u64)>) {
    let mut buckets: Vec<(f64, u64)> = BOUNDS.iter().map(|bound| (*bound, 0)).collect();
    buckets.push((f64::INFINITY, 0));
    let (mut sum, mut all) = (0.0, 0);
    for (ns, count) in counts {
        let seconds = *ns as f64 / 1e9;
        let place = BOUNDS.partition_point(|bound| *bound < seconds);
        buckets[place].1 += count;
        sum += seconds * *count as f64;
        all += count;
    }
    (sum, all, buckets)
}
