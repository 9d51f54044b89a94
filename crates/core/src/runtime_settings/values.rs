//! Every setting that applies without a restart: its name, its type, its default and what it may be. The
//! name is the same in the file (`[settings]`), in variables (`ATOLL_SETTINGS_…`), on the command line and
//! on the wire.

use super::{
    plan::Plan,
    pool::PoolSize,
    unknown,
    value::{ValueRule, any, read, text_schema, within},
};
use crate::bounds::{DISK_MB, IDLE_SECONDS, IMAGE, MOST_VARIABLES, VARIABLE_NAME};
use atoll_kernels::Language;
use atoll_types::{
    Error, Result,
    text::{CONTROL, TextRule},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

macro_rules! runtime_settings {
    ($($(#[$doc:meta])* $name:literal $field:ident: $kind:ty = $default:expr, $rule:expr;)+) => {
        /// Every setting, with its present value.
        #[derive(Debug, Clone, PartialEq)]
        pub struct RuntimeSettings { $($(#[$doc])* pub $field: $kind),+ }

        impl Default for RuntimeSettings {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }

        impl RuntimeSettings {
            /// Every name.
            pub const NAMES: &[&str] = &[$($name),+];

            /// The value of a setting.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<Value> {
                match name { $($name => Some(json!(self.$field)),)+ _ => None }
            }

            /// What a setting may be, as a JSON Schema.
            #[must_use]
            pub fn schema(name: &str) -> Option<Value> {
                fn of<T>(rule: ValueRule<impl FnOnce(&T) -> Result<(), String>>) -> Value {
                    rule.schema
                }
                match name { $($name => Some(of::<$kind>($rule)),)+ _ => None }
            }

            pub(super) fn set(&mut self, name: &str, value: &Value) -> Result<()> {
                match name {
                    $($name => self.$field = read::<$kind>($name, value, $rule)?,)+
                    _ => return Err(unknown(name)),
                }
                Ok(())
            }
        }
    };
}

/// Thirty days.
const MONTH: u32 = 30 * 24 * 3600;
const MILLION: u32 = 1_000_000;
const RATIO: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;
/// A year.
const YEAR: i64 = 365 * 24 * 3600;

/// What the server does with sandboxes at its shutdown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnShutdown {
    /// They keep running.
    #[default]
    Keep,
    /// They are stopped; their volumes are kept.
    Stop,
}

fn each_once() -> ValueRule<impl FnOnce(&Vec<Language>) -> Result<(), String>> {
    let check = |languages: &Vec<Language>| match languages
        .iter()
        .enumerate()
        .any(|(at, one)| languages[..at].contains(one))
    {
        true => Err("names a language twice".into()),
        false => Ok(()),
    };
    let items = json!({"type": "string", "enum": Language::ALL});
    ValueRule { check, schema: json!({"type": "array", "uniqueItems": true, "items": items}) }
}

/// A name of `env_allowlist`.
const ALLOWED_NAME: TextRule = TextRule { most: 255, ..VARIABLE_NAME };

fn variable_names() -> ValueRule<impl FnOnce(&Vec<String>) -> Result<(), String>> {
    let check = |names: &Vec<String>| match names.iter().find(|name| !ALLOWED_NAME.fits(name)) {
        _ if names.len() > MOST_VARIABLES => Err(format!("may have {MOST_VARIABLES} names")),
        Some(name) => Err(format!("holds {name:?}, which is no variable's name")),
        None => Ok(()),
    };
    let items = text_schema(&ALLOWED_NAME);
    ValueRule { check, schema: json!({"type": "array", "maxItems": MOST_VARIABLES, "items": items}) }
}

/// Most hosts of `images.pull_on_use_registries`.
const MOST_REGISTRIES: usize = 100;
/// A host, with or without its port.
const REGISTRY_HOST: TextRule = TextRule::new(1, 260, CONTROL);

fn registry_hosts() -> ValueRule<impl FnOnce(&Vec<String>) -> Result<(), String>> {
    let check = |hosts: &Vec<String>| match hosts.iter().find(|host| {
        !REGISTRY_HOST.fits(host) || format!("{host}/x").parse::<atoll_oci::Reference>().is_err()
    }) {
        _ if hosts.len() > MOST_REGISTRIES => Err(format!("may have {MOST_REGISTRIES} hosts")),
        Some(host) => Err(format!("holds {host:?}, which is no host of a registry")),
        None => Ok(()),
    };
    let items = text_schema(&REGISTRY_HOST);
    ValueRule { check, schema: json!({"type": "array", "maxItems": MOST_REGISTRIES, "items": items}) }
}

/// Most names of `db_active_images`.
const MOST_IMAGES: usize = 1000;

fn image_names() -> ValueRule<impl FnOnce(&Option<Vec<String>>) -> Result<(), String>> {
    let check = |names: &Option<Vec<String>>| match names {
        Some(names) if names.len() > MOST_IMAGES || !names.iter().all(|name| IMAGE.fits(name)) => {
            Err(format!("may have {MOST_IMAGES} names of 1 to {} characters", IMAGE.most))
        }
        _ => Ok(()),
    };
    let items = text_schema(&IMAGE);
    ValueRule { check, schema: json!({"type": "array", "maxItems": MOST_IMAGES, "items": items}) }
}

/// Seconds from 1 on, or -1 for never; with `zero` also 0.
fn or_never(zero: bool, most: i64) -> ValueRule<impl FnOnce(&i64) -> Result<(), String>> {
    let least = i64::from(!zero);
    let check = move |seconds: &i64| match *seconds == -1 || (least..=most).contains(seconds) {
        true => Ok(()),
        false => Err(format!("must be between {least} and {most}, or -1 for never")),
    };
    let mut schema = json!({"type": "integer", "minimum": -1, "maximum": most});
    if !zero {
        schema["not"] = json!({"const": 0});
    }
    ValueRule { check, schema }
}

runtime_settings! {
    /// How many sandboxes an owner may have at a time, by the default plan.
    "default_max_per_user" default_max_per_user: u32 = 3, within(0..=MILLION);
    /// How long a sandbox may be idle that says nothing of it.
    "idle_timeout_seconds" idle_timeout_seconds: u32 = 1800, within(IDLE_SECONDS);
    /// How long a stopped sandbox is kept.
    "stopped_retention_seconds" stopped_retention_seconds: i64 = 7 * 24 * 3600, or_never(false, YEAR);
    /// The image of a create that names none, where it is not the one of the file.
    "db_default_image" db_default_image: Option<String> = None, any(json!({"type": "string"}));
    /// The images that ordinary keys may use, by name; all where there is no list.
    "db_active_images" db_active_images: Option<Vec<String>> = None, image_names();
    /// The variables that a create or a change of a sandbox may set; all of them where it is empty.
    "env_allowlist" env_allowlist: Vec<String> = Vec::new(), variable_names();
    /// Sandboxes in all, by the default plan.
    "plan.sandboxes" plan_sandboxes: u32 = 100, within(0..=MILLION);
    /// Volumes that outlive sandboxes, by the default plan.
    "plan.volumes" plan_volumes: u32 = 100, within(0..=MILLION);
    /// Skills, by the default plan.
    "plan.skills" plan_skills: u32 = 100, within(0..=MILLION);
    /// What the packages of skills may have in all, by the default plan.
    "plan.skills_mb" plan_skills_mb: u64 = 500, within(0..=1 << 40);
    /// What the disks of sandboxes and volumes may hold in all, by the default plan.
    "plan.disk_mb" plan_disk_mb: u64 = 100 * 1024, within(0..=1 << 40);
    /// How often a command may be started, by the default plan.
    "plan.execs_per_second" plan_execs_per_second: u32 = 20, within(1..=MILLION);
    /// How many may be started at once, by the default plan.
    "plan.exec_burst" plan_exec_burst: u32 = 100, within(1..=MILLION);
    /// Other plans, by name.
    "plans" plans: BTreeMap<String, Plan> = BTreeMap::new(), Plan::rule();
    /// Which owner has which of them.
    "owners" owners: BTreeMap<String, String> = BTreeMap::new(), Plan::owners_rule();
    /// How long a create or a resume waits for room on the machine.
    "admission.wait_seconds" admission_wait_seconds: u32 = 10, within(0..=600);
    /// How many times the machine's cores may be promised.
    "admission.cpu_ratio" admission_cpu_ratio: f64 = 256.0, within(RATIO);
    /// How many times the machine's memory may be promised.
    "admission.memory_ratio" admission_memory_ratio: f64 = 16.0, within(RATIO);
    /// How many times the capacity of the machine's volumes may be promised. The provider guards the free
    /// space.
    "admission.disk_ratio" admission_disk_ratio: f64 = 20.0, within(RATIO);
    /// How many times the machine's processes may be promised.
    "admission.process_ratio" admission_process_ratio: f64 = 16.0, within(RATIO);
    /// What the answers of one owner that are not yet sent may hold of the server's memory.
    "http.owner_answers_mb" http_owner_answers_mb: u32 = 64, within(1..=MILLION);
    /// Streams out of sandboxes that one owner may have open: outputs of commands, terminals, files, archives and watches.
    "http.owner_streams" http_owner_streams: u32 = 256, within(1..=MILLION);
    /// How long a client may leave an answer unread before its connection is closed.
    "http.write_timeout_seconds" http_write_timeout_seconds: u32 = 60, within(1..=3600);
    /// How long a new connection may take to send the head of its first request.
    "http.head_timeout_seconds" http_head_timeout_seconds: u32 = 10, within(1..=600);
    /// Connections of one peer address at a time; of an IPv6 address, of its /64.
    "http.connections_per_peer" http_connections_per_peer: u32 = 4096, within(1..=8192);
    /// Whether sandboxes are kept ready.
    "warm_pool_enabled" warm_pool_enabled: bool = true, any(json!({"type": "boolean"}));
    /// How many are kept ready of an image without any demand.
    "pool.min" pool_min: u32 = 2, within(0..=PoolSize::MOST);
    /// How many are kept ready of an image with much demand.
    "pool.max" pool_max: u32 = 8, within(0..=PoolSize::MOST);
    /// The same for single images, by name.
    "pool.images" pool_images: BTreeMap<String, PoolSize> = BTreeMap::new(), PoolSize::rule();
    /// The languages whose interpreters are started in each ready container.
    "pool.kernels" pool_kernels: Vec<Language> = Vec::new(), each_once();
    /// How often the reconcilers run.
    "lifecycle.interval_seconds" lifecycle_interval_seconds: u32 = 10, within(1..=3600);
    /// How long an idle sandbox is paused before it is stopped; 0 stops it without a pause, -1 never stops
    /// it.
    "lifecycle.pause_seconds" lifecycle_pause_seconds: i64 = 300, or_never(true, YEAR);
    /// The share of a core from which on processes without a waiting caller count as activity.
    "lifecycle.idle_cpu_percent" lifecycle_idle_cpu_percent: f64 = 2.0, within(0.01..=100.0);
    /// How long a sandbox may live in all; 0 for no limit.
    "lifecycle.max_lifetime_seconds" lifecycle_max_lifetime_seconds: u32 = 0, within(0..=365 * 24 * 3600);
    /// How long before that its owner is warned.
    "lifecycle.expiring_seconds" lifecycle_expiring_seconds: u32 = 60, within(0..=86_400);
    /// From which age on what belongs to no sandbox is removed.
    "lifecycle.orphan_seconds" lifecycle_orphan_seconds: u32 = 300, within(1..=86_400);
    /// How long the record of a destroyed sandbox is kept.
    "lifecycle.destroyed_retention_seconds" lifecycle_destroyed_retention_seconds: i64 = 30 * 24 * 3600,
        or_never(false, 10 * YEAR);
    /// How long a key is listed that expired or was revoked.
    "lifecycle.key_retention_seconds" lifecycle_key_retention_seconds: i64 = 90 * 24 * 3600,
        or_never(false, 10 * YEAR);
    /// How long after a start nothing is removed for its age: the machine's clock may have to be set first.
    "lifecycle.settle_seconds" lifecycle_settle_seconds: u32 = 300, within(0..=86_400);
    /// What the server does with sandboxes at its shutdown.
    "lifecycle.on_shutdown" lifecycle_on_shutdown: OnShutdown = OnShutdown::Keep, any(json!({"type": "string", "enum": [OnShutdown::Keep, OnShutdown::Stop]}));
    /// Snapshots of one sandbox.
    "snapshots.max" snapshots_max: u32 = 100, within(1..=1000);
    /// Those of them that no request made and that have no label; one more, and one has to go: they are thinned by age.
    "snapshots.automatic_max" snapshots_automatic_max: u32 = 20, within(1..=1000);
    /// How long a snapshot is kept that no request made and that has no label.
    "snapshots.automatic_retention_seconds" snapshots_automatic_retention_seconds: i64 = 7 * 24 * 3600,
        or_never(false, YEAR);
    /// Whether ordinary keys may use only images that an admin approved; `host` is one.
    "images.require_approved" images_require_approved: bool = false, any(json!({"type": "boolean"}));
    /// What an image may hold that is made of an archive or pulled, where its request says nothing of it.
    "images.max_mb" images_max_mb: u64 = 10 * 1024, within(DISK_MB);
    /// Whether a create that names an image of a registry which is not here pulls it first: for admins from any registry.
    "images.pull_on_use" images_pull_on_use: bool = false, any(json!({"type": "boolean"}));
    /// The registries (HOST or HOST:PORT) from which creates of other keys pull, where they may use images that are not approved.
    "images.pull_on_use_registries" images_pull_on_use_registries: Vec<String> = Vec::new(), registry_hosts();
    /// What images may hold together that were pulled and that no admin approved; at as much, creates of ordinary keys pull no more.
    "images.pull_on_use_max_mb" images_pull_on_use_max_mb: u64 = 20 * 1024, within(0..=1 << 40);
    /// Whether a create that names an image of the catalogue which is not built yet, or an alias of one, builds it first.
    "images.build_on_use" images_build_on_use: bool = false, any(json!({"type": "boolean"}));
    /// How long a layer that was fetched, and a step of a build, is kept for the next pull or build.
    "images.layer_retention_seconds" images_layer_retention_seconds: i64 = 7 * 24 * 3600, or_never(true, YEAR);
    /// How long an image is kept that no sandbox uses and no setting names.
    "images.unused_retention_seconds" images_unused_retention_seconds: i64 = -1, or_never(false, 10 * YEAR);
    /// Tool sessions of one owner. As many as ten threads of three have, so that this refuses nothing that
    /// the two below allow; a plan (3 sandboxes at a time) and the machine's room bind most owners before it
    /// does.
    "tool_sessions.max" tool_sessions_max: u32 = 30, within(1..=MILLION);
    /// Tool sessions of one thread.
    "tool_sessions.max_per_thread" tool_sessions_max_per_thread: u32 = 3, within(1..=MILLION);
    /// Threads with sessions; one more, and the oldest has to go.
    "tool_sessions.max_threads" tool_sessions_max_threads: u32 = 10, within(1..=MILLION);
    /// How often tool sessions are collected.
    "tool_sessions.collect_seconds" tool_sessions_collect_seconds: u32 = 60, within(1..=86_400);
    /// From which age on a tool session's container that has no record is removed.
    "tool_sessions.orphan_seconds" tool_sessions_orphan_seconds: u32 = 300, within(1..=86_400);
    /// How long a tool session may be idle.
    "tool_sessions.idle_seconds" tool_sessions_idle_seconds: u32 = 1800, within(1..=MONTH);
    /// How long a tool session may live in all.
    "tool_sessions.max_lifetime_seconds" tool_sessions_max_lifetime_seconds: u32 = 7200, within(1..=MONTH);
    /// How long a thread without sessions is remembered, with what was uploaded to it.
    "tool_sessions.thread_retention_seconds" tool_sessions_thread_retention_seconds: u32 = 7 * 24 * 3600,
        within(1..=MONTH);
    /// Whether tool sessions may reach what their key's tier allows.
    "tool_sessions.network_enabled" tool_sessions_network_enabled: bool = true, any(json!({"type": "boolean"}));
    /// Memory of a tool session, where the key's tier allows as much.
    "tool_sessions.memory_mb" tool_sessions_memory_mb: u32 = 2048, within(16..=MILLION);
    /// Cores of a tool session, where the key's tier allows as many.
    "tool_sessions.cpu_cores" tool_sessions_cpu_cores: f64 = 2.0, within(0.01..=1024.0);
    /// Processes of a tool session, where the key's tier allows as many.
    "tool_sessions.processes" tool_sessions_processes: u32 = 512, within(4..=MILLION);
    /// Disk of a tool session, where the key's tier allows as much.
    "tool_sessions.disk_mb" tool_sessions_disk_mb: u32 = 1024, within(1..=MILLION);
    /// What all uploads to a thread may have together.
    "tool_sessions.uploads_mb" tool_sessions_uploads_mb: u32 = 512, within(1..=MILLION);
}

impl RuntimeSettings {
    /// The name as it is kept, if it is one.
    pub(super) fn name(name: &str) -> Option<&'static str> {
        Self::NAMES.iter().copied().find(|known| *known == name)
    }

    /// Refuses what does not go together.
    pub(super) fn validate(&self) -> Result<()> {
        if self.pool_min > self.pool_max {
            return Err(Error::invalid("pool.min", "pool.min is above pool.max"));
        }
        match self.owners.values().find(|plan| !self.plans.contains_key(*plan)) {
            Some(plan) => Err(Error::invalid("owners", format!("there is no plan {plan:?}"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values at the ends of a schema, and beyond them.
    fn at_the_ends(schema: &Value) -> (Vec<Value>, Vec<Value>) {
        let (least, most) = (&schema["minimum"], &schema["maximum"]);
        match (schema["type"].as_str().unwrap(), schema.get("enum")) {
            ("integer", _) => {
                let beyond = vec![json!(least.as_i64().unwrap() - 1), json!(most.as_i64().unwrap() + 1)];
                let zero = schema.get("not").map(|not| not["const"].clone());
                (vec![least.clone(), most.clone()], beyond.into_iter().chain(zero).collect())
            }
            ("number", _) => {
                let beyond = vec![json!(least.as_f64().unwrap() / 2.0), json!(most.as_f64().unwrap() * 2.0)];
                (vec![least.clone(), most.clone()], beyond)
            }
            ("string", Some(all)) => (all.as_array().unwrap().clone(), vec![json!("odd")]),
            ("string", None) => (vec![json!("host")], vec![json!(1)]),
            ("boolean", _) => (vec![json!(true)], vec![json!("true")]),
            ("array", _) => (vec![json!([])], vec![json!([""]), json!(["a\0"])]),
            ("object", _) => (vec![json!({})], vec![json!({"": {}}), json!([])]),
            (other, _) => panic!("a setting is {other}"),
        }
    }

    #[test]
    fn a_settings_schema_is_its_check() {
        for name in RuntimeSettings::NAMES {
            let (good, bad) = at_the_ends(&RuntimeSettings::schema(name).unwrap());
            for value in good {
                assert_eq!(RuntimeSettings::default().set(name, &value), Ok(()), "{name} {value}");
            }
            for value in bad {
                assert!(RuntimeSettings::default().set(name, &value).is_err(), "{name} {value}");
            }
        }
    }
}
