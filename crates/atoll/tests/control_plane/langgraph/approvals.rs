//! Approvals: which calls wait for one, and that no call gets past by going on.

use super::{super::eventually, ROOT, model, server, written};
use crate::control_plane::Server;
use serde_json::{Value, json};

/// A thread, and what it stands at after a run with this body.
struct Talk<'a> {
    server: &'a Server,
    thread: String,
}

impl<'a> Talk<'a> {
    fn new(server: &'a Server) -> Self {
        let made = server.ask("POST", "/threads", "{}").json();
        Self { server, thread: format!("/threads/{}", made["thread_id"].as_str().unwrap()) }
    }

    /// The values after a run.
    fn run(&self, body: Value) -> Value {
        let answer = self.server.ask("POST", &format!("{}/runs/wait", self.thread), &body.to_string());
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    fn say(&self, assistant: &str, said: &str, configurable: Value) -> Value {
        self.run(json!({
            "assistant_id": assistant, "config": { "configurable": configurable },
            "input": { "messages": [{ "role": "user", "content": said }] },
        }))
    }

    /// Approves everything that waits, and says nothing else.
    fn approve(&self) -> Value {
        self.run(json!({ "assistant_id": "agent", "command": { "resume": "approve" } }))
    }
}

/// The tools that wait for a word.
fn waiting(values: &Value) -> Vec<String> {
    let asked = values["__interrupt__"][0]["value"]["action_requests"].as_array();
    let name = |action: &Value| action["name"].as_str().unwrap().to_owned();
    asked.into_iter().flatten().map(name).collect()
}

#[test]
fn an_approval_rule_holds_after_the_first_answer() {
    let model = model();
    let server = server(&model);
    let talk = Talk::new(&server);
    let asked = talk.say("agent", "the answer?", json!({ "approval": "all", "max_iterations": 7 }));
    assert_eq!(waiting(&asked), ["create_session"]);
    let asked = talk.approve();
    assert_eq!(waiting(&asked), ["execute_terminal"], "the answer named no rule: it is as it was");
    let done = talk.approve();
    assert_eq!(waiting(&done), Vec::<String>::new());
    assert!(done["messages"][4]["content"].as_str().unwrap().contains("42"), "{done}");

    // The same by protocol v2, with a change of the state before the answer.
    let talk = Talk::new(&server);
    talk.say("agent", "the answer?", json!({ "approval": "all" }));
    let changed =
        server.ask("POST", &format!("{}/state", talk.thread), &json!({ "values": { "x": 1 } }).to_string());
    assert_eq!(changed.status, 200);
    let state = server.get(&format!("{}/state", talk.thread));
    let id = &state["tasks"][0]["interrupts"][0]["id"];
    let command = json!({ "id": 1, "method": "input.respond", "params": { "interrupt_id": id, "response": "approve" } });
    let told = server.ask("POST", &format!("{}/commands", talk.thread), &command.to_string()).json();
    assert_eq!(told["type"], "success", "{told}");
    let state = || server.get(&format!("{}/state", talk.thread));
    eventually("the next question", || {
        let state = state();
        state["next"] == json!(["tools"]) && state["values"]["messages"].as_array().unwrap().len() == 4
    });
    let asked = &state()["tasks"][0]["interrupts"][0]["value"]["action_requests"][0]["name"];
    assert_eq!(asked, "execute_terminal");
}

#[test]
fn a_rule_of_a_run_or_an_assistant_says_which_tools_wait() {
    let model = model();
    let server = server(&model);
    let mut first = Vec::new();
    for rule in ["write", "network", "none"] {
        let talk = Talk::new(&server);
        first.push(waiting(&talk.say("agent", "the answer?", json!({ "approval": rule }))));
    }
    assert_eq!(first, [vec!["execute_terminal".to_owned()], vec!["create_session".to_owned()], vec![]]);
    let careful = json!({ "graph_id": "agent", "config": { "configurable": { "approval": "all" } } });
    let made = server.ask("POST", "/assistants", &careful.to_string()).json();
    let assistant = made["assistant_id"].as_str().unwrap();
    let talk = Talk::new(&server);
    assert_eq!(waiting(&talk.say(assistant, "the answer?", json!({}))), ["create_session"]);
    let run = json!({ "assistant_id": assistant, "command": { "resume": "approve" } });
    assert_eq!(waiting(&talk.run(run)), ["execute_terminal"]);
    // A run may say more than its assistant.
    let talk = Talk::new(&server);
    assert_eq!(
        waiting(&talk.say(assistant, "the answer?", json!({ "approval": "none" }))),
        Vec::<String>::new()
    );
}

#[test]
fn what_a_person_changed_is_what_the_model_and_readers_see() {
    let model = model();
    let server = server(&model);
    let talk = Talk::new(&server);
    let write = json!({ "approval": "write" });
    let asked = talk.say("agent", "which command?", write);
    assert_eq!(waiting(&asked), ["execute_terminal"]);
    let session = asked["messages"][3]["tool_calls"][0]["args"]["session_id"].clone();
    let ran = json!({ "session_id": session, "command": "echo changed" });
    let edit = json!({ "type": "edit", "edited_action": { "name": "execute_terminal", "args": ran } });
    let done = talk.run(json!({ "assistant_id": "agent", "command": { "resume": { "decisions": [edit] } } }));
    let messages = done["messages"].as_array().unwrap();
    assert_eq!(messages[3]["id"], asked["messages"][3]["id"]);
    assert_eq!(messages[3]["tool_calls"][0]["args"], ran, "{done}");
    assert!(messages[4]["content"].as_str().unwrap().contains("changed"), "{done}");
    // What the model had asked for stands beside its result, and in the history.
    let original =
        json!({ "name": "execute_terminal", "args": { "session_id": session, "command": "echo asked" } });
    assert_eq!(messages[4]["additional_kwargs"]["atoll"]["asked"], original, "{done}");
    assert_eq!(messages[5]["content"], "I ran echo changed.", "the model was told what ran");
    let state = server.get(&format!("{}/state", talk.thread));
    assert_eq!(state["values"]["messages"][3]["tool_calls"][0]["args"], ran);
    let history = server.get(&format!("{}/history?limit=100", talk.thread)).to_string();
    assert!(history.contains("echo asked"), "{history}");
    // One that was not changed has no original.
    assert_eq!(messages[2]["additional_kwargs"]["atoll"]["asked"], Value::Null);
}

#[test]
fn one_edit_is_no_word_for_two_calls() {
    let model = model();
    let server = server(&model);
    let talk = Talk::new(&server);
    assert_eq!(waiting(&talk.say("agent", "both wait", json!({ "approval": "all" }))), ["create_session"]);
    assert_eq!(waiting(&talk.approve()), ["execute_terminal", "create_session"]);
    let edit = |resume: Value| {
        let body = json!({ "assistant_id": "agent", "command": { "resume": resume } });
        server.ask("POST", &format!("{}/runs/wait", talk.thread), &body.to_string())
    };
    let refused = edit(json!({ "type": "edit", "args": { "command": "echo edited" } }));
    assert_eq!(refused.status, 422, "{}", String::from_utf8_lossy(&refused.body));
    let sandbox = format!("{ROOT}/{}", server.get(ROOT)["items"][0]["id"].as_str().unwrap());
    assert_eq!(written(&server, &sandbox), "", "nothing was carried out");
    // One for each: the first becomes another tool, the second is refused.
    let stop = json!({ "name": "stop_session", "args": { "session_id": "00000000" } });
    let edits = json!({ "decisions": [{ "type": "edit", "edited_action": stop }, { "type": "reject" }] });
    let done = edit(edits).json();
    let results: Vec<_> =
        done["messages"].as_array().unwrap().iter().filter(|one| one["type"] == "tool").collect();
    assert_eq!((&results[1]["name"], &results[1]["status"]), (&json!("stop_session"), &json!("success")));
    assert_eq!(results[2]["status"], "error");
    assert_eq!(written(&server, &sandbox), "");
}
