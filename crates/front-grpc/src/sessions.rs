//! Sessions. A session is a sandbox of the caller's owner with a label that holds its id; another owner's session of the
//! same id is another sandbox.

use crate::{settings::GrpcSettings, status, v1};
use atoll_core::{
    Caller, Core, CreateSandbox, EgressEntry, Mode, Policy, SessionNetwork, bounds::SESSION_KEY,
};
use atoll_types::{
    Error, ErrorCode, ListQuery, PathRules, Result, SandboxId, SandboxRecord, Status as SandboxStatus,
};
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// The label of a session's sandbox; its value is the session's id.
pub const LABEL: &str = "atoll.grpc_session";
/// The label that names the session's tenant.
const TENANT_LABEL: &str = "atoll.grpc_tenant";
/// The label of a session that reaches nothing: the hosts that were asked for, as the caller gets them back.
const HOSTS_LABEL: &str = "atoll.grpc_allowed_hosts";
/// Names of the sandbox itself, which the reference system says a session asks for that shall reach nothing.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Before the session's id in its sandbox's session key, which no two sandboxes of an owner share.
const KEY_PREFIX: &str = "grpc:";
/// The longest id of a session, in characters.
const LONGEST_ID: usize = 250;
/// Sessions that are read at a time.
const PAGE: u32 = 200;
/// Where programs of the reference system leave their results.
const OUTPUTS: &str = "/mnt/user-data/outputs";

/// What every unknown session is answered with.
pub(crate) const NOT_FOUND: &str = "Session not found";

