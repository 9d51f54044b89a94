//! Every operation of the core is offered by REST, by the command line and by each compatible API whose protocol has a
//! word for it, or stands here with the reason why not. A new operation fails this until it does.
//!
//! An operation is what has rows in the audit trail: it changes something, or it reads what is in a sandbox. A call that lists
//! or shows records has no row, so it is no operation; such calls of the compatible APIs are listed as those that only look.

mod fronts;

use super::{fixture::Server, http};
use atoll_types::Operation::{self, *};
use fronts::{COMPAT_API, Front, LANGGRAPH_API, MCP_LEFT_OUT};
pub(super) use fronts::{MCP, MCP_READS};
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::Path,
    process::Command,
};

/// Where an operation is offered.
struct Offer {
    operation: Operation,
    /// A method and a path of the description.
    rest: Result<&'static str, &'static str>,
    /// A command, without its arguments.
    cli: Result<&'static str, &'static str>,
}

const fn of(
    operation: Operation,
    rest: Result<&'static str, &'static str>,
    cli: Result<&'static str, &'static str>,
) -> Offer {
    Offer { operation, rest, cli }
}

const BY_ITSELF: Result<&str, &str> = Err("the server does it by itself");
const TOOLS: Result<&str, &str> = Err("a part of the tools, over MCP and /threads");
const PROGRAMS: Result<&str, &str> = Err("for programs, which have the API");
const LANGGRAPH: Result<&str, &str> = Err("a part of the LangGraph API, which docs/agent.md describes");

