//! Addresses of the dashboard.
//!
//! | address | answer |
//! |---|---|
//! | `/` | the page |
//! | `/api/volumes` | reports of all volumes, as `braid status --json` |
//! | `/api/volumes/NAME` | report of a volume, as `braid status NAME --json` |
//! | `/api/volumes/NAME/history?range=hour` | the last hour or day of the devices |
//! | `/api/volumes/NAME/map`, `/api/volumes/NAME/map?device=1` | where data lies, and its heat |
//! | `/api/volumes/NAME/explain?offset_bytes=0` | as `braid explain NAME 0 --json` |
//! | `/api/volumes/NAME/alerts` | what needed the owner, as `braid alert` tells it |
//! | `/api/volumes/NAME/advice` | the latest advice about the policy, as `braid advise --json` |
//! | `/api/health` | verdicts about all volumes, and whether changes are allowed |
//! | `/api/events`, `/api/events?volume=NAME` | reports of all volumes, or of one, each second |
//! | `/healthz` | 200 if all volumes are whole, else 503, with reasons |
//! | `/metrics` | OpenMetrics |
//! | POST `/api/volumes/NAME/policy` | changes the policy |
//! | POST `/api/volumes/NAME/advice` | begins an advice, ends its recording, or cancels it |
//! | POST `/api/volumes/NAME/devices/DEVICE` | fails, returns, removes or keeps a device |

use crate::access::{Access, guard, refuse};
use crate::advice::Advisor;
use crate::alerts::Alerts;
use crate::daemons::Daemons;
use crate::dashboard::Dashboard;
use crate::events::{beat, events};
use crate::history::{History, Range};
use crate::metrics::{self, openmetrics};
use crate::page::{FILES, file};
use crate::readers::Readers;
use crate::survey::Survey;
use crate::verdict::Health;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Form, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use braid_control::{Error, ErrorKind, Request, VolumeName, VolumeReport};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Longest body of a request: a policy with all its settings fits many times.
const LONGEST_BODY: usize = 16 << 10;

/// Makes the dashboard, with all its addresses. Starts a task that sends events and keeps the history while
/// the router or a connection exists, so a Tokio runtime is needed. Without a `program`, there is no advice.
pub fn router(daemons: Arc<dyn Daemons>, access: Access, program: Option<PathBuf>) -> Router {
    let dashboard = Arc::new(Dashboard {
        survey: Survey::new(daemons),
        history: History::default(),
        alerts: Alerts::default(),
        advisor: Advisor::new(program),
        readers: Readers::default(),
        access: access.clone(),
    });
    tokio::spawn(beat(Arc::downgrade(&dashboard)));
    let mut router = Router::new()
        .route("/api/volumes", get(volumes))
        .route("/api/volumes/{name}", get(volume))
        .route("/api/volumes/{name}/history", get(history))
        .route("/api/volumes/{name}/map", get(map))
        .route("/api/volumes/{name}/explain", get(explain))
        .route("/api/volumes/{name}/alerts", get(alerts))
        .route("/api/volumes/{name}/advice", get(advice).post(advise))
        .route("/api/volumes/{name}/policy", post(set_policy))
        .route("/api/volumes/{name}/devices/{device}", post(change_device))
        .route("/api/health", get(health))
        .route("/api/events", get(subscribe))
        .route("/healthz", get(healthz))
        .route("/metrics", get(scrape));
    for (address, kind, text) in FILES {
        let mut methods: MethodRouter<Arc<Dashboard>> = get(move || async move { file(kind, text) });
        if address == "/login" {
            methods = methods.post(login);
        }
        router = router.route(address, methods);
    }
    router
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, ErrorKind::Usage, "no such address") })
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(from_fn_with_state(access, guard))
        .with_state(dashboard)
}

type Shown = State<Arc<Dashboard>>;

async fn volumes(State(dashboard): Shown) -> Response {
    match dashboard.survey.all().await {
        Ok(reports) => {
            let reports: Vec<_> = reports.iter().filter_map(|(_, report)| report.as_deref().ok()).collect();
            Json(serde_json::json!({ "volumes": reports })).into_response()
        }
        Err(error) => failed(&error),
    }
}

async fn volume(State(dashboard): Shown, Path(name): Path<String>) -> Response {
    let report = match name.parse() {
        Ok(name) => dashboard.survey.report(&name).await,
        Err(error) => Err(error),
    };
    match report {
        Ok(report) => match &*report {
            VolumeReport::Silent(silent) => failed(&silent.error),
            report => Json(report).into_response(),
        },
        Err(error) => failed(&error),
    }
}

