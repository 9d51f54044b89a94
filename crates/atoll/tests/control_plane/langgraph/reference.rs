//! The same scripted conversation with LangChain's own server and with ours: the same events in the same order, and every
//! field that a client could read of theirs is in ours.

use super::{KEY, Served, model, node, server};
use atoll_types::sse::SseReader;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The events of a run by these modes, through curl: neither server is asked by our own client.
fn events(url: &str, modes: &[&str]) -> Vec<(String, Value)> {
    let curl = |path: &str, body: &Value| {
        let ran = std::process::Command::new("curl")
            .args(["-sN", "--max-time", "60", "-H", "content-type: application/json", "-H"])
            .arg(format!("x-api-key: {KEY}"))
            .args(["-d", &body.to_string(), &format!("{url}{path}")])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        ran.stdout
    };
    let made: Value = serde_json::from_slice(&curl("/threads", &json!({}))).unwrap();
    let body = json!({
        "assistant_id": "agent", "stream_mode": modes,
        "input": { "messages": [{ "role": "user", "content": "the answer?" }] },
    });
    let out = curl(&format!("/threads/{}/runs/stream", made["thread_id"].as_str().unwrap()), &body);
    let mut reader = SseReader::new(1 << 20);
    reader.push(&out);
    let mut all = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        if let (Some(name), Some(data)) = (event.event, event.data) {
            all.push((name, serde_json::from_str(&data).unwrap()));
        }
    }
    all
}

/// The names in their order, each once where it repeats: how a message is cut into pieces is the model client's affair.
fn order(events: &[(String, Value)]) -> Vec<String> {
    let mut names: Vec<_> = events.iter().map(|(name, _)| name.clone()).collect();
    // Theirs says nothing at the end.
    names.retain(|name| name != "end");
    names.dedup();
    names
}

/// Fields by the kind of message. What only their implementation has is left out.
fn fields(events: &[(String, Value)], name: &str) -> BTreeMap<String, BTreeSet<String>> {
    const THEIRS: [&str; 3] = ["tool_call_chunks", "metadata", "usage_metadata"];
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, data) in events.iter().filter(|(of, _)| of == name) {
        let messages = match data {
            Value::Array(list) => list.iter().filter(|one| one.get("content").is_some()).collect::<Vec<_>>(),
            data => data["messages"].as_array().into_iter().flatten().collect(),
        };
        for message in messages {
            let kind = message["type"].as_str().unwrap().replace("AIMessageChunk", "ai");
            let names = message.as_object().unwrap().keys().filter(|name| !THEIRS.contains(&name.as_str()));
            found.entry(kind).or_default().extend(names.cloned());
        }
    }
    found
}

/// The nodes of the updates, in their order.
fn nodes(events: &[(String, Value)]) -> Vec<String> {
    let updates = events.iter().filter(|(name, _)| name == "updates");
    updates.flat_map(|(_, data)| data.as_object().unwrap().keys().cloned()).collect()
}

#[test]
fn events_have_the_shapes_of_langchains_own_server() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let theirs = Served::start(node("langgraph-server", "reference.mjs").arg(&model.url).arg(folder.path()));
    let server = server(&model);
    let ours = format!("http://{}", server.address);
    for modes in
        [&["values"][..], &["updates"], &["messages-tuple"], &["messages"], &["values", "messages-tuple"]]
    {
        let (expected, found) = (events(&theirs.url, modes), events(&ours, modes));
        assert_eq!(order(&found), order(&expected), "{modes:?}");
        // The nodes that each step's update is of.
        assert_eq!(nodes(&found), nodes(&expected), "{modes:?}");
        for name in ["values", "messages", "messages/partial", "messages/complete"] {
            for (kind, wanted) in fields(&expected, name) {
                let has = &fields(&found, name)[&kind];
                assert!(wanted.is_subset(has), "{name} of {kind}: {:?} are missing", wanted.difference(has));
            }
        }
    }
    let metadata = |events: Vec<(String, Value)>| -> BTreeSet<String> {
        let piece = events.iter().find(|(name, _)| name == "messages").unwrap().1[1].clone();
        piece
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| name.contains("langgraph_") || name.ends_with("_id"))
            .cloned()
            .collect()
    };
    let (expected, found) =
        (metadata(events(&theirs.url, &["messages-tuple"])), metadata(events(&ours, &["messages-tuple"])));
    let build = ["langgraph_version", "langgraph_plan", "langgraph_host"].map(str::to_owned);
    let missing: Vec<_> = expected.difference(&found).filter(|name| !build.contains(name)).collect();
    assert_eq!(missing, Vec::<&String>::new());
}
