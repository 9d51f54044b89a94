//! The control plane. Fronts parse their requests into these operations and render the results; nothing here
//! knows HTTP, and nothing here names a concrete provider or store.
//!
//! [`Core`] only holds its subsystems. Each is a handle that owns or shares the state that its methods use,
//! and names the subsystems that it rests on: [`Operations`], then limits and answers, then commands, kernels,
//! files, ports and egress, then sandboxes, then the lifecycle.
//!
//! Each sandbox has one task that owns its state ([`actor`]): every change goes through that task's queue, so
//! two callers can never start, stop or destroy at the same time. Commands and file requests only get the
//! container from it and then work beside it.

mod actor;
mod admission;
mod answers;
mod assembly;
mod audit;
pub mod bounds;
mod caller;
mod caused;
mod ceiling;
mod changes;
mod egress;
mod events;
mod exec;
mod exec_rate;
mod execution;
mod files;
mod gpu;
mod idempotency;
pub mod image_specs;
mod images;
mod kernels;
mod keys;
mod kill_on_drop;
mod lifecycle;
mod mcp;
mod operation;
mod output_audit;
mod owner_config;
mod owner_templates;
mod owners;
mod pool;
mod ports;
mod process_api;
mod providers;
mod rate;
mod reconcile;
mod run_to_end;
mod runtime_settings;
mod sandboxes;
mod settings;
mod skills;
mod snapshots;
mod start_check;
mod transfer;
mod usage;
mod vault;
mod volumes;

pub use admission::Machine;
pub use answers::{AnswerBudget, ConnectionLimits, HeldAnswer, LookUpPlace, OpenStream};
pub use atoll_audit::{Cleaned, Fault, Redactor, Report, Verdict};
pub use atoll_egress::{
    Entry as EgressEntry, Mode, Policy,
    presets::{Listed as ListedEntry, Preset as EgressPreset},
};
pub use atoll_kernels::{
    CellError, CellErrorKind, CellEvent, CellReport, CellStream, CheckpointInfo, CodeStatus, Completion,
    Display, KernelInfo, KernelStatus, Language, OutputLimits,
};
pub use atoll_provider::DiskRoom;
pub use audit::{AuditExport, AuditTrail, KeptOutput, KeptOutputs};
pub use caller::Caller;
pub use caused::caused_by;
pub use egress::{EgressControl, EgressParts, EgressToken, EgressView, Refusals, SessionNetwork};
pub use events::{EventFollow, EventUpdate, Events};
pub use exec::{
    ExecCommand, ExecFollow, ExecMode, ExecOutcome, ExecUpdate, Execs, Keyboard, MAX_BACKGROUND_SECONDS,
    MAX_TIMEOUT_SECONDS, OutputObserver, OutputTail, Terminal, TerminalEvent, TerminalRequest,
    TerminalStream,
};
pub use files::{
    Archive, Download, FILES_PER_PAGE, FileHistory, FileHistoryEntry, Files, Findings, Matches, WatchStream,
};
pub use gpu::{FoundGpus, Gpu, Gpus};
pub use idempotency::IdempotentReplies;
pub use images::{
    BuildImage, BuildLogFollow, BuildNews, BuildView, ImageExport, ImageView, Images, ImportImage,
    PatchImage, PullImage, PushImage, PushedImage, Recipe, RegistryLogin, RegistrySettings, image_directory,
    image_named, way_to,
};
pub use kernels::{
    CellFollow, CellOutcome, CellRequest, CellTarget, DEFAULT_CELL_SECONDS, Dependencies, ForkKernel,
    FoundCell, Installed, KernelRequest, Kernels, MAX_CELL_SECONDS,
};
pub use keys::{IssuedKey, Keys, NewKey, SessionInfo, SignedIn, owner_id, recover_admin};
pub use lifecycle::{ActivityGuard, Clock, Lifecycle};
pub use mcp::McpSessions;
pub use operation::Operations;
pub use owner_config::{
    AGENT_LABEL, CallScope, OwnerConfig, OwnerConfigs, OwnerLimits, OwnerNetwork, SCOPE_LABEL, SandboxMode,
    ScopeMode, WorkspaceAccess, scope_of,
};
pub use owner_templates::OwnerTemplate;
pub use owners::{OwnerQuery, OwnerView, Owners};
pub use pool::{PoolBounds, PoolChange, PoolControl, PoolFailure, PoolKey, PoolView};
pub use ports::{Port, PortAccess, PreviewToken, TokenUse};
pub use providers::Providers;
pub use rate::Rates;
pub use runtime_settings::{
    OnShutdown, Plan, PoolSize, Preset, RuntimeSettings, Settings, SettingsView, Source,
};
pub use sandboxes::{
    BulkAction, BulkOutcome, BulkTarget, CreateSandbox, Created, ExtensionOperation, ForkSandbox,
    LARGEST_PAGE, PatchSandbox, Sandboxes, repeatable_uuid,
};
pub use settings::{CoreSettings, SigningKey};
pub use skills::{
    CatalogueSkill, ExtractionError, InstallOutcome, PackageDownload, SKILL_SEARCH, SKILLS_PER_PAGE,
    SkillFields, Skills, builtin_skill, builtin_skills, check_catalogue,
};
pub use snapshots::{NewSnapshot, RollbackOptions, RolledBack, Snapshots};
pub use transfer::{Export, ImportOptions, Imported, Transfers};
pub use usage::{
    KEPT as SAMPLES_KEPT, SandboxMetrics, SandboxUsage, UsageMeter, UsageNow, UsageSample, UsageTotals,
};
pub use vault::{Environment, Vault};
pub use volumes::{AttachVolume, NewVolume, VolumeView, Volumes};

