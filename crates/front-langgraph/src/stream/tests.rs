//! One scripted conversation, by every mode and by protocol v2.

use super::{modes::RunFacts, *};
use atoll_agent::{Event, EventKind, OutputStream};
use atoll_types::{
    RunId, ThreadCheckpointId,
    conversation::{
        Block, Checkpoint, CheckpointSource, ConversationState, FinishReason, Interrupt, InterruptKind,
        Message, Metadata, ModelFault, Node, Role, RunFailure, RunFailureCode, RunStatus, StopReason,
        TokenUsage, ToolCall, ToolCallStatus, ToolResult,
    },
    sse::SseReader,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};
use uuid::Uuid;

fn call() -> ToolCall {
    ToolCall {
        id: "call_1".into(),
        name: "execute_code".into(),
        arguments: json!({ "code": "print(6*7)" }),
        broken: None,
        signature: None,
    }
}

fn of_tool() -> Message {
    let result = ToolResult {
        call: "call_1".into(),
        name: "execute_code".into(),
        status: ToolCallStatus::Success,
        value: json!({ "stdout": "42\n" }),
        pictures: Vec::new(),
        sandbox: None,
        exec: None,
        cell: None,
        operations: Vec::new(),
        egress: Vec::new(),
        changed: None,
        asked: None,
        duration_ms: 3,
    };
    Message::new("t1", Role::Tool, vec![Block::ToolResult(result)])
}

fn of_model(id: &str, content: Vec<Block>, finish: FinishReason) -> Message {
    Message {
        model: Some("gpt-4o".into()),
        finish: Some(finish),
        usage: Some(TokenUsage { input: 3, output: 11, reasoning: 0, cached: 0 }),
        ..Message::new(id, Role::Assistant, content)
    }
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn checkpoint(step: i64, messages: &[Message], node: Option<Node>, next: Option<Node>) -> EventKind {
    let id = |step: i64| ThreadCheckpointId::from_uuid(Uuid::from_u128((step + 10) as u128));
    EventKind::Checkpoint(Arc::new(Checkpoint {
        id: id(step),
        thread: "t".parse().unwrap(),
        parent: (step >= 0).then(|| id(step - 1)),
        run: None,
        step,
        source: if step < 0 { CheckpointSource::Input } else { CheckpointSource::Loop },
        node,
        next,
        state: ConversationState {
            messages: messages.iter().cloned().map(Arc::new).collect(),
            values: Metadata::new(),
        },
        interrupts: Vec::new(),
        metadata: Metadata::new(),
        created_at: 0,
    }))
}

/// What happens when a model runs code and then answers.
fn conversation() -> Vec<Event> {
    let asked = Message::text("h1", Role::User, "the answer?");
    let first = of_model("m1", vec![text("I run it."), Block::ToolCall(call())], FinishReason::ToolCalls);
    let last = of_model(
        "m2",
        vec![Block::Reasoning { text: "hm".into(), signature: None }, text("It is 42.")],
        FinishReason::Stop,
    );
    let delta = |message: &str, block, more: &str| EventKind::Text {
        message: message.into(),
        block,
        text: more.into(),
    };
    let arguments = |id: Option<&str>, more: &str| EventKind::ToolCallDelta {
        message: "m1".into(),
        block: 1,
        index: 0,
        id: id.map(str::to_owned),
        name: id.map(|_| "execute_code".to_owned()),
        arguments: more.into(),
    };
    let begun =
        |id: &str, step| EventKind::MessageStarted { message: id.into(), model: "gpt-4o".into(), step };
    let kinds = vec![
        EventKind::Started { attempt: 1 },
        checkpoint(-1, std::slice::from_ref(&asked), None, Some(Node::Agent)),
        EventKind::NodeStarted { node: Node::Agent, step: 0 },
        begun("m1", 0),
        delta("m1", 0, "I run"),
        delta("m1", 0, " it."),
        arguments(Some("call_1"), ""),
        arguments(None, "{\"code\":"),
        arguments(None, "\"print(6*7)\"}"),
        EventKind::MessageFinished { step: 0, message: Arc::new(first.clone()) },
        EventKind::NodeFinished {
            node: Node::Agent,
            step: 0,
            messages: Arc::new(vec![Arc::new(first.clone())]),
        },
        checkpoint(0, &[asked.clone(), first.clone()], Some(Node::Agent), Some(Node::Tools)),
        EventKind::NodeStarted { node: Node::Tools, step: 1 },
        EventKind::ToolStarted { call: call() },
        EventKind::ToolOutput { call: "call_1".into(), stream: OutputStream::Stdout, text: "42\n".into() },
        EventKind::ToolFinished { message: Arc::new(of_tool()) },
        EventKind::NodeFinished { node: Node::Tools, step: 1, messages: Arc::new(vec![Arc::new(of_tool())]) },
        checkpoint(1, &[asked.clone(), first.clone(), of_tool()], Some(Node::Tools), Some(Node::Agent)),
        EventKind::NodeStarted { node: Node::Agent, step: 2 },
        begun("m2", 2),
        EventKind::Reasoning { message: "m2".into(), block: 0, text: "hm".into() },
        delta("m2", 1, "It is"),
        delta("m2", 1, " 42."),
        EventKind::MessageFinished { step: 2, message: Arc::new(last.clone()) },
        EventKind::NodeFinished {
            node: Node::Agent,
            step: 2,
            messages: Arc::new(vec![Arc::new(last.clone())]),
        },
        checkpoint(2, &[asked, first, of_tool(), last], Some(Node::Agent), None),
        EventKind::Finished { status: RunStatus::Success, stopped: StopReason::Answered, failure: None },
    ];
    numbered_events(kinds)
}

fn numbered_events(kinds: Vec<EventKind>) -> Vec<Event> {
    let run = RunId::from_uuid(Uuid::from_u128(1));
    kinds.into_iter().enumerate().map(|(at, kind)| Event { seq: 100 + at as u64, at: 7, run, kind }).collect()
}

fn renderer(modes: &[&str]) -> RunRenderer {
    let names: Vec<_> = modes.iter().map(|mode| (*mode).to_owned()).collect();
    let facts =
        RunFacts { run: "r".into(), thread: "t".into(), assistant: "a".into(), graph: "agent".into() };
    RunRenderer::new(Modes::read(&names).unwrap(), facts)
}

fn by_modes(modes: &[&str], events: &[Event]) -> Vec<WireEvent> {
    let mut renderer = renderer(modes);
    events.iter().flat_map(|event| renderer.feed(event)).collect()
}

fn names(events: &[WireEvent]) -> Vec<&'static str> {
    events.iter().map(|event| event.name).collect()
}

