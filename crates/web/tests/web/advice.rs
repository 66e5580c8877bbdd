//! Advice about the policy. A script stands in for the program `braid`.

use crate::daemons::*;
use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use braid_web::{Access, router};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Makes a program of a script.
fn program(folder: &TempDir, script: &str) -> PathBuf {
    let path = folder.path().join("braid");
    std::fs::write(&path, format!("#!/bin/sh\ncd '{}'\n{script}\n", folder.path().display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
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
        json!({ "is_running": false, "recorded_until_unix_seconds": null })
    );
    let (status, begun) = act(&router, "vault", begin()).await;
    assert_eq!(status, StatusCode::OK, "{begun}");
    assert!(begun["recorded_until_unix_seconds"].as_u64().is_none_or(|until| until > 1 << 30), "{begun}");
    let ended = wait_for_end(&router).await;
    assert_eq!((&ended["advice"]["sentences"][0], &ended["error"]), (&"Keep it.".into(), &Value::Null));
    assert!(ended["unix_seconds"].as_u64().unwrap() > 1 << 30);
    let arguments = std::fs::read_to_string(folder.path().join("arguments")).unwrap();
    assert_eq!(arguments, "advise vault --for 600s --policies-only --json\n");
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
async fn one_advice_is_made_at_a_time_and_can_be_ended() {
    let folder = TempDir::new().unwrap();
    let script = r#"trap 'echo "{\"sentences\": [\"Ended.\"]}"; exit' INT; echo > begun; while :; do sleep 0.01; done"#;
    let router = with_program(Some(&program(&folder, script)), true);
    assert_eq!(act(&router, "vault", begin()).await.0, StatusCode::OK);
    for name in ["vault", "other"] {
        let (status, refused) = act(&router, name, begin()).await;
        assert_eq!((status, &refused["error"]["kind"]), (StatusCode::CONFLICT, &"busy".into()));
    }
    assert_eq!(report(&router, "vault").await["is_running"], true);
    let (status, refused) = act(&router, "other", json!({ "action": "end" })).await;
    assert_eq!((status, &refused["error"]["kind"]), (StatusCode::NOT_FOUND, &"invalid".into()));
    while !folder.path().join("begun").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(act(&router, "vault", json!({ "action": "end" })).await.0, StatusCode::OK);
    assert_eq!(wait_for_end(&router).await["advice"]["sentences"][0], "Ended.");
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
    let exists = async |name: &str| {
        while !folder.path().join(name).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    exists("begun").await;
    drop(router);
    exists("ended").await;
}
