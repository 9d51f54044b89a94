//! One client: it does one thing after another to sandboxes of its own, and keeps in mind what was
//! answered and what was not.

use super::{
    believed::{Beliefs, Believed, Content, Life, May},
    link::Link,
    random::Random,
};
use crate::server::{fixture::KEY, http::Answer};
use serde_json::{Value, json};
use std::{thread, time::Duration};

pub(super) const ROOT: &str = "/api/v1/sandboxes";
pub(super) const KEYS: &str = "/api/v1/keys";
pub(super) const SETTINGS: &str = "/api/v1/settings/sandbox";
/// Where commands write down that they ran.
pub(super) const LOG: &str = "log";
/// Sandboxes of one client at a time.
const MOST: usize = 5;
/// How often is asked again what may be asked again.
const TRIES: usize = 50;

pub(super) struct Client<'a> {
    link: &'a Link,
    random: Random,
    name: String,
    count: usize,
    beliefs: Beliefs,
}

impl<'a> Client<'a> {
    /// The client of this number; the first also changes settings.
    pub(super) fn new(link: &'a Link, seed: u64, number: u64) -> Self {
        let random = Random::new(seed ^ (number + 1).wrapping_mul(0xd134_2543_de82_ef95));
        Self { link, random, name: format!("c{number}"), count: 0, beliefs: Beliefs::default() }
    }

    pub(super) fn changing_settings(mut self, present: u64) -> Self {
        self.beliefs.setting = Some(May::only(present));
        self
    }

    /// Works until so many operations were begun by all.
    pub(super) fn work(mut self, most: usize) -> Beliefs {
        while self.link.begin(most) {
            self.operation();
        }
        self.beliefs
    }

    fn operation(&mut self) {
        let all = self.beliefs.sandboxes.iter().enumerate();
        let usable: Vec<usize> =
            all.filter(|(_, s)| s.path.is_some() && !s.was_deleted()).map(|(at, _)| at).collect();
        let choice = self.random.below(100);
        if usable.is_empty() || (choice < 16 && usable.len() < MOST) {
            return self.create();
        }
        let at = usable[self.random.below(usable.len())];
        match choice {
            0..16 => self.read(at),
            16..28 => self.run(at),
            28..33 => self.run_behind(at),
            33..39 => self.run_streamed(at),
            39..60 => self.write(at),
            60..68 => self.change_life(at, "pause", Life::Paused),
            68..74 => self.change_life(at, "resume", Life::Running),
            74..80 => self.change_life(at, "stop", Life::Stopped),
            80..86 => self.delete(at),
            86..92 => self.change_egress(at),
            92..96 => self.keys(),
            _ if self.beliefs.setting.is_some() => self.change_setting(),
            _ => self.read(at),
        }
    }

    /// A word that nobody else says.
    fn word(&mut self) -> String {
        self.count += 1;
        format!("{}-{}", self.name, self.count)
    }

    fn create(&mut self) {
        let name = self.word();
        let mut body = json!({ "disk_mb": 24, "memory_mb": 128, "labels": { "chaos": name } });
        let session = self.random.below(3) == 0;
        if session {
            body["session_key"] = name.as_str().into();
        }
        let body = body.to_string();
        // One session is one sandbox, however often it is asked for.
        for _ in 0..if session { TRIES } else { 1 } {
            let answer = self.link.ask("POST", ROOT, body.as_bytes());
            if self.link.done("create", answer.as_ref(), &[200, 201]) {
                let id = answer.map(|answer| answer.json()["id"].as_str().unwrap().to_owned());
                let path = id.map(|id| format!("{ROOT}/{id}"));
                return self.beliefs.sandboxes.push(Believed::new(name, path));
            }
            if !session && answer.is_some() {
                self.beliefs.refused.insert(name);
                return;
            }
        }
        self.beliefs.sandboxes.push(Believed::new(name, None));
    }

    /// Sees that a sandbox can be worked with, if it can be.
    fn awake(&mut self, at: usize) -> Option<String> {
        let sandbox = &mut self.beliefs.sandboxes[at];
        let path = sandbox.path.clone()?;
        if !sandbox.life.allows(&Life::Stopped) {
            return Some(path);
        }
        let answer = self.link.ask("POST", &format!("{path}/resume"), b"");
        let answered = self.link.done("resume", answer.as_ref(), &[200]);
        sandbox.life.asked(Life::Running, answered);
        answered.then_some(path)
    }

