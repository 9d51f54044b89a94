//! Budgets, runs that come while another is under way, many conversations, and what is left of a thread that is deleted.

use super::{super::eventually, ROOT, end_wait, model, server, waiting_sandbox};
use crate::control_plane::Server;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    thread,
};

fn body(said: &str, configurable: Value, more: &Value) -> String {
    let input = json!({ "messages": [{ "role": "user", "content": said }] });
    let mut body =
        json!({ "assistant_id": "agent", "input": input, "config": { "configurable": configurable } });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string()
}

fn new_thread(server: &Server, key: &str) -> String {
    let made = server.ask_as(key, "POST", "/threads", "{}").json();
    format!("/threads/{}", made["thread_id"].as_str().unwrap())
}

fn begin(server: &Server, key: &str, thread: &str, body: &str) -> String {
    let begun = server.ask_as(key, "POST", &format!("{thread}/runs"), body);
    assert_eq!(begun.status, 200, "{}", String::from_utf8_lossy(&begun.body));
    format!("{thread}/runs/{}", begun.json()["run_id"].as_str().unwrap())
}

/// The run when it has ended.
fn ended(server: &Server, key: &str, run: &str) -> Value {
    let now = || server.ask_as(key, "GET", run, "").json();
    eventually("the run's end", || !["pending", "running"].contains(&now()["status"].as_str().unwrap()));
    now()
}

fn count(messages: &Value, kind: &str) -> usize {
    messages.as_array().unwrap().iter().filter(|message| message["type"] == kind).count()
}

#[test]
fn a_budget_ends_a_run_and_says_which() {
    let model = model();
    let server = server(&model);
    for (budget, said, reason, status) in [
        (json!({ "max_iterations": 2 }), "the answer?", "max_iterations", "success"),
        (json!({ "max_tokens": 1 }), "the answer?", "max_tokens", "success"),
        (json!({ "max_seconds": 1 }), "take your time", "max_seconds", "timeout"),
    ] {
        let thread = new_thread(&server, super::KEY);
        let run = begin(&server, super::KEY, &thread, &body(said, budget.clone(), &json!({})));
        let run = ended(&server, super::KEY, &run);
        assert_eq!(
            (&run["stop_reason"], &run["status"]),
            (&json!(reason), &json!(status)),
            "{budget}: {run}"
        );
        // Every call that was asked for has a result: the conversation can go on.
        let messages = &server.get(&thread)["values"]["messages"];
        let last = messages.as_array().unwrap().last().unwrap();
        assert_ne!(last["tool_calls"].as_array().map_or(0, Vec::len), 1, "{budget}: {messages}");
        if reason == "max_iterations" {
            assert_eq!(run["usage"]["iterations"], 2);
        }
    }
}

