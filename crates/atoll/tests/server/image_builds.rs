//! Images from templates and Dockerfiles: steps on an image that the test imports, and packages of Debian.

use super::{
    fixture::{KEY, Server},
    image_imports::{entry, import, left, root_filesystem},
    kernels,
};
use crate::engine::fixture::eventually;
use atoll_launch_proto::Layout;
use atoll_provider::Provider;
use atoll_provider_native::{LauncherClient, NativeProvider};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tar::{Builder, EntryType};

const ROOT: &str = "/api/v1/sandbox-images";
const STEPS: &str = "FROM box
ARG WORD=none
ENV GREETING=hello
RUN echo \"$WORD $GREETING\" > /made
WORKDIR /srv/app
COPY src/ ./
COPY --chown=1001:1002 --chmod=0600 note.txt /etc/
USER 1001
RUN id -u > /tmp/own && cat /made
LABEL team=one
CMD [\"/bin/sh\"]
";

/// A folder to build in, with a file of this text.
fn folder(dockerfile: &str, note: &str) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    let mut add = |name: &str, kind, mode, data: &[u8]| entry(&mut archive, name, kind, mode, data, "");
    add("Dockerfile", EntryType::Regular, 0o644, dockerfile.as_bytes());
    add("src/", EntryType::Directory, 0o755, b"");
    add("src/run.sh", EntryType::Regular, 0o755, b"echo ran");
    add("note.txt", EntryType::Regular, 0o644, note.as_bytes());
    archive.into_inner().unwrap()
}

/// Begins a build and returns its path.
fn begin(server: &Server, query: &str, files: &[u8]) -> String {
    let begun = server.send("POST", &format!("{ROOT}/build?disk_mb=64&memory_mb=256&{query}"), files);
    path(&begun)
}

pub(super) fn begin_of(server: &Server, body: &Value) -> String {
    path(&server.ask("POST", ROOT, &body.to_string()))
}

fn path(begun: &super::http::Answer) -> String {
    assert_eq!(begun.status, 202, "{}", String::from_utf8_lossy(&begun.body));
    format!("{ROOT}/builds/{}", begun.json()["build_id"].as_str().unwrap())
}

