//! The requests of a client and their answers. One server serves one connection or MCP session; all share the
//! [`ServerContext`]. The caller comes with each request over HTTP, and is fixed on stdio.
#![expect(deprecated, reason = "logging: clients of every version that is in use can ask for it")]

use crate::{
    extra::{Extra, ExtraTool},
    http::Outbox,
    hub::Hub,
    log::Log,
    progress::{EVERY, Heard, LATE},
    resources, result,
    settings::McpSettings,
    tools,
};
use atoll_core::Core;
use atoll_tool_sessions::{
    self as sessions, CancellationToken, FailureKind, Sessions, ToolCaller, ToolReply,
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams, ProgressNotificationParam,
        ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
        SetLevelRequestParams, SubscriptionFilter, Tool,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use serde_json::Value;
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

/// How often an idle connection is checked.
const LOOK: Duration = Duration::from_secs(30);
/// In `_meta` of a result: the call changed the list of resources, and those who listen to it were notified before.
const CHANGES_TOLD: &str = "atoll/list_changed";
const INSTRUCTIONS: &str = include_str!("instructions.md");

/// What all connections have in common.
pub struct ServerContext {
    pub(crate) sessions: Sessions,
    pub(crate) hub: Hub,
    pub(crate) settings: McpSettings,
    pub(crate) tools: Vec<Tool>,
    extra: Extra,
}

impl ServerContext {
    /// The tools over a core.
    #[must_use]
    pub fn new(core: Core, sessions: Sessions, settings: McpSettings) -> Arc<Self> {
        let tools = tools::all(settings.extra_tools);
        let extra = Extra::new(core, sessions.clone());
        Arc::new(Self { sessions, hub: Hub::default(), settings, tools, extra })
    }

    fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// One connection, or one request of a client that keeps none.
pub(crate) struct Server {
    face: Arc<ServerContext>,
    /// The caller, where it is the same for all requests.
    fixed: Option<ToolCaller>,
    log: Log,
    /// Cancelled when the client is gone.
    gone: CancellationToken,
}

/// The caller of a request over HTTP, and its thread; found out before the SDK sees the request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) who: ToolCaller,
    /// Cancelled when the client that waits for the answer is gone.
    pub(crate) gone: CancellationToken,
    /// What its session has not sent yet.
    pub(crate) outbox: Option<Arc<Outbox>>,
}

fn asked(extensions: &rmcp::model::Extensions) -> Option<Asked> {
    let parts = extensions.get::<http::request::Parts>()?;
    parts.extensions.get::<Asked>().cloned()
}

impl Server {
    /// For clients over HTTP.
    pub(crate) fn shared(face: Arc<ServerContext>) -> Self {
        Self { face, fixed: None, log: Log::default(), gone: CancellationToken::new() }
    }

    /// For one client, until it is gone.
    pub(crate) fn for_one(face: Arc<ServerContext>, who: ToolCaller, gone: CancellationToken) -> Self {
        Self { face, fixed: Some(who), log: Log::default(), gone }
    }

    fn who(&self, context: &RequestContext<RoleServer>) -> Result<ToolCaller, ErrorData> {
        let who = self.fixed.clone().or_else(|| asked(&context.extensions).map(|asked| asked.who));
        who.ok_or_else(|| ErrorData::internal_error("it is not known who asks", None))
    }

    /// Runs a tool to its end, and sends progress where the client wants it. The tool is stopped when the
    /// client cancels the call or is gone.
    async fn run(
        &self,
        who: &ToolCaller,
        name: &str,
        arguments: Value,
        context: &RequestContext<RoleServer>,
    ) -> ToolReply {
        let (heard, stop) = (Heard::new(), CancellationToken::new());
        let left = asked(&context.extensions).map_or_else(CancellationToken::new, |asked| asked.gone);
        let mut note = |progress| heard.note(&progress);
        let call = async {
            match ExtraTool::from_name(name) {
                Some(tool) => self.face.extra.call(who, tool, arguments).await,
                None => self.face.sessions.call_with(who, name, arguments, &mut note, &stop).await,
            }
        };
        // On the heap: what a tool does is too much for a thread's stack.
        let mut call: Pin<Box<dyn Future<Output = ToolReply> + Send + '_>> = Box::pin(call);
        tokio::select! {
            reply = &mut call => return reply,
            () = self.tell(name, &heard, context) => {}
            () = context.ct.cancelled() => {}
            () = self.gone.cancelled() => {}
            () = left.cancelled() => {}
        }
        stop.cancel();
        call.await
    }

    /// Sends progress as long as the call runs.
    async fn tell(&self, name: &str, heard: &Heard, context: &RequestContext<RoleServer>) {
        let Some(token) = context.meta.get_progress_token() else { return std::future::pending().await };
        let shows = name.parse() == Ok(sessions::Tool::ExecuteCode);
        let first = if self.fixed.is_none() && shows { LATE } else { EVERY };
        let mut ticks = interval_at(Instant::now() + first, EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let told =
                ProgressNotificationParam::new(token.clone(), heard.seconds()).with_message(heard.words());
            // A client that does not receive progress may still want the answer.
            let _ = context.peer.notify_progress(told).await;
        }
    }

    /// Notifies the listeners where a call may have changed the exports, before the call answers. Returns whether there
    /// were any.
    async fn note_exports(&self, who: &ToolCaller, name: &str, reply: &ToolReply) -> bool {
        let tool = name.parse::<sessions::Tool>().ok();
        let exported = tool == Some(sessions::Tool::ExportFiles) && reply.failure.is_none();
        let gone = tool == Some(sessions::Tool::StopSession) && reply.value["success"] == true;
        let died = reply.failure == Some(FailureKind::SessionDied);
        (exported || gone || died) && self.face.hub.changed(who).await
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_tools()
            .build();
        let about = Implementation::new("atoll", env!("CARGO_PKG_VERSION"))
            .with_title("Atoll")
            .with_description("A computer of its own for every AI agent");
        ServerConfig::new(capabilities).with_server_info(about).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.face.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.face.tool(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let who = self.who(&context)?;
        let Some(tool) = self.face.tool(&request.name) else {
            let names: Vec<&str> = self.face.tools.iter().map(|tool| tool.name.as_ref()).collect();
            let message =
                format!("Unknown tool: {:.100}; there are {}", request.name.escape_debug(), names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let arguments = request.arguments.map_or(Value::Null, Value::Object);
        let session = arguments["session_id"].as_str().map(str::to_owned);
        let reply = self.run(&who, &tool.name, arguments, &context).await;
        self.log.tell(&context, &tool.name, session.as_deref(), &reply).await;
        let told = self.note_exports(&who, &tool.name, &reply).await;
        let mut result = result::result(reply);
        if told && self.fixed.is_none() {
            // The notification comes by another connection: a client that makes one of both can wait for it.
            let mark = [(CHANGES_TOLD.to_owned(), Value::Bool(true))];
            result.meta = Some(MetaObject(mark.into_iter().collect()));
        }
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|params| params.cursor);
        resources::list(&self.face.sessions, &self.who(&context)?, cursor.as_deref()).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let who = self.who(&context)?;
        resources::read(&self.face.sessions, &who, &request.uri).await.map(Into::into)
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.log.level.set(request.level);
        Ok(())
    }

    /// From here on the client is notified when the thread's exports change.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let asked = asked(&context.extensions);
        let outbox = asked.as_ref().and_then(|asked| asked.outbox.clone());
        let Some(who) = self.fixed.clone().or(asked.map(|asked| asked.who)) else { return };
        let mut changes = self.face.hub.listen(&who);
        while !context.peer.is_transport_closed() {
            // The SDK does not report that the connection is gone, so it is checked.
            match timeout(LOOK, changes.next()).await {
                Err(_) => {}
                Ok(Some(telling)) if context.peer.notify_resource_list_changed().await.is_ok() => {
                    if let Some(outbox) = &outbox {
                        outbox.until_sent(telling);
                    }
                }
                Ok(_) => break,
            }
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let wants = requested.resources_list_changed == Some(true);
        let filter = SubscriptionFilter::builder();
        Some(if wants { filter.resources_list_changed().build() } else { filter.build() })
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let who = self.who(context.request_context())?;
        let mut changes = self.face.hub.listen(&who);
        loop {
            let told = tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.next() => match changed {
                    Some(_telling) => context.sink().notify_resource_list_changed().await,
                    None => return Ok(()),
                },
            };
            if told.is_err() {
                return Ok(());
            }
        }
    }
}