/// Twenty commands of 6 KB each, in a window of 8000 tokens.
#[test]
fn a_conversation_goes_on_beyond_the_models_window() {
    let model = model();
    let server = server(&model);
    let thread = new_thread(&server, super::KEY);
    let words = format!("many steps {}", "word ".repeat(600));
    let configurable = json!({ "context_tokens": 8000 });
    let run = begin(&server, super::KEY, &thread, &body(&words, configurable.clone(), &json!({})));
    assert_eq!(ended(&server, super::KEY, &run)["stop_reason"], "answered");
    let messages = server.get(&thread)["values"]["messages"].clone();
    assert_eq!(count(&messages, "tool"), 21, "the thread keeps all of it");
    let kept = messages[4]["content"].as_str().unwrap();
    assert!(kept.len() > 6000 && !kept.contains("left out"), "{kept}");
    let sent = messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    let sent: Value = serde_json::from_str(sent).unwrap_or_else(|e| panic!("{e}: {sent}"));
    assert_eq!(sent["said"], words, "the user's words are sent whole");
    assert!(sent["size"].as_u64().unwrap() < 8000 * 3, "{sent}");
    // The oldest steps are lines, and the latest still say what went wrong.
    let results: Vec<&str> =
        sent["results"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(results.len() < 21 && results[0].contains("session_id"), "{sent}");
    assert!(results[0].contains("execute_terminal") && results[0].contains("exit code 2"), "{}", results[0]);
    assert!(results[0].contains("1.c: error: in step 1"), "{}", results[0]);
    let last = results.last().unwrap();
    assert!(last.contains("20.c: error: in step 20") && last.contains(r#""exit_code":20"#), "{last}");
    let run = begin(&server, super::KEY, &thread, &body("hello", configurable, &json!({})));
    assert_eq!(ended(&server, super::KEY, &run)["status"], "success", "and the next turn fits too");
}

#[test]
fn a_run_takes_the_place_of_another_or_undoes_it() {
    let model = model();
    let server = server(&model);
    for (strategy, people) in [("interrupt", 2), ("rollback", 1)] {
        let thread = new_thread(&server, super::KEY);
        let first = begin(&server, super::KEY, &thread, &body("wait here", json!({}), &json!({})));
        let sandbox = waiting_sandbox(&server);
        let more = json!({ "multitask_strategy": strategy });
        let second = begin(&server, super::KEY, &thread, &body("hello", json!({}), &more));
        assert_eq!(ended(&server, super::KEY, &second)["status"], "success", "{strategy}");
        let values = &server.get(&thread)["values"]["messages"];
        assert_eq!(count(values, "human"), people, "{strategy}: {values}");
        let old = server.ask("GET", &first, "");
        match strategy {
            "interrupt" => assert_eq!(old.json()["status"], "interrupted"),
            _ => assert_eq!(old.status, 404, "what was rolled back is gone"),
        }
        // The command of the first ended with it: nothing waits for `go` any more.
        let running = || server.get(&format!("{sandbox}/execs"));
        eventually("the command's end", || !running().to_string().contains("\"running\""));
        assert_eq!(server.ask("DELETE", &thread, "").status, 204);
        eventually("the session's end", || server.get(ROOT)["items"] == json!([]));
    }
}

#[test]
fn what_was_said_until_a_cancel_stays() {
    let model = model();
    let server = server(&model);
    let thread = new_thread(&server, super::KEY);
    let path = format!("{thread}/runs/stream");
    let more = json!({ "stream_mode": "messages-tuple" });
    let asked = body("speak slowly", json!({}), &more);
    let headers = [("X-Api-Key", super::KEY)];
    let coming = super::super::http::open(server.address, "POST", &path, &headers, asked.as_bytes()).unwrap();
    let mut lines = BufReader::new(coming).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("very")), "it speaks");
    let run = server.get(&format!("{thread}/runs"))[0]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(server.ask("POST", &format!("{thread}/runs/{run}/cancel?wait=true"), "").status, 204);
    assert!(lines.any(|line| line == "event: end"));
    let messages = server.get(&thread)["values"]["messages"].clone();
    assert_eq!((count(&messages, "human"), count(&messages, "ai")), (1, 1), "{messages}");
    let said = messages[1]["content"].as_str().unwrap();
    assert!(said.starts_with("This is said very") && said.len() < 2500, "{said}");
    assert_eq!(messages[1]["response_metadata"]["finish_reason"], "cancelled", "{messages}");
    // The conversation goes on after it.
    let next = begin(&server, super::KEY, &thread, &body("hello", json!({}), &json!({})));
    assert_eq!(ended(&server, super::KEY, &next)["status"], "success");
    let messages = server.get(&thread)["values"]["messages"].clone();
    assert_eq!(messages[3]["content"], "Hello there, person.", "{messages}");
}

#[test]
fn a_cancelled_run_interrupts_its_cell() {
    let model = model();
    let server = server(&model);
    let thread = new_thread(&server, super::KEY);
    let run = begin(&server, super::KEY, &thread, &body("a cell waits", json!({}), &json!({})));
    let kernels = format!("{}/kernels", waiting_sandbox(&server));
    let state = || server.get(&kernels)[0]["status"].clone();
    assert_eq!(state(), "busy", "{}", server.get(&kernels));
    assert_eq!(server.ask("POST", &format!("{run}/cancel?wait=true"), "").status, 204);
    eventually("the cell's end", || state() == "idle");
    let messages = server.get(&thread)["values"]["messages"].clone();
    assert!(messages[4]["content"].as_str().unwrap().contains("INTERRUPTED"), "{messages}");
}

#[test]
fn a_revoked_key_works_no_further() {
    let model = model();
    let server = server(&model);
    let made = server.ask("POST", "/api/v1/keys", r#"{"name":"a","owner":"ann","scope":"user"}"#).json();
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let other = server.key(r#"{"name":"b","owner":"ann","scope":"user"}"#);
    let thread = new_thread(&server, key);
    let run = begin(&server, key, &thread, &body("wait here", json!({}), &json!({})));
    let sandbox = waiting_sandbox(&server);
    assert!(server.ask("DELETE", &format!("/api/v1/keys/{id}"), "").status < 300);
    end_wait(&server, &sandbox);
    let run = ended(&server, &other, &run);
    assert_eq!(run["status"], "error", "{run}");
    assert!(run["error"].as_str().unwrap().contains("revoked"), "{run}");
}

#[test]
fn a_hundred_conversations_of_ten_owners_at_once() {
    let model = model();
    let server = server(&model);
    let key = |number| {
        server.key(&json!({ "name": "k", "owner": format!("o{number}"), "scope": "user" }).to_string())
    };
    let keys: Vec<String> = (0..10).map(key).collect();
    // All are begun before any is waited for. One of each owner works in a sandbox, others ask for a tool that there is not.
    let says = |number: usize| match number {
        0..10 => "use it".to_owned(),
        10..40 => "an unknown tool".to_owned(),
        _ => format!("number {number}"),
    };
    let mut begun = Vec::new();
    for number in 0..100 {
        let key = &keys[number % 10];
        let thread = new_thread(&server, key);
        let said = body(&says(number), json!({}), &json!({}));
        begun.push((number, key, begin(&server, key, &thread, &said), thread));
    }
    thread::scope(|scope| {
        for some in begun.chunks(25) {
            let server = &server;
            scope.spawn(move || {
                for (number, key, run, thread) in some {
                    assert_eq!(ended(server, key, run)["status"], "success", "{number}");
                    let values = server.ask_as(key, "GET", thread, "").json()["values"]["messages"].clone();
                    let (tools, end) = match number {
                        0..10 => (2, "I **used** it:\n\n```python\nimport os\n```\n".to_owned()),
                        10..40 => (1, "There is no such tool.".to_owned()),
                        _ => (0, format!("You said: number {number}")),
                    };
                    assert_eq!(values.as_array().unwrap().last().unwrap()["content"], end, "{values}");
                    assert_eq!((count(&values, "human"), count(&values, "tool")), (1, tools), "{values}");
                    if tools == 2 {
                        assert!(values[4]["content"].as_str().unwrap().contains("used"), "{values}");
                    }
                }
            });
        }
    });
    for key in &keys {
        assert_eq!(server.ask_as(key, "POST", "/threads/count", "{}").json(), 10);
        let own = server.ask_as(key, "GET", ROOT, "").json();
        assert_eq!(own["items"].as_array().unwrap().len(), 1, "each owner has its own sandbox: {own}");
    }
}

/// The files below a folder whose name ends so.
fn files_named(folder: &Path, end: &str) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let one = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_named(&entry.path(), end),
        _ => usize::from(entry.file_name().to_string_lossy().ends_with(end)),
    };
    entries.map(one).sum()
}

#[test]
fn nothing_is_left_of_a_thread_that_is_deleted() {
    let model = model();
    let server = server(&model);
    let thread = new_thread(&server, super::KEY);
    let form = "--x\r\nContent-Disposition: form-data; name=\"files\"; filename=\"attached.csv\"\r\n\r\na,b\r\n--x--\r\n";
    let headers = [("X-Api-Key", super::KEY), ("Content-Type", "multipart/form-data; boundary=x")];
    let path = format!("{thread}/files/upload");
    let uploaded =
        super::super::http::request(server.address, "POST", &path, &headers, form.as_bytes()).unwrap();
    assert_eq!(uploaded.status, 200, "{}", String::from_utf8_lossy(&uploaded.body));
    assert_eq!(files_named(server._folder.path(), "attached.csv"), 1);
    let run = begin(&server, super::KEY, &thread, &body("an export", json!({}), &json!({})));
    assert_eq!(ended(&server, super::KEY, &run)["status"], "success");
    let state = server.get(&format!("{thread}/state"));
    let exported = state["values"]["messages"].to_string();
    let at = exported.find("/threads/").unwrap_or_else(|| panic!("{exported}"));
    let download: String = exported[at..].chars().take_while(|c| !"\\\" ".contains(*c)).collect();
    assert_eq!(server.ask("GET", &download, "").body, b"exported\n", "{download}");
    assert_eq!(server.get(ROOT)["items"].as_array().unwrap().len(), 1);

    assert_eq!(server.ask("DELETE", &thread, "").status, 204);
    eventually("the session's end", || server.get(ROOT)["items"] == json!([]));
    assert_eq!(files_named(server._folder.path(), "attached.csv"), 0);
    assert_eq!(server.ask("GET", &download, "").status, 403, "it is exported no more");
    for path in [&thread, &format!("{thread}/state"), &run] {
        assert_eq!(server.ask("GET", path, "").status, 404, "{path}");
    }
}

#[test]
fn a_result_leads_to_its_rows_of_the_audit_trail() {
    let model = model();
    let server = server(&model);
    let thread = new_thread(&server, super::KEY);
    let run = begin(&server, super::KEY, &thread, &body("the answer?", json!({}), &json!({})));
    assert_eq!(ended(&server, super::KEY, &run)["status"], "success");
    let messages = server.get(&thread)["values"]["messages"].clone();
    let facts = |at: usize| messages[at]["additional_kwargs"]["atoll"].clone();
    for (at, kinds) in [(2, vec!["session.create"]), (4, vec!["exec"])] {
        let facts = facts(at);
        let rows = facts["operation_ids"].as_array().unwrap_or_else(|| panic!("{facts}"));
        let rows: Vec<_> =
            rows.iter().map(|id| server.get(&format!("/api/v1/audit/{}", id.as_str().unwrap()))).collect();
        for kind in kinds {
            assert!(rows.iter().any(|row| row["kind"] == kind), "{kind}: {rows:?}");
        }
        if let Some(exec) = facts["exec_id"].as_str() {
            assert!(rows.iter().any(|row| row.to_string().contains(exec)), "{exec}: {rows:?}");
        }
    }
}

#[test]
fn a_copy_with_its_sandboxes_is_whole_or_is_not_made() {
    let model = model();
    let server = server(&model);
    let thread = new_thread(&server, super::KEY);
    let copy = |body: &str| server.ask("POST", &format!("{thread}/copy"), body);
    assert_eq!(copy(r#"{"sandboxes":true}"#).status, 200, "there are no sessions to fork");
    let run = begin(&server, super::KEY, &thread, &body("the answer?", json!({}), &json!({})));
    assert_eq!(ended(&server, super::KEY, &run)["status"], "success");
    // Containers of this provider cannot be forked.
    let refused = copy(r#"{"sandboxes":true}"#);
    assert_eq!(refused.status, 501, "{}", String::from_utf8_lossy(&refused.body));
    assert_eq!(server.ask("POST", "/threads/count", "{}").json(), 2, "no half a copy");
    assert_eq!(server.get(ROOT)["items"].as_array().unwrap().len(), 1);
    assert_eq!((copy("").status, copy("null").status), (200, 200));
}
