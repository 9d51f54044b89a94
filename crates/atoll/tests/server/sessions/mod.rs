//! The six tools on a real server with real interpreters.

mod audited;
mod errors;
mod files;
mod hosts;
mod life;
mod limits;
mod names;
mod workflow;

use super::{
    fixture::{KEY, Server},
    http::{self, Answer},
};
use serde_json::{Value, json};

/// A conversation with a server.
pub(super) struct Thread<'a> {
    pub(super) server: &'a Server,
    pub(super) key: String,
    pub(super) name: String,
}

impl<'a> Thread<'a> {
    pub(super) fn new(server: &'a Server, name: &str) -> Self {
        Self { server, key: KEY.to_owned(), name: name.to_owned() }
    }

    /// The same conversation's name, of somebody else.
    pub(super) fn of(server: &'a Server, key: &str, name: &str) -> Self {
        Self { server, key: key.to_owned(), name: name.to_owned() }
    }

    pub(super) fn ask(&self, method: &str, below: &str, body: &str) -> Answer {
        self.server.ask_as(&self.key, method, &format!("/threads/{}{below}", self.name), body)
    }

    /// What a tool answers.
    pub(super) fn call(&self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("POST", &format!("/tools/{tool}"), &arguments.to_string());
        assert_eq!(answer.status, 200, "{tool}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// A session.
    pub(super) fn create(&self, arguments: &Value) -> String {
        let made = self.call("create_session", arguments);
        assert_eq!(made["success"], true, "{made}");
        made["session_id"].as_str().unwrap().to_owned()
    }

    pub(super) fn code(&self, session: &str, code: &str) -> Value {
        self.call("execute_code", &json!({ "session_id": session, "code": code }))
    }

    pub(super) fn terminal(&self, session: &str, command: &str) -> Value {
        self.call("execute_terminal", &json!({ "session_id": session, "command": command }))
    }

    /// What a command prints, which must succeed.
    pub(super) fn says(&self, session: &str, command: &str) -> String {
        let ran = self.terminal(session, command);
        assert_eq!(ran["exit_code"], 0, "{ran}");
        ran["stdout"].as_str().unwrap().trim_end().to_owned()
    }

    pub(super) fn import(&self, session: &str, files: Value) -> Value {
        self.call("import_files", &json!({ "session_id": session, "files": files }))
    }

    pub(super) fn export(&self, session: &str, source: &str) -> Value {
        self.call("export_files", &json!({ "session_id": session, "files": [{ "source": source }] }))
    }

    pub(super) fn download(&self, session: &str, path: &str) -> Answer {
        self.ask("GET", &format!("/files/download?session_id={session}&path={path}"), "")
    }

    /// Uploads files by their names.
    pub(super) fn upload(&self, files: &[(&str, &[u8])]) -> Answer {
        let mut body = Vec::new();
        for (name, bytes) in files {
            let head = format!(
                "--edge\r\nContent-Disposition: form-data; name=\"files\"; filename=\"{name}\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n"
            );
            body.extend([head.as_bytes(), bytes, b"\r\n"].concat());
        }
        body.extend(b"--edge--\r\n");
        let path = format!("/threads/{}/files/upload", self.name);
        let headers = [
            ("Authorization", format!("Bearer {}", self.key)),
            ("Content-Type", "multipart/form-data; boundary=edge".to_owned()),
        ];
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        http::request(self.server.address, "POST", &path, &headers, &body).unwrap()
    }

    /// The ids of its sessions with their states.
    pub(super) fn sessions(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let listed = self.ask("GET", "/sessions", "").json();
        let of = |item: &Value| (text(&item["session_id"]), text(&item["status"]));
        listed.as_array().unwrap().iter().map(of).collect()
    }
}

/// A key of somebody who is no admin.
pub(super) fn key(server: &Server, owner: &str, tier: &str) -> String {
    let body = json!({ "name": owner, "owner": owner, "scope": "user", "tier": tier });
    let made = server.ask("POST", "/api/v1/keys", &body.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["key"].as_str().unwrap().to_owned()
}
