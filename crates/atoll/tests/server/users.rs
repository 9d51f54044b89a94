//! Commands and terminals as another user of the sandbox.

use super::{
    fixture::Server,
    forwarding::{atoll, id_of},
    socket::Socket,
};
use serde_json::json;

#[test]
fn commands_and_terminals_run_as_the_user_that_is_asked_for() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let exec = |user: &str, command: &str| {
        let body = json!({ "command": command, "user": user });
        server.ask("POST", &format!("{sandbox}/exec"), &body.to_string())
    };
    for (user, said) in [("user", "1000"), ("sandbox", "65532"), ("65532", "65532"), ("1000:65532", "1000")] {
        assert_eq!(exec(user, "id -u").json()["stdout"], format!("{said}\n"), "{user}");
    }
    // Another user has that user's rights and no more.
    let answer = exec("sandbox", "echo x > /workspace/theirs").json();
    assert_ne!(answer["exit_code"], 0, "{answer}");
    for (user, status) in [("root", 403), ("0", 403), ("1000:0", 403), ("nosuch", 400)] {
        let answer = exec(user, "id");
        assert_eq!((answer.status, &answer.json()["error"]["details"]["field"]), (status, &json!("user")));
    }
    let mut terminal = Socket::open(&server, &sandbox, "?user=sandbox&command=id");
    terminal.until("uid=65532(sandbox)");
    for kind in ["exec", "terminal"] {
        let list = server.ask("GET", &format!("/api/v1/audit?kind={kind}&limit=200"), "");
        let list = String::from_utf8_lossy(&list.body).into_owned();
        let ids = list.split(r#""operation_id":""#).skip(1).filter_map(|rest| rest.get(..36));
        let told = ids.filter(|id| {
            server.ask("GET", &format!("/api/v1/audit/{id}"), "").json()["extra"]["user"] == "sandbox"
        });
        assert!(told.count() > 0, "{kind}: {list}");
    }
}

#[test]
fn the_command_line_names_the_user_and_the_profile() {
    let server = Server::start();
    let says = |arguments: &[&str]| {
        let ran = atoll(&server, arguments).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    let sandbox = server.create("{}");
    let id = id_of(&sandbox);
    assert_eq!(says(&["exec", id, "--", "id", "-u"]), "1000");
    assert_eq!(says(&["exec", "--user", "sandbox", id, "--", "id", "-u"]), "65532");
    let made = says(&["create", "--profile", "root"]);
    assert_eq!(
        says(&["exec", &made, "--", "sh", "-c", "id -u; touch /usr/bin/mine && echo written"]),
        "0\nwritten"
    );
    assert_eq!(says(&["exec", "--user", "user", &made, "--", "id", "-u"]), "1000");
}
