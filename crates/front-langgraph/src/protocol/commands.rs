//! Commands. A command that fails is answered with status 200 and an error of the protocol; only what the HTTP floor
//! refuses has another status.

use crate::{App, graph, ids, messages, runs::RunBody, state};
use atoll_core::Caller;
use atoll_http::{Failure, LARGEST_CALL, ServerAddress, Who, read_request, required_json};
use atoll_types::{
    Error, ErrorCode, Result, ThreadId,
    conversation::{CheckpointQuery, Metadata},
    time::rfc3339,
};
use axum::{
    Json,
    extract::{Path, Request, State},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
struct Command {
    id: u64,
    method: String,
    #[serde(default)]
    params: Option<Value>,
}

/// Who asks, of which thread, and by which address of this server.
struct Scope<'a> {
    app: &'a App,
    caller: &'a Caller,
    thread: &'a ThreadId,
    address: Option<String>,
}

pub(super) async fn command(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let thread = ids::thread_of(&thread)?;
    let Command { id, method, params } = required_json(&read_request(request, LARGEST_CALL).await?)?;
    // Taken before the command is carried out: what it causes comes after this number.
    let seq = app.agents.last_seq(&caller, &thread).await?;
    let scope =
        Scope { app: &app, caller: &caller, thread: &thread, address: address.map(|address| address.url()) };
    let meta = json!({ "thread_id": thread.as_str(), "applied_through_seq": seq });
    let params = params.unwrap_or_else(|| json!({}));
    Ok(Json(match scope.carry_out(&method, params).await {
        Ok(result) => json!({ "type": "success", "id": id, "result": result, "meta": meta }),
        Err((code, message)) => {
            json!({ "type": "error", "id": id, "error": code, "message": message, "meta": meta })
        }
    }))
}

