use crate::daemons::*;
use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The next event of a stream; none at its end.
async fn next(body: &mut Body) -> Option<Value> {
    let frame = body.frame().await?.unwrap().into_data().unwrap();
    let text = std::str::from_utf8(&frame).unwrap();
    let json = text.strip_prefix("data: ").and_then(|text| text.strip_suffix("\n\n"));
    Some(serde_json::from_str(json.unwrap_or_else(|| panic!("{text}"))).unwrap())
}

#[tokio::test]
async fn a_report_comes_each_second_and_follows_the_volume() {
    let fake = Fake::with(&[("other", healthy("other")), ("vault", healthy("vault"))]);
    let router = dashboard(fake.clone());
    let answer = open(&router, to("/api/events?volume=vault").body(Body::empty()).unwrap()).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let (mut body, began) = (answer.into_body(), Instant::now());
    let first = next(&mut body).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(900), "the first report comes at once");
    assert_eq!(first["health"]["word"], "Safe");
    assert_eq!(first["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(first["volumes"][0], serde_json::to_value(status("vault")).unwrap());
    let mut degraded = status("vault");
    degraded.devices[0].state = "missing".to_owned();
    fake.set("vault", served(degraded));
    let mut word = Value::Null;
    for _ in 0..4 {
        word = next(&mut body).await.unwrap()["health"]["word"].clone();
    }
    assert_eq!(word, "Degraded");
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test]
async fn slow_reader_is_dropped() {
    let router = dashboard(Fake::with(&[("vault", healthy("vault"))]));
    let answer = open(&router, to("/api/events").body(Body::empty()).unwrap()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (mut body, mut events) = (answer.into_body(), 0);
    while let Some(_event) = next(&mut body).await {
        events += 1;
    }
    assert!((1..=3).contains(&events), "{events} events waited for the reader");
}

#[tokio::test]
async fn readers_are_bounded_and_a_place_becomes_free() {
    let router = dashboard(Fake::with(&[]));
    let subscribe = || async { open(&router, to("/api/events").body(Body::empty()).unwrap()).await };
    let mut readers = Vec::new();
    for _ in 0..32 {
        let answer = subscribe().await;
        assert_eq!(answer.status(), StatusCode::OK);
        readers.push(answer);
    }
    assert_eq!(subscribe().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    readers.pop();
    assert_eq!(subscribe().await.status(), StatusCode::OK);
}

#[tokio::test]
async fn malformed_volume_is_refused() {
    let router = dashboard(Fake::with(&[]));
    assert_eq!(get(&router, "/api/events?volume=%2e%2e%2fx").await.status, StatusCode::BAD_REQUEST);
}
