//! The settings of the whole server, for admins. The names of the reference API are at the top, ours are
//! in `atoll`.

mod changes;

use crate::{
    App,
    parse::{Raw, json},
};
use atoll_core::{OnShutdown, RuntimeSettings, SettingsView};
use atoll_http::{Failure, Who};
use atoll_types::{Ceiling, Error, Tier};
use axum::{Json, extract::State};
pub(crate) use changes::schema;
use changes::{OWN, flat, is_own, whole_seconds};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The settings.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettingsItem {
    /// What runs sandboxes. Cannot be changed.
    provider_type: Value,
    /// Whether sandboxes are kept ready.
    warm_pool_enabled: bool,
    /// Sandboxes that an owner may have at a time by the default plan.
    #[schema(minimum = 0, maximum = 1_000_000)]
    default_max_per_user: u32,
    /// Of a new sandbox that says nothing of it.
    #[schema(minimum = 10, maximum = 2_592_000)]
    idle_timeout_seconds: u32,
    /// How long a stopped sandbox is kept; -1 for ever.
    #[schema(minimum = -1, maximum = 31_536_000)]
    stopped_retention_seconds: i64,
    /// The image of the configuration file.
    config_fallback_image: Value,
    /// The image of a create that names none, instead of the one of the file.
    db_default_image: Option<String>,
    /// The variables that a create or a change of a sandbox may set; all where it is empty.
    #[schema(max_items = 500)]
    env_allowlist: Vec<String>,
    /// The images that ordinary keys may use, by name; all where it is null.
    #[schema(max_items = 1000)]
    db_active_images: Option<Vec<String>>,
    /// Not supported yet.
    k8s_namespace: Value,
    atoll: OwnSettings,
}

/// Settings of Atoll's own.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OwnSettings {
    plan: PlanItem,
    /// Other plans by name: `max_per_user`, `sandboxes`, `disk_mb`, `execs_per_second`, `exec_burst`; what one
    /// leaves out is as in the default plan.
    #[schema(value_type = BTreeMap<String, BTreeMap<String, u64>>)]
    plans: Value,
    /// Which owner, by name or id, has which of them.
    owners: BTreeMap<String, String>,
    admission: AdmissionItem,
    pool: PoolSettings,
    lifecycle: LifecycleItem,
    tool_sessions: ToolSessionsItem,
    snapshots: SnapshotSettings,
    images: ImageSettings,
    http: HttpItem,
    /// What keys of each tier may ask for. From the configuration file.
    tiers: BTreeMap<&'static str, TierItem>,
    /// Where each value comes from: default, file, environment, flag or stored. The last wins.
    sources: BTreeMap<&'static str, &'static str>,
}

/// The default plan, beside `default_max_per_user`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanItem {
    /// Sandboxes of one owner, stopped ones too.
    sandboxes: u32,
    /// Volumes of one owner that outlive sandboxes.
    volumes: u32,
    /// Skills of one owner.
    skills: u32,
    /// What the packages of its skills may have in all.
    skills_mb: u64,
    /// What the disks of sandboxes and volumes may hold in all.
    disk_mb: u64,
    execs_per_second: u32,
    exec_burst: u32,
}

/// How much of the machine may be promised.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AdmissionItem {
    /// How long a create or a resume waits for room; 0 for not at all.
    wait_seconds: u32,
    /// Times the machine's cores.
    cpu_ratio: f64,
    /// Times the machine's memory.
    memory_ratio: f64,
    /// Times what the machine's volumes can hold.
    disk_ratio: f64,
    /// Times the machine's process table.
    process_ratio: f64,
}

/// What connections may hold, and for how long.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HttpItem {
    /// What the answers of one owner that are not yet sent may hold of the server's memory.
    owner_answers_mb: u32,
    /// Outputs, terminals, files, archives and watches that one owner may have open.
    owner_streams: u32,
    /// How long a client may leave an answer unread before its connection is closed.
    write_timeout_seconds: u32,
    /// How long a new connection may take to send the head of its first request.
    head_timeout_seconds: u32,
    /// Connections of one peer address at a time.
    connections_per_peer: u32,
}

