//! Access: host, origin and token of requests, and the headers of all answers.
//!
//! - The `Host` header must name this machine, else another site could reach the dashboard by a name that
//!   resolves to 127.0.0.1 (DNS rebinding).
//! - A change must come from the page itself or from a program without a browser.
//! - With a token, a request carries the token (`Authorization: Bearer`), or the cookie of a login. The
//!   cookie holds a random number of this process, never the token.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use braid_control::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// Conditions for requests, and the permission to change volumes.
#[derive(Clone)]
pub struct Access {
    /// Allowed hosts, without ports, in small letters.
    hosts: Arc<[String]>,
    token: Option<Token>,
    /// Value of the cookie after a login.
    session: Arc<str>,
    allows_changes: bool,
}

/// A secret that opens the dashboard.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// Shortest token: 16 random letters resist guessing over the network.
const SHORTEST: usize = 16;
/// Longest token.
const LONGEST: usize = 1024;
/// Name of the cookie. Browsers ignore ports in cookies, so the name belongs to Braid.
const COOKIE: &str = "braid_session";
/// Delay of the answer to a wrong token.
const WRONG_DELAY: Duration = Duration::from_secs(1);
/// Longest time for an answer, without the body: a change waits for devices.
const LONGEST_ANSWER: Duration = Duration::from_secs(160);
/// Only files of the dashboard itself, and neither inline scripts nor frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// Headers of every answer, beside the content's type.
const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

impl Token {
    /// Reads a token: the first line of a file.
    ///
    /// # Errors
    /// `Io` if the file is unreadable, `Usage` if the token is short, long or not printable ASCII.
    pub fn read(file: &Path) -> Result<Token> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Error::io(format_args!("reading the token in {}", file.display()), &error))?;
        Token::new(text.lines().next().unwrap_or_default().trim())
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", file.display())))
    }

    /// Makes a token of a text.
    ///
    /// # Errors
    /// `Usage` if the text is short, long or not printable ASCII.
    pub fn new(text: &str) -> Result<Token> {
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if (SHORTEST..=LONGEST).contains(&text.len()) && is_printable {
            return Ok(Token(text.into()));
        }
        let problem = format!(
            "a token has {SHORTEST} to {LONGEST} letters, digits and marks, without spaces: for example \
             head -c 24 /dev/urandom | base64"
        );
        Err(Error::new(ErrorKind::Usage, problem))
    }
}

impl Access {
    /// Makes the conditions for a dashboard at an address.
    ///
    /// # Errors
    /// `Usage` if others can reach the address and there is no token, or if a host's name is malformed.
    pub fn new(
        listen: SocketAddr,
        token: Option<Token>,
        hosts: &[String],
        allows_changes: bool,
    ) -> Result<Access> {
        if !listen.ip().is_loopback() && token.is_none() {
            let problem = format!(
                "--listen {listen}: other machines can reach this address: add --token FILE, or listen on \
                 127.0.0.1"
            );
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        let mut allowed: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        if !listen.ip().is_unspecified() {
            allowed.push(match listen {
                SocketAddr::V4(address) => address.ip().to_string(),
                SocketAddr::V6(address) => format!("[{}]", address.ip()),
            });
        }
        for host in hosts {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
            if host.is_empty() || !host.chars().all(is_name) || without_port(host) != host {
                let problem = format!("--host {host}: use a name or address without port, as in nas.local");
                return Err(Error::new(ErrorKind::Usage, problem));
            }
            allowed.push(host.to_ascii_lowercase());
        }
        let session = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        Ok(Access { hosts: allowed.into(), token, session: session.into(), allows_changes })
    }

    /// True if volumes may be changed.
    pub(crate) fn allows_changes(&self) -> bool {
        self.allows_changes
    }

    /// Answers a login: a cookie for the right token, after a delay an error for a wrong token.
    pub(crate) async fn login(&self, given: &str) -> Response {
        let Some(token) = &self.token else { return Redirect::to("/").into_response() };
        if !is_equal(token.0.as_bytes(), given.trim().as_bytes()) {
            tokio::time::sleep(WRONG_DELAY).await;
            return Redirect::to("/login?wrong").into_response();
        }
        let cookie = format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict", self.session);
        ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
    }

    fn is_known_host(&self, headers: &HeaderMap) -> bool {
        host(headers).is_some_and(|host| {
            let name = without_port(host).to_ascii_lowercase();
            self.hosts.contains(&name)
        })
    }

    fn is_authorised(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
            let (scheme, given) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(given.trim())
        });
        let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        bearer.is_some_and(|given| is_equal(token.0.as_bytes(), given.as_bytes()))
            || pairs
                .any(|(name, value)| name == COOKIE && is_equal(self.session.as_bytes(), value.as_bytes()))
    }
}

/// Checks a request, lets the dashboard answer, and adds the headers.
pub(crate) async fn guard(State(access): State<Access>, request: Request, next: Next) -> Response {
    let mut answer = match refusal(&access, &request) {
        Some(refusal) => refusal,
        None => match tokio::time::timeout(LONGEST_ANSWER, next.run(request)).await {
            Ok(answer) => answer,
            Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Io, "no answer in time"),
        },
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Returns the answer to a request that must not reach the dashboard.
fn refusal(access: &Access, request: &Request) -> Option<Response> {
    let (headers, path) = (request.headers(), request.uri().path());
    if !access.is_known_host(headers) {
        let problem = "this name is not a name of the dashboard: add --host NAME to braid web";
        return Some(refuse(StatusCode::MISDIRECTED_REQUEST, ErrorKind::Usage, problem));
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read && !is_same_origin(headers) {
        let problem = "the request comes from another site";
        return Some(refuse(StatusCode::FORBIDDEN, ErrorKind::Usage, problem));
    }
    // A login needs these before there is a cookie.
    let is_open = matches!(path, "/login" | "/style.css" | "/icon.svg");
    if is_open || access.is_authorised(headers) {
        return None;
    }
    if path == "/" && is_read {
        return Some(Redirect::to("/login").into_response());
    }
    let problem = "a token is needed: Authorization: Bearer TOKEN, or log in at /login";
    let mut answer = refuse(StatusCode::UNAUTHORIZED, ErrorKind::Usage, problem);
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Some(answer)
}

/// Answers with an error, as commands do with `--json`.
pub(crate) fn refuse(status: StatusCode, kind: ErrorKind, problem: &str) -> Response {
    let error = serde_json::json!({ "error": Error::new(kind, problem) });
    (status, axum::Json(error)).into_response()
}

/// True unless a browser says that another site sent the request.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    let origin = text("origin").is_none_or(|origin| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority.is_some() && authority == host(headers)
    });
    origin && text("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"))
}

/// The one `Host` header.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).into_iter();
    let first = hosts.next()?.to_str().ok()?;
    hosts.next().is_none().then_some(first)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !is_cut(name) => name,
        _ => host,
    }
}

/// True if a text is the beginning of an IPv6 address in brackets.
fn is_cut(name: &str) -> bool {
    name.starts_with('[') && !name.ends_with(']')
}

/// Compares secrets in a time that does not depend on their content.
fn is_equal(secret: &[u8], given: &[u8]) -> bool {
    secret.ct_eq(given).into()
}
