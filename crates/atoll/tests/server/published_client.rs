//! Clients that we did not write. The published client of this API, as its users have it: `mcpgateway-sdk` 0.30.0, with its defaults.
//! `make test` installs it into a folder beside the build.

use super::fixture::{KEY, Server};
use std::{path::Path, process::Command};

const PROGRAM: &str = r##"
import asyncio, io, sys, tempfile, zipfile
from mcpgateway_sdk import MCPGateway
from mcpgateway_sdk import exceptions

def package(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()

async def skills(client, one):
    box, skills = client.sandboxes, client.skills
    text = "---\nname: data-analyzer\ndescription: Reads tables\n---\n# Read\n"
    zipped = package({"data-analyzer/SKILL.md": text, "data-analyzer/run.py": "print('ran')"})
    first = await skills.upload(content=zipped, filename="data-analyzer.zip")
    assert (first.name, first.description, first.skill_md_content) == ("data-analyzer", "Reads tables", text), first
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        file.write(package({"SKILL.md": text.replace("data-analyzer", "from-file")}))
        file.flush()
        second = await skills.upload(file_path=file.name)
    made = await skills.create("written", "# Do it", description="Does it", skill_metadata={"license": "MIT"})
    assert made.skill_metadata == {"license": "MIT"} and made.package_size_bytes > 0, made
    assert [s.name for s in await skills.list()] == ["data-analyzer", "from-file", "written"]
    assert [s.name for s in await skills.list(search="tables", source_type="upload", limit=1)] == ["data-analyzer"]
    assert (await skills.get(made.id)).created_at is not None
    changed = await skills.update(made.id, name="rewritten", skill_md_content="# Do more")
    assert changed.name == "rewritten" and "# Do more" in changed.skill_md_content, changed
    assert await skills.download_package(first.id) == zipped
    done = await box.install_skills(one.id, [first.id, made.id, one.id])
    assert done["installed"] == ["data-analyzer", "rewritten"] and done["not_found"] == [str(one.id)], done
    assert (await box.exec(one.id, "python3 skills/data-analyzer/run.py")).stdout == "ran\n"
    assert (await box.install_skills(one.id, [first.id]))["already_installed"] == ["data-analyzer"]
    await box.acquire_or_create("thread-1", skill_ids=[second.id])
    for files, error, detail in [
        ({"x": "y"}, exceptions.SkillFileMissing, None),
        ({"a/SKILL.md": text, "b/SKILL.md": text}, exceptions.SkillFileAmbiguous, ("found_paths", ["a/SKILL.md", "b/SKILL.md"])),
        ({"SKILL.md": "---\na: [\n---\n"}, exceptions.SkillMalformedFrontmatter, None),
        ({"SKILL.md": "---\na: b\n---\n"}, exceptions.SkillFrontmatterMissingField, ("missing_fields", ["name", "description"])),
    ]:
        try:
            await skills.upload(content=package(files), filename="x.zip")
            raise SystemExit(f"{files} was taken")
        except error as e:
            assert detail is None or getattr(e, detail[0]) == detail[1], vars(e)
    templates = await skills.templates()
    assert "blank" in [t["name"] for t in templates], templates
    catalogue = await skills.catalog("builtin", search="table")
    assert [(e.name, e.source, e.files) for e in catalogue] == [("table-report", "builtin", ["SKILL.md"])], catalogue
    assert (await skills.catalog_detail("builtin", "blank")).description == "The outline of a skill, to be filled in"
    imported = await skills.import_from_catalog("builtin", "table-report")
    assert imported.name == "table-report" and "outputs/report.md" in imported.skill_md_content, imported
    # A server of this client's gateway is what skills are attached to; here there is none.
    attached = [skills.attach(made.id, one.id), skills.detach(made.id, one.id)]
    for wrong in [skills.catalog("elsewhere"), skills.catalog_detail("builtin", "nosuch"), *attached]:
        try:
            await wrong
            raise SystemExit("there is none")
        except exceptions.NotFoundError:
            pass
    await skills.delete(imported.id)
    await skills.delete(made.id)
    try:
        await skills.get(made.id)
        raise SystemExit("it is deleted")
    except exceptions.NotFoundError:
        pass

async def main():
    client = MCPGateway(url=sys.argv[1], api_key=sys.argv[2], check_version=False)
    box = client.sandboxes
    one = await box.create()
    assert one.status == "running", one
    same = await box.acquire_or_create("thread-1")
    again = await box.acquire_or_create("thread-1")
    assert same.id == again.id and same.id != one.id
    ran = await box.exec(one.id, "python3 -c 'print(6*7)'")
    assert (ran.exit_code, ran.stdout) == (0, "42\n"), ran
    await box.upload_file(one.id, "/workspace/in/data.csv", b"a,b\n1,2\n")
    assert await box.download_file(one.id, "in/data.csv") == b"a,b\n1,2\n"
    files = await box.list_files(one.id)
    assert [(f.name, f.is_directory) for f in files] == [("in", True)], files
    await box.stop(one.id)
    assert (await box.get(one.id)).status == "stopped"
    assert (await box.resume(one.id)).status == "running"
    assert (await box.exec(one.id, "cat in/data.csv")).stdout.startswith("a,b")
    assert {s.id for s in await box.list()} == {one.id, same.id}
    assert len(await box.activity(one.id)) >= 5
    await box.update(one.id, idle_timeout_seconds=60)
    await skills(client, one)
    images = await box.list_images()
    assert images[0]["name"] == "host" and images[0]["status"] == "ready", images
    templates = await box.image_templates()
    assert [t["name"] for t in templates] == ["Base", "Skills Runtime", "Data Science", "R", "Node"], templates
    categories = await box.package_catalog()
    assert "pandas" in [p["name"] for c in categories if c["name"] == "data" for p in c["packages"]], categories
    await box.destroy(one.id)
    print("all of it")

asyncio.run(main())
"##;

/// A program of the Python folder that `make test` makes beside the build.
fn python(program: &str) -> Command {
    let target = Path::new(env!("CARGO_BIN_EXE_atoll")).ancestors().nth(2).unwrap();
    let path = target.join("python/bin").join(program);
    assert!(path.exists(), "{}: `make python` installs it", path.display());
    Command::new(path)
}

#[test]
fn it_works_with_its_defaults() {
    let server = Server::start();
    let ran =
        python("python").args(["-c", PROGRAM, &format!("http://{}", server.address), KEY]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "all of it\n",
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// What a JSON Schema cannot say, and a server must refuse, by operation. All else that fits must be accepted.
const SETTINGS: &str = r#"
[checks.positive_data_acceptance]
# Who asks, what there is, how it is at the moment, and how often was asked.
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "429", "5xx"]

# Which folders and users an image has.
[[operations]]
include-path-regex = "/exec$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "422", "429", "5xx"]

# That a time lies in the past.
[[operations]]
include-path-regex = "/audit/cleanup$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]

# The same as of the other files, below. Its events have no end; the first says that it is ready.
[[operations]]
include-operation-id = "files_watch"
max-stream-events = 1
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "422", "429", "5xx"]

# What is at a path, bytes of one where a schema counts characters, globs, regular expressions of Rust, and tar archives.
[[operations]]
include-path-regex = "\\{id\\}/files|/fs/"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "422", "429", "5xx"]