/// The newest session of the caller's owner with this id. A sandbox that was made otherwise is a session under its own id.
pub(crate) async fn find(core: &Core, caller: &Caller, id: &str) -> Result<Option<SandboxRecord>> {
    if !is_id(id) {
        return Ok(None);
    }
    let query = ListQuery { labels: [(LABEL.to_owned(), id.to_owned())].into(), limit: 1, ..of(caller) };
    let lives = |record: &SandboxRecord| record.destroyed_at.is_none() && record.owner == caller.owner;
    if let Some(found) = core.sandboxes.list(caller, query).await?.items.into_iter().find(lives) {
        return Ok(Some(found));
    }
    let Ok(sandbox) = uuid::Uuid::try_parse(id) else { return Ok(None) };
    match core.sandboxes.get(caller, SandboxId::from_uuid(sandbox)).await {
        Ok(record) => Ok(Some(record).filter(lives)),
        Err(error) if error.code == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a session may have this id.
fn is_id(text: &str) -> bool {
    text.chars().count() <= LONGEST_ID && SESSION_KEY.fits(text)
}

/// The sandboxes of the caller's owner alone, whatever else its key may see.
fn of(caller: &Caller) -> ListQuery {
    ListQuery { owner: Some(caller.owner.clone()), ..ListQuery::default() }
}

/// All sessions of the caller's owner, the newest first.
pub(crate) async fn all(core: &Core, caller: &Caller) -> Result<Vec<SandboxRecord>> {
    let mut all = Vec::new();
    loop {
        let query = ListQuery { offset: all.len() as u64, limit: PAGE, ..of(caller) };
        let page = core.sandboxes.list(caller, query).await?;
        let last = page.items.len() < PAGE as usize;
        all.extend(page.items);
        if last {
            all.retain(|record| record.labels.contains_key(LABEL) && record.destroyed_at.is_none());
            return Ok(all);
        }
    }
}

/// A session as it was asked for, which may exist.
pub(crate) async fn create(
    core: &Core,
    settings: &GrpcSettings,
    caller: &Caller,
    request: v1::CreateSessionRequest,
) -> Result<SandboxRecord> {
    let v1::CreateSessionRequest { session_id, tenant_id, allowed_hosts } = request;
    let named = session_id.filter(|id| !id.is_empty());
    if let Some(id) = &named {
        if !is_id(id) {
            let message = format!("session_id may have {LONGEST_ID} characters, none of them control");
            return Err(Error::invalid("session_id", message));
        }
        if let Some(there) = find(core, caller, id).await? {
            return match there.status {
                SandboxStatus::Ready => Ok(there),
                _ => core.sandboxes.resume(caller, there.id).await,
            };
        }
    }
    let tenant_id = tenant_id.filter(|tenant| !tenant.is_empty());
    let sandbox = SandboxId::random();
    let id = named.unwrap_or_else(|| sandbox.uuid().to_string());
    let tenant = tenant_id.iter().map(|tenant| (TENANT_LABEL.to_owned(), tenant.clone()));
    let itself = itself(&allowed_hosts).map(|hosts| (HOSTS_LABEL.to_owned(), hosts));
    let request = CreateSandbox {
        image: settings.image.clone(),
        profile: Some(settings.profile.clone()),
        runtime: settings.runtime.clone(),
        idle_timeout_seconds: Some(settings.idle_seconds),
        egress: policy(&allowed_hosts)?,
        session_key: Some(format!("{KEY_PREFIX}{id}")),
        labels: tenant.chain(itself).chain([(LABEL.to_owned(), id)]).collect(),
        filesystem: outputs(core, tenant_id.is_some()),
        tenant_id,
        ..CreateSandbox::default()
    };
    core.images.make_on_use(caller, settings.image.as_deref()).await?;
    let usual =
        SessionNetwork { enabled: true, mode: Some(Mode::Allowlist), presets: Vec::new(), clamp: true };
    Ok(core.sandboxes.create_usual(caller, sandbox, request, settings.limits, usual).await?.record)
}

/// The named hosts, each once, where all of them are the sandbox itself.
fn itself(hosts: &[String]) -> Option<String> {
    let names: BTreeSet<String> = hosts.iter().map(|host| host.trim().to_ascii_lowercase()).collect();
    let loopback = !names.is_empty() && names.iter().all(|name| LOOPBACK.contains(&name.as_str()));
    loopback.then(|| names.into_iter().collect::<Vec<_>>().join(","))
}

/// The policy of the named hosts; none for the default hosts. A session that names only itself reaches nothing, which a key of
/// every tier may have.
fn policy(hosts: &[String]) -> Result<Option<Policy>> {
    if hosts.is_empty() {
        return Ok(None);
    }
    if itself(hosts).is_some() {
        return Ok(Some(Policy::default()));
    }
    let entry = |host: &String| {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::invalid("allowed_hosts", format!("{:.200} is no host: {why}", host.escape_debug()))
        };
        host.trim().parse::<EgressEntry>().map_err(|e| wrong(&e))
    };
    let allow = hosts.iter().map(entry).collect::<Result<_>>()?;
    Ok(Some(Policy { mode: Mode::Allowlist, allow, ..Policy::default() }))
}

/// The rule that makes [`OUTPUTS`] writable. A tenant's storage has such a folder of its own.
fn outputs(core: &Core, tenant: bool) -> PathRules {
    let writable = !tenant && core.sandboxes.has_attachments();
    let read_write = if writable { vec![OUTPUTS.to_owned()] } else { Vec::new() };
    PathRules { read_write, ..PathRules::default() }
}

/// Renders sessions; the presets of each image are read once.
pub(crate) struct Renderer<'a> {
    core: &'a Core,
    presets: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl<'a> Renderer<'a> {
    pub(crate) fn new(core: &'a Core) -> Self {
        Self { core, presets: BTreeMap::new() }
    }

    pub(crate) fn info(&mut self, record: &SandboxRecord) -> Result<v1::SessionInfo, Status> {
        let seconds = |ms: i64| ms as f64 / 1000.0;
        let label = |name: &str| record.labels.get(name).cloned();
        Ok(v1::SessionInfo {
            session_id: label(LABEL).unwrap_or_else(|| record.id.uuid().to_string()),
            container_id: record.container.map(|id| id.to_string()).unwrap_or_default(),
            created_at: seconds(record.created_at),
            last_activity: seconds(record.last_activity_at),
            status: record.status.shown().into(),
            tenant_id: label(TENANT_LABEL),
            allowed_hosts: self.hosts(record)?,
        })
    }

    /// The hosts that a session may reach, those of presets among them.
    fn hosts(&mut self, record: &SandboxRecord) -> Result<Vec<String>, Status> {
        let unreadable = |e: serde_json::Error| {
            status::of(&Error::internal(format!("what the session may reach cannot be read: {e}")))
        };
        let policy: Policy = serde_json::from_str(&record.egress).map_err(unreadable)?;
        match (policy.mode, record.labels.get(HOSTS_LABEL)) {
            (Mode::Full, _) => return Ok(vec!["*".into()]),
            // The label tells what was asked for, as long as it is still so.
            (Mode::None, Some(itself)) => return Ok(itself.split(',').map(str::to_owned).collect()),
            _ => {}
        }
        let mut hosts: Vec<String> = policy.allow.iter().map(ToString::to_string).collect();
        if !policy.presets.is_empty() {
            let core = self.core;
            let presets = self.presets.entry(record.image.clone()).or_insert_with(|| {
                // Of a preset the hosts are told, and not the ports.
                let texts = |preset: &atoll_core::EgressPreset| {
                    let hosts = preset
                        .entries
                        .iter()
                        .map(|listed| EgressEntry { port: None, ..listed.entry.clone() });
                    let mut hosts: Vec<String> = hosts.map(|host| host.to_string()).collect();
                    hosts.dedup();
                    hosts
                };
                let all = core.egress.presets(Some(&record.image));
                all.iter().map(|preset| (preset.name.clone(), texts(preset))).collect()
            });
            hosts.extend(policy.presets.iter().filter_map(|name| presets.get(name)).flatten().cloned());
        }
        Ok(hosts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_entries() {
        assert_eq!(policy(&[]), Ok(None));
        let hosts = ["Example.com", "*.example.org", "192.0.2.1"].map(str::to_owned);
        let read = policy(&hosts).unwrap().unwrap();
        let texts: Vec<String> = read.allow.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["example.com", "*.example.org", "192.0.2.1"]);
        let hosts = |all: &[&str]| all.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>();
        for itself in [&["localhost"][..], &["LocalHost ", "localhost"], &["::1", "127.0.0.1"]] {
            assert_eq!(policy(&hosts(itself)), Ok(Some(Policy::default())), "{itself:?}");
        }
        assert_eq!(
            itself(&hosts(&["LOCALHOST", "127.0.0.1", "localhost"])).as_deref(),
            Some("127.0.0.1,localhost")
        );
        assert_eq!(policy(&hosts(&["localhost", "a.example"])).unwrap().unwrap().mode, Mode::Allowlist);
        for odd in ["", "a b", "http://x", "*"] {
            assert_eq!(
                policy(&[odd.to_owned()]).unwrap_err().field.as_deref(),
                Some("allowed_hosts"),
                "{odd}"
            );
        }
    }
}