#[test]
fn only_what_was_asked_for_is_sent() {
    let sent = |modes: &[&str]| names(&by_modes(modes, &conversation())).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(sent(&[]), BTreeSet::from(["metadata", "values", "end"]), "values is the default");
    assert_eq!(sent(&["messages-tuple"]), BTreeSet::from(["metadata", "messages", "end"]));
    assert_eq!(
        sent(&["values", "messages-tuple", "custom"]),
        BTreeSet::from(["metadata", "values", "messages", "custom", "end"]),
        "as Agent Chat UI asks"
    );
    assert_eq!(
        sent(&["messages"]),
        BTreeSet::from(["metadata", "messages/metadata", "messages/partial", "messages/complete", "end"])
    );
    assert!(Modes::read(&["everything".to_owned()]).is_err());
}

#[test]
fn a_conversation_by_every_mode() {
    let modes =
        ["values", "updates", "messages", "messages-tuple", "custom", "tasks", "checkpoints", "debug"];
    let lines: Vec<_> = by_modes(&modes, &conversation())
        .iter()
        .map(|event| format!("{} {}", event.name, event.data))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn pieces_of_a_message_make_the_message() {
    let sent = by_modes(&["messages-tuple"], &conversation());
    let pieces = |id: &str| -> Vec<Value> {
        let of = |event: &&WireEvent| event.name == "messages" && event.data[0]["id"] == *id;
        sent.iter().filter(of).map(|event| event.data[0].clone()).collect()
    };
    let first = pieces("m1");
    let joined: String = first.iter().filter_map(|piece| piece["content"].as_str()).collect();
    assert_eq!(joined, "I run it.");
    let arguments: String =
        first.iter().filter_map(|piece| piece["tool_call_chunks"][0]["args"].as_str()).collect();
    assert_eq!(arguments, "{\"code\":\"print(6*7)\"}");
    assert!(first.iter().all(|piece| piece["type"] == "AIMessageChunk"));
    assert_eq!(first.last().unwrap()["usage_metadata"]["total_tokens"], 14);
    assert_eq!(pieces("t1")[0]["type"], "tool");
    assert_eq!(pieces("m2")[1]["content"], json!([{ "type": "reasoning", "reasoning": "hm", "index": 0 }]));
}

#[test]
fn a_failed_run_ends_with_its_reason_and_an_interrupted_one_with_its_question() {
    let failure = RunFailure {
        code: RunFailureCode::Model(ModelFault::InvalidKey),
        message: "the key is wrong".into(),
    };
    let kinds = vec![EventKind::Finished {
        status: RunStatus::Error,
        stopped: StopReason::Failed,
        failure: Some(failure),
    }];
    let sent = by_modes(&["values"], &numbered_events(kinds));
    assert_eq!(
        sent,
        [WireEvent::new("error", json!({ "error": "invalid_api_key", "message": "the key is wrong" }))]
    );
    let EventKind::Checkpoint(head) = checkpoint(0, &[], Some(Node::Agent), Some(Node::Tools)) else {
        unreachable!()
    };
    let interrupt = Interrupt {
        id: "i1".into(),
        kind: InterruptKind::ToolApproval,
        call: call(),
        reason: "it writes".into(),
    };
    let head = Checkpoint { interrupts: vec![interrupt.clone()], ..(*head).clone() };
    let kinds =
        vec![EventKind::Checkpoint(Arc::new(head)), EventKind::Interrupted { interrupts: vec![interrupt] }];
    let events = numbered_events(kinds);
    let sent = by_modes(&["values", "updates"], &events);
    assert_eq!(names(&sent), ["values", "updates"]);
    assert_eq!(sent[0].data["__interrupt__"][0]["id"], "i1");
    assert_eq!(sent[1].data["__interrupt__"], sent[0].data["__interrupt__"]);
    let told = by_protocol(&["input", "values"], 0, &events);
    assert_eq!(told.len(), 2);
    assert_eq!(told[1]["method"], "input.requested");
    assert_eq!(told[1]["params"]["data"]["payload"], told[1]["params"]["data"]["value"]);
    assert_eq!(told[0]["params"]["data"].get("__interrupt__"), None, "it is in a channel of its own");
}

fn texts(out: &str) -> Vec<(u64, Value)> {
    let mut reader = SseReader::new(1 << 20);
    reader.push(out.as_bytes());
    let mut all = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        all.push((event.id.unwrap().parse().unwrap(), serde_json::from_str(&event.data.unwrap()).unwrap()));
    }
    all
}