# A path that leads out of the workspace by its `..`, of which it may have some.
[[operations]]
include-path-regex = "/threads/\\{thread_id\\}/files/download$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "429", "5xx"]

# That a part of a form has the name of a file.
[[operations]]
include-path-regex = "/threads/\\{thread_id\\}/files/upload$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]

# A 404 may be about what a body names, and not about the sandbox that was made before.
[[operations]]
include-path-regex = "/fs/|/fork$|/skills$"
checks.ensure_resource_availability.enabled = false

# Only what is to be refused: a program inside answers as it likes, and of a template that is made up a whole Debian would be
# built. Some of it fits, and is refused all the same: what is no port, and no body.
[[operations]]
include-operation-id = ["preview_open", "images_build_image"]
generation.mode = "negative"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]

# Parameters that go together, and that a request is a WebSocket, which is asked for before what it wants.
[[operations]]
include-path-regex = "/terminal$"
checks.negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "415", "422", "426", "428", "429", "5xx"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "426", "429", "5xx"]

# That a request is a WebSocket.
[[operations]]
include-path-regex = "/forward$"
checks.negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "415", "422", "426", "428", "429", "5xx"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "426", "429", "5xx"]

# Which images, presets and volumes this server has, and which interpreters and folders an image.
[[operations]]
include-operation-id = ["sandboxes_create", "sandboxes_patch", "egress_put", "kernels_run", "kernels_start", "pool_patch"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]

# What a package holds, and YAML.
[[operations]]
include-path-regex = "/api/v1/skills"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "413", "422", "429", "5xx"]

# What an archive of a sandbox or of an image holds.
[[operations]]
include-path-regex = "/(sandboxes|sandbox-images)/import$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]

# Which registries, templates and images there are, and parameters that go together.
[[operations]]
include-operation-id = ["images_pull", "images_push", "images_build_image_with_files"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]

# Which images and plans this server has, and what is fixed.
[[operations]]
include-operation-id = "settings_patch"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]
"#;

/// Changes to what schemathesis made up, before it is sent.
const HOOKS: &str = r#"
import uuid

import schemathesis

def is_positive(case):
    mode = case.meta.generation.mode if case.meta else None
    return mode == schemathesis.GenerationMode.POSITIVE

