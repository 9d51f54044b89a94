//! The contract of every store, as checks that run against a real one. A check is given an empty store of its
//! own. It runs on a runtime with several threads where it can, and starts concurrent tasks of its own.

mod activity;
mod audit;
mod audit_egress;
mod audit_files;
mod audit_pages;
mod build_steps;
mod console;
mod conversations;
mod events;
mod idempotency;
mod images;
mod items;
mod keys;
mod listing;
mod mcp;
mod model;
mod model_audit;
mod previews;
mod sandboxes;
mod settings;
mod skills;
mod snapshots;
mod tools;
mod updates;
mod volumes;

pub use audit::{begin, linked};
pub use model::expected;
pub use model_audit::{expected_operations, expected_summary};

use crate::{Clash, Inserted, NewSandbox, SandboxId, SandboxRecord, Sealed, Status, Store, StoreError};
use atoll_types::{AutoSnapshot, Limits, Profile, ProviderName, VolumeId};
use std::{collections::BTreeMap, fmt, pin::Pin, sync::Arc};

/// Why a check failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

/// The result of a check.
pub type Outcome = Result<(), Failure>;

type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// The store that a check runs on.
pub type Shared = Arc<dyn Store>;

/// One requirement on every store.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    run: fn(Shared) -> Running,
}

impl Check {
    /// Runs it against an empty store.
    pub async fn run(&self, store: Shared) -> Outcome {
        (self.run)(store).await
    }
}

macro_rules! checks {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        /// Every check.
        #[must_use]
        pub fn checks() -> Vec<Check> {
            vec![$(Check { name: stringify!($name), run: |store| Box::pin($module::$name(store)) }),+]
        }
    };
}

checks![
    sandboxes::a_record_comes_back_as_it_went_in,
    sandboxes::a_session_key_is_one_sandbox,
    sandboxes::many_with_one_session_key_make_one,
    sandboxes::what_is_taken_is_refused_and_leaves_nothing,
    sandboxes::what_lives_is_all_but_stopped_and_destroyed,
    sandboxes::what_was_done_last_never_moves_back,
    sandboxes::the_destroyed_are_forgotten_in_time,
    updates::a_change_changes_what_it_says_and_nothing_else,
    updates::an_old_revision_is_refused,
    updates::destroyed_is_final,
    updates::of_many_changes_one_wins_each_revision,
    updates::another_ones_container_is_refused,
    listing::pages_show_each_record_once_in_order,
    listing::filters_narrow_and_the_counts_ignore_the_status,
    listing::text_is_found_as_it_is_written,
    listing::labels_are_found_as_they_are_now,
    activity::an_activity_is_listed_and_counted,
    activity::activities_page_backwards,
    activity::the_last_ones_are_kept,
    activity::a_detail_is_cut_between_letters,
    activity::an_activity_of_nobody_leaves_nothing,
    activity::many_activities_at_once_all_count,
    activity::a_dropped_call_happens_wholly_or_not_at_all,
    audit::rows_come_back_as_they_went_in,
    audit::rows_follow_each_other,
    audit::an_operation_begins_and_ends_once,
    audit::a_batch_carries_what_happened,
    audit::what_has_not_ended_is_listed,
    audit::marks_are_found,
    audit::removing_rows_leaves_a_checkpoint_or_nothing,
    audit_egress::decisions_are_found_by_what_they_are,
    audit_egress::decisions_add_up_and_go_with_their_rows,
    audit_files::a_file_has_its_history,
    audit_pages::operations_are_found_by_what_they_are,
    audit_pages::operations_page_backwards,
    audit_pages::a_detail_is_found_as_it_is_written,
    audit_pages::operations_of_the_destroyed_stay,
    audit_pages::operations_add_up,
    events::a_change_of_status_is_told_with_its_reason,
    events::what_failed_is_not_told,
    events::events_go_on_after_an_id,
    events::the_last_events_are_kept,
    events::who_listens_is_woken,
    keys::a_key_is_found_while_it_is_usable,
    keys::a_revoked_key_stays_revoked,
    keys::the_last_admin_is_not_revoked,
    keys::a_hash_is_unique,
    keys::an_owner_has_so_many_keys,
    keys::only_an_unused_key_is_renewed,
    keys::the_first_key_is_first_only_once,
    keys::a_key_is_listed_for_its_owner,
    keys::a_touch_never_moves_back,
    keys::old_keys_go_but_never_the_last,
    console::a_console_session_is_found_while_it_and_its_key_are_usable,
    console::a_removed_console_session_is_gone,
    console::a_key_has_so_many_console_sessions,
    idempotency::a_request_is_carried_out_once,
    idempotency::an_owners_oldest_answers_make_room,
    idempotency::of_many_who_begin_one_carries_out,
    idempotency::an_abandoned_request_begins_again,
    idempotency::a_lost_attempt_is_taken_over_and_cannot_answer,
    idempotency::answers_expire_and_are_swept,
    idempotency::an_answer_too_large_is_done_without_its_body,
    snapshots::a_snapshot_is_listed_once_it_is_there,
    snapshots::snapshots_page_and_go_with_their_sandbox,
    snapshots::retention_finds_the_old_that_no_request_made,
    previews::a_preview_token_is_found_until_it_ends_or_is_revoked,
    previews::a_sandbox_has_so_many_preview_tokens,
    settings::a_setting_is_what_was_put_last,
    settings::the_schema_has_a_version,
    tools::a_tool_session_comes_back_as_it_went_in,
    tools::tool_sessions_have_room_or_not,
    tools::threads_are_told_apart,
    tools::what_was_done_in_a_thread_never_moves_back,
    tools::exports_go_with_their_session,
    mcp::an_mcp_session_is_kept_until_it_is_removed_or_old,
    skills::a_skill_is_its_owners_by_name,
    skills::skills_are_found_and_paged,
    skills::a_sandbox_has_the_skills_that_were_installed,
    volumes::a_volume_is_its_owners_by_name_and_tenant,
    volumes::an_attached_volume_is_not_deleted,
    volumes::only_an_owners_own_volumes_are_attached,
    images::a_name_and_a_tag_are_one_images,
    images::an_image_in_use_is_not_deleted,
    images::a_build_ends_once_and_old_ones_go,
    build_steps::a_step_is_kept_by_its_key,
    conversations::an_assistant_has_versions,
    conversations::a_thread_is_its_owners,
    conversations::checkpoints_are_a_tree,
    conversations::one_run_of_a_thread_runs,
    conversations::a_run_is_rolled_back,
    conversations::what_is_below_a_thread_goes_with_it,
    items::an_item_is_its_owners_by_name,
];

