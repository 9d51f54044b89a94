//! Whole folders through a real server: found, searched, packed, unpacked, watched, and copied by the
//! command line.

use super::fixture::{KEY, Server};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Everything below a folder: mode, time, and bytes or target.
fn all(top: &Path) -> BTreeMap<Vec<u8>, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let body = if about.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if about.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
            found.insert(name, (about.mode(), about.mtime(), body));
        }
    }
    found
}

/// A folder with whatever is awkward in it; links stay inside.
fn awkward(top: &Path) {
    let at = |name: &str| top.join(name);
    fs::create_dir_all(at("deep/er/and deeper/é世界🏝")).unwrap();
    fs::create_dir_all(at("empty/inside")).unwrap();
    fs::create_dir_all(at(&format!("{}/{}", "l".repeat(120), "o".repeat(120)))).unwrap();
    fs::write(at("deep/er/and deeper/é世界🏝/new\nline \"q\" 'x'"), "text").unwrap();
    fs::write(at("nothing"), "").unwrap();
    fs::write(at("program"), "#!/bin/sh\necho hi\n").unwrap();
    fs::set_permissions(at("program"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::write(at(&format!("{}/{}/f", "l".repeat(120), "o".repeat(120))), "long").unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("../nothing", at("deep/up")).unwrap();
    symlink(".", at("deep/here")).unwrap();
    fs::set_permissions(at("empty"), fs::Permissions::from_mode(0o555)).unwrap();
    for name in ["nothing", "program", "deep"] {
        fs::File::open(at(name))
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(12345))
            .unwrap();
    }
}

fn tar(arguments: &[&str], folder: &Path, input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("tar")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = thread::spawn(move || stdin.write_all(&input));
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    writer.join().unwrap().unwrap();
    out.stdout
}

impl Server {
    pub(super) fn send(&self, method: &str, path: &str, body: &[u8]) -> super::http::Answer {
        let authorization = format!("Bearer {KEY}");
        super::http::request(self.address, method, path, &[("Authorization", &authorization)], body).unwrap()
    }

    fn cli(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(arguments)
            .env("ATOLL_URL", format!("http://{}", self.address))
            .env("ATOLL_API_KEY", KEY)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    }

    /// Whether a tool is in the sandbox's process list.
    fn tools_inside(&self, sandbox: &str) -> String {
        self.says(
            sandbox,
            "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -aoE 'atoll-[i]nit tool [a-z]+' || true",
        )
    }

    fn eventually_no_tools(&self, sandbox: &str) {
        let began = Instant::now();
        while !self.tools_inside(sandbox).is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "a tool stays");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn files_and_lines_are_found() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(
        &path,
        "mkdir -p src/deep .git && echo 'fn main() {} // é needle' > src/main.rs && \
        printf 'a\\nNEEDLE\\nb\\n' > src/deep/x.txt && echo needle > .git/x && ln -s / src/root && \
        printf 'needle\\0' > src/binary",
    );
    let ask = |tool: &str, body: &str| server.ask("POST", &format!("{path}/fs/{tool}"), body);
    let paths = |answer: serde_json::Value, list: &str| -> Vec<String> {
        answer[list].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap().to_owned()).collect()
    };
    let all = ask("find", "{}");
    assert_eq!(all.status, 200);
    let wanted =
        [".git", ".git/x", "src", "src/binary", "src/deep", "src/deep/x.txt", "src/main.rs", "src/root"];
    assert_eq!(paths(all.json(), "entries"), wanted);
    assert_eq!(all.json()["entries"][6]["type"], "file");
    assert_eq!(all.json()["entries"][6]["mode"], "0644");
    assert!(all.json()["entries"][6]["modified_at"].as_str().unwrap().ends_with('Z'));
    let some =
        ask("find", r#"{"path":"/workspace/src","pattern":"*.{rs,txt}","kind":"file","limit":1}"#).json();
    assert_eq!(
        (paths(some.clone(), "entries"), &some["truncated"]),
        (vec!["src/deep/x.txt".into()], &true.into())
    );
    let found = ask("grep", r#"{"pattern":"needle","ignore_case":true,"hidden":false,"context":1}"#).json();
    assert_eq!(paths(found.clone(), "matches"), ["src/deep/x.txt", "src/main.rs"]);
    assert_eq!(
        (&found["matches"][0]["before"][0], &found["matches"][0]["after"][0]),
        (&"a".into(), &"b".into())
    );
    assert_eq!((&found["matches"][1]["line"], &found["matches"][1]["column"]), (&1.into(), &19.into()));
    // Mistakes.
    for (tool, body, status, field) in [
        ("find", r#"{"pattern":"["}"#, 422, "pattern"),
        ("find", r#"{"limit":0}"#, 422, "limit"),
        ("find", r#"{"kind":"fifo"}"#, 422, "kind"),
        ("find", r#"{"colour":"red"}"#, 422, "colour"),
        ("grep", "{}", 422, "pattern"),
        ("grep", r#"{"pattern":"("}"#, 422, "pattern"),
        ("grep", r#"{"pattern":"a{1000}{1000}{1000}"}"#, 422, "pattern"),
        ("grep", r#"{"pattern":"x","context":11}"#, 422, "context"),
        ("grep", r#"{"pattern":"x","path":"nothing"}"#, 404, ""),
        ("find", r#"{"path":"nothing"}"#, 404, ""),
        ("find", r#"{"path":"src/main.rs"}"#, 400, ""),
        ("find", r#"{"path":"../etc"}"#, 400, ""),
    ] {
        let answer = ask(tool, body);
        assert_eq!(answer.status, status, "{body}: {}", String::from_utf8_lossy(&answer.body));
        if status == 422 {
            assert_eq!(answer.json()["detail"][0]["loc"][1], field, "{body}");
        }
    }
    // None of it counts as a command of the user's.
    assert_eq!(server.ask("GET", &path, "").json()["exec_count"], 1);
    // The same by hand.
    let id = path.rsplit('/').next().unwrap();
    let (code, out, _) = server.cli(&["find", id, "*.rs"]);
    assert_eq!((code, out.as_str()), (Some(0), "src/main.rs\n"));
    let (code, out, _) = server.cli(&["grep", id, "-i", "-C", "1", "needle$", "--glob", "*.txt"]);
    assert_eq!(
        (code, out.as_str()),
        (Some(0), "src/deep/x.txt-1-a\nsrc/deep/x.txt:2:NEEDLE\nsrc/deep/x.txt-3-b\n")
    );
}

#[test]
fn a_folder_goes_in_and_comes_out_as_it_was() {
    let server = Server::start();
    let path = server.create("{}");
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    awkward(from.path());
    symlink("/absolute/nowhere", from.path().join("absolute")).unwrap();
    // Another's archive, by GNU tar, in two formats.
    for (format, folder) in [("--format=gnu", "gnu"), ("--format=pax", "in")] {
        let archive = tar(&[format, "-cf", "-", "."], from.path(), b"");
        let put = server.send("PUT", &format!("{path}/fs/tar?path={folder}"), &archive);
        assert_eq!(put.status, 200, "{}", String::from_utf8_lossy(&put.body));
        assert_eq!(put.json()["files"], all(from.path()).len());
    }
    let changed =
        server.exec(&path, "id -u; stat -c %U in/program; ls -A in | grep -c atoll")["files_changed"].clone();
    assert_eq!(changed, serde_json::json!([]), "what the API wrote is no command's");
    let got = server.send("GET", &format!("{path}/fs/tar?path=in"), b"");
    assert_eq!((got.status, got.header("content-type")), (200, Some("application/x-tar")));
    assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
    assert!(got.header("content-disposition").unwrap().starts_with("attachment"));
    tar(&["-xpf", "-"], to.path(), &got.body);
    assert_eq!(all(from.path()), all(to.path()));
    let other = tempfile::tempdir().unwrap();
    tar(&["-xpf", "-"], other.path(), &server.send("GET", &format!("{path}/fs/tar?path=gnu"), b"").body);
    assert_eq!(all(from.path()), all(other.path()));
    // One file, and a name of its own.
    let got = server.send("GET", &format!("{path}/fs/tar?path=in/program&prefix=a/b"), b"");
    assert_eq!(tar(&["-xOf", "-", "a/b"], to.path(), &got.body), b"#!/bin/sh\necho hi\n");
    // It is in the record.
    let activity = server.ask("GET", &format!("{path}/activity"), "").json();
    let of = |kind: &str| -> Vec<serde_json::Value> {
        activity.as_array().unwrap().iter().filter(|a| a["kind"] == kind).cloned().collect()
    };
    assert_eq!((of("upload").len(), of("exec").len()), (2, 1), "{activity}");
    assert!(of("upload")[0].to_string().contains("in"), "{activity}");
    // Mistakes.
    for (method, query, body, status) in [
        ("GET", "?path=nothing", &b""[..], 404),
        ("GET", "?path=in/../..", b"", 400),
        ("GET", "?path=in&prefix=/x", b"", 422),
        ("GET", "?colour=red", b"", 422),
        ("PUT", "?path=/usr/x", b"", 403),
        ("PUT", "?path=in/program", b"", 400),
        ("PUT", "?path=in", b"no archive at all", 422),
        ("PUT", "?path=in", &[b'x'; 1024], 422),
    ] {
        let answer = server.send(method, &format!("{path}/fs/tar{query}"), body);
        assert_eq!(answer.status, status, "{method} {query}: {}", String::from_utf8_lossy(&answer.body));
    }
    let key = server.ask("POST", "/api/v1/keys", r#"{"name":"r","scope":"read_only"}"#).json();
    let key = key["key"].as_str().or(key["secret"].as_str()).unwrap().to_owned();
    assert_eq!(server.ask_as(&key, "PUT", &format!("{path}/fs/tar"), "").status, 403);
}

#[test]
fn the_command_line_copies_folders_as_docker_does() {
    let server = Server::start();
    let path = server.create("{}");
    let id = path.rsplit('/').next().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    awkward(&source);
    let cp = |from: &str, to: &str| {
        let (code, _, said) = server.cli(&["cp", from, to]);
        assert_eq!(code, Some(0), "{from} {to}: {said}");
        said
    };
    let here = |name: &str| folder.path().join(name);
    let text = |name: &str| here(name).to_str().unwrap().to_owned();
    // A new name, an existing folder, and what is in one.
    cp(&text("source"), &format!("{id}:new"));
    cp(&text("source"), &format!("{id}:"));
    server.says(&path, "mkdir there");
    cp(&text("source"), &format!("{id}:there/"));
    cp(&format!("{}/.", text("source")), &format!("{id}:contents"));
    assert_eq!(server.says(&path, "ls; ls there"), "contents\nnew\nsource\nthere\nsource");
    cp(&format!("{id}:new"), &text("back"));
    fs::create_dir(here("there")).unwrap();
    cp(&format!("{id}:/workspace/there/source"), &text("there"));
    cp(&format!("{id}:contents/."), &text("there/flat"));
    for name in ["back", "there/source", "there/flat"] {
        assert!(all(&source) == all(&here(name)), "{name}");
    }
    assert_eq!(fs::metadata(here("back")).unwrap().mode(), fs::metadata(&source).unwrap().mode());
    // Links that lead out are not made here, and said.
    server.says(
        &path,
        "mkdir evil && cd evil && ln -s /etc/passwd out && ln -s ../../x up && ln -s f in && echo x > f \
        && chmod 4755 f",
    );
    let said = cp(&format!("{id}:evil"), &text("evil"));
    assert!(said.contains("out -> /etc/passwd") && said.contains("up -> ../../x"), "{said}");
    assert_eq!(all(&here("evil")).len(), 2);
    assert_eq!(fs::metadata(here("evil/f")).unwrap().mode() & 0o7777, 0o755);
    // Mistakes.
    fs::write(here("file"), "x").unwrap();
    for (from, to) in [
        (text("nothing"), format!("{id}:x")),
        (format!("{id}:nothing"), text("x")),
        (text("source"), format!("{id}:evil/f")),
        (format!("{id}:new"), text("file")),
    ] {
        let (code, _, said) = server.cli(&["cp", &from, &to]);
        assert!(matches!(code, Some(1 | 2)) && !said.is_empty(), "{from} {to}: {code:?} {said}");
    }
}

/// Copies a folder in and out, and compares.
fn there_and_back(server: &Server, path: &str, folder: &Path) {
    let id = path.rsplit('/').next().unwrap().to_owned();
    let (source, back) = (folder.join("source"), folder.join("back"));
    let (code, _, said) = server.cli(&["cp", source.to_str().unwrap(), &format!("{id}:there")]);
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = server.cli(&["cp", &format!("{id}:there"), back.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(all(&source) == all(&back), "what came back is not what went in");
}

#[test]
fn ten_thousand_files_pass() {
    let server = Server::start();
    let path = server.create("{}");
    // In memory, so that this is not about the machine's disk.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for number in 0..10_000 {
        let at = folder.path().join(format!("source/{}/{number}", number % 100));
        if number < 100 {
            fs::create_dir_all(at.parent().unwrap()).unwrap();
        }
        fs::write(at, number.to_string()).unwrap();
    }
    there_and_back(&server, &path, folder.path());
    let found = server.ask("POST", &format!("{path}/fs/find"), r#"{"kind":"file","limit":100000}"#).json();
    assert_eq!((found["entries"].as_array().unwrap().len(), &found["truncated"]), (10_000, &false.into()));
    let found = server.ask("POST", &format!("{path}/fs/find"), "{}").json();
    assert_eq!((found["entries"].as_array().unwrap().len(), &found["truncated"]), (1000, &true.into()));
}

#[test]
fn a_large_file_passes() {
    let server = Server::start();
    let path = server.create(r#"{"disk_mb":1024}"#);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("source")).unwrap();
    let mut noise = fs::File::open("/dev/urandom").unwrap().take(200_000_000);
    std::io::copy(&mut noise, &mut fs::File::create(folder.path().join("source/large")).unwrap()).unwrap();
    there_and_back(&server, &path, folder.path());
}

/// A header of an archive, with no check of what it says.
fn entry(kind: u8, name: &str, target: &str, body: &[u8]) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", body.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].copy_from_slice(b"        ");
    header[156] = kind;
    header[157..157 + target.len()].copy_from_slice(target.as_bytes());
    header[257..265].copy_from_slice(b"ustar  \0");
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

#[test]
fn a_hostile_archive_is_refused_and_says_why() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "echo mine > /workspace/victim; mkdir in");
    for (case, entries) in [
        ("absolute", vec![entry(b'0', "/workspace/victim", "", b"bad")]),
        ("leads out", vec![entry(b'0', "../victim", "", b"bad")]),
        ("symbolic link", vec![entry(b'2', "l", "/workspace", b""), entry(b'0', "l/victim", "", b"bad")]),
        ("victim leads out", vec![entry(b'1', "h", "../victim", b"")]),
        ("device", vec![entry(b'3', "d", "", b"")]),
        ("broke off", vec![entry(b'0', "f", "", &[b'x'; 5000])[..3000].to_vec()]),
    ] {
        let mut archive = [entry(b'0', "before", "", b"good"), entries.concat()].concat();
        if case != "broke off" {
            archive.extend([0; 1024]);
        }
        let answer = server.send("PUT", &format!("{path}/fs/tar?path=in"), &archive);
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(matches!(answer.status, 400 | 422), "{case}: {} {said}", answer.status);
        assert!(said.contains(case) && said.contains("entries with"), "{case}: {said}");
    }
    assert_eq!(server.says(&path, "cat victim in/before; ls -A in | grep -v '^[bl]' || true"), "mine\ngood");
}

#[test]
fn an_upload_that_breaks_off_leaves_no_half_file_and_no_tool() {
    let server = Server::start();
    let path = server.create("{}");
    let archive =
        [entry(b'0', "whole", "", b"good"), entry(b'0', "half", "", &vec![b'x'; 10_000_000])].concat();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "PUT {path}/fs/tar?path=in HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n",
        archive.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&archive[..5_000_000]).unwrap();
    let began = Instant::now();
    while server.says(&path, "ls in 2>/dev/null || true") != "whole" {
        assert!(began.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(20));
    }
    drop(stream);
    server.eventually_no_tools(&path);
    assert_eq!(server.says(&path, "ls -A in"), "whole");
}

#[test]
fn a_full_disk_is_named_and_nothing_is_half() {
    let server = Server::start();
    let path = server.create(r#"{"disk_mb":64}"#);
    let noise: Vec<u8> = (0..150_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let small: Vec<u8> = entry(b'0', "in/small", "", b"small");
    let archive = [small, entry(b'0', "in/large", "", &noise), vec![0; 1024]].concat();
    let answer = server.send("PUT", &format!("{path}/fs/tar?path=/workspace"), &archive);
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (507, Some("disk_full")), "{said}");
    assert!(said.contains("in/large") && said.contains("1 entries with 5 bytes"), "{said}");
    assert_eq!(server.says(&path, "ls -A in"), "small");
}

/// A stream of events.
struct Watching {
    reader: BufReader<TcpStream>,
}

impl Watching {
    fn start(server: &Server, path: &str, query: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!(
            "GET {path}/fs/watch{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut watching = Self { reader: BufReader::new(stream) };
        let mut line = String::new();
        watching.reader.read_line(&mut line).unwrap();
        assert!(line.contains(" 200 "), "{line}");
        assert_eq!(watching.next()["event"], "ready");
        watching
    }

    fn next(&mut self) -> serde_json::Value {
        loop {
            let mut line = String::new();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    /// Everything up to the event of this kind and path.
    fn until(&mut self, event: &str, path: &str) -> Vec<(String, String)> {
        let mut seen = Vec::new();
        while seen.last() != Some(&(event.to_owned(), path.to_owned())) {
            let next = self.next();
            let text = |name: &str| next[name].as_str().unwrap_or_default().to_owned();
            seen.push((text("event"), text("path")));
        }
        seen
    }
}

#[test]
fn a_watch_sees_what_happens_and_ends_with_its_client() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "mkdir -p old/er");
    let mut watching = Watching::start(&server, &path, "");
    assert_eq!(server.tools_inside(&path), "atoll-init tool watch");
    server.says(&path, "mkdir -p a/b/c && echo x > a/b/c/f; echo y > old/er/g");
    let seen = watching.until("modified", "old/er/g");
    for made in ["a", "a/b", "a/b/c", "a/b/c/f", "old/er/g"] {
        let count = seen.iter().filter(|(event, path)| event == "created" && path == made).count();
        assert_eq!(count, 1, "{made}: {seen:?}");
    }
    server.says(&path, "mv old new && mv a/b/c/f 'é\n' && rm -r a && echo z >> new/er/g");
    let seen = watching.until("modified", "new/er/g");
    for wanted in [("renamed", "old"), ("renamed", "a/b/c/f"), ("deleted", "a"), ("deleted", "a/b/c")] {
        assert!(seen.contains(&(wanted.0.into(), wanted.1.into())), "{wanted:?}: {seen:?}");
    }
    // The files API is seen too.
    server.send("PUT", &format!("{path}/files/by-api"), b"x");
    assert_eq!(watching.until("created", "by-api"), [("created".to_owned(), "by-api".to_owned())]);
    drop(watching);
    server.eventually_no_tools(&path);
    for (query, status) in [("?path=nothing", 404), ("?path=by-api", 400), ("?recursive=maybe", 422)] {
        assert_eq!(server.ask("GET", &format!("{path}/fs/watch{query}"), "").status, status, "{query}");
    }
}

#[test]
fn a_tool_that_is_ended_inside_is_an_error_and_never_an_end() {
    let server = Server::start();
    let path = server.create("{}");
    let mut watching = Watching::start(&server, &path, "?path=/workspace&recursive=false");
    server.says(&path, "pkill -KILL -f 'atoll-init tool' || kill -9 $(grep -la 'atoll-init.tool' /proc/[0-9]*/cmdline | cut -d/ -f3)");
    assert_eq!(watching.next()["event"], "error");
    let mut rest = Vec::new();
    watching.reader.read_to_end(&mut rest).unwrap();
    assert!(!String::from_utf8_lossy(&rest).contains("data:"), "an error is the last event");
}

#[test]
fn a_tool_whose_sandbox_is_stopped_says_so() {
    let server = Server::start();
    let path = server.create("{}");
    let mut watching = Watching::start(&server, &path, "?path=/workspace&recursive=false");
    assert_eq!(server.ask("POST", &format!("{path}/stop"), "").status, 200);
    let last = watching.next();
    assert_eq!((&last["event"], &last["code"]), (&"error".into(), &"not_running".into()), "{last}");
    let said = last["message"].as_str().unwrap();
    assert!(said.starts_with("the sandbox was stopped while its files were worked on"), "{said}");
}

#[test]
fn what_cannot_be_archived_is_said_before_the_first_byte() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(
        &path,
        "mkdir -p d/e && head -c 300000 /dev/zero > d/a && touch d/e/secret && chmod 0 d/e/secret",
    );
    for (what, word) in [
        ("d", "e/secret: permission denied"),
        ("/proc", "the kernel's own"),
        ("/sys/kernel", "the kernel's own"),
    ] {
        let refused = server.ask("GET", &format!("{path}/fs/tar?path={what}"), "");
        let error = refused.json()["error"].clone();
        assert_eq!(
            (refused.status, error["code"].as_str()),
            (403, Some("permission_denied")),
            "{what}: {error}"
        );
        assert!(error["message"].as_str().unwrap().contains(word), "{what}: {error}");
    }
    // Of everything that root can read, folders that the kernel makes up are there, and are empty.
    let path = server.create(r#"{"profile":"root"}"#);
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "GET {path}/fs/tar?path=/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let (mut got, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    let has = |got: &[u8], text: &str| got.windows(text.len()).any(|w| w == text.as_bytes());
    while !has(&got[got.len().saturating_sub(1 << 17)..], "usr/\0") {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "it broke off after {}", String::from_utf8_lossy(&got[..got.len().min(500)]));
        got.extend_from_slice(&piece[..read]);
    }
    assert!(got.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&got[..500]));
    assert!(has(&got, "proc/\0") && has(&got, "sys/\0"));
    assert!(!has(&got, "proc/1") && !has(&got, "sys/kernel"));
}

#[test]
fn an_unread_download_ends_its_tool() {
    let server = Server::start();
    let path = server.create(r#"{"disk_mb":512}"#);
    server.says(&path, "head -c 100000000 /dev/urandom > large");
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "GET {path}/fs/tar HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 100_000]).unwrap();
    assert_eq!(server.tools_inside(&path), "atoll-init tool pack");
    drop(stream);
    server.eventually_no_tools(&path);
}

#[test]
fn atoll_watch_prints_a_line_for_each_event() {
    let server = Server::start();
    let path = server.create("{}");
    let id = path.rsplit('/').next().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["watch", id])
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    server.says(&path, "mkdir d && mv d \"$(printf 'e\\033[2J')\"");
    assert_eq!(lines.next().unwrap(), "created  d/");
    assert_eq!(lines.next().unwrap(), "renamed  d/ -> e\\u{1b}[2J/");
    child.kill().unwrap();
    child.wait().unwrap();
    server.eventually_no_tools(&path);
}
