//! How the subsystems of [`Core`] are put together, in the order in which they rest on each other. What several of them share is
//! made once, in [`Parts`]; a subsystem that rests on others gets handles of them.

use crate::{
    AnswerBudget, AuditTrail, Core, CoreSettings, EgressControl, EgressParts, Events, Execs, Files, Gpus,
    IdempotentReplies, Images, Kernels, Keys, Lifecycle, McpSessions, OwnerConfigs, Owners, PoolControl,
    PortAccess, Providers, Sandboxes, Settings, Skills, Snapshots, Subsystems, Transfers, UsageMeter, Vault,
    Volumes, actor, admission, ceiling, changes, egress, execution, images, kernels, lifecycle,
    operation::Operations, pool, runtime_settings,
};
use atoll_audit::Ledger;
use atoll_egress::{Reach, presets::PresetRegistry};
use atoll_store::Store;
use atoll_types::time::now_ms;
use std::sync::Arc;

/// What several subsystems share.
struct Parts {
    store: Arc<dyn Store>,
    providers: Providers,
    vault: Arc<Vault>,
    settings: Arc<CoreSettings>,
    live_settings: Arc<runtime_settings::LiveSettings>,
    ledger: Ledger,
    admission: admission::Admission,
    managers: Arc<kernels::KernelManagers>,
    catalogue: Arc<images::Catalogue>,
    running: Arc<egress::Running>,
    activity_tracker: Arc<lifecycle::ActivityTracker>,
    changes: Arc<changes::FileChanges>,
    end_writer: execution::EndWriter,
    pool: pool::Pool,
    presets: Arc<PresetRegistry>,
    reach: Arc<Reach>,
    egress_sessions: Arc<egress::EgressSessions>,
    registry: Arc<actor::SandboxRegistry>,
    operations: Operations,
    limits: ceiling::CallerLimits,
    answers: AnswerBudget,
}

impl Parts {
    fn new(
        store: Arc<dyn Store>,
        providers: Providers,
        vault: Arc<Vault>,
        settings: Arc<CoreSettings>,
        ledger: Ledger,
        egress: EgressParts,
    ) -> Self {
        let live_settings = Arc::new(runtime_settings::LiveSettings::new(settings.preset.clone()));
        let admission = admission::Admission::new(settings.machine.clone(), live_settings.clone());
        let managers: Arc<kernels::KernelManagers> = Arc::default();
        let catalogue = Arc::new(images::Catalogue::new(settings.clone(), live_settings.clone()));
        let running: Arc<egress::Running> = Arc::default();
        let activity_tracker: Arc<lifecycle::ActivityTracker> = Arc::default();
        let changes: Arc<changes::FileChanges> = Arc::default();
        let end_writer = execution::EndWriter { store: store.clone(), changes: changes.clone() };
        let pool = pool::Pool::new(
            store.clone(),
            providers.clone(),
            admission.clone(),
            live_settings.clone(),
            settings.clone(),
            managers.clone(),
            catalogue.clone(),
        );
        let (presets, reach) = (egress.presets.clone(), egress.reach.clone());
        let egress_sessions =
            egress::EgressSessions::new(egress, store.clone(), running.clone(), ledger.clone());
        let registry = Arc::new(actor::SandboxRegistry::new(actor::Shared {
            store: store.clone(),
            providers: providers.clone(),
            vault: vault.clone(),
            admission: admission.clone(),
            pool: pool.clone(),
            egress_sessions: egress_sessions.clone(),
            activity_tracker: activity_tracker.clone(),
            file_containers: actor::FileContainers::default(),
            rolled_back: actor::EndedByRollback::default(),
            catalogue: catalogue.clone(),
            process_api_label: settings.process_api_label.clone(),
        }));
        let operations = Operations {
            store: store.clone(),
            vault: vault.clone(),
            ledger: ledger.clone(),
            running: running.clone(),
        };
        let limits = ceiling::CallerLimits {
            settings: settings.clone(),
            live_settings: live_settings.clone(),
            exec_rates: Arc::default(),
        };
        let answers = AnswerBudget::new(live_settings.clone());
        Self {
            store,
            providers,
            vault,
            settings,
            live_settings,
            ledger,
            admission,
            managers,
            catalogue,
            running,
            activity_tracker,
            changes,
            end_writer,
            pool,
            presets,
            reach,
            egress_sessions,
            registry,
            operations,
            limits,
            answers,
        }
    }

