//! Web pages as clients, and the second address.

use super::{super::http, KEY};
use crate::control_plane::Server;
use serde_json::json;

#[test]
fn pages_of_allowed_origins_may_ask_and_there_is_no_star() {
    // The first line is of [grpc].
    let config = "allowed_origins = [\"https://web.example.com\"]\n[langgraph]\nlisten = \"127.0.0.1:0\"\n\
                  [mcp]\nallowed_origins = [\"https://app.example.com\"]\n";
    let server = Server::start_configured(config, &[]);
    let second = server.langgraph.unwrap();
    for address in [server.address, second] {
        let preflight = |origin: &str| {
            let headers = [
                ("Origin", origin),
                ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers", "x-api-key,last-event-id"),
            ];
            http::request(address, "OPTIONS", "/threads/search", &headers, b"").unwrap()
        };
        let may = preflight("http://localhost:3000");
        assert_eq!(may.status, 204, "{}", may.head);
        assert_eq!(may.header("access-control-allow-origin"), Some("http://localhost:3000"));
        let sent = may.header("access-control-allow-headers").unwrap();
        assert!(sent.contains("x-api-key") && sent.contains("last-event-id"), "{sent}");
        for allowed in ["https://app.example.com", "https://web.example.com"] {
            assert_eq!(preflight(allowed).status, 204, "{allowed}");
        }
        let other = preflight("https://evil.example");
        assert_eq!(
            (other.status, other.header("access-control-allow-origin")),
            (403, None),
            "{}",
            other.head
        );
        let headers = [("Origin", "http://localhost:3000"), ("X-Api-Key", KEY)];
        let asked = http::request(address, "POST", "/threads/search", &headers, b"{}").unwrap();
        assert_eq!((asked.status, asked.json()), (200, json!([])));
        let read = asked.header("access-control-expose-headers").unwrap();
        assert!(read.contains("content-location") && read.contains("x-pagination-next"), "{read}");
        let refused = [("Origin", "https://evil.example"), ("X-Api-Key", KEY)];
        assert_eq!(http::request(address, "POST", "/threads/search", &refused, b"{}").unwrap().status, 403);
    }
    for path in ["/info", "/ok"] {
        assert_eq!(http::request(second, "GET", path, &[], b"").unwrap().status, 200, "{path}");
    }
    let info = http::request(second, "GET", "/info", &[], b"").unwrap().json();
    assert!(info["version"].is_string() && info["flags"]["assistants"] == true, "{info}");
}
