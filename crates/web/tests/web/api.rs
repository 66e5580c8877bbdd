use crate::daemons::*;
use axum::body::Body;
use axum::http::StatusCode;
use braid_control::{Error, ErrorKind, Request, SilentReport, VolumeReport};
use braid_web::{Access, router};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[tokio::test]
async fn volumes_are_the_reports_of_braid_status() {
    let resting = VolumeReport::Resting(at_rest("old"));
    let fake = Fake::with(&[("vault", healthy("vault")), ("old", Told::Report(Box::new(resting.clone())))]);
    let router = dashboard(fake);
    let all = get(&router, "/api/volumes").await;
    assert_eq!(all.header("content-type"), "application/json");
    let expected = serde_json::json!({ "volumes": [resting, status("vault")] });
    assert_eq!(all.body, expected.to_string());
    let one = get(&router, "/api/volumes/vault").await;
    assert_eq!(one.body, serde_json::to_string(&status("vault")).unwrap());
}

#[tokio::test]
async fn unknown_and_malformed_names_are_errors_in_json() {
    let router = dashboard(Fake::with(&[]));
    let unknown = get(&router, "/api/volumes/nosuch").await;
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["kind"]),
        (StatusCode::NOT_FOUND, &"invalid".into())
    );
    for path in ["/api/volumes/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/api/volumes/%2e%2e"] {
        let malformed = get(&router, path).await;
        assert_eq!(malformed.status, StatusCode::BAD_REQUEST, "{}", malformed.body);
        assert_eq!(malformed.header("content-type"), "application/json");
        assert_eq!(malformed.header("x-content-type-options"), "nosniff");
    }
    assert_eq!(get(&router, "/nosuch").await.status, StatusCode::NOT_FOUND);
    assert_eq!(get(&router, "/../Cargo.toml").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn silent_daemon_delays_no_other_volume_and_is_reported() {
    let fake = Fake::with(&[("good", healthy("good")), ("mute", Told::Nothing(Duration::from_secs(8)))]);
    let router = dashboard(fake.clone());
    let mute = get(&router, "/api/volumes/mute");
    let (mute, began) = (mute, Instant::now());
    let good = get(&router, "/api/volumes/good").await;
    assert!(good.status.is_success() && began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let mute = mute.await;
    assert_eq!(mute.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(mute.json()["error"]["message"].as_str().unwrap().contains("'mute'"), "{}", mute.body);
    // Later readers do not wait for the same silence again, and the daemon is not asked again.
    let (again, asked) = (Instant::now(), fake.asked.load(Ordering::Relaxed));
    let all = get(&router, "/api/volumes").await.json();
    assert!(again.elapsed() < Duration::from_secs(2), "{:?}", again.elapsed());
    assert!(fake.asked.load(Ordering::Relaxed) <= asked + 2);
    assert_eq!(all["volumes"][1]["process_state"], "unknown");
    let health = get(&router, "/healthz").await;
    assert_eq!(health.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(health.json()["reasons"][0].as_str().unwrap().starts_with("mute: No answer: "));
}

#[tokio::test]
async fn readers_share_an_answer() {
    let fake = Fake::with(&[("vault", healthy("vault"))]);
    let router = dashboard(fake.clone());
    for _ in 0..50 {
        get(&router, "/api/volumes/vault").await;
    }
    let asked = fake.asked.load(Ordering::Relaxed);
    assert!(asked <= 3, "{asked} questions for fifty readers");
}

#[tokio::test]
async fn sixty_four_volumes_are_answered_in_order() {
    let names: Vec<String> = (0..64).map(|n| format!("v{n:02}")).collect();
    let volumes: Vec<_> = names.iter().map(|name| (name.as_str(), healthy(name))).collect();
    let router = dashboard(Fake::with(&volumes));
    let all = get(&router, "/api/volumes").await.json();
    let told: Vec<_> =
        all["volumes"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(told, names);
    let health = get(&router, "/api/health").await.json();
    assert_eq!(health["sentence"], "All 64 volumes: the data is in place.");
    assert_eq!(health["volumes"].as_array().unwrap().len(), 64);
}

#[tokio::test]
async fn healthz_gives_a_reason_for_each_volume_that_is_not_whole() {
    let fake = Fake::with(&[("vault", healthy("vault"))]);
    let router = dashboard(fake.clone());
    let well = get(&router, "/healthz").await;
    assert_eq!((well.status, well.body.as_str()), (StatusCode::OK, r#"{"reasons":[],"whole":true}"#));
    let mut degraded = status("vault");
    degraded.devices[1].state = "failed".to_owned();
    let mut lost = status("vault");
    lost.lost_bytes = 4096;
    let mut unflushed = status("vault");
    unflushed.failure = Some("d0: Input/output error".to_owned());
    let mut behind = status("vault");
    behind.behind_bytes = 1 << 30;
    let error = Error::new(ErrorKind::Io, "the record of volume 'vault' is unreadable");
    let silent = SilentReport {
        name: "vault".to_owned(),
        served: true,
        process_id: None,
        process_state: "stopped".to_owned(),
        error: error.clone(),
    };
    let mut dead = at_rest("vault");
    dead.dead_mounts = vec!["/mnt".into()];
    for (told, reason) in [
        (served(degraded), "vault: Degraded: d1 (/dev/hdd) is failed"),
        (served(lost), "vault: Data lost: 4 KiB read as errors"),
        (served(unflushed), "vault: Failed: No flush can succeed any more: d0: Input/output error"),
        (served(behind), "vault: Catching up: A copy of up to 1 GiB"),
        (Told::Error(error), "vault: Unknown: The record of volume"),
        (Told::Report(Box::new(VolumeReport::Silent(silent))), "vault: No answer: The record"),
        (Told::Report(Box::new(VolumeReport::Resting(dead))), "vault: Dead mount: The daemon died"),
    ] {
        fake.set("vault", told);
        // Answers are shared for nearly a second.
        tokio::time::sleep(Duration::from_millis(950)).await;
        let unwell = get(&router, "/healthz").await;
        assert_eq!(unwell.status, StatusCode::SERVICE_UNAVAILABLE, "{reason}");
        let first = unwell.json()["reasons"][0].as_str().unwrap().to_owned();
        assert!(first.starts_with(reason), "{first}");
    }
}

#[tokio::test]
async fn volume_that_is_not_served_on_purpose_is_no_alarm() {
    let resting = VolumeReport::Resting(at_rest("old"));
    let router = dashboard(Fake::with(&[("old", Told::Report(Box::new(resting)))]));
    assert_eq!(get(&router, "/healthz").await.status, StatusCode::OK);
    let health = get(&router, "/api/health").await.json();
    assert_eq!((&health["word"], &health["level"]), (&"Not served".into(), &"idle".into()));
    assert_eq!(health["allows_changes"], false);
    let resting = Told::Report(Box::new(VolumeReport::Resting(at_rest("old"))));
    let router = dashboard(Fake::with(&[("old", resting), ("vault", healthy("vault"))]));
    let health = get(&router, "/api/health").await.json();
    assert_eq!((&health["word"], &health["level"]), (&"Safe".into(), &"good".into()));
    assert_eq!(health["sentence"], "1 served, where the data is in place; 1 not served.");
}

#[tokio::test]
async fn history_has_a_point_per_interval_with_means_in_between() {
    let fake = Fake::with(&[("vault", healthy("vault"))]);
    let router = dashboard(fake.clone());
    // The first report begins the difference, ten seconds later the second one ends it.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let mut later = status("vault");
    later.uptime_seconds += 10.0;
    later.devices[0].guest_read_requests += 1000;
    later.devices[0].guest_read_bytes += 4_096_000;
    later.devices[0].response.response_ns_mean = 5_000_000;
    later.devices[0].device_busy_seconds = 2.5;
    fake.set("vault", served(later));
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    let history = get(&router, "/api/volumes/vault/history").await.json();
    assert_eq!(history["interval_seconds"], 10);
    let device = &history["devices"][0];
    assert_eq!((&device["device"], &device["class"]), (&"d0".into(), &"ssd".into()));
    assert_eq!(device["requests_per_second"][0], 100.0, "{history}");
    assert_eq!(device["requests_share"][0], 1.0);
    assert_eq!(device["bytes_per_second"][0], 409_600.0);
    // 1,100 requests of 5 ms since the start, none measured before.
    assert_eq!(device["response_ns_mean"][0], 5_500_000);
    assert_eq!(history["devices"][1]["response_ns_mean"][0], serde_json::Value::Null);
    assert_eq!((&device["utilisation"][0], &history["range"]), (&0.25.into(), &"hour".into()));
    let day = get(&router, "/api/volumes/vault/history?range=day").await.json();
    assert_eq!((&day["interval_seconds"], &day["range"]), (&300.into(), &"day".into()));
    assert_eq!(day["devices"], history["devices"], "the present point of the day is there");
    let since = day["since_unix_seconds"].as_u64().unwrap();
    let first = device["unix_seconds"][0].as_u64().unwrap();
    assert!((10..=12).contains(&(first - since)), "{first} after {since}");
    let unknown = get(&router, "/api/volumes/vault/history?range=week").await;
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["kind"]),
        (StatusCode::BAD_REQUEST, &"usage".into())
    );
    let none = get(&router, "/api/volumes/other/history").await.json();
    assert_eq!(none["since_unix_seconds"], serde_json::Value::Null);
}

#[tokio::test]
async fn map_serves_several_readers_and_an_explanation_is_asked_for_each_time() {
    let fake = Fake::with(&[("vault", healthy("vault"))]);
    let router = dashboard(fake.clone());
    for _ in 0..5 {
        let map = get(&router, "/api/volumes/vault/map").await;
        assert_eq!((map.status, &map.json()["done"]), (StatusCode::OK, &true.into()));
        get(&router, "/api/volumes/vault/map?device=1").await;
    }
    for _ in 0..2 {
        get(&router, "/api/volumes/vault/explain?offset_bytes=4096").await;
    }
    let calls: Vec<_> = fake.calls.lock().unwrap().iter().map(|(_, request)| request.clone()).collect();
    let explain = Request::Explain { offset_bytes: 4096 };
    let (all, one) = (Request::Map { device: None }, Request::Map { device: Some(1) });
    assert_eq!(calls, [all, one, explain.clone(), explain]);
    for (path, status) in [
        ("/api/volumes/nosuch/map", StatusCode::NOT_FOUND),
        ("/api/volumes/vault/map?device=d1", StatusCode::BAD_REQUEST),
        ("/api/volumes/vault/map?device=99999", StatusCode::BAD_REQUEST),
        ("/api/volumes/vault/explain", StatusCode::BAD_REQUEST),
        ("/api/volumes/vault/explain?offset_bytes=-1", StatusCode::BAD_REQUEST),
        ("/api/volumes/..%2Fvault/explain?offset_bytes=1", StatusCode::BAD_REQUEST),
    ] {
        let refused = get(&router, path).await;
        assert_eq!(refused.status, status, "{path}: {}", refused.body);
        assert!(refused.json()["error"]["message"].is_string(), "{path}: {}", refused.body);
    }
}

#[tokio::test]
async fn changes_need_permission_and_reach_the_daemon() {
    let fake = Fake::with(&[("vault", healthy("vault"))]);
    let post = |path: &str, body: &'static str| {
        to(path).method("POST").header("content-type", "application/json").body(Body::from(body)).unwrap()
    };
    let policy = || post("/api/volumes/vault/policy", r#"{"policy":"cache,mode=write-back"}"#);
    let refused = send(&dashboard(fake.clone()), policy()).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.body.contains("--allow-changes") && fake.calls.lock().unwrap().is_empty());

    let access = Access::new(LOOPBACK.parse().unwrap(), None, &[], true).unwrap();
    let router = router(fake.clone(), access, None);
    assert_eq!(send(&router, policy()).await.status, StatusCode::OK);
    for (action, device) in [("fail", "d1"), ("return", "d1"), ("remove", "d2"), ("keep", "d2")] {
        let body = format!(r#"{{"action":"{action}"}}"#).leak();
        let done = send(&router, post(&format!("/api/volumes/vault/devices/{device}"), body)).await;
        assert_eq!(done.status, StatusCode::OK, "{}", done.body);
    }
    let wrong = send(&router, post("/api/volumes/vault/devices/d1", r#"{"action":"melt"}"#)).await;
    assert!(wrong.status.is_client_error() && wrong.json()["error"]["kind"] == "usage");
    let no_device = send(&router, post("/api/volumes/vault/devices/sda", r#"{"action":"fail"}"#)).await;
    assert_eq!(no_device.status, StatusCode::BAD_REQUEST);
    let calls: Vec<_> = fake.calls.lock().unwrap().iter().map(|(_, request)| request.clone()).collect();
    assert_eq!(
        calls,
        [
            Request::SetPolicy { policy: "cache,mode=write-back".to_owned() },
            Request::FailDevice { device: 1 },
            Request::ReturnDevice { device: 1, path: None },
            Request::RemoveDevice { device: 2 },
            Request::KeepDevice { device: 2 },
        ]
    );
    assert_eq!(get(&router, "/api/health").await.json()["allows_changes"], true);
}

#[tokio::test]
async fn long_bodies_are_refused() {
    let access = Access::new(LOOPBACK.parse().unwrap(), None, &[], true).unwrap();
    let router = router(Fake::with(&[("vault", healthy("vault"))]), access, None);
    let body = format!(r#"{{"policy":"{}"}}"#, "x".repeat(20_000));
    let request = to("/api/volumes/vault/policy").method("POST").header("content-type", "application/json");
    let refused = send(&router, request.body(Body::from(body)).unwrap()).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
}