/// How many sandboxes are kept ready.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolSettings {
    /// Of an image, even when no sandbox is requested.
    #[schema(maximum = 1000)]
    min: u32,
    /// Of an image at most, when many sandboxes are requested.
    #[schema(maximum = 1000)]
    max: u32,
    /// The same of single images: `min` and `max` by name.
    #[schema(value_type = BTreeMap<String, BTreeMap<String, u32>>)]
    images: Value,
    /// The languages whose interpreters are started in each: python, node, r, bash.
    #[schema(value_type = Vec<String>)]
    kernels: Value,
}

/// What the server does with sandboxes without a request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LifecycleItem {
    /// How often the server looks for sandboxes that are due.
    interval_seconds: u32,
    /// How long an idle sandbox stays paused before it is stopped; 0 stops it without a pause, -1 never stops it.
    pause_seconds: i64,
    /// The share of a core from which on processes that no caller waits for count as activity.
    idle_cpu_percent: f64,
    /// How long a sandbox may live in all; 0 for no limit.
    max_lifetime_seconds: u32,
    /// How long before that its owner gets an event.
    expiring_seconds: u32,
    /// From which age on what belongs to no sandbox is removed.
    orphan_seconds: u32,
    /// How long the record of a destroyed sandbox is kept; -1 for ever.
    destroyed_retention_seconds: i64,
    /// How long a key is listed that expired or was revoked; -1 for ever.
    key_retention_seconds: i64,
    /// How long after a start nothing is removed for its age.
    settle_seconds: u32,
    /// What becomes of sandboxes when the server is told to end: keep or stop.
    #[schema(value_type = String)]
    on_shutdown: OnShutdown,
}

impl From<&RuntimeSettings> for LifecycleItem {
    fn from(k: &RuntimeSettings) -> Self {
        Self {
            interval_seconds: k.lifecycle_interval_seconds,
            pause_seconds: k.lifecycle_pause_seconds,
            idle_cpu_percent: k.lifecycle_idle_cpu_percent,
            max_lifetime_seconds: k.lifecycle_max_lifetime_seconds,
            expiring_seconds: k.lifecycle_expiring_seconds,
            orphan_seconds: k.lifecycle_orphan_seconds,
            destroyed_retention_seconds: k.lifecycle_destroyed_retention_seconds,
            key_retention_seconds: k.lifecycle_key_retention_seconds,
            settle_seconds: k.lifecycle_settle_seconds,
            on_shutdown: k.lifecycle_on_shutdown,
        }
    }
}

/// Snapshots of sandboxes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotSettings {
    /// Of one sandbox.
    max: u32,
    /// Those of them that no request made and that have no label; one more, and the oldest is removed.
    automatic_max: u32,
    /// How long such a one is kept; -1 for ever.
    automatic_retention_seconds: i64,
}

impl From<&RuntimeSettings> for SnapshotSettings {
    fn from(k: &RuntimeSettings) -> Self {
        Self {
            max: k.snapshots_max,
            automatic_max: k.snapshots_automatic_max,
            automatic_retention_seconds: k.snapshots_automatic_retention_seconds,
        }
    }
}

/// Images.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ImageSettings {
    /// Whether ordinary keys may use only images that an admin approved; `host` is one.
    require_approved: bool,
    /// What an image may hold that is imported or pulled, where its request says nothing of it.
    max_mb: u64,
    /// Whether a create that names an image of a registry which is not here pulls it first: for admins from any registry.
    pull_on_use: bool,
    /// The registries (HOST or HOST:PORT) from which creates of other keys do.
    pull_on_use_registries: Vec<String>,
    /// What images may hold together that were pulled and that no admin approved; at as much, creates of ordinary keys pull no more.
    pull_on_use_max_mb: u64,
    /// Whether a create that names an image of the catalogue which is not built yet, or an alias of one, builds it first.
    build_on_use: bool,
    /// How long a layer that was fetched, and a step of a build, is kept for the next pull or build; -1 for ever.
    layer_retention_seconds: i64,
    /// How long an image is kept that no sandbox uses and no setting names; -1 for ever.
    unused_retention_seconds: i64,
}

