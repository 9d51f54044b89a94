//! A store that is right but for one fault.

mod audit;
mod build_steps;
mod console;
mod conversations;
mod images;
mod previews;
mod rest;
mod sandboxes;
mod skills;
mod snapshots;
mod tools;
mod volumes;

use atoll_store::{ConsoleSession, KeyId, Millis, ToolExport};
use atoll_store_sqlite::SqliteStore;
use std::{
    collections::BTreeMap,
    sync::{Mutex, atomic::AtomicU64},
};

/// A way to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    ForgetsTheThread,
    ForgetsTheContainer,
    LosesTheEnvironment,
    IgnoresTheSession,
    KeepsTheSessionOfTheDestroyed,
    CallsEveryoneNew,
    AllowsWhatIsTaken,
    CallsTheStoppedLive,
    KeepsOldLabels,
    ChangesWithoutAWord,
    IgnoresTheRevision,
    RevivesTheDestroyed,
    SharesContainers,
    PagesOverlap,
    SortsOneWayOnly,
    ShowsTheDestroyed,
    CountsOneStatus,
    IgnoresLabels,
    TakesTextForAPattern,
    CountsNothing,
    IgnoresBefore,
    KeepsOneTooMany,
    CutsNothing,
    RecordsForNobody,
    LosesSomeActivities,
    StopsHalfway,
    FindsExpiredKeys,
    FindsRevokedKeys,
    KeepsSessionsOfRevokedKeys,
    KeepsRemovedSessions,
    KeepsEverySession,
    FindsExpiredTokens,
    KeepsRevokedTokens,
    AllowsManyTokens,
    RevokesAnew,
    RevokesTheLastAdmin,
    AllowsTheSameHash,
    AllowsManyFirstKeys,
    OpensTheDoorAgain,
    ListsEverybodysKeys,
    TouchesBackwards,
    PurgesFreshKeys,
    AllowsManyKeys,
    RenewsOldKeys,
    PurgesTheFreshlyDestroyed,
    MovesActivityTooFar,
    TakesAnyRequest,
    KeepsNoAnswer,
    BeginsForEverybody,
    AbandonsNothing,
    NeverGivesUp,
    AnyTicketAnswers,
    SweepsNothing,
    CutsLargeAnswers,
    PutsOnce,
    HasNoVersion,
    LosesTheOutput,
    TakesAnyRow,
    LetsBeginTwice,
    LetsEndTwice,
    FailsForTheGone,
    ForgetsActivities,
    ForgetsEvents,
    ListsTheEnded,
    ShowsOldMarksFirst,
    RemovesTheOpen,
    RemovesNothing,
    CountsTheRemoved,
    IgnoresTheExitCode,
    IgnoresTheOwner,
    IgnoresTheLateOnes,
    IgnoresTheCursor,
    GivesAsManyAsAsked,
    TakesQuotesForAPhrase,
    MindsTheCase,
    ForgetsTheDestroyed,
    AddsUpAPage,
    HidesWhatIsNotNamed,
    SortsHistoryByBeginnings,
    IgnoresTheVerdict,
    MixesSandboxes,
    MindsTheCaseOfHosts,
    AddsUpTheRefused,
    TellsOfWhatStays,
    ForgetsTheReason,
    TellsOfFailures,
    StartsOverWithEvents,
    MixesOwners,
    NeverSaysMissed,
    KeepsEveryEvent,
    WakesNobody,
    LosesDependencies,
    SeatsEverybody,
    MixesThreads,
    ForgetsWhatWasDone,
    KeepsExports,
    ExportsForNobody,
    ShowsUnmadeSnapshots,
    CountsASnapshotPage,
    ThinsTheNewestFirst,
    MixesTenants,
    DeletesTheAttached,
    AttachesAnything,
    CountsASkillPage,
    KeepsEveryPackage,
    KeepsLaterSkills,
    TakesTags,
    DeletesTheUsed,
    ForgetsRunningBuilds,
    ForgetsUsesOfSteps,
    KeepsOneVersion,
    ShowsThreadsOfOthers,
    KeepsAllMessages,
    BeginsRunsTwice,
    KeepsWhatWasRolledBack,
    HidesDeletedThreads,
    IgnoresNamespaces,
}

pub(crate) struct Broken {
    inner: SqliteStore,
    fault: Fault,
    calls: AtomicU64,
    halves: AtomicU64,
    detail: Mutex<String>,
    touched: Mutex<BTreeMap<KeyId, Millis>>,
    began: Mutex<Option<Millis>>,
    kept: Mutex<Vec<ToolExport>>,
    sessions: Mutex<Vec<ConsoleSession>>,
}

impl Broken {
    pub(crate) fn new(inner: SqliteStore, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            calls: AtomicU64::new(0),
            halves: AtomicU64::new(0),
            detail: Mutex::default(),
            touched: Mutex::default(),
            began: Mutex::default(),
            kept: Mutex::default(),
            sessions: Mutex::default(),
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }
}
