//! Runs outlive the server.

use super::{super::eventually, super::http, ROOT, end_wait, model, server, waiting_sandbox, written};
use crate::control_plane::Server;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

fn said(text: &str, more: &Value) -> String {
    let input = json!({ "messages": [{ "role": "user", "content": text }] });
    let mut body = json!({ "assistant_id": "agent", "input": input });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string()
}

fn new_thread(server: &Server) -> String {
    let made = server.ask("POST", "/threads", "{}").json();
    format!("/threads/{}", made["thread_id"].as_str().unwrap())
}

/// The path of a run that was begun.
fn begin(server: &Server, thread: &str, body: &str) -> String {
    let begun = server.ask("POST", &format!("{thread}/runs"), body);
    assert_eq!(begun.status, 200, "{}", String::from_utf8_lossy(&begun.body));
    format!("{thread}/runs/{}", begun.json()["run_id"].as_str().unwrap())
}

/// Waits for the end of a run and returns the thread's messages.
fn ended(server: &Server, thread: &str, run: &str, status: &str) -> Vec<Value> {
    let now = || server.get(run)["status"].as_str().unwrap().to_owned();
    eventually("the run's end", || !["pending", "running"].contains(&now().as_str()));
    assert_eq!(now(), status, "{}", server.get(run));
    server.get(thread)["values"]["messages"].as_array().unwrap().clone()
}

/// Kills the server after a number of checkpoints of a run, and returns the messages when the run has ended.
fn killed_after(checkpoints: usize) -> Vec<Value> {
    let model = model();
    let mut server = server(&model);
    let thread = new_thread(&server);
    let run = begin(&server, &thread, &said("the answer?", &json!({})));
    let history = format!("{thread}/history?limit=100");
    eventually("a checkpoint", || server.get(&history).as_array().unwrap().len() >= checkpoints);
    server.kill();
    server.restart();
    ended(&server, &thread, &run, "success")
}

#[test]
fn a_run_goes_on_after_the_server_was_killed() {
    for checkpoints in 0..=4 {
        let messages = killed_after(checkpoints);
        let end = &messages.last().unwrap()["content"];
        assert_eq!(end, "The command printed 42, so the answer is 42.", "{checkpoints}: {messages:?}");
        // Every call has one result, and no step was done twice.
        let kinds: Vec<_> = messages.iter().map(|message| message["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["human", "ai", "tool", "ai", "tool", "ai"], "{checkpoints}: {messages:?}");
        for pair in messages[1..5].chunks(2) {
            assert_eq!(
                pair[0]["tool_calls"][0]["id"], pair[1]["tool_call_id"],
                "{checkpoints}: {messages:?}"
            );
        }
    }
}

#[test]
fn a_run_goes_on_after_the_server_was_killed_after_its_fifth_checkpoint() {
    let model = model();
    let mut server = server(&model);
    let thread = new_thread(&server);
    let run = begin(&server, &thread, &said("late", &json!({})));
    // The command waits, so that the fifth checkpoint is there and the run has not ended.
    let sandbox = waiting_sandbox(&server);
    let checkpoints = server.get(&format!("{thread}/history?limit=100")).as_array().unwrap().len();
    assert!(checkpoints > 5, "{checkpoints}");
    server.kill();
    server.restart();
    end_wait(&server, &sandbox);
    let messages = ended(&server, &thread, &run, "success");
    assert_eq!(messages.last().unwrap()["content"], "It said 1.", "{messages:?}");
    assert_eq!(messages.len(), 8, "{messages:?}");
    assert_eq!(server.get(ROOT)["items"].as_array().unwrap().len(), 2, "no step was done twice");
}

#[test]
fn an_answer_that_is_spoken_while_the_server_is_killed_is_spoken_anew() {
    let model = model();
    let mut server = server(&model);
    let thread = new_thread(&server);
    let body = said("speak slowly", &json!({ "stream_mode": "messages-tuple" }));
    let path = format!("{thread}/runs/stream");
    let headers = [("X-Api-Key", super::KEY)];
    let coming = http::open(server.address, "POST", &path, &headers, body.as_bytes()).unwrap();
    let mut lines = BufReader::new(coming).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("very")), "it speaks");
    let run =
        format!("{thread}/runs/{}", server.get(&format!("{thread}/runs"))[0]["run_id"].as_str().unwrap());
    server.kill();
    server.restart();
    let messages = ended(&server, &thread, &run, "success");
    assert_eq!(messages.len(), 2, "half an answer is none: {messages:?}");
    assert_eq!(messages[1]["content"], "This is said very slowly. ".repeat(100));
}

#[test]
fn a_cell_that_runs_while_the_server_is_killed_runs_once() {
    let model = model();
    let mut server = server(&model);
    let thread = new_thread(&server);
    let run = begin(&server, &thread, &said("a cell waits", &json!({})));
    let sandbox = waiting_sandbox(&server);
    server.kill();
    server.restart();
    end_wait(&server, &sandbox);
    let messages = ended(&server, &thread, &run, "success");
    assert_eq!(messages.last().unwrap()["content"], "The cell ended.", "{messages:?}");
    assert!(messages[4]["content"].as_str().unwrap().contains("went on"), "joined: {}", messages[4]);
    assert_eq!(written(&server, &sandbox), "once\n");
}

#[test]
fn a_command_that_runs_while_the_server_is_killed_runs_once() {
    let model = model();
    let mut server = server(&model);
    let thread = new_thread(&server);
    let run = begin(&server, &thread, &said("wait here", &json!({})));
    let sandbox = waiting_sandbox(&server);
    server.kill();
    server.restart();
    end_wait(&server, &sandbox);
    let messages = ended(&server, &thread, &run, "success");
    assert_eq!(messages.last().unwrap()["content"], "It said 1.", "{messages:?}");
    assert_eq!(written(&server, &sandbox), "once\n");
}

/// A run that answers a question, and one that goes on, take up a step of another run: they have no checkpoint of their own
/// when the server is killed.
#[test]
fn what_a_resumed_run_began_is_not_done_again() {
    let model = model();
    let mut server = server(&model);
    let thread = new_thread(&server);
    let all = json!({ "config": { "configurable": { "approval": "all" } } });
    let run = begin(&server, &thread, &said("both wait", &all));
    ended(&server, &thread, &run, "interrupted");
    let approve = json!({ "assistant_id": "agent", "command": { "resume": "approve" } }).to_string();
    let run = begin(&server, &thread, &approve);
    ended(&server, &thread, &run, "interrupted");
    // Now a command and a second session at once. The session is made while the command waits.
    let run = begin(&server, &thread, &approve);
    let sandboxes = |server: &Server| server.get(ROOT)["items"].as_array().unwrap().len();
    let sandbox = waiting_sandbox(&server);
    eventually("the second session", || sandboxes(&server) == 2);
    server.kill();
    server.restart();
    end_wait(&server, &sandbox);
    let messages = ended(&server, &thread, &run, "success");
    let results: Vec<_> = messages.iter().filter(|message| message["type"] == "tool").collect();
    assert_eq!(results.len(), 3, "{messages:?}");
    assert!(results[1]["content"].as_str().unwrap().contains("begun\\n1\\n"), "joined: {}", results[1]);
    assert!(results[2]["content"].as_str().unwrap().contains("may or may not have worked"), "{}", results[2]);
    assert_eq!(written(&server, &sandbox), "once\n");
    assert!(sandboxes(&server) <= 2, "no third session");
}
