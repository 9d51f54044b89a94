//! An ordinary user who may use sudo, as most people start: every command works on a fresh home, whichever comes
//! first, and nothing in that home becomes root's but what only the launcher may read.

use super::{
    fixture::KEY,
    http,
    machine::{Apart, install},
    readme,
};
use crate::engine::fixture::{eventually, leftovers_of};
use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

const USER: u32 = 54321;

/// A user with a home of its own, on this test's own view of /etc.
struct Person {
    apart: Apart,
    home: PathBuf,
    /// What begins a line that the user types.
    types: String,
}

impl Person {
    fn new() -> Self {
        let mut apart = Apart::new();
        install(&apart.path("bin"));
        let home = apart.path("home");
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&home, Some(USER), Some(USER)).unwrap();
        apart.say("mkdir upper && mount -t tmpfs none upper && mkdir upper/u upper/w");
        apart.say("mount -t overlay -o lowerdir=/etc,upperdir=upper/u,workdir=upper/w none /etc");
        apart.say(&format!("echo 'ordinary:x:{USER}:{USER}::{}:/bin/sh' >>/etc/passwd", home.display()));
        apart.say(&format!("echo 'ordinary:x:{USER}:' >>/etc/group"));
        apart.say("echo 'ordinary:*:19000:0:99999:7:::' >>/etc/shadow");
        apart.say(
            "printf 'Defaults !authenticate\\nordinary ALL=(ALL) NOPASSWD: SETENV: ALL\\n' >/etc/sudoers",
        );
        apart.say("chmod 0440 /etc/sudoers; rm -rf /etc/sudoers.d; set +e");
        let types = format!(
            "setpriv --reuid={USER} --regid={USER} --clear-groups env -C {0} -u XDG_STATE_HOME HOME={0} PATH={1}:/usr/bin:/bin",
            home.display(),
            apart.path("bin").display()
        );
        Self { apart, home, types }
    }

    /// Types a line; its exit status is printed under a name.
    fn line(&mut self, name: &str, line: &str) {
        let types = &self.types;
        self.apart.say(&format!("{types} {line}; echo \"{name} ended with $?\""));
    }

    /// Prints what of the home is not the user's, but for what the launcher keeps in the data folder.
    fn look(&mut self, name: &str, data: &str) {
        let home = self.home.display();
        let kept = format!("-not -path '{home}/{data}/storage*' -not -path '{home}/{data}/launch.log'");
        self.apart.say(&format!("find {home} -not -uid {USER} {kept} -printf '{name} found %p\\n'"));
    }

    fn serve(&mut self) -> SocketAddr {
        let line = format!("{} atoll serve --listen 127.0.0.1:0", self.types);
        self.apart.serve_with(&line, "server")
    }
}

const DATA: &str = ".local/state/atoll";

#[test]
fn every_command_works_in_any_order_on_a_fresh_home() {
    let mut person = Person::new();
    person.line("run", "sh -c 'echo hello | atoll run -- tr a-z A-Z'");
    // At once, while the launcher of that run is about to end.
    let address = person.serve();
    person.line("doctor", "atoll doctor");
    person.look("served", DATA);
    let typed = readme::typed_commands("README.md");
    assert!(typed.len() >= 3, "{typed:?}");
    for (number, line) in typed.iter().enumerate() {
        person.line(&format!("command {number}"), line);
    }
    let sessions = readme::sessions("README.md");
    let folders: Vec<PathBuf> =
        (0..sessions.len()).map(|number| person.home.join(format!("session{number}"))).collect();
    for (number, (session, folder)) in sessions.iter().zip(&folders).enumerate() {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("script"), readme::script(session)).unwrap();
        for own in [folder.clone(), folder.join("script")] {
            chown(own, Some(USER), Some(USER)).unwrap();
        }
        let at = format!("env -C {} ATOLL_URL=http://{address} ATOLL_API_KEY={KEY}", folder.display());
        person.line(&format!("session {number}"), &format!("{at} bash script"));
    }
    person
        .line("keys", &format!("env ATOLL_URL=http://{address} ATOLL_API_KEY={KEY} atoll keys create mine"));
    person.line("mcp", "sh -c 'atoll mcp </dev/null'");
    person.line("run again", "atoll run -- true");
    person
        .line("mount", "atoll run --mount session0:/data -- sh -c 'stat -c %u /data; echo made >/data/made'");
    person.line("verify", "atoll audit verify");
    person.line("down", "atoll down --purge");
    person.look("purged", "no");
    let said = person.apart.end();
    let of_readme = (0..typed.len()).map(|number| format!("command {number}"));
    let of_readme = of_readme.chain((0..sessions.len()).map(|number| format!("session {number}")));
    let names = ["run", "doctor", "keys", "mcp", "run again", "mount", "verify", "down"].map(str::to_owned);
    for name in of_readme.chain(names) {
        assert!(said.contains(&format!("{name} ended with 0\n")), "{name}: {said}");
    }
    let made = fs::metadata(folders[0].join("made")).unwrap();
    assert!(made.uid() == USER && made.gid() == USER && said.contains("\n1000\n"), "{made:?} {said}");
    assert!(said.contains("HELLO\n") && said.contains("a sandbox started in"), "{said}");
    assert!(said.contains("42\n") && !said.contains(" found "), "{said}");
    for (session, folder) in sessions.iter().zip(&folders) {
        readme::check(session, folder);
    }
    let data = person.home.join(DATA);
    assert!(!data.join("server").exists() && !data.join("storage").exists());
    eventually("the end of everything", || leftovers_of(&data).is_empty());
}

