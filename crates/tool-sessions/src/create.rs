//! Making a session: a slot, a sandbox, packages, an interpreter; in this order, and all of it or nothing.
//! Packages are the exception: a failed installation is reported and fails nothing.

use crate::{
    LABEL, Listener, Progress, Sessions, THREAD_LABEL, ToolCaller, ToolReply, active,
    failure::{Failure, ToolResult},
    tools::{
        input::{CreateSession, NetworkAccess, Runtime},
        output::{SessionCreated, SessionStatus},
    },
    truncate,
};
use atoll_core::{
    ActivityGuard, CreateSandbox, Dependencies, ExtensionOperation, KernelRequest, Language, Mode,
    OutputTail, RuntimeSettings, SessionNetwork,
};
use atoll_store::ToolSession;
use atoll_types::{Limits, Operation, Result};

const MIB: u64 = 1 << 20;

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

/// The kernel's name of a language.
pub(crate) fn language(runtime: Runtime) -> Language {
    match runtime {
        Runtime::Python => Language::Python,
        Runtime::Node => Language::Node,
        Runtime::R => Language::R,
    }
}

/// The interpreter of a session.
pub(crate) fn kernel_request(runtime: Runtime) -> KernelRequest {
    let language = language(runtime);
    KernelRequest { language, default: true, working_directory: None, env_vars: Default::default() }
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
        let operation = ExtensionOperation::new(Operation::SessionCreate)
            .with(input.language.as_str())
            .and("thread", &who.thread);
        let mut failure = None;
        let made = async {
            self.make(who, &input, listener).await.map_err(|failed| {
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
        listener: Listener<'_>,
    ) -> Result<SessionCreated, Failure> {
        let session = self.take_reservation(who, input).await?;
        let (sessions, _using) = (self.clone(), self.core.sandboxes.keep_active(session.sandbox));
        let making = SessionInProgress { sessions, session: Some(session.clone()), _using };
        self.make_sandbox(who, &session, input).await?;
        let stderr = self.install(who, &session, input, listener).await?;
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
    ) -> Result<()> {
        let runtime_settings = self.core.settings.now();
        let labels = [(LABEL, session.id.to_string()), (THREAD_LABEL, session.thread.clone())];
        let request = CreateSandbox {
            idle_timeout_seconds: Some(runtime_settings.tool_sessions_idle_seconds.max(10)),
            labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
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
        Ok(Some(truncate::shown(complaint.as_bytes(), &OutputTail::default(), truncate::STDERR)))
    }
}
