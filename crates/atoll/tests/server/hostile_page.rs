//! A page that a sandbox serves, in a real browser, at the API's own address: it does its worst.

use super::{
    browser::Browser,
    fixture::{KEY, Server},
    preview::{sandbox_with_app, token},
};
use crate::engine::fixture::eventually;
use serde_json::Value;

/// Signs the browser in to the console, from a page of the server.
const SIGN_IN: &str = r#"fetch("/ui/session", {method: "POST", headers: {"Content-Type": "application/json", "X-Atoll-Console": "1"},
    body: JSON.stringify({key: "KEY"})}).then(answer => answer.status)"#;
/// Whether the browser's session is worth something there.
const READ: &str = r#"fetch("/api/v1/sandboxes").then(answer => answer.status)"#;

/// Opens the page in a browser that is signed in to the console, with a cookie and storage of its own present too, and returns
/// what it got.
fn visit(server: &Server) -> (String, Value) {
    let sandbox = sandbox_with_app(server);
    for (name, content) in
        [("index.html", include_str!("hostile_page.html")), ("sw.js", "onfetch = () => {}")]
    {
        assert_eq!(server.ask("PUT", &format!("{sandbox}/files/page/{name}"), content).status, 204);
    }
    let token = token(server, &sandbox, r#"{"port":8080}"#);
    let mut browser = Browser::start();
    let docs = format!("http://{}/docs", server.address);
    browser.open(&docs);
    browser.evaluate(&SIGN_IN.replace("KEY", KEY));
    assert_eq!(browser.evaluate(READ), 200);
    browser.evaluate("document.cookie = 'console=secret; path=/'; localStorage.setItem('console', 'secret')");
    browser.open(&format!("http://{}{sandbox}/ports/8080~{token}/page/index.html", server.address));
    let report = format!("{sandbox}/files/report.json");
    eventually("the page's report", || server.ask("GET", &report, "").status == 200);
    let got = server.ask("GET", &report, "").json();
    browser.open(&docs);
    assert_eq!(browser.evaluate(READ), 200, "the session goes on");
    assert_eq!(browser.evaluate("document.cookie"), "console=secret", "nothing was planted");
    assert_eq!(browser.evaluate("JSON.stringify({...localStorage})"), r#"{"console":"secret"}"#);
    let workers = "navigator.serviceWorker.getRegistrations().then(all => all.length)";
    assert_eq!(browser.evaluate(workers), 0);
    // What it sent to its own server had nothing of the console.
    let headers = server.says(&sandbox, "cat /tmp/headers");
    assert!(!headers.contains("cookie") && !headers.contains("secret"), "{headers}");
    (sandbox, got)
}

fn harmless(server: &Server) {
    let (sandbox, got) = visit(server);
    for name in [
        "read",
        "readThis",
        "readFile",
        "docs",
        "json",
        "cookieWrite",
        "cookieRead",
        "storage",
        "session",
        "database",
        "worker",
        "frame",
        "popup",
        "consoleSession",
        "consoleSignOut",
        "consolePopup",
        "terminal",
        "forward",
    ] {
        assert!(got[name].as_str().is_some_and(|said| said.starts_with("refused: ")), "{name}: {got:#}");
    }
    assert_eq!(got["origin"], "null");
    // The browser tells such a request apart from its answer, which nobody can read.
    assert_eq!(got["blindRead"], "done: opaque0", "{got:#}");
    assert_eq!(
        (&got["own"], &got["ownJson"]),
        (&"done: /page/own?x=1".into(), &"done: PUT".into()),
        "{got:#}"
    );
    // Nor did what it sent blindly do anything.
    assert_eq!(server.ask("GET", "/api/v1/sandboxes", "").json()["total"], 1);
    assert_eq!(server.says(&sandbox, "ls /workspace/pwned 2>&1 | grep -c cannot"), "1");
}

#[test]
fn with_keys_it_gets_nothing_but_its_own_server() {
    let server = Server::start();
    assert_eq!(server.ask_as(KEY, "GET", "/api/v1/sandboxes", "").status, 200);
    harmless(&server);
}

#[test]
fn without_keys_it_gets_nothing_but_its_own_server() {
    harmless(&Server::start_with(&["--no-auth"]));
}