const OFFERS: &[Offer] = &[
    of(SandboxCreate, Ok("POST /api/v1/sandboxes"), Ok("create")),
    of(SandboxPatch, Ok("PATCH /api/v1/sandboxes/{id}"), Ok("update")),
    of(SandboxPause, Ok("POST /api/v1/sandboxes/{id}/pause"), Ok("pause")),
    of(SandboxResume, Ok("POST /api/v1/sandboxes/{id}/resume"), Ok("resume")),
    of(SandboxStop, Ok("POST /api/v1/sandboxes/{id}/stop"), Ok("stop")),
    of(SandboxDestroy, Ok("DELETE /api/v1/sandboxes/{id}"), Ok("rm")),
    of(SandboxExport, Ok("GET /api/v1/sandboxes/{id}/export"), Ok("export")),
    of(SandboxImport, Ok("POST /api/v1/sandboxes/import"), Ok("import")),
    of(SandboxBulk, Ok("POST /api/v1/admin/sandboxes/bulk-stop"), PROGRAMS),
    of(SandboxPurge, BY_ITSELF, BY_ITSELF),
    of(SandboxFork, Ok("POST /api/v1/sandboxes/{id}/fork"), Ok("fork")),
    of(SnapshotCreate, Ok("POST /api/v1/sandboxes/{id}/snapshots"), Ok("snapshot create")),
    of(SnapshotLabel, Ok("PATCH /api/v1/sandboxes/{id}/snapshots/{sid}"), Ok("snapshot label")),
    of(SnapshotDelete, Ok("DELETE /api/v1/sandboxes/{id}/snapshots/{sid}"), Ok("snapshot rm")),
    of(SnapshotDiff, Ok("GET /api/v1/sandboxes/{id}/snapshots/{sid}/diff"), Ok("snapshot diff")),
    of(SnapshotRollback, Ok("POST /api/v1/sandboxes/{id}/snapshots/{sid}/rollback"), Ok("snapshot rollback")),
    of(Exec, Ok("POST /api/v1/sandboxes/{id}/exec"), Ok("exec")),
    of(ExecStdin, Ok("POST /api/v1/sandboxes/{id}/execs/{eid}/stdin"), Ok("exec")),
    of(ExecSignal, Ok("POST /api/v1/sandboxes/{id}/execs/{eid}/signal"), Ok("kill")),
    of(ExecKill, Ok("POST /api/v1/sandboxes/{id}/execs/{eid}/kill"), Ok("kill")),
    of(ExecForget, Ok("DELETE /api/v1/sandboxes/{id}/execs/{eid}"), PROGRAMS),
    of(Terminal, Ok("GET /api/v1/sandboxes/{id}/terminal"), Ok("shell")),
    of(TerminalAttach, Ok("GET /api/v1/sandboxes/{id}/terminal"), Ok("shell")),
    of(KernelStart, Ok("POST /api/v1/sandboxes/{id}/kernels"), Ok("kernel start")),
    of(KernelExecute, Ok("POST /api/v1/sandboxes/{id}/run"), Ok("run-code")),
    of(KernelInterrupt, Ok("POST /api/v1/sandboxes/{id}/kernels/{kid}/interrupt"), Ok("kernel interrupt")),
    of(KernelComplete, Ok("POST /api/v1/sandboxes/{id}/kernels/{kid}/complete"), Ok("repl")),
    of(KernelRestart, Ok("POST /api/v1/sandboxes/{id}/kernels/{kid}/restart"), Ok("kernel restart")),
    of(KernelDelete, Ok("DELETE /api/v1/sandboxes/{id}/kernels/{kid}"), Ok("kernel rm")),
    of(
        KernelCheckpoint,
        Ok("POST /api/v1/sandboxes/{id}/kernels/{kid}/checkpoints"),
        Ok("kernel checkpoint"),
    ),
    of(KernelCheckpointDelete, Ok("DELETE /api/v1/sandboxes/{id}/kernels/{kid}/checkpoints/{cid}"), PROGRAMS),
    of(
        KernelRollback,
        Ok("POST /api/v1/sandboxes/{id}/kernels/{kid}/checkpoints/{cid}/rollback"),
        Ok("kernel rollback"),
    ),
    of(KernelFork, Ok("POST /api/v1/sandboxes/{id}/kernels/{kid}/fork"), Ok("kernel fork")),
    of(DependenciesInstall, Ok("POST /api/v1/sandboxes/{id}/dependencies"), PROGRAMS),
    of(FileRead, Ok("GET /api/v1/sandboxes/{id}/files/{path}"), Ok("cp")),
    of(FileGrep, Ok("POST /api/v1/sandboxes/{id}/fs/grep"), Ok("grep")),
    of(FileWrite, Ok("PUT /api/v1/sandboxes/{id}/files/{path}"), Ok("cp")),
    of(FileRemove, Ok("POST /api/v1/sandboxes/{id}/fs/remove"), Err("`atoll exec … rm` does it")),
    of(FileMkdir, Ok("POST /api/v1/sandboxes/{id}/fs/mkdir"), Err("`atoll exec … mkdir` does it")),
    of(FileMove, Ok("POST /api/v1/sandboxes/{id}/fs/move"), Err("`atoll exec … mv` does it")),
    of(FolderRead, Ok("GET /api/v1/sandboxes/{id}/fs/tar"), Ok("cp")),
    of(FolderWrite, Ok("PUT /api/v1/sandboxes/{id}/fs/tar"), Ok("cp")),
    of(PortForward, Ok("GET /api/v1/sandboxes/{id}/forward"), Ok("port-forward")),
    of(PreviewToken, Ok("POST /api/v1/sandboxes/{id}/preview-tokens"), Ok("preview")),
    of(PreviewRevoke, Ok("DELETE /api/v1/sandboxes/{id}/preview-tokens/{token_id}"), Ok("preview")),
    of(VolumeCreate, Ok("POST /api/v1/volumes"), Ok("volume create")),
    of(VolumeResize, Ok("PATCH /api/v1/volumes/{name}"), Ok("volume resize")),
    of(VolumeDelete, Ok("DELETE /api/v1/volumes/{name}"), Ok("volume rm")),
    of(SkillCreate, Ok("POST /api/v1/skills"), Ok("skill add")),
    of(SkillUpdate, Ok("PATCH /api/v1/skills/{skill_id}"), PROGRAMS),
    of(SkillDelete, Ok("DELETE /api/v1/skills/{skill_id}"), Ok("skill rm")),
    of(SkillInstall, Ok("POST /api/v1/sandboxes/{id}/skills"), Ok("skill install")),
    of(ImageImport, Ok("POST /api/v1/sandbox-images/import"), Ok("image import")),
    of(ImagePull, Ok("POST /api/v1/sandbox-images/pull"), Ok("image pull")),
    of(ImageCancel, Ok("DELETE /api/v1/sandbox-images/builds/{build_id}"), Ok("image cancel")),
    of(ImageBuild, Ok("POST /api/v1/sandbox-images"), Ok("image build")),
    of(ImageExport, Ok("GET /api/v1/sandbox-images/{image}/export"), Ok("image export")),
    of(ImagePush, Ok("POST /api/v1/sandbox-images/{image}/push"), Ok("image push")),
    of(ImagePatch, Ok("PATCH /api/v1/sandbox-images/{image}"), Ok("image approve")),
    of(ImageDelete, Ok("DELETE /api/v1/sandbox-images/{image}"), Ok("image rm")),
    of(EgressSet, Ok("PUT /api/v1/sandboxes/{id}/egress"), Ok("egress set")),
    of(EgressToken, Ok("POST /api/v1/sandboxes/{id}/egress/tokens"), PROGRAMS),
    of(KeyCreate, Ok("POST /api/v1/keys"), Ok("keys create")),
    of(KeyRevoke, Ok("DELETE /api/v1/keys/{id}"), Ok("keys revoke")),
    of(KeyRecover, Err("only while no server runs"), Ok("keys recover")),
    of(ConsoleSignIn, Err("a browser's, at /ui/session"), Err("a key is sent with each request")),
    of(ConsoleSignOut, Err("a browser's, at /ui/session"), Err("a key is sent with each request")),
    of(KeyPurge, BY_ITSELF, BY_ITSELF),
    of(SettingsPatch, Ok("PATCH /api/v1/settings/sandbox"), Ok("settings set")),
    of(ConfigSet, Err("it binds the compatible APIs alone"), Err("it binds the compatible APIs alone")),
    of(PoolDrain, Ok("POST /api/v1/pool/drain"), Ok("pool drain")),
    of(PoolResize, Ok("PATCH /api/v1/pool"), Ok("pool resize")),
    of(AuditCleanup, Ok("POST /api/v1/audit/cleanup"), Ok("audit cleanup")),
    of(StorageLow, BY_ITSELF, BY_ITSELF),
    of(StorageRecovered, BY_ITSELF, BY_ITSELF),
    of(OrphanContainer, BY_ITSELF, BY_ITSELF),
    of(OrphanVolume, BY_ITSELF, BY_ITSELF),
    of(SessionCreate, Ok("POST /threads/{thread_id}/tools/{tool}"), TOOLS),
    of(SessionStop, Ok("POST /threads/{thread_id}/tools/{tool}"), TOOLS),
    of(SessionDied, BY_ITSELF, BY_ITSELF),
    of(SessionExport, Ok("POST /threads/{thread_id}/tools/{tool}"), TOOLS),
    of(ThreadUpload, Ok("POST /threads/{thread_id}/files/upload"), TOOLS),
    of(ThreadDelete, Ok("DELETE /threads/{thread_id}"), TOOLS),
    of(ThreadCreate, LANGGRAPH, PROGRAMS),
    of(ThreadPatch, LANGGRAPH, PROGRAMS),
    of(ThreadCopy, LANGGRAPH, PROGRAMS),
    of(ThreadState, LANGGRAPH, PROGRAMS),
    of(AssistantCreate, LANGGRAPH, PROGRAMS),
    of(AssistantPatch, LANGGRAPH, PROGRAMS),
    of(AssistantDelete, LANGGRAPH, PROGRAMS),
    of(ItemPut, LANGGRAPH, PROGRAMS),
    of(ItemDelete, LANGGRAPH, PROGRAMS),
    of(RunStart, LANGGRAPH, PROGRAMS),
    of(RunCancel, LANGGRAPH, PROGRAMS),
    of(RunDelete, LANGGRAPH, PROGRAMS),
    of(ModelSettings, LANGGRAPH, PROGRAMS),
];