#[test]
fn any_command_may_be_the_first_on_a_fresh_home() {
    for first in ["doctor", "mcp", "serve", "down"] {
        let mut person = Person::new();
        match first {
            "serve" => drop(person.serve()),
            "mcp" => person.line(first, "sh -c 'atoll mcp </dev/null'"),
            _ => person.line(first, &format!("atoll {first}")),
        }
        person.line("run", "atoll run -- true");
        person.look("first", DATA);
        person.line("purge", "atoll down --purge");
        person.look("purged", "no");
        let said = person.apart.end();
        for name in [first, "run", "purge"].into_iter().filter(|name| *name != "serve") {
            assert!(said.contains(&format!("{name} ended with 0\n")), "{first}, {name}: {said}");
        }
        assert!(!said.contains(" found "), "{first}: {said}");
        let data = person.home.join(DATA);
        assert!(!data.join("server").exists() && !data.join("storage").exists(), "{first}: {said}");
        eventually("the end of everything", || leftovers_of(&data).is_empty());
    }
}

#[test]
fn what_is_typed_behind_sudo_leaves_the_home_alone() {
    let mut person = Person::new();
    let home = person.home.display().to_string();
    let sudo = format!("sudo -n HOME={home} PATH={}:/usr/bin:/bin", person.apart.path("bin").display());
    person.line("run", &format!("{sudo} atoll run -- true"));
    person.line("doctor", &format!("{sudo} atoll doctor"));
    person.line("mcp", &format!("sh -c '{sudo} atoll mcp </dev/null'"));
    person.look("sudo", "no");
    // The user's own comes after root's.
    let address = person.serve();
    let headers = [("Authorization", "Bearer bootstrap-key-of-a-test")];
    let made = http::request(address, "POST", "/api/v1/sandboxes", &headers, b"{}").unwrap();
    let path = format!("/api/v1/sandboxes/{}/exec", made.json()["id"].as_str().unwrap());
    let ran = http::request(address, "POST", &path, &headers, br#"{"command":"id -u"}"#).unwrap();
    assert_eq!(ran.json()["stdout"], "1000\n", "{ran:?}");
    person.apart.say("echo server $(stat -c %u /proc/$!)");
    person.line("down", "atoll down --purge");
    person.line("all", &format!("{sudo} atoll down --purge"));
    let said = person.apart.end();
    for name in ["run", "doctor", "mcp", "down", "all"] {
        assert!(said.contains(&format!("{name} ended with 0\n")), "{name}: {said}");
    }
    assert!(said.contains(&format!("server {USER}\n")) && !said.contains(" found "), "{said}");
    let data = person.home.join(DATA);
    assert!(!data.exists(), "{said}");
    eventually("the end of everything", || leftovers_of(&data).is_empty());
}

#[test]
fn a_home_that_cannot_be_written_is_named_and_left_alone() {
    let mut person = Person::new();
    fs::set_permissions(&person.home, fs::Permissions::from_mode(0o555)).unwrap();
    person.line("run", "atoll run -- true");
    person.line("serve", "atoll serve --listen 127.0.0.1:0");
    person.line("nowhere", "env HOME=/no-such-root/home atoll run -- true");
    person.apart.say("test ! -e /no-such-root || echo the other home was found");
    person.apart.serve("roots", "$ATOLL");
    let roots = person.apart.path("roots").display().to_string();
    person.line("roots", &format!("atoll run --data-dir {roots} -- true"));
    person.look("home", "no");
    person.apart.say("$ATOLL down --purge --all");
    let said = person.apart.end();
    for name in ["run", "serve", "nowhere", "roots"] {
        assert!(said.contains(&format!("{name} ended with 125\n")), "{name}: {said}");
    }
    for home in [person.home.display().to_string(), "/no-such-root/home".to_owned()] {
        assert!(said.contains(&format!("the data folder {home}/{DATA} cannot be made")), "{said}");
    }
    assert!(said.contains("choose a folder that you may write with --data-dir"), "{said}");
    assert!(said.contains(&format!("{roots} belongs to another user; use sudo or --data-dir")), "{said}");
    assert!(!said.contains(" found"), "{said}");
}

#[test]
fn a_test_that_fails_leaves_no_server() {
    let mut served = None;
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let mut person = Person::new();
        served = Some((person.serve(), person.home.join(DATA)));
        person.apart.end();
        panic!("as an assertion that fails does");
    }));
    let (address, data) = served.unwrap();
    assert!(failed.is_err() && TcpStream::connect(address).is_err());
    eventually("the end of everything", || leftovers_of(&data).is_empty());
}