@schemathesis.hook
def before_call(context, case, kwargs):
    label = case.operation.label
    if case.headers and "Idempotency-Key" in case.headers and is_positive(case):
        # One that is used again for another request is refused, which no schema can say.
        case.headers["Idempotency-Key"] = str(uuid.uuid4())
    if label == "GET /api/v1/sandboxes/{id}/fs/tar" and case.query:
        # The shortest path is /, and for root an archive of it is all of the machine's /usr.
        path = case.query.get("path")
        if isinstance(path, str) and path.startswith("/") and not path.strip("/."):
            case.query["path"] = "/workspace"
    if label == "POST /api/v1/sandboxes" and isinstance(case.body, dict) and is_positive(case):
        # npm tries for minutes where nothing can be reached.
        if isinstance(case.body.get("dependencies"), dict):
            case.body["dependencies"].pop("node", None)
    if label == "PATCH /api/v1/settings/sandbox" and isinstance(case.body, dict):
        # A server that takes one connection refuses the next request, and one that keeps sandboxes ready makes them.
        if case.body.get("warm_pool_enabled") is True:
            case.body["warm_pool_enabled"] = False
        own = case.body.get("atoll")
        http = own.get("http") if isinstance(own, dict) else None
        if isinstance(http, dict) and type(http.get("connections_per_peer")) is int and 0 < http["connections_per_peer"] < 64:
            http["connections_per_peer"] = 64
"#;

/// Which operations schemathesis asks for.
#[derive(Clone, Copy)]
enum Asked {
    /// All but that of the settings, after which a server may do nothing as before.
    AllButSettings,
    Settings,
}

/// Lets schemathesis ask whatever it makes up of the description, with one key.
fn ask_everything(server: &Server, key: &str, asked: Asked, operations: usize) {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let examples = std::env::var("ATOLL_TEST_EXAMPLES");
    // Each bound of each field, tried one by one, takes minutes for each key: `make fuzz-api` does it.
    let phases =
        if examples.is_ok() { "examples,coverage,fuzzing,stateful" } else { "examples,fuzzing,stateful" };
    // The same requests in every run of `make test`: what a change breaks is then of that change.
    let chosen = if examples.is_ok() { &[][..] } else { &["--seed", "1", "--generation-deterministic"][..] };
    let examples = examples.unwrap_or_else(|_| "5".into());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("schemathesis.toml"), SETTINGS).unwrap();
    std::fs::write(folder.path().join("hooks.py"), HOOKS).unwrap();
    let chosen_operations = match asked {
        // A listener to events waits for ever, and an empty `Last-Event-ID` is none.
        Asked::AllButSettings => {
            &["--exclude-operation-id", "settings_patch", "--exclude-operation-id", "events_events"][..]
        }
        Asked::Settings => {
            &["--include-operation-id", "settings_patch", "--include-operation-id", "settings_get"]
        }
    };
    let ran = python("schemathesis")
        .current_dir(folder.path())
        .env("SCHEMATHESIS_HOOKS", folder.path().join("hooks.py"))
        .arg("run")
        .arg(document)
        .args(["--url", &format!("http://{}", server.address)])
        .args(["--header", &format!("Authorization: Bearer {key}")])
        .args(["--phases", phases])
        .args(chosen)
        .args(["--checks", "all", "--max-examples", &examples, "--suppress-health-check", "all"])
        // A create waits for the packages of three languages, each of whose installers tries again for a while.
        .args(["--request-timeout", "240", "--max-response-time", "240"])
        .args(chosen_operations)
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}");
    assert!(said.contains(&format!("Tested: {operations}")), "every operation was tried: {said}");
}

/// A short form: `make fuzz-api` runs it for longer.
#[test]
fn no_request_that_the_description_allows_breaks_the_server() {
    let server = Server::start();
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let described: serde_json::Value = serde_json::from_slice(&std::fs::read(document).unwrap()).unwrap();
    let paths = described["paths"].as_object().unwrap().values();
    // All but settings_patch and events_events.
    let operations = paths.map(|methods| methods.as_object().unwrap().len()).sum::<usize>() - 2;
    let key = |scope: &str| {
        let body = serde_json::json!({"name": scope, "owner": "ann", "scope": scope}).to_string();
        server.ask("POST", "/api/v1/keys", &body).json()["key"].as_str().unwrap().to_owned()
    };
    let keys = [KEY.to_owned(), key("user"), key("read_only")];
    std::thread::scope(|scope| {
        for key in &keys {
            scope.spawn(|| ask_everything(&server, key, Asked::AllButSettings, operations));
        }
    });
    assert_eq!(server.ask("GET", "/health", "").status, 200);
}

/// Whatever is set, the settings can be read and set again.
#[test]
fn no_request_that_the_description_allows_makes_settings_that_cannot_be_undone() {
    let server = Server::start();
    ask_everything(&server, KEY, Asked::Settings, 2);
    let usual = r#"{"default_max_per_user":3}"#;
    assert_eq!(server.ask("PATCH", "/api/v1/settings/sandbox", usual).status, 200);
    assert_eq!(server.ask("GET", "/health", "").status, 200);
}
