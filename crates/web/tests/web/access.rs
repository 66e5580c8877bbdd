use crate::daemons::*;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use braid_web::{Access, Token, router};

const SECRET: &str = "correct-horse-battery";

fn guarded() -> axum::Router {
    let token = Token::new(SECRET).unwrap();
    let access = Access::new("0.0.0.0:7070".parse().unwrap(), Some(token), &["nas.local".to_owned()], true);
    router(Fake::with(&[("vault", healthy("vault"))]), access.unwrap(), None)
}

#[tokio::test]
async fn foreign_host_is_refused_everywhere() {
    let router = dashboard(Fake::with(&[]));
    for path in ["/", "/api/volumes", "/metrics", "/healthz", "/api/events"] {
        for host in
            ["evil.example", "evil.example:7070", "localhost.evil.example", "127.0.0.1.evil.example", ""]
        {
            let request = Request::builder().uri(path).header("host", host).body(Body::empty()).unwrap();
            assert_eq!(send(&router, request).await.status, StatusCode::MISDIRECTED_REQUEST, "{host} {path}");
        }
        let none = Request::builder().uri(path).body(Body::empty()).unwrap();
        assert_eq!(send(&router, none).await.status, StatusCode::MISDIRECTED_REQUEST);
    }
    for host in ["localhost", "LOCALHOST:7070", "127.0.0.1:1", "[::1]", "[::1]:7070"] {
        let request = Request::builder().uri("/healthz").header("host", host).body(Body::empty()).unwrap();
        assert_eq!(send(&router, request).await.status, StatusCode::OK, "{host}");
    }
    let two = to("/healthz").header("host", "evil.example").body(Body::empty()).unwrap();
    assert_eq!(send(&router, two).await.status, StatusCode::MISDIRECTED_REQUEST);
}

#[tokio::test]
async fn every_address_but_the_login_needs_the_token() {
    let router = guarded();
    let paths = [
        "/api/volumes",
        "/api/volumes/vault",
        "/api/health",
        "/api/events",
        "/metrics",
        "/healthz",
        "/app.js",
    ];
    for path in paths {
        let refused = get(&router, path).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(refused.header("www-authenticate"), "Bearer");
        assert!(!refused.body.contains("vault"), "{path}");
        for wrong in ["Bearer", "Bearer correct-horse-batter", "Bearer correct-horse-battery2", "Basic x"] {
            let request = to(path).header("authorization", wrong).body(Body::empty()).unwrap();
            assert_eq!(send(&router, request).await.status, StatusCode::UNAUTHORIZED, "{path} {wrong}");
        }
    }
    let bearer =
        to("/healthz").header("authorization", format!("Bearer {SECRET}")).body(Body::empty()).unwrap();
    assert_eq!(send(&router, bearer).await.status, StatusCode::OK);
    let page = get(&router, "/").await;
    assert_eq!((page.status, page.header("location")), (StatusCode::SEE_OTHER, "/login"));
    assert_eq!(get(&router, "/login").await.status, StatusCode::OK);
    let change = to("/api/volumes/vault/policy").method("POST").body(Body::empty()).unwrap();
    assert_eq!(send(&router, change).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn login_gives_a_cookie_that_is_not_the_token() {
    let router = guarded();
    let login = |token: &str| {
        let form = "application/x-www-form-urlencoded";
        let request = to("/login").method("POST").header("content-type", form);
        request.body(Body::from(format!("token={token}"))).unwrap()
    };
    let wrong = send(&router, login("wrong")).await;
    assert_eq!((wrong.header("location"), wrong.header("set-cookie")), ("/login?wrong", ""));
    let right = send(&router, login(SECRET)).await;
    let cookie = right.header("set-cookie").to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(SECRET));
    let pair = cookie.split(';').next().unwrap();
    let with = to("/api/volumes").header("cookie", format!("other=1; {pair}")).body(Body::empty()).unwrap();
    assert_eq!(send(&router, with).await.status, StatusCode::OK);
    let forged = to("/api/volumes").header("cookie", "braid_session=0").body(Body::empty()).unwrap();
    assert_eq!(send(&router, forged).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn change_from_another_site_is_refused() {
    let fake = Fake::with(&[("vault", healthy("vault"))]);
    let router = router(fake.clone(), Access::new(LOOPBACK.parse().unwrap(), None, &[], true).unwrap(), None);
    let post = |name: &str, value: &str| {
        let request =
            to("/api/volumes/vault/policy").method("POST").header("content-type", "application/json");
        request.header(name, value).body(Body::from(r#"{"policy":"equi"}"#)).unwrap()
    };
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://localhost:8080"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        assert_eq!(send(&router, post(name, value)).await.status, StatusCode::FORBIDDEN, "{name}: {value}");
    }
    // A form of another site cannot send JSON.
    let form = to("/api/volumes/vault/policy").method("POST").header("content-type", "text/plain");
    let form = form.body(Body::from(r#"{"policy":"equi"}"#)).unwrap();
    assert_eq!(send(&router, form).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(fake.calls.lock().unwrap().is_empty());
    assert_eq!(send(&router, post("origin", "http://localhost:7070")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn every_answer_has_the_headers_of_a_careful_site() {
    let router = dashboard(Fake::with(&[("vault", healthy("vault"))]));
    for path in ["/", "/app.js", "/api/volumes", "/metrics", "/nosuch", "/login"] {
        let answer = get(&router, path).await;
        let policy = answer.header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("script-src 'self'"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert_eq!(answer.header("cache-control"), "no-store");
    }
}

#[test]
fn address_off_loopback_needs_a_token() {
    for open in ["0.0.0.0:7070", "192.168.1.2:7070", "[::]:7070"] {
        let Err(error) = Access::new(open.parse().unwrap(), None, &[], false) else { panic!("{open}") };
        assert!(error.to_string().contains("--token"), "{error}");
    }
    for closed in ["127.0.0.1:0", "127.8.8.8:7070", "[::1]:7070"] {
        assert!(Access::new(closed.parse().unwrap(), None, &[], false).is_ok(), "{closed}");
    }
    for host in ["", "nas:7070", "na s", "nas/x"] {
        assert!(Access::new(LOOPBACK.parse().unwrap(), None, &[host.to_owned()], false).is_err(), "{host}");
    }
}

#[test]
fn weak_tokens_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    for weak in ["", "short", "with spaces in between", "täglich-wechselnd-äöü"] {
        std::fs::write(&file, weak).unwrap();
        let Err(error) = Token::read(&file) else { panic!("{weak}") };
        assert!(error.to_string().contains("16 to 1024"), "{error}");
    }
    std::fs::write(&file, format!("{SECRET}\nnot read\n")).unwrap();
    assert!(Token::read(&file).is_ok());
    assert!(Token::read(&dir.path().join("none")).is_err());
}