use atoll_store::Store;
use atoll_types::Result;
use std::{
    ops::Deref,
    sync::Arc,
    time::{Duration, Instant},
};

/// The control plane. Cheap to clone.
#[derive(Clone)]
pub struct Core(Arc<Subsystems>);

impl Deref for Core {
    type Target = Subsystems;

    fn deref(&self) -> &Subsystems {
        &self.0
    }
}

/// The parts of the control plane.
pub struct Subsystems {
    pub operations: Operations,
    pub sandboxes: Sandboxes,
    pub execs: Execs,
    pub kernels: Kernels,
    pub files: Files,
    pub snapshots: Snapshots,
    pub transfers: Transfers,
    pub volumes: Volumes,
    pub skills: Skills,
    pub images: Images,
    pub ports: PortAccess,
    pub egress: EgressControl,
    pub audit: AuditTrail,
    pub events: Events,
    pub keys: Keys,
    pub settings: Settings,
    pub owner_configs: OwnerConfigs,
    pub owners: Owners,
    pub pool: PoolControl,
    pub usage: UsageMeter,
    pub gpus: Gpus,
    pub lifecycle: Lifecycle,
    pub answers: AnswerBudget,
    pub idempotent_replies: IdempotentReplies,
    pub mcp_sessions: McpSessions,
    store: Arc<dyn Store>,
    providers: Providers,
    health: tokio::sync::Mutex<Option<Health>>,
}

/// When the health was last checked, and the result.
type Health = (Instant, Result<()>);

/// How long a result of the health check is cached.
const HEALTH_KEPT: Duration = Duration::from_secs(1);

impl Core {
    /// Whether the store and the providers answer, cached for a moment: any client may ask this, and the
    /// launcher must not be called for each.
    pub async fn ready(&self) -> Result<()> {
        let mut last = self.health.lock().await;
        match &*last {
            Some((at, result)) if at.elapsed() < HEALTH_KEPT => result.clone(),
            _ => {
                let looked = async {
                    self.store.schema_version().await?;
                    for (_, provider) in self.providers.iter() {
                        provider.capabilities().await?;
                    }
                    Ok(())
                };
                let result = looked.await;
                *last = Some((Instant::now(), result.clone()));
                result
            }
        }
    }
}
