//! Reading events as a client does.

use super::{AUTH, Server, http};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use std::io::{BufRead, BufReader};

/// An answer of events.
pub(super) struct Events {
    reader: BufReader<http::Coming>,
}

/// All that came.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) started: Option<Value>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// Beyond the last byte.
    pub(super) next: u64,
    /// The offset to resume at.
    pub(super) id: u64,
    pub(super) dropped: Vec<(u64, u64)>,
    pub(super) base64: usize,
    pub(super) exit: Option<Value>,
    pub(super) error: Option<Value>,
}

impl Seen {
    pub(super) fn exit(&self) -> &Value {
        self.exit.as_ref().unwrap_or_else(|| panic!("no end: {:?}", self.error))
    }

    /// Takes an event in.
    pub(super) fn add(&mut self, (id, event): (u64, Value)) {
        assert!(self.exit.is_none() && self.error.is_none(), "an event after the end");
        self.id = id;
        let number = |name: &str| event[name].as_u64().unwrap_or_else(|| panic!("{name}: {event}"));
        match event["type"].as_str().unwrap() {
            "started" => self.started = Some(event),
            kind @ ("stdout" | "stderr") => {
                let data = event["data"].as_str().unwrap();
                let data = match event.get("encoding") {
                    Some(_) => STANDARD.decode(data).unwrap(),
                    None => data.as_bytes().to_vec(),
                };
                self.base64 += usize::from(event.get("encoding").is_some());
                self.next =
                    event["next"].as_u64().unwrap_or(number("offset") + data.len() as u64).max(self.next);
                let to = if kind == "stdout" { &mut self.stdout } else { &mut self.stderr };
                to.extend(data);
            }
            "dropped" => {
                self.dropped.push((number("offset"), number("bytes")));
                self.next = self.next.max(number("offset"));
            }
            "exit" => self.exit = Some(event),
            "error" => self.error = Some(event),
            other => panic!("{other}"),
        }
    }
}

impl Events {
    pub(super) fn open(
        server: &Server,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        let headers: Vec<_> = [AUTH].into_iter().chain(headers.iter().copied()).collect();
        let coming = http::open(server.address, method, path, &headers, body.as_bytes()).unwrap();
        assert_eq!(coming.status, 200, "{}", coming.head);
        assert!(coming.head.contains("text/event-stream"), "{}", coming.head);
        Self { reader: BufReader::new(coming) }
    }

    /// Starts a command and follows it.
    pub(super) fn run(server: &Server, sandbox: &str, mut body: Value) -> Self {
        body["stream"] = true.into();
        Self::open(server, "POST", &format!("{sandbox}/exec"), &[], &body.to_string())
    }

    /// Follows a command that there is.
    pub(super) fn follow(server: &Server, exec: &str, from: u64) -> Self {
        Self::open(server, "GET", &format!("{exec}/output?follow=true&from={from}"), &[], "")
    }

    /// The next event with its id; none when the connection is over, however that came.
    pub(super) fn next(&mut self) -> Option<(u64, Value)> {
        let mut id = None;
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.trim().parse().ok();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((id.unwrap(), serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// Reads to the end.
    pub(super) fn rest(&mut self, mut seen: Seen) -> Seen {
        while let Some(event) = self.next() {
            seen.add(event);
        }
        seen
    }

    pub(super) fn all(mut self) -> Seen {
        self.rest(Seen::default())
    }

    /// Whether the answer came to its own end.
    pub(super) fn is_whole(&self) -> bool {
        self.reader.get_ref().is_whole()
    }

    pub(super) fn raw(self) -> BufReader<http::Coming> {
        self.reader
    }
}