    fn audit(&self) -> AuditTrail {
        AuditTrail {
            operations: self.operations.clone(),
            store: self.store.clone(),
            ledger: self.ledger.clone(),
        }
    }

    fn egress(&self, audit: &AuditTrail) -> EgressControl {
        EgressControl {
            operations: self.operations.clone(),
            store: self.store.clone(),
            vault: self.vault.clone(),
            registry: self.registry.clone(),
            egress_sessions: self.egress_sessions.clone(),
            audit: audit.clone(),
            catalogue: self.catalogue.clone(),
            settings: self.settings.clone(),
        }
    }

    fn snapshots(&self) -> Snapshots {
        Snapshots {
            operations: self.operations.clone(),
            store: self.store.clone(),
            providers: self.providers.clone(),
            live_settings: self.live_settings.clone(),
            registry: self.registry.clone(),
            changes: self.changes.clone(),
            managers: self.managers.clone(),
            turns: Arc::default(),
            diffs: Arc::default(),
        }
    }

    fn execs(&self, snapshots: &Snapshots) -> Execs {
        Execs {
            operations: self.operations.clone(),
            limits: self.limits.clone(),
            store: self.store.clone(),
            ledger: self.ledger.clone(),
            registry: self.registry.clone(),
            answers: self.answers.clone(),
            running: self.running.clone(),
            activity_tracker: self.activity_tracker.clone(),
            end_writer: self.end_writer.clone(),
            snapshots: snapshots.clone(),
            catalogue: self.catalogue.clone(),
            exec_tasks: Arc::default(),
            began: now_ms(),
        }
    }

    fn kernels(&self, execs: &Execs, egress: &EgressControl, snapshots: &Snapshots) -> Kernels {
        Kernels {
            operations: self.operations.clone(),
            limits: self.limits.clone(),
            ledger: self.ledger.clone(),
            registry: self.registry.clone(),
            running: self.running.clone(),
            activity_tracker: self.activity_tracker.clone(),
            end_writer: self.end_writer.clone(),
            managers: self.managers.clone(),
            cell_tasks: Arc::default(),
            answers: self.answers.clone(),
            execs: execs.clone(),
            egress: egress.clone(),
            snapshots: snapshots.clone(),
        }
    }

    fn files(&self) -> Files {
        Files {
            operations: self.operations.clone(),
            registry: self.registry.clone(),
            changes: self.changes.clone(),
            answers: self.answers.clone(),
        }
    }

    fn skills(&self, files: &Files) -> Skills {
        Skills::new(
            self.operations.clone(),
            self.limits.clone(),
            self.store.clone(),
            files.clone(),
            &self.settings.skills_dir,
        )
    }

    fn volumes(&self) -> Volumes {
        Volumes {
            operations: self.operations.clone(),
            limits: self.limits.clone(),
            store: self.store.clone(),
            providers: self.providers.clone(),
            admission: self.admission.clone(),
            turns: Arc::default(),
        }
    }

    fn sandboxes(&self, kernels: &Kernels, volumes: &Volumes) -> Sandboxes {
        Sandboxes {
            operations: self.operations.clone(),
            limits: self.limits.clone(),
            store: self.store.clone(),
            providers: self.providers.clone(),
            vault: self.vault.clone(),
            settings: self.settings.clone(),
            live_settings: self.live_settings.clone(),
            registry: self.registry.clone(),
            admission: self.admission.clone(),
            turns: Arc::default(),
            pool: self.pool.clone(),
            activity_tracker: self.activity_tracker.clone(),
            egress_sessions: self.egress_sessions.clone(),
            changes: self.changes.clone(),
            kernels: kernels.clone(),
            volumes: volumes.clone(),
            catalogue: self.catalogue.clone(),
            new_lifetime: Arc::default(),
        }
    }

    fn owner_configs(&self, sandboxes: &Sandboxes) -> OwnerConfigs {
        OwnerConfigs {
            operations: self.operations.clone(),
            store: self.store.clone(),
            sandboxes: sandboxes.clone(),
            changing: Arc::default(),
            aligning: Arc::default(),
        }
    }

    fn transfers(&self, sandboxes: &Sandboxes, snapshots: &Snapshots) -> Transfers {
        Transfers {
            operations: self.operations.clone(),
            registry: self.registry.clone(),
            sandboxes: sandboxes.clone(),
            snapshots: snapshots.clone(),
        }
    }

