//! A report each second for each open page, as server-sent events.
//!
//! A frame is made once and shared by all readers of the same volume.

use crate::dashboard::Dashboard;
use crate::history::INTERVAL;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use braid_control::VolumeName;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

/// Time between two frames.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest frame. A frame that would be longer has the verdicts alone.
const LONGEST_FRAME: usize = 8 << 20;

/// Answers with a stream of frames, the first one at once. None if there are too many readers.
pub(crate) async fn events(dashboard: &Dashboard, volume: Option<VolumeName>) -> Option<Response> {
    let first = frame(dashboard, volume.as_ref()).await;
    let frames = dashboard.readers.add(volume, first)?;
    let body = Body::from_stream(ReceiverStream::new(frames).map(Ok::<_, Infallible>));
    Some(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// Sends frames and keeps the history, until the dashboard is gone.
pub(crate) async fn beat(dashboard: Weak<Dashboard>) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sampled: Option<Instant> = None;
    loop {
        ticks.tick().await;
        let Some(dashboard) = dashboard.upgrade() else { return };
        let wanted = dashboard.readers.wanted();
        let is_due = sampled.is_none_or(|at| at.elapsed() >= INTERVAL);
        if is_due {
            sampled = Some(Instant::now());
            tokio::spawn(sample(dashboard.clone()));
        }
        if is_due || !wanted.is_empty() {
            note_alerts(&dashboard).await;
        }
        let mut frames = BTreeMap::new();
        for volume in wanted {
            let made = frame(&dashboard, volume.as_ref()).await;
            frames.insert(volume, made);
        }
        dashboard.readers.send(&frames);
    }
}

async fn sample(dashboard: Arc<Dashboard>) {
    match dashboard.survey.all().await {
        Ok(reports) => dashboard.history.add(unix_seconds(), &reports),
        Err(error) => tracing::warn!("{error}"),
    }
}

async fn note_alerts(dashboard: &Dashboard) {
    match dashboard.survey.all().await {
        Ok(reports) => {
            dashboard.alerts.note(unix_seconds(), &reports);
            let known: Vec<VolumeName> = reports.into_iter().map(|(name, _)| name).collect();
            dashboard.advisor.forget_others(&known);
        }
        Err(error) => tracing::warn!("{error}"),
    }
}

/// Makes a frame: the verdicts about all volumes, and the reports of the wanted volumes.
async fn frame(dashboard: &Dashboard, wanted: Option<&VolumeName>) -> Bytes {
    let value = match dashboard.reports().await {
        Ok((reports, health)) => {
            let chosen = reports.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name));
            let volumes: Vec<_> = chosen.filter_map(|(_, report)| report.as_deref().ok()).collect();
            let all = serde_json::json!({
                "unix_seconds": unix_seconds(), "health": health, "volumes": volumes,
                "alerts_mark": dashboard.alerts.mark(),
            });
            let text = all.to_string();
            if text.len() <= LONGEST_FRAME {
                return as_event(&text);
            }
            serde_json::json!({
                "unix_seconds": unix_seconds(), "health": health, "volumes": [],
                "alerts_mark": dashboard.alerts.mark(),
            })
        }
        Err(error) => serde_json::json!({ "unix_seconds": unix_seconds(), "error": error }),
    };
    as_event(&value.to_string())
}

/// Frames JSON, which has no line breaks.
fn as_event(json: &str) -> Bytes {
    format!("data: {json}\n\n").into()
}

/// The time of this moment.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