/// Runs every check on a fresh store each, and returns those that failed with their reasons.
pub async fn run<F: AsyncFn() -> Shared>(fresh: F) -> Vec<(&'static str, Failure)> {
    let mut failed = Vec::new();
    for check in checks() {
        if let Err(why) = check.run(fresh().await).await {
            failed.push((check.name, why));
        }
    }
    failed
}

/// The present time of all checks.
const NOW: i64 = 1_800_000_000_000;

/// How many tasks run concurrently where a check needs it.
const CROWD: usize = 50;

/// A sandbox that checks start from.
#[must_use]
pub fn sandbox() -> NewSandbox {
    NewSandbox {
        id: SandboxId::random(),
        owner: "owner".into(),
        owner_name: "Ada".into(),
        status: Status::Provisioning,
        image: "host".into(),
        provider: ProviderName::native(),
        profile: Profile::builtin("default").unwrap_or_else(|| unreachable!("it ships")),
        container: None,
        volume: VolumeId::random(),
        limits: Limits::default(),
        idle_timeout_seconds: 1800,
        max_lifetime_seconds: None,
        network_enabled: false,
        egress: r#"{"mode":"none"}"#.into(),
        session_key: None,
        auto_snapshot: AutoSnapshot::Off,
        labels: BTreeMap::new(),
        skills: Vec::new(),
        environment: Sealed::default(),
        created_at: NOW,
    }
}

async fn add(store: &Shared, new: NewSandbox) -> Result<SandboxRecord, Failure> {
    match store.insert_sandbox(new).await? {
        Inserted::New(record) => Ok(record),
        Inserted::Existing(record) => Err(Failure(format!("there was one already: {record:?}"))),
    }
}

/// The record, read again.
async fn read(store: &Shared, id: SandboxId) -> Result<SandboxRecord, Failure> {
    store.sandbox(id).await?.ok_or_else(|| Failure("the sandbox is gone".into()))
}

/// The results of many concurrent tasks, each given its number.
async fn crowd<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    one: impl Fn(usize) -> F,
) -> Result<Vec<T>, Failure> {
    let tasks: Vec<_> = (0..CROWD).map(|number| tokio::spawn(one(number))).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.map_err(|e| Failure(format!("a task failed: {e}")))?);
    }
    Ok(results)
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Failure(otherwise())) }
}

fn same<T: PartialEq + fmt::Debug>(what: &str, got: T, wanted: T) -> Outcome {
    ensure(got == wanted, || format!("{what}: got {got:?}, wanted {wanted:?}"))
}

fn clashes<T: fmt::Debug>(what: &str, got: crate::Result<T>, wanted: Clash) -> Outcome {
    let right = matches!(&got, Err(StoreError::Conflict(clash)) if *clash == wanted);
    ensure(right, || format!("{what}: got {got:?}, wanted {wanted:?}"))
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(format!("{error}: {error:?}"))
    }
}