type CommandResult = std::result::Result<Value, (&'static str, String)>;

fn refused(error: Error) -> (&'static str, String) {
    let code = match error.code {
        ErrorCode::InvalidArgument | ErrorCode::TooLarge => "invalid_argument",
        ErrorCode::PermissionDenied => "permission_denied",
        ErrorCode::Unsupported => "not_supported",
        ErrorCode::NotFound if error.field.as_deref() == Some("checkpoint_id") => "no_such_checkpoint",
        ErrorCode::NotFound => "no_such_run",
        _ => "unknown_error",
    };
    (code, error.sentence().into_owned())
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T> {
    T::deserialize(params).map_err(|error| Error::invalid("params", format!("params: {error}")))
}

#[derive(Debug, Deserialize)]
struct StartParams {
    assistant_id: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    config: Option<Value>,
    #[serde(default)]
    metadata: Option<Metadata>,
    #[serde(default, rename = "multitaskStrategy", alias = "multitask_strategy")]
    multitask: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Response {
    interrupt_id: String,
    #[serde(default)]
    response: Value,
}

#[derive(Debug, Deserialize)]
struct RespondParams {
    #[serde(default)]
    responses: Vec<Response>,
    #[serde(default)]
    interrupt_id: Option<String>,
    #[serde(default)]
    response: Value,
    #[serde(default)]
    config: Option<Value>,
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StateParams {
    keys: Option<Vec<String>>,
    limit: Option<u32>,
    before: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ForkParams {
    checkpoint_id: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    config: Option<Value>,
}

impl Scope<'_> {
    async fn carry_out(&self, method: &str, params: Value) -> CommandResult {
        match method {
            "run.start" => self.start(params).await.map_err(refused),
            "input.respond" => self.respond(params).await,
            "state.get" => self.state(params).await.map_err(refused),
            "state.listCheckpoints" => self.checkpoints(params).await.map_err(refused),
            "state.fork" => self.fork(params).await.map_err(refused),
            "agent.getTree" => {
                Ok(json!({ "tree": { "namespace": [], "graph_name": "agent", "children": [] },
                                          "graph": graph::drawing() }))
            }
            "input.inject"
            | "subscription.subscribe"
            | "subscription.unsubscribe"
            | "subscription.reconnect" => {
                Err(("not_supported", format!("this server does not take {method} over HTTP")))
            }
            _ => Err(("unknown_command", format!("there is no command {:.64}", method.escape_debug()))),
        }
    }

    fn body(
        &self,
        assistant: &str,
        input: Value,
        config: Option<Value>,
        metadata: Option<Metadata>,
    ) -> Result<RunBody> {
        let config = config.filter(|config| !config.is_null()).map(read).transpose()?;
        Ok(RunBody::of(assistant, input, config, metadata))
    }

    async fn begin(&self, body: &RunBody) -> Result<Value> {
        let run = body.start(self.app, self.caller, Some(self.thread), self.address.clone()).await?;
        Ok(json!({ "run_id": ids::hyphenated(run.new.id.uuid()) }))
    }

    /// Begins a run. The input of a thread that waits for approval is that decision.
    async fn start(&self, params: Value) -> Result<Value> {
        let StartParams { assistant_id, input, config, metadata, multitask } = read(params)?;
        let waits = match self.app.agents.state(self.caller, self.thread, None).await {
            Ok(head) => head.is_some_and(|head| !head.interrupts.is_empty()),
            Err(error) if error.code == ErrorCode::NotFound => false,
            Err(error) => return Err(error),
        };
        let resumes = waits && !input.is_null() && input.get("messages").is_none();
        let mut body = self.body(&assistant_id, input.clone(), config, metadata)?;
        body.multitask_strategy = multitask;
        self.begin(&if resumes { body.resuming(input) } else { body }).await
    }

    async fn respond(&self, params: Value) -> CommandResult {
        let RespondParams { responses, interrupt_id, response, config, metadata } =
            read(params).map_err(refused)?;
        let mut words: Metadata = responses.into_iter().map(|one| (one.interrupt_id, one.response)).collect();
        words.extend(interrupt_id.map(|id| (id, response)));
        if words.is_empty() {
            return Err(("invalid_argument", "input.respond needs an interrupt_id and a response".into()));
        }
        let head = self.app.agents.state(self.caller, self.thread, None).await.map_err(refused)?;
        let pending = head.map(|head| head.interrupts).unwrap_or_default();
        if !words.keys().all(|id| pending.iter().any(|interrupt| interrupt.id == *id)) {
            return Err(("no_such_interrupt", "the thread waits for no answer to this interrupt".into()));
        }
        let last = self.app.agents.runs(self.caller, self.thread, None, 1, 0).await.map_err(refused)?;
        let Some(last) = last.first() else {
            return Err(("no_such_run", "no run of this thread waits for an answer".into()));
        };
        let assistant = ids::hyphenated(last.new.assistant.uuid());
        let body = self.body(&assistant, Value::Null, config, metadata).map_err(refused)?;
        self.begin(&body.resuming(Value::Object(words))).await.map_err(refused)
    }

    async fn state(&self, params: Value) -> Result<Value> {
        let StateParams { keys, .. } = read(params)?;
        let Some(head) = self.app.agents.state(self.caller, self.thread, None).await? else {
            return Ok(json!({ "values": { "messages": [] } }));
        };
        let mut values = state::values(&head.state);
        values["messages"] = head.state.messages.iter().map(|message| messages::write_v2(message)).collect();
        if let (Some(keys), Some(values)) = (keys, values.as_object_mut()) {
            values.retain(|name, _| keys.contains(name));
        }
        Ok(json!({ "values": values, "checkpoint": { "id": ids::hyphenated(head.id.uuid()), "ns": "" } }))
    }

    async fn checkpoints(&self, params: Value) -> Result<Value> {
        let StateParams { limit, before, .. } = read(params)?;
        let query = CheckpointQuery {
            before: before.as_deref().map(ids::checkpoint_id).transpose()?,
            limit: crate::assistants::limit(limit)?,
            ..CheckpointQuery::default()
        };
        let found = self.app.agents.history(self.caller, self.thread, &query).await?;
        let summary = |one: &atoll_types::conversation::Checkpoint| {
            json!({
                "id": ids::hyphenated(one.id.uuid()), "timestamp": rfc3339(one.created_at), "step": one.step,
                "node_name": one.node, "metadata": state::metadata(one),
            })
        };
        Ok(json!({ "checkpoints": found.iter().map(summary).collect::<Vec<_>>() }))
    }

    /// Begins a run from an earlier checkpoint.
    async fn fork(&self, params: Value) -> Result<Value> {
        let ForkParams { checkpoint_id, input, config } = read(params)?;
        let last = self.app.agents.runs(self.caller, self.thread, None, 1, 0).await?;
        let assistant =
            last.first().map_or_else(|| "agent".to_owned(), |run| ids::hyphenated(run.new.assistant.uuid()));
        let mut body = self.body(&assistant, input, config, None)?;
        body.checkpoint_id = Some(checkpoint_id);
        let begun = self.begin(&body).await?;
        Ok(json!({ "run_id": begun["run_id"], "thread_id": self.thread.as_str() }))
    }
}