fn by_protocol(channels: &[&str], since: u64, events: &[Event]) -> Vec<Value> {
    let channels = channels.iter().map(|name| (*name).to_owned()).collect();
    let mut renderer = ProtocolRenderer::new(Filter::new(channels, &[], Some(since)).unwrap());
    events.iter().flat_map(|event| texts(&renderer.feed(event))).map(|(_, event)| event).collect()
}

const ALL: [&str; 9] =
    ["values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"];

#[test]
fn a_conversation_by_protocol_v2() {
    let lines: Vec<_> = by_protocol(&ALL, 0, &conversation()).iter().map(Value::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

/// Wherever a client is cut off, resuming gives it all that it lacks, and nothing twice that it cannot recognise.
#[test]
fn a_client_that_resumes_has_everything() {
    let whole = by_protocol(&ALL, 0, &conversation());
    for cut in 0..whole.len() {
        let had = &whole[..cut];
        let since = had.iter().filter_map(|event| event["seq"].as_u64()).max().unwrap_or(0);
        let rest = by_protocol(&ALL, since, &conversation());
        let known: BTreeSet<_> = had.iter().map(|event| event["event_id"].as_str().unwrap()).collect();
        let fresh = rest.iter().filter(|event| !known.contains(event["event_id"].as_str().unwrap()));
        assert_eq!(had.iter().chain(fresh).cloned().collect::<Vec<_>>(), whole, "cut at {cut}");
    }
    // By modes only a piece of a message must not come twice; it is the last of its group.
    let modes = ["values", "messages", "messages-tuple"];
    let all: Vec<_> = {
        let mut renderer = renderer(&modes);
        conversation().iter().flat_map(|event| texts(&written(event.seq, renderer.feed(event)))).collect()
    };
    for cut in 0..all.len() {
        let after = all[..cut].last().map_or(0, |(id, _)| *id);
        let mut renderer = renderer(&modes);
        let again = conversation();
        let rest = again.iter().flat_map(|event| {
            let wire = renderer.feed(event);
            if event.seq > after { texts(&written(event.seq, wire)) } else { Vec::new() }
        });
        let is_piece = |event: &&(u64, Value)| event.1.get(1).is_some();
        let rest: Vec<_> = rest.collect();
        let pieces = all[..cut].iter().chain(&rest).filter(is_piece).count();
        assert_eq!(pieces, all.iter().filter(is_piece).count(), "cut at {cut}");
    }
}

#[test]
fn namespaces_below_the_root_have_no_events() {
    let filter = |namespaces: &[Vec<String>]| {
        let channels = vec!["lifecycle".to_owned()];
        let mut renderer = ProtocolRenderer::new(Filter::new(channels, namespaces, None).unwrap());
        conversation().iter().map(|event| texts(&renderer.feed(event)).len()).sum::<usize>()
    };
    assert_eq!(filter(&[]), 2);
    assert_eq!(filter(&[vec![]]), 2);
    assert_eq!(filter(&[vec!["tools:1".to_owned()]]), 0);
    assert!(Filter::new(vec!["gossip".to_owned()], &[], None).is_err());
    assert!(Filter::new(vec!["custom:x".to_owned()], &[], None).is_ok());
}

/// Half a megabyte of a message in small pieces.
fn long_message() -> Vec<Event> {
    let piece = |block, call: bool| match call {
        true => EventKind::ToolCallDelta {
            message: "m".into(),
            block,
            index: 0,
            id: Some("call_1".into()),
            name: Some("execute_code".into()),
            arguments: "x".repeat(64),
        },
        false => EventKind::Text { message: "m".into(), block, text: "x".repeat(64) },
    };
    let begun = EventKind::MessageStarted { message: "m".into(), model: "gpt-4o".into(), step: 0 };
    let texts = std::iter::repeat_with(|| piece(0, false)).take(4096);
    let calls = std::iter::repeat_with(|| piece(1, true)).take(4096);
    let kinds = std::iter::once(begun).chain(texts).chain(calls);
    let event = |(at, kind)| Event { seq: at as u64 + 1, at: 0, run: RunId::from_uuid(Uuid::nil()), kind };
    kinds.enumerate().map(event).collect()
}

#[test]
fn what_is_sent_of_a_long_message_is_in_proportion_to_it() {
    let events = long_message();
    let whole = 2 * 4096 * 64;
    let facts =
        RunFacts { run: "r".into(), thread: "t".into(), graph: "agent".into(), assistant: "a".into() };
    let mut renderer = RunRenderer::new(Modes::read(&["messages".to_owned()]).unwrap(), facts);
    let sent: usize = events.iter().map(|event| written(event.seq, renderer.feed(event)).len()).sum();
    assert!(sent < 100 * whole, "{sent} bytes by messages");
    let filter = Filter::new(vec!["messages".into()], &[], None).unwrap();
    let mut renderer = ProtocolRenderer::new(filter);
    let sent: usize = events.iter().map(|event| renderer.feed(event).len()).sum();
    assert!(sent < 100 * whole, "{sent} bytes by protocol v2");
}