/// What follows the question mark of an address.
type QueryOf<T> = std::result::Result<Query<T>, QueryRejection>;

/// The range of a history.
#[derive(Deserialize)]
struct Past {
    #[serde(default)]
    range: Range,
}

async fn history(State(dashboard): Shown, Path(name): Path<String>, past: QueryOf<Past>) -> Response {
    match (past, name.parse()) {
        (Ok(Query(past)), Ok(name)) => Json(dashboard.history.report(&name, past.range)).into_response(),
        (Err(rejection), _) => refuse(rejection.status(), ErrorKind::Usage, &rejection.body_text()),
        (_, Err(error)) => failed(&error),
    }
}

async fn alerts(State(dashboard): Shown, Path(name): Path<String>) -> Response {
    match dashboard.survey.known(&name).await {
        Ok(name) => Json(dashboard.alerts.report(&name)).into_response(),
        Err(error) => failed(&error),
    }
}

async fn advice(State(dashboard): Shown, Path(name): Path<String>) -> Response {
    match dashboard.survey.known(&name).await {
        Ok(name) => Json(dashboard.advisor.report(&name)).into_response(),
        Err(error) => failed(&error),
    }
}

/// The device in question of a map: 1 for `d1`.
#[derive(Deserialize)]
struct OnDevice {
    device: Option<u16>,
}

async fn map(State(dashboard): Shown, Path(name): Path<String>, on: QueryOf<OnDevice>) -> Response {
    look(&dashboard, &name, on.map(|Query(on)| Request::Map { device: on.device })).await
}

/// The byte to be explained.
#[derive(Deserialize)]
struct Place {
    offset_bytes: u64,
}

async fn explain(State(dashboard): Shown, Path(name): Path<String>, place: QueryOf<Place>) -> Response {
    let request = place.map(|Query(place)| Request::Explain { offset_bytes: place.offset_bytes });
    look(&dashboard, &name, request).await
}

async fn look(
    dashboard: &Dashboard,
    name: &str,
    request: std::result::Result<Request, QueryRejection>,
) -> Response {
    let reply = match (request, name.parse()) {
        (Ok(request), Ok(name)) => dashboard.survey.look(name, request).await,
        (Err(rejection), _) => return refuse(rejection.status(), ErrorKind::Usage, &rejection.body_text()),
        (_, Err(error)) => Err(error),
    };
    match reply {
        Ok(reply) => Json(&*reply).into_response(),
        Err(error) => failed(&error),
    }
}

/// Answer of `/api/health`.
#[derive(Serialize)]
struct Overview {
    #[serde(flatten)]
    health: Health,
    allows_changes: bool,
}

async fn health(State(dashboard): Shown) -> Response {
    match dashboard.reports().await {
        Ok((_, health)) => {
            Json(Overview { health, allows_changes: dashboard.access.allows_changes() }).into_response()
        }
        Err(error) => failed(&error),
    }
}

async fn healthz(State(dashboard): Shown) -> Response {
    let (is_whole, reasons) = match dashboard.reports().await {
        Ok((_, health)) => {
            let unwell = health.volumes.iter().filter(|verdict| !verdict.is_whole);
            let reason =
                unwell.map(|verdict| format!("{}: {}: {}", verdict.name, verdict.word, verdict.sentence));
            (health.is_whole, reason.collect())
        }
        Err(error) => (false, vec![error.to_string()]),
    };
    let status = if is_whole { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(serde_json::json!({ "whole": is_whole, "reasons": reasons }))).into_response()
}

async fn scrape(State(dashboard): Shown) -> Response {
    match dashboard.survey.all().await {
        Ok(reports) => ([(header::CONTENT_TYPE, metrics::TYPE)], openmetrics(reports)).into_response(),
        Err(error) => failed(&error),
    }
}

/// Which volume a page shows in full.
#[derive(Deserialize)]
struct Wanted {
    volume: Option<VolumeName>,
}

async fn subscribe(State(dashboard): Shown, Query(wanted): Query<Wanted>) -> Response {
    let too_many = || {
        let problem = "too many open pages: close one";
        refuse(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Busy, problem)
    };
    events(&dashboard, wanted.volume).await.unwrap_or_else(too_many)
}

/// The form of the login page.
#[derive(Deserialize)]
struct Login {
    token: String,
}

