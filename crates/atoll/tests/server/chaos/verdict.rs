//! What must be so when the clients have done their work: nothing that was answered is lost, nothing that
//! was not is there by half, and nothing is left that nobody owns.

use super::{
    believed::{Beliefs, Believed, Content, Faults, Life},
    client::{KEYS, LOG, ROOT, SETTINGS},
    world::{Owned, World},
};
use crate::server::{fixture::Server, http::Answer};
use serde_json::{Value, json};
use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// How long things may take that happen by themselves.
const PATIENCE: Duration = Duration::from_secs(40);

/// Asks until it is answered otherwise than that the launcher is away: it may have been killed just now.
fn ask(server: &Server, method: &str, path: &str, body: &str) -> Answer {
    let began = Instant::now();
    loop {
        let answer = server.ask(method, path, body);
        if answer.status != 503 || began.elapsed() > PATIENCE {
            return answer;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

pub(super) fn sandboxes(server: &Server) -> Vec<Value> {
    let page = ask(server, "GET", &format!("{ROOT}?page_size=200"), "").json();
    page["items"].as_array().unwrap().clone()
}

/// Looks until nothing is wrong any more; returns what still is.
pub(super) fn settled(mut wrong: impl FnMut() -> Vec<String>) -> Vec<String> {
    let began = Instant::now();
    loop {
        let found = wrong();
        if found.is_empty() || began.elapsed() > PATIENCE {
            return found;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Looks at everything, and returns what is otherwise than it must be.
pub(super) fn of(server: &Server, world: &World, beliefs: &[Beliefs]) -> Faults {
    let mut faults = Faults::default();
    // From here on nothing is kept ready, so all that there is has an owner.
    let set = ask(server, "PATCH", SETTINGS, r#"{"warm_pool_enabled":false}"#);
    faults.check(set.status == 200, || format!("settings: {set:?}"));
    faults.0.extend(settled(|| {
        let listed = sandboxes(server);
        let mut wrong = world.strange(&Owned::by(&listed));
        wrong.extend(strangers(&listed, beliefs));
        wrong
    }));
    for client in beliefs {
        client.sandboxes.iter().for_each(|sandbox| one(server, sandbox, &mut faults));
        keys_and_settings(server, client, &mut faults);
    }
    faults.0.extend(settled(|| trail(server)));
    faults
}

/// Sandboxes that nobody asked for, or whose create was refused, and those that are on their way for ever.
fn strangers(listed: &[Value], beliefs: &[Beliefs]) -> Vec<String> {
    let known = |name: &str| beliefs.iter().flat_map(|b| &b.sandboxes).any(|s| s.name == name);
    let wrong = listed.iter().filter(|sandbox| {
        let name = sandbox["labels"]["chaos"].as_str().unwrap_or_default();
        !known(name) || !matches!(sandbox["status"].as_str(), Some("running" | "paused" | "stopped" | "dead"))
    });
    wrong.map(|sandbox| format!("a sandbox that must not be, or not so: {sandbox}")).collect()
}

/// Where it is, by name where its create was not answered; none where it is gone.
fn found(server: &Server, sandbox: &Believed) -> Option<(String, Value)> {
    let path = sandbox.path.clone().or_else(|| {
        let all = sandboxes(server);
        let same = all.iter().find(|s| s["labels"]["chaos"] == sandbox.name.as_str());
        same.map(|s| format!("{ROOT}/{}", s["id"].as_str().unwrap()))
    })?;
    let answer = ask(server, "GET", &path, "");
    (answer.status == 200 && answer.json()["status"] != "destroyed").then(|| (path, answer.json()))
}

fn one(server: &Server, sandbox: &Believed, faults: &mut Faults) {
    let Some((path, seen)) = found(server, sandbox) else {
        let may = sandbox.was_deleted();
        return faults.check(may, || format!("{} is lost: {:?}", sandbox.name, sandbox.path));
    };
    let life = match seen["status"].as_str() {
        Some("running") => Life::Running,
        Some("paused") => Life::Paused,
        _ => Life::Stopped,
    };
    faults.check(sandbox.life.allows(&life), || {
        format!("{} is otherwise than {:?}: {seen}", sandbox.name, sandbox.life)
    });
    for stop in [false, true] {
        if stop {
            let stopped = ask(server, "POST", &format!("{path}/stop"), "");
            faults.check(stopped.status == 200, || format!("{path} cannot be stopped: {stopped:?}"));
        }
        let resumed = ask(server, "POST", &format!("{path}/resume"), "");
        if sandbox.was_deleted() && is_going(&resumed) {
            // Its end was begun, and nobody was left to see it through: it comes by itself.
            return faults.0.extend(settled(|| {
                let left = found(server, sandbox);
                left.into_iter().map(|(_, seen)| format!("it does not go: {seen}")).collect()
            }));
        }
        faults.check(resumed.status == 200, || format!("{path} cannot be resumed: {resumed:?}"));
        if resumed.status != 200 {
            return;
        }
        usable(server, sandbox, &path, faults);
    }
    let host = ask(server, "GET", &format!("{path}/egress"), "").json()["policy"]["allow"][0].clone();
    let host = host.as_str().unwrap_or_default().to_owned();
    faults.check(sandbox.egress.allows(&host), || {
        format!("{path} may reach {host:?}, not {:?}", sandbox.egress)
    });
}

fn is_going(answer: &Answer) -> bool {
    answer.status == 409 && answer.json()["error"]["message"] == "the sandbox is being destroyed"
}

/// Whether it can be worked with, and has every byte.
fn usable(server: &Server, sandbox: &Believed, path: &str, faults: &mut Faults) {
    let ran = ask(server, "POST", &format!("{path}/exec"), &json!({ "command": "echo yes" }).to_string());
    faults.check(ran.status == 200 && ran.json()["stdout"] == "yes\n", || {
        format!("{path} cannot be used: {ran:?}")
    });
    for (name, content) in &sandbox.files {
        let answer = ask(server, "GET", &format!("{path}/files/{name}"), "");
        let found: Content = (answer.status == 200).then(|| answer.body.clone().into());
        faults.check(content.allows(&found), || {
            let length = found.as_ref().map(|content| content.len());
            format!("{path}: {name} is not what was written: {} {length:?}", answer.status)
        });
    }
    let answer = ask(server, "GET", &format!("{path}/files/{LOG}"), "");
    let log =
        if answer.status == 200 { String::from_utf8_lossy(&answer.body).into_owned() } else { String::new() };
    let times = |word: &String| log.lines().filter(|line| line == word).count();
    for word in &sandbox.once {
        faults.check(times(word) == 1, || format!("{path}: {word} ran {} times", times(word)));
    }
    for word in &sandbox.at_most_once {
        faults.check(times(word) <= 1, || format!("{path}: {word} ran {} times", times(word)));
    }
}

fn keys_and_settings(server: &Server, client: &Beliefs, faults: &mut Faults) {
    for (id, (key, worth)) in &client.keys {
        let status = server.ask_as(key, "GET", &format!("{ROOT}?page_size=1"), "").status;
        faults.check(worth.allows(&(status == 200)), || format!("key {id}: {status}, {worth:?}"));
    }
    let listed = ask(server, "GET", KEYS, "").json().to_string();
    faults.check(client.keys.keys().all(|id| listed.contains(id)), || format!("a key is lost: {listed}"));
    if let Some(setting) = &client.setting {
        let seconds = ask(server, "GET", SETTINGS, "").json()["idle_timeout_seconds"].as_u64().unwrap();
        faults.check(setting.allows(&seconds), || format!("settings: {seconds}, {setting:?}"));
    }
}

/// What is wrong with the audit trail, by the server and without it: it must be whole, and what began must
/// have ended.
fn trail(server: &Server) -> Vec<String> {
    let mut wrong = Vec::new();
    let verdict = ask(server, "GET", "/api/v1/audit/verify", "").json();
    if verdict["sound"] != true {
        wrong.push(format!("the audit trail: {verdict}"));
    }
    let open = ask(server, "GET", "/api/v1/audit?open=true&limit=500", "").json();
    wrong.extend(open["entries"].as_array().unwrap().iter().map(|entry| format!("it never ended: {entry}")));
    let apart = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["audit", "verify", "--data-dir"])
        .arg(server.data())
        .output()
        .unwrap();
    if !apart.status.success() {
        wrong
            .push(format!("the audit trail, without the server: {}", String::from_utf8_lossy(&apart.stdout)));
    }
    wrong
}

/// Deletes everything; returns what is left then.
pub(super) fn emptied(server: &Server, world: &World) -> Faults {
    let mut faults = Faults::default();
    for sandbox in sandboxes(server) {
        let path = format!("{ROOT}/{}", sandbox["id"].as_str().unwrap());
        let answer = ask(server, "DELETE", &path, "");
        faults.check(answer.status == 204, || format!("{path} cannot be deleted: {answer:?}"));
    }
    faults.0.extend(settled(|| world.strange(&Owned::default())));
    faults
}
