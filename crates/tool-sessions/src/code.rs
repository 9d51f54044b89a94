//! Code in a session's interpreter. The reply is made from the kernel's report of the cell. A dead
//! interpreter is restarted, and the reply says that its variables are lost: the session's files are still
//! there. The session itself is lost only with its sandbox.

use crate::{
    Listener, Progress, Sessions, ToolCaller, ToolReply,
    create::{kernel_request, language},
    failure::{Failure, ToolResult},
    runtime,
    tools::{
        input::ExecuteCode,
        output::{CodeError, CodeExecuted, DisplayOutput},
    },
};
use atoll_core::{
    CellError, CellErrorKind, CellEvent, CellFollow, CellReport, CellRequest, CellStream, CellTarget,
    Display, OutputLimits,
};
use atoll_store::ToolSession;
use atoll_types::{Error, ErrorCode, Result};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a cell that was interrupted may take to end.
const PATIENCE: Duration = Duration::from_secs(15);

impl Sessions {
    pub(crate) async fn code(
        &self,
        who: &ToolCaller,
        input: &ExecuteCode,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> ToolResult {
        let (session, _using) = self.use_session(who, &input.session_id).await?;
        let request = CellRequest {
            // The default kernel, which is restarted where it died between two calls.
            target: CellTarget::Default(language(runtime(&session))),
            code: input.code.clone(),
            timeout_seconds: Some(input.timeout.into()),
            limits: OutputLimits::default(),
            id: None,
        };
        let ran = self.run(who, &session, &request, listener, cancel).await;
        self.touch(&session).await;
        match ran {
            Ok(report) => self.answer(who, &session, report).await,
            Err(error) => Err(self.failed_in(&session, error).await),
        }
    }

    async fn run(
        &self,
        who: &ToolCaller,
        session: &ToolSession,
        request: &CellRequest,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> Result<CellReport> {
        let mut follow = self.core.kernels.execute_stream(&who.caller, session.sandbox, request).await?;
        tokio::select! {
            report = to_the_end(&mut follow, listener) => return report,
            () = cancel.cancelled() => {}
        }
        if let Some(kernel) = session.kernel {
            self.core.kernels.interrupt(&who.caller, session.sandbox, kernel).await?;
        }
        let late = |_| Error::new(ErrorCode::Timeout, "the code was interrupted and has not ended yet");
        tokio::time::timeout(PATIENCE, to_the_end(&mut follow, &mut |_| {})).await.map_err(late)?
    }

    async fn answer(&self, who: &ToolCaller, session: &ToolSession, report: CellReport) -> ToolResult {
        let died = report.error.as_ref().is_some_and(|error| error.kind == CellErrorKind::KernelDied);
        if report.death.is_some() || died && !report.restarted {
            if let Err(error) = self.revive(who, session).await
                && let lost @ Failure::Died { .. } = self.failed_in(session, error).await
            {
                return Err(lost);
            }
        } else if !died && session.kernel != Some(report.kernel) {
            self.store.start_tool_session(session.id, report.kernel).await?;
        }
        Ok(ToolReply::of_code(&executed(report)))
    }

    /// Starts an interpreter in place of a dead one; or, where this fails, the next call does.
    async fn revive(&self, who: &ToolCaller, session: &ToolSession) -> Result<()> {
        if let Some(reason) = self.ended(session).await {
            return Err(Error::new(ErrorCode::ContainerDied, reason));
        }
        if let Some(kernel) = session.kernel {
            match self.core.kernels.restart(&who.caller, session.sandbox, kernel).await {
                // The kernel manager died too, and with it its list of kernels.
                Err(error) if error.code == ErrorCode::NotFound => {}
                other => return other.map(drop),
            }
        }
        let request = kernel_request(runtime(session));
        let kernel = self.core.kernels.start(&who.caller, session.sandbox, &request).await?;
        self.store.start_tool_session(session.id, kernel.kernel).await?;
        Ok(())
    }
}

async fn to_the_end(follow: &mut CellFollow, listener: Listener<'_>) -> Result<CellReport> {
    loop {
        match follow.next().await? {
            Some(CellEvent::Began { .. }) => {}
            Some(CellEvent::Output { stream: CellStream::Stdout, text }) => listener(Progress::Stdout(text)),
            Some(CellEvent::Output { stream: CellStream::Stderr, text }) => listener(Progress::Stderr(text)),
            Some(CellEvent::Display(display)) => listener(Progress::Display(shown(display))),
            Some(CellEvent::Ended(report)) => return Ok(*report),
            None => return Err(Error::new(ErrorCode::Unavailable, "the code's output broke off")),
        }
    }
}

fn shown(display: Display) -> DisplayOutput {
    let Display { mime, data } = display;
    DisplayOutput { mime, data }
}

fn executed(report: CellReport) -> CodeExecuted {
    let lost = report.state_lost;
    let error = report.error.map(|CellError { kind, message, traceback }| CodeError {
        kind: kind.into(),
        message: match lost {
            true => format!(
                "{message}; the interpreter was started anew without its variables, the files are there"
            ),
            false => message,
        },
        traceback,
    });
    CodeExecuted {
        success: report.success,
        stdout: report.stdout,
        stderr: report.stderr,
        result: report.result,
        error,
        display_outputs: report.display_outputs.into_iter().map(shown).collect(),
        state_lost: lost,
    }
}
