//! Making a session: a slot, a sandbox, packages, an interpreter; in this order, and all of it or nothing.
//! Packages are the exception: a failed installation is reported and fails nothing. A session that is made of another one has
//! its files, and so its packages.

use crate::{
    LABEL, Listener, Progress, Sessions, THREAD_LABEL, ToolCaller, ToolReply, active,
    failure::{Failure, ToolResult},
    paths::WORKSPACE,
    runtime,
    tools::{
        input::{CreateSession, NetworkAccess, Runtime},
        output::{SessionCreated, SessionStatus},
    },
    truncate,
};
use atoll_core::{
    ActivityGuard, AttachVolume, CreateSandbox, Dependencies, ExtensionOperation, ForkSandbox, KernelRequest,
    Language, Mode, OutputTail, RuntimeSettings, SessionNetwork,
};
use atoll_store::{SandboxId, ToolSession};
use atoll_types::{AutoSnapshot, Limits, Operation, PathRules, Result, SnapshotId};
use futures_util::FutureExt;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
/// The profile whose user is root inside.
const ROOT: &str = "root";

/// A session that is being made. Dropped before it is done, it is removed.
struct SessionInProgress {
    sessions: Sessions,
    session: Option<ToolSession>,
    _using: ActivityGuard,
}

impl SessionInProgress {
    fn done(mut self) {
        self.session = None;
    }
}

impl Drop for SessionInProgress {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let sessions = self.sessions.clone();
            tokio::spawn(async move {
                if let Err(error) = sessions.end(&session, "it was not made to its end").await {
                    tracing::warn!(session = %session.id, %error, "a session waits to be collected");
                }
            });
        }
    }
}

/// Volumes, path rules and snapshots of a new session's sandbox.
#[derive(Debug, Default)]
pub struct SessionStorage {
    /// Volumes of the caller's owner.
    pub volumes: Vec<AttachVolume>,
    /// Whose storage is attached.
    pub tenant_id: Option<String>,
    /// Paths that commands only read, write, or do not see.
    pub filesystem: PathRules,
    /// Before what a snapshot is made.
    pub auto_snapshot: AutoSnapshot,
}

/// What the sandbox of a new session begins with.
pub(crate) enum Origin {
    /// Nothing but these.
    New(SessionStorage),
    /// The files of another session, now or at a snapshot.
    Fork(SandboxId, Option<SnapshotId>),
}

/// The kernel's name of a language.
pub(crate) fn language(runtime: Runtime) -> Language {
    match runtime {
        Runtime::Python => Language::Python,
        Runtime::Node => Language::Node,
        Runtime::R => Language::R,
    }
}

/// The interpreter of a session. It begins where the tools' paths do, whatever directory its image has.
pub(crate) fn kernel_request(runtime: Runtime) -> KernelRequest {
    let language = language(runtime);
    let working_directory = Some(WORKSPACE.to_owned());
    KernelRequest { language, default: true, working_directory, env_vars: Default::default() }
}