impl From<&RuntimeSettings> for ImageSettings {
    fn from(k: &RuntimeSettings) -> Self {
        Self {
            require_approved: k.images_require_approved,
            max_mb: k.images_max_mb,
            pull_on_use: k.images_pull_on_use,
            pull_on_use_registries: k.images_pull_on_use_registries.clone(),
            pull_on_use_max_mb: k.images_pull_on_use_max_mb,
            build_on_use: k.images_build_on_use,
            layer_retention_seconds: k.images_layer_retention_seconds,
            unused_retention_seconds: k.images_unused_retention_seconds,
        }
    }
}

/// Tool sessions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolSessionsItem {
    max: u32,
    max_per_thread: u32,
    max_threads: u32,
    collect_seconds: u32,
    orphan_seconds: u32,
    /// How long one may be idle.
    idle_seconds: u32,
    /// How long one may live in all.
    max_lifetime_seconds: u32,
    /// How long a thread without sessions is remembered, with what was uploaded to it.
    thread_retention_seconds: u32,
    /// Whether they may reach what their key's tier allows.
    network_enabled: bool,
    /// Of one session, as the next three, where the key's tier allows as much.
    memory_mb: u32,
    cpu_cores: f64,
    processes: u32,
    disk_mb: u32,
    /// What all uploads to a thread may have together.
    uploads_mb: u32,
}

impl From<&RuntimeSettings> for ToolSessionsItem {
    fn from(k: &RuntimeSettings) -> Self {
        Self {
            max: k.tool_sessions_max,
            max_per_thread: k.tool_sessions_max_per_thread,
            max_threads: k.tool_sessions_max_threads,
            collect_seconds: k.tool_sessions_collect_seconds,
            orphan_seconds: k.tool_sessions_orphan_seconds,
            idle_seconds: k.tool_sessions_idle_seconds,
            max_lifetime_seconds: k.tool_sessions_max_lifetime_seconds,
            thread_retention_seconds: k.tool_sessions_thread_retention_seconds,
            network_enabled: k.tool_sessions_network_enabled,
            memory_mb: k.tool_sessions_memory_mb,
            cpu_cores: k.tool_sessions_cpu_cores,
            processes: k.tool_sessions_processes,
            disk_mb: k.tool_sessions_disk_mb,
            uploads_mb: k.tool_sessions_uploads_mb,
        }
    }
}

/// What keys of a tier may ask for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TierItem {
    cpu_cores: f64,
    memory_mb: u64,
    disk_mb: u64,
    processes: u32,
    timeout_seconds: u64,
    /// none, restricted or full.
    network: &'static str,
    /// Which profiles a sandbox may have.
    profiles: Vec<&'static str>,
}

impl From<Ceiling> for TierItem {
    fn from(ceiling: Ceiling) -> Self {
        let Ceiling { cpu_millis, memory_mb, disk_mb, processes, timeout_seconds, network, profiles } =
            ceiling;
        let cpu_cores = f64::from(cpu_millis) / 1000.0;
        let (network, profiles) = (network.as_str(), profiles.names());
        Self { cpu_cores, memory_mb, disk_mb, processes, timeout_seconds, network, profiles }
    }
}