    fn images(&self, sandboxes: &Sandboxes, volumes: &Volumes) -> Images {
        Images {
            operations: self.operations.clone(),
            store: self.store.clone(),
            providers: self.providers.clone(),
            live_settings: self.live_settings.clone(),
            pool: self.pool.clone(),
            catalogue: self.catalogue.clone(),
            sandboxes: sandboxes.clone(),
            volumes: volumes.clone(),
            registry: self.registry.clone(),
            presets: self.presets.clone(),
            turns: Arc::default(),
            builds: Arc::new(images::Builds::new(self.settings.builds_dir.clone())),
            layers: Arc::new(images::Layers::new(self.settings.clone(), self.reach.clone())),
        }
    }

    fn keys(&self) -> Keys {
        Keys { operations: self.operations.clone(), store: self.store.clone(), known_keys: Arc::default() }
    }

    fn owners(&self) -> Owners {
        Owners {
            store: self.store.clone(),
            live_settings: self.live_settings.clone(),
            admission: self.admission.clone(),
        }
    }

    fn usage(&self) -> UsageMeter {
        UsageMeter {
            operations: self.operations.clone(),
            store: self.store.clone(),
            providers: self.providers.clone(),
            settings: self.settings.clone(),
            usage: Arc::default(),
        }
    }

    fn ports(&self) -> PortAccess {
        PortAccess {
            operations: self.operations.clone(),
            store: self.store.clone(),
            vault: self.vault.clone(),
            registry: self.registry.clone(),
            token_uses: Arc::default(),
        }
    }

    fn pool(&self) -> PoolControl {
        PoolControl {
            operations: self.operations.clone(),
            store: self.store.clone(),
            catalogue: self.catalogue.clone(),
            live_settings: self.live_settings.clone(),
            pool: self.pool.clone(),
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            operations: self.operations.clone(),
            store: self.store.clone(),
            settings: self.settings.clone(),
            live_settings: self.live_settings.clone(),
            admission: self.admission.clone(),
            catalogue: self.catalogue.clone(),
        }
    }
}

impl Core {
    /// Puts the parts together. Needs a running runtime.
    pub fn new(
        store: Arc<dyn Store>,
        providers: Providers,
        vault: Vault,
        settings: CoreSettings,
        ledger: Ledger,
        egress: EgressParts,
    ) -> Self {
        let parts = Parts::new(store, providers, Arc::new(vault), Arc::new(settings), ledger, egress);
        let audit = parts.audit();
        let egress = parts.egress(&audit);
        let snapshots = parts.snapshots();
        let execs = parts.execs(&snapshots);
        let kernels = parts.kernels(&execs, &egress, &snapshots);
        let files = parts.files();
        let skills = parts.skills(&files);
        let volumes = parts.volumes();
        let sandboxes = parts.sandboxes(&kernels, &volumes);
        let images = parts.images(&sandboxes, &volumes);
        let (keys, usage) = (parts.keys(), parts.usage());
        let lifecycle = Lifecycle {
            operations: parts.operations.clone(),
            store: parts.store.clone(),
            providers: parts.providers.clone(),
            settings: parts.settings.clone(),
            live_settings: parts.live_settings.clone(),
            registry: parts.registry.clone(),
            admission: parts.admission.clone(),
            pool: parts.pool.clone(),
            activity_tracker: parts.activity_tracker.clone(),
            sandboxes: sandboxes.clone(),
            execs: execs.clone(),
            kernels: kernels.clone(),
            keys: keys.clone(),
            usage: usage.clone(),
            snapshots: snapshots.clone(),
            volumes: volumes.clone(),
            skills: skills.clone(),
            images: images.clone(),
        };
        Self(Arc::new(Subsystems {
            owner_configs: parts.owner_configs(&sandboxes),
            transfers: parts.transfers(&sandboxes, &snapshots),
            ports: parts.ports(),
            owners: parts.owners(),
            pool: parts.pool(),
            settings: parts.settings(),
            events: Events { store: parts.store.clone() },
            idempotent_replies: IdempotentReplies { store: parts.store.clone(), vault: parts.vault },
            mcp_sessions: McpSessions { store: parts.store.clone() },
            gpus: Gpus::default(),
            health: tokio::sync::Mutex::default(),
            operations: parts.operations,
            answers: parts.answers,
            store: parts.store,
            providers: parts.providers,
            sandboxes,
            execs,
            kernels,
            files,
            snapshots,
            volumes,
            skills,
            images,
            egress,
            audit,
            keys,
            usage,
            lifecycle,
        }))
    }
}