/// The calls of gRPC. The protocol is the reference system's: it has these nine, and no word for any other operation.
const GRPC: &[(Operation, &str)] = &[
    (SandboxCreate, "CreateSession"),
    (SandboxResume, "CreateSession"),
    (SandboxDestroy, "DestroySession"),
    (Exec, "Exec"),
    (Exec, "ExecStream"),
    (FileWrite, "WriteFile"),
    (FileRead, "ReadFile"),
    (DependenciesInstall, "PipInstall"),
];
/// Calls that only look.
const GRPC_READS: [&str; 2] = ["GetSession", "ListSessions"];

#[test]
fn every_call_of_grpc_is_an_operation_or_only_looks() {
    let proto = include_str!("../../../../proto/sandbox/v1/sandbox.proto");
    let words = |line: &str| line.trim().strip_prefix("rpc ")?.split('(').next().map(str::to_owned);
    let calls: HashSet<String> = proto.lines().filter_map(words).collect();
    let listed = GRPC.iter().map(|(_, call)| *call).chain(GRPC_READS);
    assert_eq!(calls, listed.map(str::to_owned).collect());
}

/// That the tools of MCP are these is tested where the server is asked for them, in `mcp/extra.rs`.
#[test]
fn every_operation_has_a_word_of_each_protocol_or_one_reason() {
    let mcp = ("MCP", MCP, MCP_LEFT_OUT);
    let fronts = [COMPAT_API, LANGGRAPH_API].map(|front| (front.folder, front.offered, front.left_out));
    for (name, offered, left_out) in [mcp].into_iter().chain(fronts) {
        let offered: HashSet<Operation> = offered.iter().map(|(operation, _)| *operation).collect();
        let left_out: Vec<Operation> = left_out.iter().flat_map(|(_, all)| all.iter().copied()).collect();
        for operation in Operation::ALL {
            let count = left_out.iter().filter(|other| *other == operation).count();
            let wanted = usize::from(!offered.contains(operation));
            assert_eq!(count, wanted, "{operation:?} has a word of {name}, or one reason why not");
        }
    }
}