    /// Something was done in it: it runs now if that was answered, and else it may.
    fn used(&mut self, at: usize, answered: bool) {
        self.beliefs.sandboxes[at].life.asked(Life::Running, answered);
    }

    fn exec(&self, path: &str, body: &Value, more: &[(&str, &str)]) -> Option<Answer> {
        self.link.ask_as(KEY, "POST", &format!("{path}/exec"), more, body.to_string().as_bytes())
    }

    /// A command that is waited for. With a key it is asked for until there is an answer, and has run once.
    fn run(&mut self, at: usize) {
        let Some(path) = self.awake(at) else { return };
        let word = self.word();
        let body =
            json!({ "command": format!("echo {word} | tee -a /workspace/{LOG}"), "timeout_seconds": 60 });
        let repeatable = self.random.below(2) == 0;
        let key = [("Idempotency-Key", word.as_str())];
        let (more, tries) = if repeatable { (&key[..], TRIES) } else { (&[][..], 1) };
        let done = (0..tries).any(|_| {
            let answer = self.exec(&path, &body, more);
            let done = self.link.done("exec", answer.as_ref(), &[200]);
            if let (true, Some(answer)) = (done, answer)
                && (answer.json()["stdout"] != format!("{word}\n") || answer.json()["exit_code"] != 0)
            {
                self.link.fault(format!("{path}: {word} came back as {}", answer.json()));
            }
            done
        });
        self.used(at, done);
        self.beliefs.sandboxes[at].wrote(word, done);
    }

    /// A command that nobody waits for, until it ended.
    fn run_behind(&mut self, at: usize) {
        let Some(path) = self.awake(at) else { return };
        let word = self.word();
        let body =
            json!({ "command": format!("sleep 0.1; echo {word} >> /workspace/{LOG}"), "background": true });
        let answer = self.exec(&path, &body, &[]);
        let begun = self.link.done("exec in the background", answer.as_ref(), &[202]);
        self.used(at, begun);
        let id = answer.filter(|_| begun).map(|answer| answer.json()["exec_id"].as_str().unwrap().to_owned());
        let ended = id.is_some_and(|id| self.saw_end(&format!("{path}/execs/{id}")));
        self.beliefs.sandboxes[at].wrote(word, ended);
    }

