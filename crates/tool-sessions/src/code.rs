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
    Display, KernelInfo,
};
use atoll_store::ToolSession;
use atoll_types::{CellId, Error, ErrorCode, KernelId, Result, files::Changed};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long a cell that was interrupted may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// So often it is interrupted before its interpreter is started anew.
const INTERRUPTS: u32 = 3;

impl Sessions {
    pub(crate) async fn code(
        &self,
        who: &ToolCaller,
        input: &ExecuteCode,
        id: Option<Uuid>,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> ToolResult {
        let (session, _using) = self.use_session(who, &input.session_id).await?;
        let request = CellRequest {
            // The default kernel, which is restarted where it died between two calls.
            target: CellTarget::Default(language(runtime(&session))),
            code: input.code.clone(),
            timeout_seconds: Some(input.timeout.into()),
            limits: self.settings.output,
            id: id.map(CellId::from_uuid),
            result_variable: false,
        };
        let ran = self.run(who, &session, &request, listener, cancel).await;
        self.touch(&session).await;
        match ran {
            Ok((report, changed)) => {
                let reply = self.answer(who, &session, report).await?;
                Ok(ToolReply { changed, ..reply })
            }
            // The kernel manager ended, and all interpreters with it: as if this one had ended at the code.
            Err(error) if error.code == ErrorCode::KernelDied && self.ended(&session).await.is_none() => {
                self.answer(who, &session, lost(&session, &error)).await
            }
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
    ) -> Result<(CellReport, Option<Changed>)> {
        let mut follow = self.core.kernels.execute_stream(&who.caller, session.sandbox, request).await?;
        tokio::select! {
            report = to_the_end(&mut follow, listener) => return Ok((report?, follow.changed().cloned())),
            () = cancel.cancelled() => {}
        }
        let report = self.end_cell(who, session, request, &mut follow).await?;
        Ok((report, follow.changed().cloned()))
    }

    /// Ends a cell whose call was cancelled: interrupted, and where it goes on although it was, with its interpreter.
    async fn end_cell(
        &self,
        who: &ToolCaller,
        session: &ToolSession,
        request: &CellRequest,
        follow: &mut CellFollow,
    ) -> Result<CellReport> {
        for _ in 0..INTERRUPTS {
            // Again each time: a cell that waited for another of its interpreter has not heard of the first.
            if let Some(kernel) = self.kernel_of(who, session, request, follow.cell).await? {
                self.core.kernels.interrupt(&who.caller, session.sandbox, kernel).await?;
            }
            if let Ok(report) = tokio::time::timeout(PATIENCE, to_the_end(follow, &mut |_| {})).await {
                return report;
            }
        }
        let late = || Error::new(ErrorCode::Timeout, "the code was interrupted and has not ended yet");
        let kernel = self.kernel_of(who, session, request, follow.cell).await?.ok_or_else(late)?;
        self.core.kernels.restart(&who.caller, session.sandbox, kernel).await?;
        tokio::time::timeout(PATIENCE, to_the_end(follow, &mut |_| {})).await.map_err(|_| late())?
    }

    /// The interpreter of a cell: the one that runs it; or where that is not seen the session's, or its language's.
    async fn kernel_of(
        &self,
        who: &ToolCaller,
        session: &ToolSession,
        request: &CellRequest,
        cell: CellId,
    ) -> Result<Option<KernelId>> {
        let all = self.core.kernels.list(&who.caller, session.sandbox).await?;
        let running = all.iter().find(|kernel| kernel.running == Some(cell));
        let default = |kernel: &&KernelInfo| {
            kernel.default
                && matches!(&request.target, CellTarget::Default(language) if *language == kernel.language)
        };
        let usual = running.or_else(|| all.iter().find(default));
        Ok(usual.map(|kernel| kernel.kernel).or(session.kernel))
    }

    async fn answer(&self, who: &ToolCaller, session: &ToolSession, mut report: CellReport) -> ToolResult {
        let died = report.error.as_ref().is_some_and(|error| error.kind == CellErrorKind::KernelDied);
        if report.death.is_some() || died && !report.restarted {
            if let Err(error) = self.revive(who, session).await
                && let lost @ Failure::Died { .. } = self.failed_in(session, error).await
            {
                return Err(lost);
            }
        } else if !died && session.kernel != Some(report.kernel) {
            // Another interpreter than before: that one was lost between two calls.
            report.state_lost |= session.kernel.is_some();
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

/// The report of code whose interpreter ended with all others.
fn lost(session: &ToolSession, error: &Error) -> CellReport {
    CellReport {
        kernel: session.kernel.unwrap_or_else(|| KernelId::from_uuid(Uuid::nil())),
        success: false,
        stdout: String::new(),
        stderr: String::new(),
        result: None,
        error: Some(CellError::kernel_died(&error.message)),
        display_outputs: Vec::new(),
        execution_count: 0,
        duration_us: 0,
        timed_out: false,
        interrupted: false,
        state_lost: true,
        restarted: false,
        death: None,
        truncated: false,
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
