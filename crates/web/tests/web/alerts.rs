//! Conditions that need the owner, as the page shows them.

use crate::daemons::*;
use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;

async fn alerts(router: &Router, name: &str) -> Value {
    let answer = get(router, &format!("/api/volumes/{name}/alerts")).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    answer.json()
}

/// Waits until a volume has so many alerts, while a page is open.
async fn wait_for(router: &Router, body: &mut Body, name: &str, count: usize) -> Vec<Value> {
    loop {
        body.frame().await.unwrap().unwrap();
        let found = alerts(router, name).await["alerts"].as_array().unwrap().clone();
        if found.len() >= count {
            return found;
        }
    }
}

fn shown(alert: &Value) -> Value {
    json!([alert["name"], alert["event"], alert["device"], alert["level"], alert["begins"]])
}

#[tokio::test]
async fn conditions_begin_and_end_as_alerts_of_their_volume() {
    let mut degraded = status("vault");
    degraded.devices[1].state = "failed".to_owned();
    let fake = Fake::with(&[("other", healthy("other")), ("vault", served(degraded))]);
    let router = dashboard(fake.clone());
    assert_eq!(
        alerts(&router, "vault").await,
        json!({ "since_unix_seconds": null, "lasting_count": 0, "alerts": [] })
    );
    let page = open(&router, to("/api/events?volume=vault").body(Body::empty()).unwrap()).await;
    let mut body = page.into_body();
    let found = wait_for(&router, &mut body, "vault", 1).await;
    let begins = json!(["vault", "device-failed", "d1", "warning", true]);
    assert_eq!((found.len(), shown(&found[0])), (1, begins.clone()));
    assert!(found[0]["message"].as_str().unwrap().contains("/dev/hdd"), "{found:?}");
    assert!(found[0]["unix_seconds"].as_u64().unwrap() > 1 << 30);

    fake.set("vault", healthy("vault"));
    let found = wait_for(&router, &mut body, "vault", 2).await;
    let ends = json!(["vault", "device-failed", "d1", "warning", false]);
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), [ends, begins], "the latest first");
    assert_eq!(alerts(&router, "other").await["alerts"], json!([]));
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let text = std::str::from_utf8(&frame).unwrap().trim().strip_prefix("data: ").unwrap();
    let mark = serde_json::from_str::<Value>(text).unwrap()["alerts_mark"].clone();
    assert!(mark.as_str().unwrap().ends_with("-2"), "{mark}");
}

/// The client of a daemon waits longer than a page: until then there is no alert.
#[tokio::test]
async fn daemon_without_an_answer_yet_is_no_alert() {
    let fake = Fake::with(&[("slow", Told::Nothing(Duration::from_secs(5)))]);
    let router = dashboard(fake.clone());
    let page = open(&router, to("/api/events").body(Body::empty()).unwrap()).await;
    let mut body = page.into_body();
    let found = wait_for(&router, &mut body, "slow", 1).await;
    assert_eq!(found[0]["message"], "silent", "the client's own error: {found:?}");
}

#[tokio::test]
async fn alerts_are_bounded_and_those_of_a_removed_volume_forgotten() {
    let fake = Fake::with(&[("vault", healthy("vault"))]);
    let router = dashboard(fake.clone());
    let mut worst = status("vault");
    worst.devices = vec![worst.devices[0].clone(); 150];
    for (place, device) in worst.devices.iter_mut().enumerate() {
        (device.device, device.state) = (format!("d{place}"), "missing".to_owned());
    }
    fake.set("vault", served(worst));
    let page = open(&router, to("/api/events").body(Body::empty()).unwrap()).await;
    let mut body = page.into_body();
    assert_eq!(wait_for(&router, &mut body, "vault", 1).await.len(), 100);
    // Conditions last beyond the alerts that are kept.
    assert_eq!(alerts(&router, "vault").await["lasting_count"], 150);
    fake.volumes.lock().unwrap().clear();
    while get(&router, "/api/volumes/vault/alerts").await.status != StatusCode::NOT_FOUND {
        body.frame().await.unwrap().unwrap();
    }
    body.frame().await.unwrap().unwrap();
    fake.set("vault", healthy("vault"));
    while get(&router, "/api/volumes/vault/alerts").await.status != StatusCode::OK {
        body.frame().await.unwrap().unwrap();
    }
    assert_eq!(alerts(&router, "vault").await["alerts"], json!([]));
    let malformed = get(&router, "/api/volumes/%2e%2e/alerts").await;
    assert_eq!(malformed.status, StatusCode::BAD_REQUEST);
}
