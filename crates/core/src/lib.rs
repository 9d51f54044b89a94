//! The control plane. Fronts parse their requests into these operations and render the results; nothing here
//! knows HTTP, and nothing here names a concrete provider or store.
//!
//! Each sandbox has one task that owns its state ([`actor`]): every change goes through that task's queue, so
//! two callers can never start, stop or destroy at the same time. Commands and file requests only get the
//! container from it and then work beside it.

mod actor;
mod admin;
mod admission;
mod answers;
mod audit;
mod caller;
mod ceiling;
mod changes;
mod create;
mod egress;
mod events;
mod exec;
mod exec_rate;
mod execution;
mod extension;
mod files;
mod idempotency;
mod kernels;
mod keys;
mod kill_on_drop;
mod lifecycle;
mod list;
mod mcp;
mod operation;
mod output_audit;
mod pool;
mod ports;
mod preview;
mod rate;
mod reconcile;
mod runtime_settings;
mod settings;
mod starting;
mod terminal;
mod tools;
mod usage;
mod vault;

pub use admin::{BulkAction, BulkOutcome, BulkTarget};
pub use admission::Machine;
pub use answers::{ConnectionLimits, HeldAnswer};
pub use atoll_audit::{Cleaned, Fault, Redactor, Report, Verdict};
pub use atoll_egress::{
    Entry as EgressEntry, Mode, Policy,
    presets::{Listed as ListedEntry, Preset as EgressPreset},
};
pub use atoll_kernels::{
    CellError, CellEvent, CellReport, CellStream, CheckpointInfo, CodeStatus, Completion, Display,
    KernelInfo, KernelStatus, Language, OutputLimits,
};
pub use audit::{AuditExport, KeptOutput, KeptOutputs};
pub use caller::Caller;
pub use create::{CreateSandbox, Created, PatchSandbox};
pub use egress::{EgressParts, EgressToken, EgressView, Refusals, SessionNetwork};
pub use events::{EventFollow, EventUpdate};
pub use exec::{
    ExecCommand, ExecFollow, ExecMode, ExecOutcome, ExecUpdate, MAX_BACKGROUND_SECONDS, MAX_TIMEOUT_SECONDS,
    OutputTail,
};
pub use extension::ExtensionOperation;
pub use files::Download;
pub use files::FILES_PER_PAGE;
pub use kernels::{
    CellFollow, CellOutcome, CellRequest, CellTarget, Dependencies, ForkKernel, Installed, KernelRequest,
    MAX_CELL_SECONDS,
};
pub use keys::{IssuedKey, NewKey, owner_id, recover_admin};
pub use lifecycle::Clock;
pub use pool::{PoolBounds, PoolChange, PoolFailure, PoolKey, PoolView};
pub use ports::Port;
pub use preview::PreviewToken;
pub use rate::Rates;
pub use runtime_settings::{OnShutdown, Plan, PoolSize, Preset, RuntimeSettings, SettingsView, Source};
pub use settings::CoreSettings;
pub use terminal::{Keyboard, Terminal, TerminalEvent, TerminalRequest, TerminalStream};
pub use tools::{Archive, Findings, Matches, WatchStream};
pub use usage::{KEPT as SAMPLES_KEPT, SandboxMetrics, UsageNow, UsageSample, UsageTotals};
pub use vault::{Environment, Vault};