impl From<SettingsView> for SettingsItem {
    fn from(view: SettingsView) -> Self {
        let SettingsView { runtime_settings, sources, mut fixed, tiers } = view;
        let mut fixed = |name| fixed.remove(name).unwrap_or_default();
        let k: &RuntimeSettings = &runtime_settings;
        Self {
            provider_type: fixed("provider_type"),
            warm_pool_enabled: k.warm_pool_enabled,
            default_max_per_user: k.default_max_per_user,
            idle_timeout_seconds: k.idle_timeout_seconds,
            stopped_retention_seconds: k.stopped_retention_seconds,
            config_fallback_image: fixed("config_fallback_image"),
            db_default_image: k.db_default_image.clone(),
            env_allowlist: k.env_allowlist.clone(),
            db_active_images: k.db_active_images.clone(),
            k8s_namespace: fixed("k8s_namespace"),
            atoll: OwnSettings {
                plan: PlanItem {
                    sandboxes: k.plan_sandboxes,
                    volumes: k.plan_volumes,
                    skills: k.plan_skills,
                    skills_mb: k.plan_skills_mb,
                    disk_mb: k.plan_disk_mb,
                    execs_per_second: k.plan_execs_per_second,
                    exec_burst: k.plan_exec_burst,
                },
                plans: k.get("plans").unwrap_or_default(),
                owners: k.owners.clone(),
                admission: AdmissionItem {
                    wait_seconds: k.admission_wait_seconds,
                    cpu_ratio: k.admission_cpu_ratio,
                    memory_ratio: k.admission_memory_ratio,
                    disk_ratio: k.admission_disk_ratio,
                    process_ratio: k.admission_process_ratio,
                },
                http: HttpItem {
                    owner_answers_mb: k.http_owner_answers_mb,
                    owner_streams: k.http_owner_streams,
                    write_timeout_seconds: k.http_write_timeout_seconds,
                    head_timeout_seconds: k.http_head_timeout_seconds,
                    connections_per_peer: k.http_connections_per_peer,
                },
                pool: PoolSettings {
                    min: k.pool_min,
                    max: k.pool_max,
                    images: k.get("pool.images").unwrap_or_default(),
                    kernels: k.get("pool.kernels").unwrap_or_default(),
                },
                lifecycle: k.into(),
                tool_sessions: k.into(),
                snapshots: k.into(),
                images: k.into(),
                tiers: Tier::ALL.iter().map(|tier| (tier.as_str(), tiers.of(*tier).into())).collect(),
                sources: sources.into_iter().map(|(name, source)| (name, source.as_str())).collect(),
            },
        }
    }
}

/// Some of what GET shows, in the same places; null takes back what was set here.
#[derive(ToSchema)]
#[allow(dead_code)] // Only described, by `schema`.
pub(crate) struct SettingsBody(BTreeMap<String, Value>);

/// An error by the name that the caller used.
fn named(mut error: Error) -> Failure {
    if let Some(field) = error.field.as_mut().filter(|field| is_own(field)) {
        *field = format!("{OWN}.{field}");
    }
    error.into()
}

/// The settings, and where each comes from. For admins.
#[utoipa::path(get, path = "/api/v1/settings/sandbox", tag = "settings",
    responses((status = 200, body = SettingsItem), (status = 403)))]
pub(crate) async fn get(State(app): State<App>, Who(caller): Who) -> Result<Json<SettingsItem>, Failure> {
    Ok(Json(app.core.settings.view(&caller).await?.into()))
}

/// Changes settings: what is left out stays, null takes back what was set here. All of it is done, or
/// nothing. It applies at once and outlives the server.
#[utoipa::path(patch, path = "/api/v1/settings/sandbox", tag = "settings",
    request_body = SettingsBody,
    responses((status = 200, body = SettingsItem), (status = 403), (status = 422)))]
pub(crate) async fn patch(
    State(app): State<App>,
    Who(caller): Who,
    Raw(body): Raw,
) -> Result<Json<SettingsItem>, Failure> {
    let changes = whole_seconds(flat(json(&body)?)?);
    Ok(Json(app.core.settings.patch(&caller, changes).await.map_err(named)?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_shown() {
        let runtime_settings = std::sync::Arc::new(RuntimeSettings::default());
        let view = SettingsView {
            runtime_settings: runtime_settings.clone(),
            sources: BTreeMap::new(),
            fixed: BTreeMap::new(),
            tiers: atoll_types::Tiers::default(),
        };
        let shown = serde_json::to_value(SettingsItem::from(view)).unwrap();
        for name in RuntimeSettings::NAMES {
            let place =
                if is_own(name) { format!("/{OWN}/{}", name.replace('.', "/")) } else { format!("/{name}") };
            assert_eq!(shown.pointer(&place).cloned(), runtime_settings.get(name), "{name}");
        }
    }
}
