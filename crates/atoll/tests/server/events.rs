//! What happens to sandboxes reaches every client that follows events: live, in order, with its reason, once, and also after
//! either side was away.

use super::{
    fixture::{KEY, Server},
    http,
};
use crate::engine::fixture::eventually;
use atoll_store::{EVENTS_KEPT, EventKind, Events as _, NewEvent};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// A listener.
struct Ears {
    reader: BufReader<http::Coming>,
    /// The last id that was told.
    last: Option<u64>,
}

impl Ears {
    fn open(server: &Server, key: &str, query: &str, headers: &[(&str, &str)]) -> Self {
        let authorization = format!("Bearer {key}");
        let mut all = vec![("Authorization", authorization.as_str())];
        all.extend(headers);
        let coming = http::open(server.address, "GET", &format!("/api/v1/events{query}"), &all, b"").unwrap();
        assert_eq!(coming.status, 200, "{}", coming.head);
        assert!(coming.head.contains("text/event-stream"), "{}", coming.head);
        let mut ears = Self { reader: BufReader::new(coming), last: None };
        // The greeting: from here on nothing is lost.
        assert_eq!(ears.block().unwrap(), None);
        ears
    }

    /// The next lines: an event, or only a sign of life; an error when the connection broke.
    fn block(&mut self) -> std::io::Result<Option<(String, Value)>> {
        let (mut kind, mut data) = (String::new(), None);
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end_matches('\n').split_once(": ") {
                Some(("id", id)) => self.last = Some(id.parse().unwrap()),
                Some(("event", name)) => kind = name.to_owned(),
                Some(("data", json)) => data = Some(serde_json::from_str(json).unwrap()),
                _ if line == "\n" => return Ok(data.map(|data| (kind, data))),
                _ => assert!(line.starts_with(':'), "{line}"),
            }
        }
    }

    fn next(&mut self) -> std::io::Result<(String, Value)> {
        loop {
            if let Some(event) = self.block()? {
                return Ok(event);
            }
        }
    }

    /// Events up to the first of this kind.
    fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut heard = Vec::new();
        loop {
            let (name, event) = self.next().unwrap();
            assert_eq!(name, event["kind"]);
            assert_eq!(event["id"].as_u64(), self.last);
            heard.push(event);
            if name == kind {
                return heard;
            }
        }
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

fn id_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// Ends a sandbox's first process as the machine would.
pub(super) fn kill_inside(server: &Server, path: &str) {
    assert!(Command::new("kill").args(["-KILL", &server.pid_1(path)]).status().unwrap().success());
    eventually("the news", || server.ask("GET", path, "").json()["status"] == "dead");
}