use actor::SandboxRegistry;
use atoll_audit::Ledger;
use atoll_provider::Provider;
use atoll_store::{SandboxId, SandboxRecord, Store};
use atoll_types::{Error, ErrorCode, Result, time::now_ms};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The control plane. Cheap to clone.
#[derive(Clone)]
pub struct Core {
    store: Arc<dyn Store>,
    provider: Arc<dyn Provider>,
    vault: Arc<Vault>,
    settings: Arc<CoreSettings>,
    registry: Arc<SandboxRegistry>,
    pool: pool::Pool,
    pending: Arc<changes::Pending>,
    exec_tasks: Arc<exec::ExecTasks>,
    running: Arc<egress::Running>,
    egress_sessions: Arc<egress::EgressSessions>,
    ledger: Ledger,
    usage: Arc<usage::UsageHistory>,
    health: Arc<tokio::sync::Mutex<Option<Health>>>,
    known_keys: Arc<keys::Known>,
    answers: Arc<answers::Answers>,
    live_settings: Arc<runtime_settings::LiveSettings>,
    admission: admission::Admission,
    turns: Arc<admission::Turns>,
    exec_rates: Arc<exec_rate::ExecRates>,
    activity_tracker: Arc<lifecycle::ActivityTracker>,
    managers: Arc<kernels::KernelManagers>,
    cell_tasks: Arc<kernels::CellTasks>,
    /// When this server started.
    began: i64,
}

/// When the health was last checked, and the result.
type Health = (Instant, Result<()>);

/// How long a result of the health check is cached.
const HEALTH_KEPT: Duration = Duration::from_secs(1);

impl Core {
    /// Puts the parts together. Needs a running runtime.
    pub fn new(
        store: Arc<dyn Store>,
        provider: Arc<dyn Provider>,
        vault: Vault,
        settings: CoreSettings,
        ledger: Ledger,
        egress: EgressParts,
    ) -> Self {
        let vault = Arc::new(vault);
        let settings = Arc::new(settings);
        let live_settings = Arc::new(runtime_settings::LiveSettings::new(settings.preset.clone()));
        let admission = admission::Admission::new(settings.machine.clone(), Arc::clone(&live_settings));
        let managers: Arc<kernels::KernelManagers> = Arc::default();
        let pool = pool::Pool::new(
            Arc::clone(&store),
            Arc::clone(&provider),
            admission.clone(),
            Arc::clone(&live_settings),
            Arc::clone(&settings),
            Arc::clone(&managers),
        );
        let running: Arc<egress::Running> = Arc::default();
        let egress_sessions =
            egress::EgressSessions::new(egress, Arc::clone(&store), Arc::clone(&running), ledger.clone());
        let activity_tracker: Arc<lifecycle::ActivityTracker> = Arc::default();
        let registry = Arc::new(SandboxRegistry::new(
            Arc::clone(&store),
            Arc::clone(&provider),
            Arc::clone(&vault),
            admission.clone(),
            Arc::clone(&egress_sessions),
            pool.clone(),
            Arc::clone(&activity_tracker),
        ));
        Self {
            store,
            provider,
            vault,
            settings,
            registry,
            pool,
            pending: Arc::default(),
            exec_tasks: Arc::default(),
            running,
            egress_sessions,
            ledger,
            usage: Arc::default(),
            health: Arc::default(),
            known_keys: Arc::default(),
            answers: Arc::default(),
            live_settings,
            admission,
            turns: Arc::default(),
            exec_rates: Arc::default(),
            activity_tracker,
            managers,
            cell_tasks: Arc::default(),
            began: now_ms(),
        }
    }

    /// The record of a sandbox that this caller may see. One that it may not see does not exist for it.
    pub(crate) async fn visible(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        match self.store.sandbox(id).await? {
            Some(record) if caller.may_see(&record.owner) => Ok(record),
            _ => Err(Error::new(ErrorCode::NotFound, format!("there is no sandbox {}", id.uuid()))),
        }
    }

    /// Whether the store and the provider answer, cached for a moment: any client may ask this, and the
    /// launcher must not be called for each.
    pub async fn ready(&self) -> Result<()> {
        let mut last = self.health.lock().await;
        match &*last {
            Some((at, result)) if at.elapsed() < HEALTH_KEPT => result.clone(),
            _ => {
                let looked = async {
                    self.store.schema_version().await?;
                    self.provider.capabilities().await.map(|_| ())
                };
                let result = looked.await;
                *last = Some((Instant::now(), result.clone()));
                result
            }
        }
    }
}