/// Adds the routes that the sources below a folder name, as a method and a path.
fn collect_routes(folder: &Path, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_routes(&path, all);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            source.split(".route(").skip(1).for_each(|call| all.extend(routes_of(call)));
        }
    }
}

/// The routes of one call of `route`, by its arguments; none where the path has a name.
fn routes_of(call: &str) -> Vec<String> {
    let call = call.trim_start();
    let Some(text) = call.strip_prefix("&format!(").unwrap_or(call).strip_prefix('"') else {
        return Vec::new();
    };
    let (path, handlers) = text.split_once('"').unwrap();
    let path = path.replace("{base}", "/api/sandbox").replace("{{", "{").replace("}}", "}");
    let handlers = handlers.split(['}', ';']).next().unwrap();
    let before =
        |part: &str| part.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    let names = handlers.split('(').filter_map(before);
    let methods = names.filter(|name| ["get", "post", "put", "patch", "delete"].contains(&name.as_str()));
    methods.map(|method| format!("{} {path}", method.to_uppercase())).collect()
}

#[test]
fn every_route_of_a_compatible_api_is_an_operation_or_only_looks() {
    let server = Server::start();
    for Front { folder, offered, reads, open, .. } in [COMPAT_API, LANGGRAPH_API] {
        let listed = offered.iter().map(|(_, route)| *route).chain(reads.iter().copied());
        let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
        let mut routes = BTreeSet::new();
        collect_routes(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("src"),
            &mut routes,
        );
        assert_eq!(routes, listed, "{folder}: what its sources name, and what is listed");
        for (method, path) in listed.iter().filter_map(|route| route.split_once(' ')) {
            // A route asks for a key; a path that is no route answers every caller with 404 or 405.
            let named = path.replace("{sandbox_id}", "sbx_x");
            let parts = named.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
            let asked = parts.collect::<Vec<_>>().join("/");
            let answer = http::request(server.address, method, &asked, &[], b"").unwrap();
            let wanted = if open.contains(&format!("{method} {path}").as_str()) { 200 } else { 401 };
            assert_eq!(answer.status, wanted, "{folder}: {method} {path}");
        }
    }
}

#[test]
fn every_operation_is_offered_or_has_its_reason() {
    let listed: HashSet<_> = OFFERS.iter().map(|offer| offer.operation).collect();
    assert_eq!(listed.len(), OFFERS.len(), "an operation is here twice");
    let missing: Vec<_> = Operation::ALL.iter().filter(|operation| !listed.contains(operation)).collect();
    assert!(missing.is_empty(), "not offered, and no reason: {missing:?}");
    let description: Value = serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap();
    for Offer { operation, rest, cli } in OFFERS {
        if let Some((method, path)) = rest.ok().and_then(|route| route.split_once(' ')) {
            let known = &description["paths"][path][method.to_lowercase()];
            assert!(known.is_object(), "{operation:?}: {method} {path}");
        }
        if let Ok(command) = cli {
            let help =
                Command::new(env!("CARGO_BIN_EXE_atoll")).args(command.split(' ')).arg("--help").output();
            let help = help.unwrap();
            assert!(help.status.success(), "{operation:?}: atoll {command}: {help:?}");
        }
    }
}
