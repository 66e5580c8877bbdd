//! Advice about the policy. A script stands in for the program `braid`.

use crate::daemons::*;
use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use braid_web::{Access, router};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Makes a program of a script.
fn program(folder: &TempDir, script: &str) -> PathBuf {
    let path = folder.path().join("braid");
    let text = format!("#!/bin/sh\ncd '{}'\n{script}\n", folder.path().display());
    // Another process writes the file: a program that this process holds open for writing, or that a child of
    // another test inherits so, cannot be run.
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", &text]).arg(&path);
    assert!(shell.status().unwrap().success());
    path
}

fn with_program(path: Option<&Path>, allows_changes: bool) -> Router {
    let access = Access::new(LOOPBACK.parse().unwrap(), None, &[], allows_changes).unwrap();
    let fake = Fake::with(&[("vault", healthy("vault")), ("other", healthy("other"))]);
    router(fake, access, path.map(Path::to_owned))
}

async fn act(router: &Router, name: &str, body: Value) -> (StatusCode, Value) {
    let request = to(&format!("/api/volumes/{name}/advice")).method("POST");
    let request = request.header("content-type", "application/json");
    let answer = send(router, request.body(Body::from(body.to_string())).unwrap()).await;
    (answer.status, answer.json())
}

async fn report(router: &Router, name: &str) -> Value {
    get(router, &format!("/api/volumes/{name}/advice")).await.json()
}

