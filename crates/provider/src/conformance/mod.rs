//! The contract of every provider, as checks that run against a real one. A check makes its own containers
//! and destroys them, so checks run in any order and concurrently.

mod attachments;
mod egress_endpoint;
mod images;
mod isolation;
mod lifecycle;
mod pause;
mod ports;
mod snapshots;
mod usage;
mod volumes;
mod work;

use crate::{Command, Container, ContainerSpec, Finished, Provider};
use atoll_types::{ContainerId, Profile};
use futures_util::future::LocalBoxFuture;
use std::sync::Arc;

/// The result of a check; an error is why it failed.
pub type Outcome = Result<(), String>;

/// One requirement on every provider.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    run: for<'a> fn(&'a dyn Provider) -> LocalBoxFuture<'a, Outcome>,
}

impl Check {
    /// Runs it against a provider.
    pub async fn run(&self, provider: &dyn Provider) -> Outcome {
        (self.run)(provider).await
    }
}

macro_rules! checks {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        /// Every check.
        #[must_use]
        pub fn checks() -> Vec<Check> {
            vec![$(Check { name: stringify!($name), run: |p| Box::pin($module::$name(p)) }),+]
        }
    };
}

checks![
    lifecycle::a_container_runs_commands,
    lifecycle::a_taken_id_is_refused_and_its_owner_lives,
    lifecycle::attach_finds_what_lives_and_nothing_else,
    lifecycle::the_list_is_what_there_is,
    lifecycle::destroy_ends_everything_and_may_be_repeated,
    lifecycle::a_death_reaches_every_waiting_caller,
    lifecycle::a_refused_spec_names_its_field_and_leaves_nothing,
    lifecycle::many_at_once,
    volumes::a_volume_outlives_its_container,
    volumes::without_a_volume_nothing_outlives_it,
    volumes::a_volume_in_use_cannot_be_removed_or_shared,
    attachments::an_attached_volume_is_shared_and_outlives_its_containers,
    attachments::path_rules_bind_commands,
    attachments::what_cannot_be_attached_is_refused,
    snapshots::a_snapshot_is_of_one_moment_and_a_rollback_brings_it_back,
    snapshots::a_fork_goes_its_own_way,
    snapshots::a_diff_names_what_changed,
    snapshots::a_rollback_in_place_keeps_the_container,
    snapshots::what_is_in_use_is_not_rolled_back_and_what_is_not_there_is_said,
    images::an_image_is_what_was_sealed_and_never_changes,
    images::a_root_that_is_built_becomes_an_image,
    images::what_is_no_image_is_refused,
    work::exit_codes_signals_and_outputs_are_the_commands,
    work::a_timeout_ends_the_whole_tree,
    work::input_reaches_the_command,
    work::a_terminal_is_one_and_changes_its_size,
    work::the_environment_is_the_specs_and_the_commands,
    work::files_go_in_and_come_out,
    work::limits_change_while_it_runs,
    work::a_container_made_ahead_is_handed_over,
    work::changes_are_told_once,
    isolation::the_user_is_the_profiles_and_has_no_power,
    isolation::the_root_is_read_only,
    isolation::containers_see_nothing_of_each_other,
    isolation::there_is_no_network,
    pause::a_paused_sandbox_runs_nothing_until_it_is_unpaused,
    pause::what_is_paused_is_found_and_can_be_destroyed,
    ports::servers_inside_are_reached_and_reach_nothing,
    ports::connections_end_with_the_container,
    usage::what_is_used_is_the_containers_own,
    usage::what_is_gone_uses_nothing,
    egress_endpoint::requests_to_the_egress_sockets_reach_the_server,
    egress_endpoint::the_server_of_egress_sockets_is_told_of_their_end,
    egress_endpoint::added_certificates_are_found_inside,
];

/// Runs every check, one after the other, and returns those that failed with their reasons.
pub async fn run(provider: &dyn Provider) -> Vec<(&'static str, String)> {
    let mut failed = Vec::new();
    for check in checks() {
        if let Err(why) = check.run(provider).await {
            failed.push((check.name, why));
        }
    }
    failed
}

/// The spec that checks start from.
fn spec() -> ContainerSpec {
    ContainerSpec::throw_away(Profile::builtin("default").unwrap_or_else(|| unreachable!("it ships")))
}

/// Runs a check's body on a container and destroys that, even if the body fails.
async fn with<F>(provider: &dyn Provider, spec: ContainerSpec, body: F) -> Outcome
where
    F: AsyncFnOnce(Arc<dyn Container>) -> Outcome,
{
    let id = spec.id;
    let container = provider.create(spec).await.map_err(|e| format!("create: {e}"))?;
    let result = body(container).await;
    clean(provider, id).await?;
    result
}

async fn clean(provider: &dyn Provider, id: ContainerId) -> Outcome {
    provider.destroy(id).await.map_err(|e| format!("destroy: {e}"))
}

async fn shell(container: &Arc<dyn Container>, line: &str) -> Result<Finished, String> {
    container.guest().run(&Command::shell(line)).await.map_err(|e| format!("{line:?}: {e}"))
}

/// What a shell line prints, without its last newline.
async fn says(container: &Arc<dyn Container>, line: &str) -> Result<String, String> {
    let finished = shell(container, line).await?;
    Ok(String::from_utf8_lossy(&finished.stdout).trim_end().to_owned())
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Outcome {
    ensure(got == wanted, || format!("{what}: got {got:?}, wanted {wanted:?}"))
}
