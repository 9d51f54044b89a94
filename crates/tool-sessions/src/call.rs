//! One call of a tool: parsed, carried out, and always answered with a reply.

use crate::{
    Listener, Sessions, Tool, ToolCaller, ToolReply,
    failure::{Failure, ToolResult},
    tools::{check, input::ExecuteCode},
};
use atoll_types::{Error, ErrorCode};
use futures_util::FutureExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

impl Sessions {
    /// One of the six by its name, with unchecked JSON. It never fails: every failure is a reply.
    pub async fn call(&self, who: &ToolCaller, tool: &str, arguments: Value) -> ToolReply {
        self.call_with(who, tool, arguments, &mut |_| {}, &CancellationToken::new()).await
    }

    /// The same, with progress reported to a listener, and ended when `cancel` is cancelled: code is
    /// interrupted, a command is killed, a session that is being made is removed.
    pub async fn call_with(
        &self,
        who: &ToolCaller,
        tool: &str,
        arguments: Value,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> ToolReply {
        let answer = self.carry(who, tool, arguments, None, listener, cancel).await;
        self.reply_of(who, answer).await
    }

    /// The same under an id of the caller: a command or a cell of this id that runs or ran is joined and not run again, also
    /// after a restart of the server. What a command prints is progress too.
    pub async fn call_as(
        &self,
        who: &ToolCaller,
        id: Uuid,
        tool: &str,
        arguments: Value,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> ToolReply {
        let answer = self.carry(who, tool, arguments, Some(id), listener, cancel).await;
        self.reply_of(who, answer).await
    }

    /// Runs code, with an input that was parsed before.
    pub async fn execute_code(
        &self,
        who: &ToolCaller,
        input: &ExecuteCode,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> ToolReply {
        let answer = self.code(who, input, None, listener, cancel).boxed().await;
        self.reply_of(who, answer).await
    }

    /// The arguments with the operator's timeout, where they name none.
    fn timed(&self, mut arguments: Value) -> Value {
        if let Some(timeout) = arguments.as_object_mut().map(|fields| fields.entry("timeout")) {
            let timeout = timeout.or_insert(Value::Null);
            if timeout.is_null() {
                *timeout = self.settings.timeout_seconds.into();
            }
        }
        arguments
    }

    async fn carry(
        &self,
        who: &ToolCaller,
        tool: &str,
        arguments: Value,
        id: Option<Uuid>,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> ToolResult {
        let tool: Tool = tool.parse().map_err(|_| {
            let name: String = tool.chars().filter(|c| !c.is_control()).take(64).collect();
            let error = Error::new(ErrorCode::NotFound, format!("there is no tool {name:?}"));
            Failure::with_hint(error, "Use one of the tools that were listed.")
        })?;
        // Code is interrupted and replies; any other future is dropped and cleans up after itself.
        if tool == Tool::ExecuteCode {
            return self.code(who, &check::parse(self.timed(arguments))?, id, listener, cancel).boxed().await;
        }
        if let (Tool::ExecuteTerminal, Some(id)) = (tool, id) {
            let input = check::parse(self.timed(arguments))?;
            return self.joined_terminal(who, input, id, listener, cancel).boxed().await;
        }
        // Each on the heap: together they would fill a thread's stack.
        let work = async {
            match tool {
                Tool::CreateSession => self.create(who, check::parse(arguments)?, listener).boxed().await,
                Tool::ExecuteTerminal => {
                    self.terminal(who, check::parse(self.timed(arguments))?).boxed().await
                }
                Tool::ImportFiles => self.import(who, check::parse(arguments)?).boxed().await,
                Tool::ExportFiles => self.export(who, check::parse(arguments)?).boxed().await,
                Tool::StopSession => self.stop(who, check::parse(arguments)?).boxed().await,
                Tool::ExecuteCode => Err(Error::internal("code is run elsewhere").into()),
            }
        };
        tokio::select! {
            answer = work => answer,
            () = cancel.cancelled() => {
                let error = Error::new(ErrorCode::Conflict, "the call was cancelled");
                Err(Failure::with_hint(error, "Call it again if you still need it."))
            }
        }
    }
}