async fn login(State(dashboard): Shown, Form(login): Form<Login>) -> Response {
    dashboard.access.login(&login.token).await
}

/// Body of a change of the policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPolicy {
    policy: String,
}

async fn set_policy(
    State(dashboard): Shown,
    Path(name): Path<String>,
    body: std::result::Result<Json<NewPolicy>, JsonRejection>,
) -> Response {
    let request = body.map(|Json(new)| Request::SetPolicy { policy: new.policy });
    change(&dashboard, &name, request).await
}

/// Body of a change of a device.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceChange {
    action: Action,
}

/// What becomes of a device.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Fail,
    Return,
    Remove,
    Keep,
}

async fn change_device(
    State(dashboard): Shown,
    Path((name, device)): Path<(String, String)>,
    body: std::result::Result<Json<DeviceChange>, JsonRejection>,
) -> Response {
    let Some(device) = device.strip_prefix('d').and_then(|number| number.parse().ok()) else {
        let problem = "not a device: use the device's place in the volume, as in d0";
        return refuse(StatusCode::BAD_REQUEST, ErrorKind::Usage, problem);
    };
    let request = body.map(|Json(change)| match change.action {
        Action::Fail => Request::FailDevice { device },
        Action::Return => Request::ReturnDevice { device, path: None },
        Action::Remove => Request::RemoveDevice { device },
        Action::Keep => Request::KeepDevice { device },
    });
    change(&dashboard, &name, request).await
}

/// Body of a change of the advice.
#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
enum AdviceChange {
    /// Records for a time; the simulations follow.
    Begin { seconds: u64 },
    /// Ends the recording early.
    Simulate,
    /// Ends the recording or the simulations without an advice.
    Cancel,
}

async fn advise(
    State(dashboard): Shown,
    Path(name): Path<String>,
    body: std::result::Result<Json<AdviceChange>, JsonRejection>,
) -> Response {
    let (name, Json(change)) = match allowed(&dashboard, &name, body) {
        Ok(allowed) => allowed,
        Err(refused) => return *refused,
    };
    if let Err(error) = dashboard.survey.known(name.as_str()).await {
        return failed(&error);
    }
    let advisor = &dashboard.advisor;
    let changed = match change {
        AdviceChange::Begin { seconds } => advisor.begin(name.clone(), Duration::from_secs(seconds)),
        AdviceChange::Simulate => advisor.simulate(&name),
        AdviceChange::Cancel => advisor.cancel(&name),
    };
    match changed {
        Ok(()) => Json(advisor.report(&name)).into_response(),
        Err(error) => failed(&error),
    }
}

async fn change(
    dashboard: &Dashboard,
    name: &str,
    request: std::result::Result<Request, JsonRejection>,
) -> Response {
    let (name, request) = match allowed(dashboard, name, request) {
        Ok(allowed) => allowed,
        Err(refused) => return *refused,
    };
    match dashboard.survey.call(name, request).await {
        Ok(reply) => Json(reply).into_response(),
        Err(error) => failed(&error),
    }
}

/// Returns the volume and the body of a change, if changes are allowed.
fn allowed<T>(
    dashboard: &Dashboard,
    name: &str,
    body: std::result::Result<T, JsonRejection>,
) -> std::result::Result<(VolumeName, T), Box<Response>> {
    if !dashboard.access.allows_changes() {
        let problem = "the dashboard only reads: braid web --allow-changes";
        return Err(Box::new(refuse(StatusCode::FORBIDDEN, ErrorKind::Usage, problem)));
    }
    let refused = |rejection: JsonRejection| {
        Box::new(refuse(rejection.status(), ErrorKind::Usage, &rejection.body_text()))
    };
    let name = name.parse().map_err(|error| Box::new(failed(&error)))?;
    Ok((name, body.map_err(refused)?))
}

/// Answers with the error of a command, as the command does with `--json`.
fn failed(error: &Error) -> Response {
    let status = match error.kind() {
        ErrorKind::Usage => StatusCode::BAD_REQUEST,
        ErrorKind::Invalid => StatusCode::NOT_FOUND,
        ErrorKind::Busy | ErrorKind::NotServed | ErrorKind::NoSpace | ErrorKind::Degraded => {
            StatusCode::CONFLICT
        }
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::Io => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Corrupt | ErrorKind::Unsafe => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, Json(serde_json::json!({ "error": error }))).into_response()
}