/// Waits for a build's end, however long it takes: nextest bounds the test.
pub(super) fn end(server: &Server, build: &str) -> Value {
    loop {
        let seen = server.ask("GET", build, "").json();
        if seen["status"] != "running" {
            return seen;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

pub(super) fn log(server: &Server, build: &str) -> String {
    String::from_utf8_lossy(&server.ask("GET", &format!("{build}/log"), "").body).into_owned()
}

pub(super) fn done(server: &Server, build: &str) {
    let ended = end(server, build);
    assert_eq!(ended["status"], "done", "{ended}\n{}", log(server, build));
}

fn with_box() -> Server {
    let server = Server::start();
    put_box(&server);
    server
}

pub(super) fn put_box(server: &Server) {
    let made = import(server, "name=box", &root_filesystem("base"));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
}

/// Waits until a step of a build has begun.
fn wait_for_step(server: &Server, build: &str) {
    let began = Instant::now();
    while !log(server, build).contains("begun") {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", log(server, build));
        thread::sleep(Duration::from_millis(50));
    }
}

fn a_dockerfile_becomes_an_image(server: &Server) {
    let build = begin(server, "name=app:1&args=%7B%22WORD%22%3A%22word%22%7D", &folder(STEPS, "note"));
    done(server, &build);
    assert_eq!(left(server), (json!(0), 0, 2));
    let image = server.ask("GET", &format!("{ROOT}/app:1"), "").json();
    assert_eq!((&image["origin"], &image["labels"]["team"]), (&json!("template"), &json!("one")));
    assert_eq!((&image["command"], &image["working_directory"]), (&json!(["/bin/sh"]), &json!("/srv/app")));
    let sandbox = server.create(r#"{"image":"app:1"}"#);
    let line = "cat /made; id -u; pwd; echo $GREETING; stat -c '%u %g %a' /etc/note.txt run.sh; . ./run.sh";
    let expected = "word hello\n1001\n/srv/app\nhello\n1001 1002 600\n0 0 755\nran";
    assert_eq!(server.says(&sandbox, line), expected);
    assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);

    // The same again is all kept; after another note, what comes before it is.
    let build = begin(server, "name=app:2&args=%7B%22WORD%22%3A%22word%22%7D", &folder(STEPS, "note"));
    done(server, &build);
    let said = log(server, &build);
    assert_eq!(said.matches("(kept)").count(), 5, "{said}");
    let second = server.ask("GET", &format!("{ROOT}/app:2"), "").json();
    assert_eq!(second["digest"], image["digest"]);
    let build =
        begin(server, "name=app:2&replace=true&args=%7B%22WORD%22%3A%22word%22%7D", &folder(STEPS, "other"));
    done(server, &build);
    let said = log(server, &build);
    assert_eq!(said.matches("(kept)").count(), 3, "{said}");
    let third = server.ask("GET", &format!("{ROOT}/app:2"), "").json();
    assert_ne!(third["digest"], image["digest"]);
    let build = begin(server, "name=app:3&no_cache=true", &folder(STEPS, "note"));
    done(server, &build);
    assert_eq!(log(server, &build).matches("(kept)").count(), 0);
    assert!(log(server, &build).contains("none hello"));
}

#[test]
fn a_dockerfile_becomes_an_image_and_what_was_done_is_kept() {
    a_dockerfile_becomes_an_image(&with_box());
}

#[test]
fn a_dockerfile_becomes_an_image_on_plain_folders() {
    let server = Server::start_on_folders(&[]);
    put_box(&server);
    a_dockerfile_becomes_an_image(&server);
}

#[test]
fn steps_that_no_build_used_for_long_are_removed() {
    let clock =
        ["lifecycle.interval_seconds=1", "lifecycle.settle_seconds=0", "images.layer_retention_seconds=0"];
    let server = Server::start_with(&clock.map(|setting| ["--set", setting]).concat());
    put_box(&server);
    done(&server, &begin(&server, "name=app:1", &folder(STEPS, "note")));
    let kept = || {
        let layout = Layout::new(&server.data().canonicalize().unwrap());
        let provider = NativeProvider::new(Arc::new(LauncherClient::new(&layout)));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(provider.images().unwrap().list_images()).unwrap().len()
    };
    eventually("only the two images are left", || kept() == 2);
    done(&server, &begin(&server, "name=app:1&replace=true", &folder(STEPS, "note")));
}

#[test]
fn a_create_builds_an_image_of_the_catalogue_where_the_setting_lets_it() {
    let server = Server::start();
    let host = server.ask("GET", &format!("{ROOT}/host"), "").json();
    let notes = host["alias_notes"].to_string();
    assert!(notes.contains("means the image skills-runtime, which is not built"), "{host}");
    let create = || server.ask("POST", "/api/v1/sandboxes", r#"{"image":"data-science","disk_mb":64}"#);
    assert_eq!(create().status, 422);
    let on = r#"{"atoll":{"images":{"build_on_use":true}}}"#;
    assert_eq!(server.ask("PATCH", "/api/v1/settings/sandbox", on).status, 200);
    let builds = || server.ask("GET", &format!("{ROOT}/builds"), "").json();
    // A key that may not create has nothing built.
    let reader = server.key_of("eve", "read_only");
    let body = r#"{"image":"data-science","disk_mb":64}"#;
    assert_eq!(server.ask_as(&reader, "POST", "/api/v1/sandboxes", body).status, 403);
    assert_eq!(builds()["total"], 0);
    // Both wait for one build, and end with it.
    let answers = thread::scope(|scope| {
        let all = [scope.spawn(create), scope.spawn(create)];
        eventually("the build", || builds()["total"] == 1);
        let id = builds()["items"][0]["build_id"].as_str().unwrap().to_owned();
        assert_eq!(server.ask("DELETE", &format!("{ROOT}/builds/{id}"), "").status, 204);
        all.map(|one| one.join().unwrap())
    });
    assert_eq!(builds()["total"], 1);
    for answer in answers {
        let said = answer.json()["error"]["message"].to_string();
        assert!(answer.status == 503 && said.contains("data-science could not be built"), "{answer:?}");
    }
    // The command line shows what the build says that its create waits for.
    let mut create = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["create", "--image", "data-science", "--disk", "64m"])
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(create.stderr.take().unwrap()).lines().map(Result::unwrap);
    let shown = lines.any(|line| line.contains("installing"));
    let all = builds();
    let running = all["items"].as_array().unwrap().iter().find(|one| one["status"] == "running");
    if let Some(build) = running {
        let id = build["build_id"].as_str().unwrap();
        assert_eq!(server.ask("DELETE", &format!("{ROOT}/builds/{id}"), "").status, 204);
    }
    let rest: Vec<String> = lines.collect();
    assert!(!create.wait().unwrap().success() && shown, "{rest:?} {all}");
    assert!(rest.iter().any(|line| line.contains("data-science could not be built")), "{rest:?}");
}

#[test]
fn a_template_is_built_of_its_parts_and_checked() {
    let pool = ["--set", "warm_pool_enabled=true", "--set", "pool.min=0", "--set", "pool.max=0"];
    let server = Server::start_with(&pool);
    put_box(&server);
    let spec = |check: &str| {
        json!({ "disk_mb": 64, "memory_mb": 256, "warm_pool_min": 1, "warm_pool_max": 1, "spec": {
            "id": "small", "name": "Small", "base": "box", "env": { "A": "b" },
            "files": [{ "path": "/opt/tool/run", "content": "echo $A", "mode": "0755" }],
            "setup_commands": [". /opt/tool/run > /said"],
            "ready_check": check,
            "default_resources": { "memory_mb": 128, "cpu_cores": 0.5, "disk_mb": 64 } } })
    };
    let failed = begin_of(&server, &spec("echo why; cat /nosuch"));
    let ended = end(&server, &failed);
    let why = ended["error"].as_str().unwrap();
    assert!(ended["status"] == "failed" && why.contains("the check ended with exit code 1"), "{ended}");
    assert_eq!(left(&server), (json!(0), 0, 1));
    let build = begin_of(&server, &spec("cat /said && id -u | cat"));
    done(&server, &build);
    let image = server.ask("GET", &format!("{ROOT}/small"), "").json();
    assert_eq!((&image["display_name"], &image["memory_mb"]), (&json!("Small"), &json!(128)));
    assert_eq!((&image["warm_pool_min"], &image["warm_pool_max"]), (&json!(1), &json!(1)));
    // The first create has a container of the pool, which was warmed for it.
    let warm = || {
        let keys = server.ask("GET", "/api/v1/pool", "").json()["keys"].clone();
        let own = keys.as_array().unwrap().iter().find(|key| key["image"] != "host").cloned();
        own.unwrap_or_default()
    };
    eventually("a container of the new image", || warm()["ready"] == 1);
    let sandbox = server.create(r#"{"image":"small"}"#);
    assert_eq!(warm()["hits"], 1, "{}", warm());
    assert_eq!(server.says(&sandbox, "cat /said; echo $A; stat -c %a /opt/tool/run"), "b\nb\n755");
    // Its successor is kept ready in its place.
    let again = json!({ "replace": true, "disk_mb": 64, "spec": { "id": "small", "base": "box" } });
    let build = begin_of(&server, &again);
    done(&server, &build);
    let image = server.ask("GET", &format!("{ROOT}/small"), "").json();
    assert_eq!((&image["warm_pool_min"], &image["warm_pool_max"]), (&json!(1), &json!(1)));
}

#[test]
fn a_dockerfile_sees_the_variables_of_its_base() {
    let server = with_box();
    let file = "FROM box\nENV PATH=/opt/x:$PATH PLACE=/srv/app\nUSER 1001\n";
    done(&server, &begin_of(&server, &json!({ "name": "first", "dockerfile": file })));
    let file = "FROM first\nENV PATH=/opt/y:$PATH\nWORKDIR $PLACE\nUSER 0\nRUN echo $PATH > /said && id -u >> /said\nUSER 1001\n";
    done(&server, &begin_of(&server, &json!({ "name": "second", "dockerfile": file })));
    let sandbox = server.create(r#"{"image":"second"}"#);
    let path = "/opt/y:/opt/x:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(server.says(&sandbox, "cat /said; pwd; id -u"), format!("{path}\n0\n/srv/app\n1001"));
    // The steps of a template are root's, and its image keeps the base's user.
    let spec = json!({ "spec": { "id": "third", "base": "second", "setup_commands": ["id -u > /who"] } });
    done(&server, &begin_of(&server, &spec));
    let sandbox = server.create(r#"{"image":"third"}"#);
    assert_eq!(server.says(&sandbox, "cat /who; id -u"), "0\n1001");
}

#[test]
fn files_are_built_with_the_limits_lock_and_pool_of_the_request() {
    let pool = ["--set", "warm_pool_enabled=true", "--set", "pool.min=0", "--set", "pool.max=0"];
    let server = Server::start_with(&pool);
    put_box(&server);
    let lock = r#"[{"manager":"pip","name":"six","version":"1.17.0"}]"#;
    let query =
        "name=app:1&cpu_cores=0.5&egress=%7B%22mode%22%3A%22none%22%7D&warm_pool_min=0&warm_pool_max=1";
    // The note is the lock.
    let build = begin(&server, &format!("{query}&lock=note.txt"), &folder("FROM box\nRUN echo made\n", lock));
    let ended = end(&server, &build);
    let why = ended["error"].as_str().unwrap_or_default();
    assert!(ended["status"] == "failed" && why.contains("pip six 1.17.0"), "{ended}");
    let build = begin(&server, &format!("{query}&lock=note.txt"), &folder("FROM box\nRUN echo made\n", "[]"));
    done(&server, &build);
    let image = server.ask("GET", &format!("{ROOT}/app:1"), "").json();
    assert_eq!((&image["warm_pool_min"], &image["warm_pool_max"]), (&json!(0), &json!(1)), "{image}");
}

#[test]
fn what_no_sandbox_of_an_image_sees_is_named_in_the_log() {
    let server = with_box();
    let steps = "FROM box\nRUN /usr/bin/busybox mkdir -p /home/user && echo a > /home/user/mine && echo b > /workspace/lost\nUSER nosuch\n";
    let build = begin_of(&server, &json!({ "name": "app", "dockerfile": steps }));
    done(&server, &build);
    let said = log(&server, &build);
    for named in ["note: /home/user of the image", "(mine)", "note: /workspace of the image", "user nosuch"] {
        assert!(said.contains(named), "{named}: {said}");
    }
}

#[test]
fn steps_have_the_memory_that_the_request_names() {
    let server = with_box();
    let build = |memory: u64| {
        // One buffer, every page of which is written.
        let line = "busybox dd if=/dev/zero of=/dev/null bs=96M count=1 && echo took";
        let body = json!({ "name": "app", "disk_mb": 64, "memory_mb": memory, "dockerfile": format!("FROM box\nRUN {line}\n") });
        let build = begin_of(&server, &body);
        (end(&server, &build), log(&server, &build))
    };
    let (ended, said) = build(64);
    assert!(ended["status"] == "failed" && !said.contains("\ntook"), "{ended}\n{said}");
    let (ended, said) = build(256);
    assert!(ended["status"] == "done" && said.contains("\ntook"), "{ended}\n{said}");
}

#[test]
fn a_step_that_fails_says_why_and_leaves_no_image() {
    let server = with_box();
    for (what, step, says) in [
        ("an exit code", "RUN echo oops && exit 3", "ended with exit code 3: oops"),
        ("no such program", "RUN [\"/nosuch\"]", "could not be started"),
        ("a full disk", "RUN /usr/bin/busybox dd if=/dev/zero of=/big bs=1M count=200", "quota exceeded"),
        ("no such owner", "COPY --chown=nosuch note.txt /", "no such owner"),
    ] {
        let build = begin(&server, "name=app", &folder(&format!("FROM box\nRUN echo first\n{step}\n"), ""));
        let ended = end(&server, &build);
        let why = ended["error"].as_str().unwrap();
        assert!(
            ended["status"] == "failed" && why.contains(says) && why.contains("step 2"),
            "{what}: {ended}"
        );
        assert_eq!(left(&server), (json!(0), 0, 1), "{what}");
    }
    let large = folder("FROM box\nCOPY note.txt /\n", &"x".repeat(90 << 20));
    let ended = end(&server, &begin(&server, "name=app", &large));
    assert!(ended["error"].as_str().unwrap().contains("no room"), "{ended}");
    assert_eq!(left(&server), (json!(0), 0, 1));
}

#[test]
fn a_build_that_cannot_begin_is_refused() {
    let server = with_box();
    let reader = server.key_of("ann", "user");
    let body = json!({ "template": "base" }).to_string();
    assert_eq!(server.ask_as(&reader, "POST", ROOT, &body).status, 403);
    for (what, status, body) in [
        ("no template", 422, json!({ "template": "nosuch" })),
        ("nothing", 422, json!({})),
        ("two", 422, json!({ "template": "base", "dockerfile": "FROM box" })),
        ("no name", 422, json!({ "dockerfile": "FROM box" })),
        ("the machine", 422, json!({ "name": "x", "dockerfile": "FROM host" })),
        ("no such base", 422, json!({ "name": "x", "dockerfile": "FROM nosuch" })),
        ("an unknown line", 422, json!({ "name": "x", "dockerfile": "FROM box\nVOLUME /x" })),
        ("no files", 422, json!({ "name": "x", "dockerfile": "FROM box\nCOPY a /" })),
        ("an option", 422, json!({ "spec": { "id": "x", "base": "box", "packages": { "pip": ["--pre"] } } })),
        ("a start of nothing", 422, json!({ "spec": { "id": "x", "base": "box", "start_command": " " } })),
        (
            "a time without a start",
            422,
            json!({ "spec": { "id": "x", "base": "box", "ready_check": "a", "ready_timeout_seconds": 1 } }),
        ),
        (
            "a label of a start",
            422,
            json!({ "name": "x", "dockerfile": "FROM box\nLABEL atoll.start_command=a atoll.ready_check=b atoll.ready_interval_ms=soon" }),
        ),
        ("a name that is taken", 409, json!({ "name": "box", "dockerfile": "FROM box" })),
        (
            "a covered folder",
            422,
            json!({ "name": "x", "dockerfile": "FROM box\nENV A=1\nWORKDIR /workspace/app" }),
        ),
        (
            "a covered file",
            422,
            json!({ "spec": { "id": "x", "base": "box", "files": [{ "path": "/tmp/a", "content": "" }] } }),
        ),
        ("arguments of a template", 422, json!({ "template": "base", "args": { "A": "b" } })),
        ("arguments of a spec", 422, json!({ "spec": { "id": "x", "base": "box" }, "args": { "A": "b" } })),
    ] {
        let refused = server.ask("POST", ROOT, &body.to_string());
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert_eq!(refused.status, status, "{what}: {text}");
        assert!(what != "an unknown line" || text.contains("line 2: VOLUME is not supported"), "{text}");
        assert!(what != "a label of a start" || text.contains("line 2: ready_interval_ms"), "{text}");
        assert!(what != "a covered folder" || text.contains("line 3: WORKDIR"), "{text}");
        assert!(what != "a covered file" || text.contains("/tmp of an image is not seen"), "{text}");
        assert!(!what.starts_with("arguments") || text.contains("args"), "{text}");
    }
    for (what, query, files) in [
        ("no archive", "name=x", vec![7; 4096]),
        ("no Dockerfile", "name=x&file=nosuch", folder(STEPS, "")),
        ("no such file", "name=x", folder("FROM box\nCOPY nosuch /\n", "")),
        ("wrong arguments", "name=x&args=1", folder(STEPS, "")),
        ("an argument that no line takes", "name=x&args=%7B%22LOST%22%3A%22b%22%7D", folder(STEPS, "")),
        ("no policy", "name=x&egress=1", folder("FROM box", "")),
        ("no lock", "name=x&lock=nosuch", folder("FROM box", "")),
        ("no lock but a note", "name=x&lock=note.txt", folder("FROM box", "note")),
        ("a copy to the home", "name=x", folder("FROM box\nCOPY note.txt /home/user/\n", "")),
        ("a copy that the image hides", "name=x", folder("FROM box\nWORKDIR /tmp\nCOPY note.txt .\n", "")),
        (
            "arguments of a template",
            "name=x&file=a.json&args=%7B%22A%22%3A%22b%22%7D",
            folder("FROM box", ""),
        ),
    ] {
        let refused = server.send("POST", &format!("{ROOT}/build?disk_mb=64&{query}"), &files);
        assert_eq!(refused.status, 422, "{what}: {}", String::from_utf8_lossy(&refused.body));
    }
    assert_eq!(left(&server), (json!(0), 0, 1));
}

#[test]
fn a_build_that_is_cancelled_or_whose_server_is_killed_leaves_nothing() {
    let mut server = with_box();
    let steps = "FROM box\nRUN echo begun && /usr/bin/busybox sleep 600\n";
    let build = begin(&server, "name=app", &folder(steps, ""));
    wait_for_step(&server, &build);
    assert_eq!(server.ask("DELETE", &build, "").status, 204);
    assert_eq!(end(&server, &build)["status"], "cancelled");
    assert_eq!(left(&server), (json!(0), 0, 1));
    let build = begin(&server, "name=app", &folder(steps, ""));
    wait_for_step(&server, &build);
    server.kill();
    server.restart();
    assert_eq!(end(&server, &build)["status"], "failed");
    assert_eq!(left(&server), (json!(0), 0, 1));
    let build = begin(&server, "name=app", &folder("FROM box\nRUN echo works\n", ""));
    done(&server, &build);
}

/// The packages of an image by name.
fn version(image: &Value, manager: &str, name: &str) -> Option<String> {
    let all = image["packages"].as_array().unwrap();
    let found = all.iter().find(|one| one["manager"] == manager && one["name"] == name)?;
    found["version"].as_str().map(str::to_owned)
}

/// The short form of the catalogue: the smallest Debian with Python and one package, from the archives of this machine.
#[test]
fn packages_of_debian_become_an_image_with_a_kernel() {
    let server = Server::start();
    let spec = json!({ "disk_mb": 2048, "spec": {
        "id": "tiny", "packages": { "debian": ["python3", "python3-six"] }, "ready_check": "python3 -c 'import six'" } });
    let began = Instant::now();
    let build = begin_of(&server, &spec);
    done(&server, &build);
    eprintln!("built in {:?}", began.elapsed());
    let image = server.ask("GET", &format!("{ROOT}/tiny"), "").json();
    assert!(version(&image, "debian", "python3-six").is_some(), "{}", image["packages"]);
    let sandbox = server.create(r#"{"image":"tiny"}"#);
    assert_eq!(kernels::value(&kernels::python(&server, &sandbox, "import six; six.PY3")), "True");
    // The packages are kept, and a lock of what there is builds the same; one that cannot be kept is refused.
    let mut locked = spec;
    (locked["lock"], locked["name"]) = (image["packages"].clone(), json!("same"));
    done(&server, &begin_of(&server, &locked));
    let same = server.ask("GET", &format!("{ROOT}/same"), "").json();
    assert_eq!(same["packages"], image["packages"]);
    let six = json!({ "manager": "debian", "name": "python3-six", "version": "0.1-no-such" });
    let python = version(&image, "debian", "python3");
    let python = json!({ "manager": "debian", "name": "python3", "version": python });
    (locked["lock"], locked["name"]) = (json!([&six]), json!("other"));
    let refused = server.ask("POST", ROOT, &locked.to_string());
    assert_eq!((refused.status, &refused.json()["detail"][0]["loc"][1]), (422, &json!("lock")));
    locked["lock"] = json!([python, six]);
    let ended = end(&server, &begin_of(&server, &locked));
    assert_eq!(ended["status"], "failed", "{ended}");
    let on = json!({ "name": "more", "dockerfile": "FROM tiny\nRUN python3 -c 'import six' > /dev/null\n" });
    done(&server, &begin_of(&server, &on));
}

/// What is imported where that is not the package's name.
const IMPORTED_AS: [(&str, &str); 12] = [
    ("beautifulsoup4", "bs4"),
    ("ipython", "IPython"),
    ("pillow", "PIL"),
    ("python-docx", "docx"),
    ("python-pptx", "pptx"),
    ("pyyaml", "yaml"),
    ("scikit-learn", "sklearn"),
    // Their main modules are for programs that they run themselves.
    ("tsx", "tsx/cjs/api"),
    ("vitest", "vitest/node"),
    ("dbi", "DBI"),
    ("randomforest", "randomForest"),
    ("rsqlite", "RSQLite"),
];

/// The modules of a template's packages of a manager.
fn modules<'a>(template: &'a Value, manager: &str) -> Vec<&'a str> {
    let Some(all) = template["packages"][manager].as_array() else { return Vec::new() };
    let mut modules = Vec::new();
    for one in all {
        let name = one.as_str().unwrap();
        let known = IMPORTED_AS.iter().find(|(package, _)| *package == name);
        modules.push(known.map_or(name, |(_, module)| *module));
    }
    modules
}

/// The cells that import every package of a template, each with its language.
fn imports(template: &Value) -> Vec<(&'static str, String)> {
    let names = |manager| modules(template, manager);
    let (python, node, r) = (names("pip"), json!(names("npm")), names("r").join("', '"));
    // `import` looks beside the code, and not where NODE_PATH says.
    let node = format!(
        "require('fs').symlinkSync(process.env.NODE_PATH, 'node_modules')\n\
         for (const name of {node}) {{ try {{ require(name) }} catch {{ await import(name) }} }}"
    );
    let r = format!("for (name in c('{r}')) library(name, character.only = TRUE)");
    let cells = [
        ("debian", "python", "import ssl, sqlite3".to_owned()),
        ("pip", "python", format!("import {}", python.join(", "))),
        ("npm", "node", node),
        ("r", "r", r),
    ];
    let has = |manager| match manager {
        "debian" => names(manager).contains(&"python3"),
        _ => !names(manager).is_empty(),
    };
    let cells = cells.into_iter().filter(|(manager, ..)| has(*manager));
    cells.map(|(_, language, code)| (language, code)).collect()
}

/// A widget is a page of its own.
fn check_widget(server: &Server, sandbox: &str) {
    let code = "htmlwidgets::createWidget('none', list(word = 'kept <here>'), package = 'htmlwidgets')";
    let ran = kernels::run(server, sandbox, "r", code);
    let page = ran["display_outputs"][0]["data"].as_str().unwrap_or_else(|| panic!("{ran}"));
    assert!(page.contains("HTMLWidgets") && page.contains("kept"), "{page}");
    assert!(!page.contains("<script src=\"") && !page.contains("_files/"), "{page}");
}

/// `make images`: each image of `ATOLL_IMAGES` is built for real, its packages are imported in kernels, and a lock of them builds the same.
#[test]
fn the_catalogue_is_built_and_imported() {
    let Ok(names) = std::env::var("ATOLL_IMAGES") else {
        return eprintln!("skipped: make images builds the catalogue");
    };
    let server = Server::start();
    let templates: Vec<Value> =
        serde_json::from_str(include_str!("../../../core/src/image_specs/templates.json")).unwrap();
    for template in &templates {
        let name = template["id"].as_str().unwrap();
        if !names.split_whitespace().any(|asked| asked == name) {
            continue;
        }
        let began = Instant::now();
        let mut request = json!({ "template": name, "memory_mb": 4096, "cpu_cores": 2.0 });
        done(&server, &begin_of(&server, &request));
        let image = server.ask("GET", &format!("{ROOT}/{name}"), "").json();
        let (packages, size) =
            (image["packages"].as_array().unwrap().len(), image["size_bytes"].as_u64().unwrap());
        eprintln!("{name}: {} s, {packages} packages, {} MiB", began.elapsed().as_secs(), size >> 20);
        let sandbox = server.create(&json!({ "image": name }).to_string());
        for (language, code) in imports(template) {
            let ran = kernels::run(&server, &sandbox, language, &code);
            assert_eq!(ran["success"], true, "{name}: {code}: {ran}");
            if language == "r" {
                check_widget(&server, &sandbox);
            }
        }
        assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
        if name == "base" {
            let notes = image["alias_notes"].to_string();
            let python = version(&image, "debian", "python3").unwrap();
            assert!(python.starts_with("3.12") || notes.contains(&python), "{notes}");
        }
        (request["name"], request["lock"]) = (json!("same"), image["packages"].clone());
        request["replace"] = json!(true);
        done(&server, &begin_of(&server, &request));
        let same = server.ask("GET", &format!("{ROOT}/same"), "").json();
        assert_eq!(same["packages"], image["packages"], "{name}");
    }
}