async fn wait_for_end(router: &Router) -> Value {
    loop {
        let report = report(router, "vault").await;
        if report["is_running"] == false {
            return report;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn wait_for_file(folder: &TempDir, name: &str) {
    while !folder.path().join(name).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn begin() -> Value {
    json!({ "action": "begin", "seconds": 600 })
}

#[tokio::test]
async fn advice_is_the_report_of_the_program() {
    let folder = TempDir::new().unwrap();
    let path = program(&folder, r#"echo "$*" > arguments; echo '{"rows": [], "sentences": ["Keep it."]}'"#);
    let router = with_program(Some(&path), true);
    assert_eq!(
        report(&router, "vault").await,
        json!({ "is_running": false, "recording_left_seconds": null })
    );
    let (status, begun) = act(&router, "vault", begin()).await;
    assert_eq!(status, StatusCode::OK, "{begun}");
    assert!(begun["recording_left_seconds"].as_f64().is_none_or(|left| left <= 600.0), "{begun}");
    let ended = wait_for_end(&router).await;
    assert_eq!((&ended["advice"]["sentences"][0], &ended["error"]), (&"Keep it.".into(), &Value::Null));
    assert!(ended["unix_seconds"].as_u64().unwrap() > 1 << 30);
    let arguments = std::fs::read_to_string(folder.path().join("arguments")).unwrap();
    assert_eq!(arguments, "advise vault --for 600s --policies-only --attended --json\n");
    assert!(report(&router, "other").await.get("advice").is_none());
}

#[tokio::test]
async fn failed_advice_is_the_error_of_the_program() {
    let folder = TempDir::new().unwrap();
    let script = r#"echo '{"error": {"kind": "not_served", "message": "not served"}}'; exit 1"#;
    let router = with_program(Some(&program(&folder, script)), true);
    act(&router, "vault", begin()).await;
    let ended = wait_for_end(&router).await;
    assert_eq!((&ended["advice"], &ended["error"]["kind"]), (&Value::Null, &"not_served".into()));
    // A later advice takes the place of the failure; a program that dies without words is a failure, too.
    let router = with_program(Some(&program(&folder, "kill -9 $$")), true);
    act(&router, "vault", begin()).await;
    assert_eq!(wait_for_end(&router).await["error"]["kind"], "io");
    // An endless answer is cut.
    let router = with_program(Some(&program(&folder, "yes")), true);
    act(&router, "vault", begin()).await;
    assert_eq!(wait_for_end(&router).await["error"]["kind"], "io");
}

#[tokio::test]
async fn one_advice_is_made_at_a_time_and_its_recording_can_be_ended() {
    let folder = TempDir::new().unwrap();
    let script =
        r#"cat; echo > recorded; until [ -e go ]; do sleep 0.01; done; echo '{"sentences": ["Ended."]}'"#;
    let router = with_program(Some(&program(&folder, script)), true);
    assert_eq!(act(&router, "vault", begin()).await.0, StatusCode::OK);
    for name in ["vault", "other"] {
        let (status, refused) = act(&router, name, begin()).await;
        assert_eq!((status, &refused["error"]["kind"]), (StatusCode::CONFLICT, &"busy".into()));
    }
    let running = report(&router, "vault").await;
    assert!(running["is_running"] == true && running["recording_left_seconds"].is_number(), "{running}");
    for action in ["simulate", "cancel"] {
        let (status, refused) = act(&router, "other", json!({ "action": action })).await;
        assert_eq!((status, &refused["error"]["kind"]), (StatusCode::NOT_FOUND, &"invalid".into()));
    }
    let simulate = json!({ "action": "simulate" });
    assert_eq!(act(&router, "vault", simulate.clone()).await.0, StatusCode::OK);
    wait_for_file(&folder, "recorded").await;
    // A second end of the recording does not touch the simulations.
    assert_eq!(act(&router, "vault", simulate).await.0, StatusCode::NOT_FOUND);
    let running = report(&router, "vault").await;
    assert_eq!((&running["is_running"], &running["recording_left_seconds"]), (&true.into(), &Value::Null));
    std::fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(wait_for_end(&router).await["advice"]["sentences"][0], "Ended.");
}

#[tokio::test]
async fn cancelled_advice_ends_by_a_signal_even_if_asked_twice() {
    let folder = TempDir::new().unwrap();
    let script = r#"trap 'echo "{\"error\": {\"kind\": \"io\"}}"; exit' TERM; echo > begun; while :; do sleep 0.01; done"#;
    let router = with_program(Some(&program(&folder, script)), true);
    act(&router, "vault", begin()).await;
    wait_for_file(&folder, "begun").await;
    assert_eq!(act(&router, "vault", json!({ "action": "cancel" })).await.0, StatusCode::OK);
    act(&router, "vault", json!({ "action": "cancel" })).await;
    assert_eq!(wait_for_end(&router).await["error"]["kind"], "io");
}

#[tokio::test]
async fn advice_about_a_removed_volume_is_forgotten() {
    let folder = TempDir::new().unwrap();
    let access = Access::new(LOOPBACK.parse().unwrap(), None, &[], true).unwrap();
    let fake = Fake::with(&[("vault", healthy("vault"))]);
    let router = router(fake.clone(), access, Some(program(&folder, "echo '{}'")));
    act(&router, "vault", begin()).await;
    assert!(wait_for_end(&router).await["advice"].is_object());
    assert_eq!(act(&router, "nosuch", begin()).await.0, StatusCode::NOT_FOUND);
    let page = open(&router, to("/api/events").body(Body::empty()).unwrap()).await;
    let mut body = page.into_body();
    fake.volumes.lock().unwrap().clear();
    while get(&router, "/api/volumes/vault/advice").await.status != StatusCode::NOT_FOUND {
        body.frame().await.unwrap().unwrap();
    }
    body.frame().await.unwrap().unwrap();
    fake.set("vault", healthy("vault"));
    while get(&router, "/api/volumes/vault/advice").await.status != StatusCode::OK {
        body.frame().await.unwrap().unwrap();
    }
    assert!(report(&router, "vault").await.get("advice").is_none());
}

#[tokio::test]
async fn advice_needs_permission_a_program_and_a_sensible_time() {
    let folder = TempDir::new().unwrap();
    let path = program(&folder, "echo > was-run");
    let (status, refused) = act(&with_program(Some(&path), false), "vault", begin()).await;
    assert_eq!((status, &refused["error"]["kind"]), (StatusCode::FORBIDDEN, &"usage".into()));
    let router = with_program(Some(&path), true);
    for seconds in [json!(0), json!(90_000), json!(u64::MAX), json!(-1), json!("600")] {
        let (status, refused) = act(&router, "vault", json!({ "action": "begin", "seconds": seconds })).await;
        assert!(status.is_client_error() && refused["error"]["kind"] == "usage", "{refused}");
    }
    let (status, _) = act(&router, "--help", begin()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(!folder.path().join("was-run").exists());
    let (status, refused) = act(&with_program(None, true), "vault", begin()).await;
    assert_eq!((status, &refused["error"]["kind"]), (StatusCode::NOT_IMPLEMENTED, &"unsupported".into()));
    let (status, refused) = act(&with_program(Some(Path::new("/nosuch")), true), "vault", begin()).await;
    assert_eq!((status, &refused["error"]["kind"]), (StatusCode::SERVICE_UNAVAILABLE, &"io".into()));
}

#[tokio::test]
async fn end_of_the_dashboard_ends_the_advice() {
    let folder = TempDir::new().unwrap();
    let script = "trap 'echo > ended; exit' TERM; echo > begun; while :; do sleep 0.01; done";
    let router = with_program(Some(&program(&folder, script)), true);
    act(&router, "vault", begin()).await;
    wait_for_file(&folder, "begun").await;
    drop(router);
    wait_for_file(&folder, "ended").await;
}
