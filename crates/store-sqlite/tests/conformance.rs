//! SQLite does what every store must, and the suite that says so notices a store that does not.

use crate::{broken::Broken, broken::Fault, fixture::Folder};
use atoll_store::conformance::{self, Shared};
use std::{collections::BTreeSet, sync::Arc};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_conforms() {
    let folder = Folder::new();
    let failed = conformance::run(async || Arc::new(folder.fresh().await) as Shared).await;
    assert_eq!(failed, vec![]);
}

/// Each fault, with the check that must notice it.
const CAUGHT_BY: &[(Fault, &str)] = &[
    (Fault::ForgetsTheContainer, "a_record_comes_back_as_it_went_in"),
    (Fault::LosesTheEnvironment, "a_record_comes_back_as_it_went_in"),
    (Fault::IgnoresTheSession, "a_session_key_is_one_sandbox"),
    (Fault::KeepsTheSessionOfTheDestroyed, "a_session_key_is_one_sandbox"),
    (Fault::CallsEveryoneNew, "many_with_one_session_key_make_one"),
    (Fault::AllowsWhatIsTaken, "what_is_taken_is_refused_and_leaves_nothing"),
    (Fault::CallsTheStoppedLive, "what_lives_is_all_but_stopped_and_destroyed"),
    (Fault::KeepsOldLabels, "a_change_changes_what_it_says_and_nothing_else"),
    (Fault::ChangesWithoutAWord, "a_change_changes_what_it_says_and_nothing_else"),
    (Fault::KeepsOldLabels, "labels_are_found_as_they_are_now"),
    (Fault::IgnoresTheRevision, "an_old_revision_is_refused"),
    (Fault::IgnoresTheRevision, "of_many_changes_one_wins_each_revision"),
    (Fault::RevivesTheDestroyed, "destroyed_is_final"),
    (Fault::SharesContainers, "another_ones_container_is_refused"),
    (Fault::PagesOverlap, "pages_show_each_record_once_in_order"),
    (Fault::SortsOneWayOnly, "pages_show_each_record_once_in_order"),
    (Fault::ShowsTheDestroyed, "filters_narrow_and_the_counts_ignore_the_status"),
    (Fault::CountsOneStatus, "filters_narrow_and_the_counts_ignore_the_status"),
    (Fault::IgnoresLabels, "filters_narrow_and_the_counts_ignore_the_status"),
    (Fault::TakesTextForAPattern, "text_is_found_as_it_is_written"),
    (Fault::CountsNothing, "an_activity_is_listed_and_counted"),
    (Fault::IgnoresBefore, "activities_page_backwards"),
    (Fault::KeepsOneTooMany, "the_last_ones_are_kept"),
    (Fault::CutsNothing, "a_detail_is_cut_between_letters"),
    (Fault::RecordsForNobody, "an_activity_of_nobody_leaves_nothing"),
    (Fault::LosesSomeActivities, "many_activities_at_once_all_count"),
    (Fault::StopsHalfway, "a_dropped_call_happens_wholly_or_not_at_all"),
    (Fault::FindsExpiredKeys, "a_key_is_found_while_it_is_usable"),
    (Fault::FindsRevokedKeys, "a_revoked_key_stays_revoked"),
    (Fault::KeepsSessionsOfRevokedKeys, "a_console_session_is_found_while_it_and_its_key_are_usable"),
    (Fault::KeepsRemovedSessions, "a_removed_console_session_is_gone"),
    (Fault::KeepsEverySession, "a_key_has_so_many_console_sessions"),
    (Fault::FindsExpiredTokens, "a_preview_token_is_found_until_it_ends_or_is_revoked"),
    (Fault::KeepsRevokedTokens, "a_preview_token_is_found_until_it_ends_or_is_revoked"),
    (Fault::AllowsManyTokens, "a_sandbox_has_so_many_preview_tokens"),
    (Fault::RevokesAnew, "a_revoked_key_stays_revoked"),
    (Fault::RevokesTheLastAdmin, "the_last_admin_is_not_revoked"),
    (Fault::AllowsTheSameHash, "a_hash_is_unique"),
    (Fault::AllowsManyFirstKeys, "the_first_key_is_first_only_once"),
    (Fault::OpensTheDoorAgain, "the_first_key_is_first_only_once"),
    (Fault::ListsEverybodysKeys, "a_key_is_listed_for_its_owner"),
    (Fault::TouchesBackwards, "a_touch_never_moves_back"),
    (Fault::PurgesFreshKeys, "old_keys_go_but_never_the_last"),
    (Fault::AllowsManyKeys, "an_owner_has_so_many_keys"),
    (Fault::RenewsOldKeys, "only_an_unused_key_is_renewed"),
    (Fault::PurgesTheFreshlyDestroyed, "the_destroyed_are_forgotten_in_time"),
    (Fault::MovesActivityTooFar, "what_was_done_last_never_moves_back"),
    (Fault::TakesAnyRequest, "a_request_is_carried_out_once"),
    (Fault::KeepsNoAnswer, "a_request_is_carried_out_once"),
    (Fault::KeepsNoAnswer, "an_owners_oldest_answers_make_room"),
    (Fault::BeginsForEverybody, "of_many_who_begin_one_carries_out"),
    (Fault::AbandonsNothing, "an_abandoned_request_begins_again"),
    (Fault::NeverGivesUp, "a_lost_attempt_is_taken_over_and_cannot_answer"),
    (Fault::AnyTicketAnswers, "a_lost_attempt_is_taken_over_and_cannot_answer"),
    (Fault::NeverGivesUp, "answers_expire_and_are_swept"),
    (Fault::SweepsNothing, "answers_expire_and_are_swept"),
    (Fault::CutsLargeAnswers, "an_answer_too_large_is_done_without_its_body"),
    (Fault::PutsOnce, "a_setting_is_what_was_put_last"),
    (Fault::HasNoVersion, "the_schema_has_a_version"),
    (Fault::LosesTheOutput, "rows_come_back_as_they_went_in"),
    (Fault::CountsTheRemoved, "rows_come_back_as_they_went_in"),
    (Fault::TakesAnyRow, "rows_follow_each_other"),
    (Fault::LetsBeginTwice, "an_operation_begins_and_ends_once"),
    (Fault::LetsEndTwice, "an_operation_begins_and_ends_once"),
    (Fault::FailsForTheGone, "a_batch_carries_what_happened"),
    (Fault::ForgetsActivities, "a_batch_carries_what_happened"),
    (Fault::ForgetsEvents, "a_batch_carries_what_happened"),
    (Fault::ListsTheEnded, "what_has_not_ended_is_listed"),
    (Fault::ShowsOldMarksFirst, "marks_are_found"),
    (Fault::RemovesTheOpen, "removing_rows_leaves_a_checkpoint_or_nothing"),
    (Fault::RemovesNothing, "removing_rows_leaves_a_checkpoint_or_nothing"),
    (Fault::CountsTheRemoved, "removing_rows_leaves_a_checkpoint_or_nothing"),
    (Fault::IgnoresTheExitCode, "operations_are_found_by_what_they_are"),
    (Fault::IgnoresTheOwner, "operations_are_found_by_what_they_are"),
    (Fault::IgnoresTheLateOnes, "operations_are_found_by_what_they_are"),
    (Fault::IgnoresTheCursor, "operations_page_backwards"),
    (Fault::GivesAsManyAsAsked, "operations_page_backwards"),
    (Fault::TakesQuotesForAPhrase, "a_detail_is_found_as_it_is_written"),
    (Fault::MindsTheCase, "a_detail_is_found_as_it_is_written"),
    (Fault::ForgetsTheDestroyed, "operations_of_the_destroyed_stay"),
    (Fault::AddsUpAPage, "operations_add_up"),
    (Fault::HidesWhatIsNotNamed, "a_file_has_its_history"),
    (Fault::SortsHistoryByBeginnings, "a_file_has_its_history"),
    (Fault::IgnoresTheVerdict, "decisions_are_found_by_what_they_are"),
    (Fault::MixesSandboxes, "decisions_are_found_by_what_they_are"),
    (Fault::MindsTheCaseOfHosts, "decisions_are_found_by_what_they_are"),
    (Fault::AddsUpTheRefused, "decisions_add_up_and_go_with_their_rows"),
    (Fault::TellsOfWhatStays, "a_change_of_status_is_told_with_its_reason"),
    (Fault::ForgetsTheReason, "a_change_of_status_is_told_with_its_reason"),
    (Fault::TellsOfFailures, "what_failed_is_not_told"),
    (Fault::StartsOverWithEvents, "events_go_on_after_an_id"),
    (Fault::MixesOwners, "events_go_on_after_an_id"),
    (Fault::NeverSaysMissed, "the_last_events_are_kept"),
    (Fault::KeepsEveryEvent, "the_last_events_are_kept"),
    (Fault::WakesNobody, "who_listens_is_woken"),
    (Fault::ForgetsTheThread, "an_mcp_session_is_kept_until_it_is_removed_or_old"),
    (Fault::LosesDependencies, "a_tool_session_comes_back_as_it_went_in"),
    (Fault::SeatsEverybody, "tool_sessions_have_room_or_not"),
    (Fault::MixesThreads, "threads_are_told_apart"),
    (Fault::ForgetsWhatWasDone, "what_was_done_in_a_thread_never_moves_back"),
    (Fault::KeepsExports, "exports_go_with_their_session"),
    (Fault::ExportsForNobody, "exports_go_with_their_session"),
    (Fault::ShowsUnmadeSnapshots, "a_snapshot_is_listed_once_it_is_there"),
    (Fault::CountsASnapshotPage, "snapshots_page_and_go_with_their_sandbox"),
    (Fault::ThinsTheNewestFirst, "retention_finds_the_old_that_no_request_made"),
    (Fault::MixesTenants, "a_volume_is_its_owners_by_name_and_tenant"),
    (Fault::DeletesTheAttached, "an_attached_volume_is_not_deleted"),
    (Fault::AttachesAnything, "only_an_owners_own_volumes_are_attached"),
    (Fault::CountsASkillPage, "skills_are_found_and_paged"),
    (Fault::KeepsEveryPackage, "a_skill_is_its_owners_by_name"),
    (Fault::KeepsLaterSkills, "a_sandbox_has_the_skills_that_were_installed"),
    (Fault::TakesTags, "a_name_and_a_tag_are_one_images"),
    (Fault::DeletesTheUsed, "an_image_in_use_is_not_deleted"),
    (Fault::ForgetsRunningBuilds, "a_build_ends_once_and_old_ones_go"),
    (Fault::ForgetsUsesOfSteps, "a_step_is_kept_by_its_key"),
    (Fault::KeepsOneVersion, "an_assistant_has_versions"),
    (Fault::ShowsThreadsOfOthers, "a_thread_is_its_owners"),
    (Fault::KeepsAllMessages, "checkpoints_are_a_tree"),
    (Fault::BeginsRunsTwice, "one_run_of_a_thread_runs"),
    (Fault::KeepsWhatWasRolledBack, "a_run_is_rolled_back"),
    (Fault::HidesDeletedThreads, "what_is_below_a_thread_goes_with_it"),
    (Fault::IgnoresNamespaces, "an_item_is_its_owners_by_name"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_fault_is_noticed() {
    let folder = Folder::new();
    let checks = conformance::checks();
    for (fault, name) in CAUGHT_BY {
        let check = checks.iter().find(|check| check.name == *name).unwrap();
        let broken = Broken::new(folder.fresh().await, *fault);
        assert!(check.run(Arc::new(broken)).await.is_err(), "{fault:?} was not noticed by {name}");
    }
    // It is the fault that fails a check, and not the wrapper.
    let sound = async || Arc::new(Broken::new(folder.fresh().await, Fault::None)) as Shared;
    assert_eq!(conformance::run(sound).await, vec![]);
}

#[test]
fn every_check_notices_something() {
    let named: BTreeSet<&str> = CAUGHT_BY.iter().map(|(_, name)| *name).collect();
    let all: BTreeSet<&str> = conformance::checks().iter().map(|check| check.name).collect();
    assert_eq!(named, all);
}
