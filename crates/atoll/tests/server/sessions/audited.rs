//! Every call that does something has its rows.

use super::{Server, Thread};
use serde_json::{Value, json};

fn kinds(server: &Server) -> Vec<String> {
    let page = server.ask("GET", "/api/v1/audit?limit=200", "").json();
    let entries = page["entries"].as_array().unwrap_or_else(|| panic!("{page}"));
    let mut kinds: Vec<String> = entries.iter().map(|e| e["kind"].as_str().unwrap().to_owned()).collect();
    kinds.reverse();
    kinds
}

#[test]
fn a_call_of_a_tool_is_told() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let after = |what: &dyn Fn() -> Value| {
        let before = kinds(&server).len();
        what();
        kinds(&server).split_off(before)
    };
    let made = std::cell::RefCell::new(String::new());
    let new = after(&|| {
        *made.borrow_mut() = thread.create(&json!({}));
        Value::Null
    });
    assert_eq!(new, ["session.create", "sandbox.create", "kernel.start"]);
    let id = made.borrow().clone();
    assert_eq!(after(&|| thread.terminal(&id, "echo x >a")), ["exec"]);
    assert_eq!(after(&|| thread.export(&id, "a")), ["session.export"]);
    assert_eq!(
        after(&|| thread.import(&id, json!([{ "file_name": "b", "file_content": "" }]))),
        ["file.write"]
    );
    assert_eq!(after(&|| json!(thread.download(&id, "a").status)), ["file.read"]);
    assert_eq!(after(&|| json!(thread.upload(&[("u", b"u")]).status)), ["thread.upload"]);
    assert_eq!(after(&|| thread.code(&id, "1")).len(), 1);
    assert_eq!(
        after(&|| thread.call("stop_session", &json!({ "session_id": id }))),
        ["session.stop", "sandbox.destroy"]
    );
    assert_eq!(after(&|| json!(thread.ask("DELETE", "", "").status)), ["thread.delete"]);
}