/// The labels of a session's sandbox.
fn labels(session: &ToolSession) -> BTreeMap<String, String> {
    let labels = [(LABEL, session.id.to_string()), (THREAD_LABEL, session.thread.clone())];
    labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn limits(runtime_settings: &RuntimeSettings) -> Limits {
    Limits {
        memory_bytes: u64::from(runtime_settings.tool_sessions_memory_mb) * MIB,
        swap_bytes: 0,
        cpu_millis: (runtime_settings.tool_sessions_cpu_cores * 1000.0).round() as u32,
        processes: runtime_settings.tool_sessions_processes,
        disk_bytes: u64::from(runtime_settings.tool_sessions_disk_mb) * MIB,
        ..Limits::default()
    }
}

impl Sessions {
    pub(crate) async fn create(
        &self,
        who: &ToolCaller,
        input: CreateSession,
        listener: Listener<'_>,
    ) -> ToolResult {
        self.create_from(who, input, Origin::New(SessionStorage::default()), listener).await
    }

    /// Makes a session with volumes, path rules and snapshots of its own.
    pub async fn create_with_volumes(
        &self,
        who: &ToolCaller,
        input: CreateSession,
        storage: SessionStorage,
    ) -> ToolReply {
        let made = self.create_from(who, input, Origin::New(storage), &mut |_| {}).boxed().await;
        self.reply_of(who, made).await
    }

    /// Makes a session with the files of another one, now or at a snapshot. Its variables are its own.
    pub async fn fork(&self, who: &ToolCaller, id: &str, snapshot: Option<SnapshotId>) -> ToolReply {
        let forked = async {
            let (of, _using) = self.use_session(who, id).await?;
            let (language, dependencies) = (runtime(&of), of.dependencies);
            let input = CreateSession { language, dependencies, ..CreateSession::default() };
            self.create_from(who, input, Origin::Fork(of.sandbox, snapshot), &mut |_| {}).await
        };
        let forked = forked.boxed().await;
        self.reply_of(who, forked).await
    }

    pub(crate) async fn create_from(
        &self,
        who: &ToolCaller,
        input: CreateSession,
        origin: Origin,
        listener: Listener<'_>,
    ) -> ToolResult {
        let mut operation = ExtensionOperation::new(Operation::SessionCreate)
            .with(input.language.as_str())
            .and("thread", &who.thread);
        if let Origin::Fork(of, _) = &origin {
            operation = operation.and("fork_of", of.uuid());
        }
        let mut failure = None;
        let made = async {
            self.make(who, &input, origin, listener).await.map_err(|failed| {
                let error = match &failed {
                    Failure::Other { error, .. } => error.clone(),
                    Failure::Invalid(_) => atoll_types::Error::internal("an input was not checked"),
                    Failure::Died { reason, .. } => atoll_types::Error::internal(reason.clone()),
                };
                failure = Some(failed);
                error
            })
        };
        let made = self.core.operations.carry_out(&who.caller, operation, made).await;
        match (made, failure) {
            (Ok(created), _) => Ok(ToolReply::of(&created)),
            (Err(_), Some(failure)) => Err(failure),
            (Err(error), None) => Err(error.into()),
        }
    }

    async fn make(
        &self,
        who: &ToolCaller,
        input: &CreateSession,
        origin: Origin,
        listener: Listener<'_>,
    ) -> Result<SessionCreated, Failure> {
        let session = self.take_reservation(who, input).await?;
        let (sessions, _using) = (self.clone(), self.core.sandboxes.keep_active(session.sandbox));
        let making = SessionInProgress { sessions, session: Some(session.clone()), _using };
        let stderr = match origin {
            Origin::New(storage) => {
                self.make_sandbox(who, &session, input, storage).await?;
                self.install(who, &session, input, listener).await?
            }
            Origin::Fork(of, snapshot) => {
                let request =
                    ForkSandbox { snapshot, labels: Some(labels(&session)), ..ForkSandbox::default() };
                self.core.sandboxes.fork_with_id(&who.caller, of, session.sandbox, request).await?;
                None
            }
        };
        let request = kernel_request(input.language);
        let kernel = self.core.kernels.start(&who.caller, session.sandbox, &request).await?;
        self.store.start_tool_session(session.id, kernel.kernel).await?;
        making.done();
        let told = active(&session);
        Ok(SessionCreated {
            success: true,
            session_id: told.session_id,
            runtime: told.runtime,
            status: SessionStatus::Running,
            dependencies: session.dependencies,
            stderr,
        })
    }

    async fn make_sandbox(
        &self,
        who: &ToolCaller,
        session: &ToolSession,
        input: &CreateSession,
        storage: SessionStorage,
    ) -> Result<()> {
        let runtime_settings = self.core.settings.now();
        let SessionStorage { volumes, tenant_id, filesystem, auto_snapshot } = storage;
        let root = self.settings.execute_as_root && self.core.sandboxes.allows_profile(&who.caller, ROOT);
        let request = CreateSandbox {
            profile: root.then(|| ROOT.to_owned()),
            idle_timeout_seconds: Some(runtime_settings.tool_sessions_idle_seconds.max(10)),
            labels: labels(session),
            volumes,
            tenant_id,
            filesystem,
            auto_snapshot,
            ..CreateSandbox::default()
        };
        let network = SessionNetwork {
            enabled: runtime_settings.tool_sessions_network_enabled,
            mode: input.network.map(|access| match access {
                NetworkAccess::None => Mode::None,
                NetworkAccess::Allowlist => Mode::Allowlist,
                NetworkAccess::Full => Mode::Full,
            }),
            presets: input.network_presets.clone(),
            clamp: false,
        };
        let usual = limits(&runtime_settings);
        self.core
            .sandboxes
            .create_usual(&who.caller, session.sandbox, request, usual, network)
            .await
            .map(drop)
    }

    /// Installs the requested packages; returns the error output, where that failed.
    async fn install(
        &self,
        who: &ToolCaller,
        session: &ToolSession,
        input: &CreateSession,
        listener: Listener<'_>,
    ) -> Result<Option<String>, Failure> {
        if input.dependencies.is_empty() {
            return Ok(None);
        }
        listener(Progress::Installing);
        let wanted = Dependencies {
            language: language(input.language),
            packages: input.dependencies.clone(),
            timeout_seconds: None,
            usual_seconds: None,
            id: None,
        };
        let complaint = match self.core.kernels.install(&who.caller, session.sandbox, &wanted).await {
            Ok(installed) if installed.success => return Ok(None),
            Ok(installed) if installed.stderr.trim().is_empty() => installed.stdout,
            Ok(installed) => installed.stderr,
            Err(error) => match self.ended(session).await {
                Some(_) => return Err(error.into()),
                None => error.message,
            },
        };
        let most = self.settings.output.stderr as usize;
        Ok(Some(truncate::shown(complaint.as_bytes(), &OutputTail::default(), most)))
    }
}