#[test]
fn a_life_is_told_as_it_happens_and_why() {
    let server = Server::start();
    let mut ears = Ears::open(&server, KEY, "?follow=true", &[]);
    let path = server.create("{}");
    let born = ears.until("ready");
    assert_eq!(kinds(&born), ["created", "ready"]);
    for event in &born {
        assert_eq!(event["sandbox_id"], id_of(&path));
        assert_eq!(event["owner"], atoll_core::owner_id("admin"));
        assert!(event["at"].as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(born[1]["data"]["status"], "ready");
    server.ask("POST", &format!("{path}/stop"), "");
    let stopped = ears.until("stopped");
    let stopped = stopped.last().unwrap();
    assert!(stopped["data"]["was"].is_string(), "{stopped}");
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    ears.until("ready");
    kill_inside(&server, &path);
    let dead = ears.until("dead");
    assert!(dead.last().unwrap()["reason"].as_str().unwrap().contains("SIGKILL"), "{dead:?}");
    server.ask("DELETE", &path, "");
    ears.until("destroyed");
    // The same as a list, page by page.
    let mut listed = Vec::new();
    let mut after = 0;
    loop {
        let page = server
            .ask("GET", &format!("/api/v1/events?sandbox_id={}&limit=2&after={after}", id_of(&path)), "")
            .json();
        assert_eq!(page["missed"], false);
        let events = page["events"].as_array().unwrap().clone();
        listed.extend(events.clone());
        after = page["next_after"].as_u64().unwrap();
        if events.len() < 2 {
            assert_eq!(page["newest"], after);
            break;
        }
    }
    let told = kinds(&listed);
    let main: Vec<_> = told.iter().filter(|kind| **kind != "starting").copied().collect();
    assert_eq!(main, ["created", "ready", "stopped", "ready", "dead", "destroyed"]);
    // By hand.
    let (code, out, _) =
        server.atoll(&["events", "--sandbox", id_of(&path), "--kind", "dead", "--kind", "stopped"]);
    assert_eq!((code, out.lines().count(), out.contains("SIGKILL")), (Some(0), 2, true), "{out}");
    let (_, out, _) = server.atoll(&["events", "--json", "--kind", "created"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["events"][0]["kind"], "created");
}

#[test]
fn a_listener_goes_on_where_it_was_after_the_server_was_killed() {
    let mut server = Server::start();
    let mut heard = Vec::new();
    let mut last = None;
    for _ in 0..3 {
        let before = server.create("{}");
        let resume = last.map(|id: u64| id.to_string()).unwrap_or_default();
        // What is in the query is where the first connection began.
        let headers = [("Accept", "text/event-stream"), ("Last-Event-ID", resume.as_str())];
        let mut ears = Ears::open(&server, KEY, "?after=0&kind=created,destroyed", &headers);
        heard.extend(ears.until("created"));
        assert_eq!(heard.last().unwrap()["sandbox_id"], id_of(&before));
        server.create("{}");
        heard.extend(ears.until("created"));
        last = ears.last;
        // Nobody hears of these two while the connection is gone.
        drop(ears);
        server.ask("DELETE", &before, "");
        server.create("{}");
        server.kill();
        server.restart();
        let mut ears = Ears::open(
            &server,
            KEY,
            "?kind=created,destroyed",
            &[("Accept", "text/event-stream"), ("Last-Event-ID", &last.unwrap().to_string())],
        );
        heard.extend(ears.until("created"));
        last = ears.last;
        // And the server goes away under a listener.
        server.kill();
        assert!(ears.next().is_err());
        server.restart();
    }
    assert_eq!(kinds(&heard), ["created", "created", "destroyed", "created"].repeat(3));
    let all = server.ask("GET", "/api/v1/events?kind=created,destroyed&limit=1000", "").json();
    assert_eq!(all["events"].as_array().unwrap(), &heard, "none lost, none twice");
}

#[test]
fn each_owner_hears_its_own() {
    let server = Server::start();
    let (ann, bob) = (server.key_of("ann", "user"), server.key_of("bob", "user"));
    let reader = server.key_of("ann", "read_only");
    let mut hers = Ears::open(&server, &reader, "?follow=true", &[]);
    let mut his = Ears::open(&server, &bob, "?follow=true&owner=bob", &[]);
    let mut deaf = Ears::open(&server, &bob, "?follow=true&owner=ann", &[]);
    let mut all = Ears::open(&server, KEY, "?follow=true&kind=created", &[]);
    let make = |key: &str| {
        let made = server.ask_as(key, "POST", "/api/v1/sandboxes", "{}");
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (make(&ann), make(&bob));
    assert_eq!(hers.until("created")[0]["sandbox_id"], first);
    assert_eq!(his.until("created")[0]["sandbox_id"], second, "the first that he hears");
    let created = [all.until("created"), all.until("created")].concat();
    let of: Vec<_> = created.iter().map(|event| event["sandbox_id"].as_str().unwrap()).collect();
    assert_eq!(of, [&first, &second]);
    let list = |key: &str, query: &str| {
        let page = server.ask_as(key, "GET", &format!("/api/v1/events?kind=created{query}"), "").json();
        page["events"].as_array().unwrap().len()
    };
    assert_eq!((list(&ann, ""), list(&reader, ""), list(KEY, ""), list(KEY, "&owner=bob")), (1, 1, 2, 1));
    assert_eq!((list(&bob, "&owner=ann"), list(&bob, &format!("&sandbox_id={first}"))), (0, 0));
    assert_eq!(server.ask_as("wrong", "GET", "/api/v1/events", "").status, 401);
    // A key that is revoked is soon deaf, though nothing happens.
    let keys = server.ask("GET", "/api/v1/keys", "").json();
    let key =
        keys["items"].as_array().unwrap().iter().find(|key| key["owner"] == "bob").unwrap()["id"].clone();
    assert_eq!(server.ask("DELETE", &format!("/api/v1/keys/{}", key.as_str().unwrap()), "").status, 200);
    let (kind, said) = deaf.next().unwrap();
    assert_eq!((kind.as_str(), &said["code"]), ("error", &json!("permission_denied")));
    assert!(deaf.next().is_err(), "and that was all");
}

#[test]
fn events_that_are_gone_are_missed_and_said_so() {
    let mut server = Server::start();
    let event = NewEvent {
        at: 1,
        owner: "o".into(),
        sandbox: None,
        kind: EventKind::ExecEnded,
        reason: None,
        data: "{}".into(),
    };
    server.beneath(|trail| async move {
        trail.store.append_events(vec![event; usize::try_from(EVENTS_KEPT).unwrap() + 5]).await.unwrap();
    });
    let list = |query: &str| server.ask("GET", &format!("/api/v1/events?limit=1{query}"), "").json();
    let newest = list("")["newest"].as_u64().unwrap();
    let oldest = newest - EVENTS_KEPT + 1;
    assert_eq!((&list("")["missed"], &list("")["events"][0]["id"]), (&json!(false), &json!(oldest)));
    assert_eq!(list("&after=0")["missed"], false, "the oldest that is kept was asked for");
    assert_eq!(list(&format!("&after={}", oldest - 1))["missed"], false);
    assert_eq!(list(&format!("&after={}", oldest - 2))["missed"], true);
    assert_eq!(list(&format!("&after={}", newest + 1))["missed"], true, "it never was");
    let mut ears = Ears::open(&server, KEY, "?follow=true&after=1", &[]);
    let (kind, said) = ears.next().unwrap();
    assert_eq!((kind.as_str(), &said["after"], ears.last), ("missed", &json!(1), Some(oldest - 1)));
    assert!(said["reason"].as_str().unwrap().contains("gone"));
    assert_eq!(ears.next().unwrap().1["id"], oldest);
    let mut ears = Ears::open(&server, KEY, "?follow=true&after=0&kind=created", &[]);
    let path = server.create("{}");
    assert_eq!(ears.until("created")[0]["sandbox_id"], id_of(&path), "and nothing was missed");
}

#[test]
fn the_command_line_finds_the_server_again() {
    let mut server = Server::start();
    let first = server.create("{}");
    let mut child = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["events", "-f", "--after", "0", "--kind", "created"])
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut hears = |path: &str| {
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(&id_of(path)[..8]) && line.contains("created"), "{line}");
    };
    hears(&first);
    let second = server.create("{}");
    hears(&second);
    let address = server.address;
    server.kill();
    server.restart_at(address);
    let third = server.create("{}");
    hears(&third);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_server_that_ends_ends_its_streams() {
    let mut server = Server::start();
    let mut ears = Ears::open(&server, KEY, "?follow=true", &[]);
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(ears.next().is_err());
    assert!(ears.reader.get_ref().is_whole(), "told, and not torn");
    server.child.wait().unwrap();
    server.restart();
}