    fn saw_end(&self, exec: &str) -> bool {
        for _ in 0..1000 {
            let answer = self.link.ask("GET", exec, b"");
            if self.link.done("a command's state", answer.as_ref(), &[200])
                && let Some(answer) = answer
                && answer.json()["status"] == "ended"
            {
                if answer.json()["exit_code"] != 0 {
                    self.link.fault(format!("{exec}: {}", answer.json()));
                }
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.link.fault(format!("{exec} does not end"));
        false
    }

    /// A command whose output comes as it is printed.
    fn run_streamed(&mut self, at: usize) {
        let Some(path) = self.awake(at) else { return };
        let word = self.word();
        let line =
            format!("echo {word} >> /workspace/{LOG}; for i in 1 2 3; do echo {word}.$i; sleep 0.02; done");
        let answer = self.exec(&path, &json!({ "command": line, "stream": true }), &[]);
        let whole = self.link.done("exec as a stream", answer.as_ref(), &[200]);
        let text =
            answer.map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).unwrap_or_default();
        let ended = whole && text.contains(r#""type":"exit""#);
        if ended && !(1..=3).all(|n| text.contains(&format!("{word}.{n}"))) {
            self.link.fault(format!("{path}: {word} lost output: {text}"));
        }
        self.used(at, ended);
        self.beliefs.sandboxes[at].wrote(word, ended);
    }

    fn write(&mut self, at: usize) {
        let Some(path) = self.awake(at) else { return };
        let name = format!("f{}", self.random.below(6));
        let length = match self.random.below(8) {
            0 => 0,
            1 => 700_000,
            _ => self.random.below(30_000),
        };
        let content = self.random.bytes(length);
        let answer = self.link.ask("PUT", &format!("{path}/files/{name}"), &content);
        let done = self.link.done("write", answer.as_ref(), &[204]);
        self.used(at, done);
        let file = self.beliefs.sandboxes[at].files.entry(name).or_insert_with(|| May::only(None));
        file.asked(Some(content.into()), done);
    }

    fn read(&mut self, at: usize) {
        let Some(path) = self.awake(at) else { return };
        let names: Vec<String> = self.beliefs.sandboxes[at].files.keys().cloned().collect();
        if names.is_empty() {
            return self.write(at);
        }
        let name = &names[self.random.below(names.len())];
        let answer = self.link.ask("GET", &format!("{path}/files/{name}"), b"");
        let done = self.link.done("read", answer.as_ref(), &[200, 404]);
        self.used(at, done);
        let (true, Some(answer)) = (done, answer) else { return };
        let found: Content = (answer.status == 200).then(|| answer.body.into());
        if !self.beliefs.sandboxes[at].files[name].allows(&found) {
            let length = found.map(|content| content.len());
            self.link.fault(format!("{path}: {name} is not what was written: {length:?} bytes"));
        }
    }

    fn change_life(&mut self, at: usize, verb: &str, to: Life) {
        // What is stopped cannot be paused.
        let path = match to {
            Life::Paused => self.awake(at),
            _ => self.beliefs.sandboxes[at].path.clone(),
        };
        let Some(path) = path else { return };
        let answer = self.link.ask("POST", &format!("{path}/{verb}"), b"");
        let done = self.link.done(verb, answer.as_ref(), &[200]);
        self.beliefs.sandboxes[at].life.asked(to, done);
        // One that was cut off on its way may have lost its container already.
        if !done && to != Life::Paused {
            self.beliefs.sandboxes[at].life.or(Life::Stopped);
        }
    }

    /// Afterwards it is left alone: what is there of it when nobody answered is seen at the end.
    fn delete(&mut self, at: usize) {
        let Some(path) = self.beliefs.sandboxes[at].path.clone() else { return };
        let answer = self.link.ask("DELETE", &path, b"");
        let done = self.link.done("delete", answer.as_ref(), &[204]);
        let life = &mut self.beliefs.sandboxes[at].life;
        life.asked(Life::Gone, done);
        if !done {
            life.or(Life::Stopped);
        }
    }

    fn change_egress(&mut self, at: usize) {
        let Some(path) = self.beliefs.sandboxes[at].path.clone() else { return };
        let host = format!("{}.example", self.word());
        let policy = json!({ "mode": "allowlist", "allow": [host] }).to_string();
        let answer = self.link.ask("PUT", &format!("{path}/egress"), policy.as_bytes());
        let done = self.link.done("egress", answer.as_ref(), &[200]);
        self.beliefs.sandboxes[at].egress.asked(host, done);
    }

    /// Makes a key, or takes one back.
    fn keys(&mut self) {
        let live = self.beliefs.keys.iter().find(|(_, (_, worth))| worth.must_be(&true));
        if let (Some((id, _)), true) = (live, self.random.below(2) == 0) {
            let id = id.clone();
            let answer = self.link.ask("DELETE", &format!("{KEYS}/{id}"), b"");
            let done = self.link.done("revoking a key", answer.as_ref(), &[200]);
            if let Some((_, worth)) = self.beliefs.keys.get_mut(&id) {
                worth.asked(false, done);
            }
            return;
        }
        let body = json!({ "name": self.word(), "owner": self.name, "scope": "user" }).to_string();
        let answer = self.link.ask("POST", KEYS, body.as_bytes());
        if self.link.done("making a key", answer.as_ref(), &[201])
            && let Some(key) = answer.map(|answer| answer.json())
        {
            let text = |name: &str| key[name].as_str().unwrap().to_owned();
            self.beliefs.keys.insert(text("id"), (text("key"), May::only(true)));
        }
    }

    /// A figure that does nothing here, and whether sandboxes are kept ready, which does.
    fn change_setting(&mut self) {
        let seconds = 1000 + self.random.below(1000) as u64;
        let pool = self.random.below(4) != 0;
        let body = json!({ "idle_timeout_seconds": seconds, "warm_pool_enabled": pool }).to_string();
        let answer = self.link.ask("PATCH", SETTINGS, body.as_bytes());
        let done = self.link.done("settings", answer.as_ref(), &[200]);
        if let Some(setting) = &mut self.beliefs.setting {
            setting.asked(seconds, done);
        }
    }
}
