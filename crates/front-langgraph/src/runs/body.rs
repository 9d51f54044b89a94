//! What a client asks of a run. Unknown fields are ignored: clients of this API send more than any server knows.

use crate::{App, ids, interrupts, messages, state::CheckpointRef, stream::Modes};
use atoll_agent::{IfMissing, RunRequest, StateUpdate};
use atoll_core::Caller;
use atoll_types::{
    Error, Result, ThreadId,
    conversation::{Metadata, MultitaskStrategy, Node, RunInput, RunRecord},
};
use futures_util::FutureExt;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// The longest wait before a run begins.
const LONGEST_WAIT: f64 = 7.0 * 86_400.0;

/// One text or several.
fn one_or_many<'de, D: Deserializer<'de>>(reader: D) -> std::result::Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Option::<Given>::deserialize(reader)? {
        None => Vec::new(),
        Some(Given::One(one)) => vec![one],
        Some(Given::Many(many)) => many,
    })
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CommandBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goto: Option<Value>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigBody {
    configurable: Option<Metadata>,
    recursion_limit: Option<u32>,
    tags: Option<Vec<String>>,
}

/// A run to begin.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RunBody {
    pub(crate) assistant_id: String,
    #[serde(default)]
    pub(crate) input: Value,
    #[serde(default)]
    pub(crate) command: Option<CommandBody>,
    #[serde(default)]
    pub(crate) config: Option<ConfigBody>,
    #[serde(default)]
    pub(crate) context: Option<Metadata>,
    #[serde(default)]
    pub(crate) metadata: Option<Metadata>,
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) stream_mode: Vec<String>,
    #[serde(default)]
    pub(crate) checkpoint: Option<CheckpointRef>,
    #[serde(default)]
    pub(crate) checkpoint_id: Option<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) interrupt_before: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) interrupt_after: Vec<String>,
    #[serde(default)]
    pub(crate) multitask_strategy: Option<String>,
    #[serde(default)]
    pub(crate) on_disconnect: Option<String>,
    #[serde(default)]
    pub(crate) if_not_exists: Option<String>,
    #[serde(default)]
    pub(crate) after_seconds: Option<f64>,
    #[serde(default)]
    pub(crate) webhook: Option<String>,
}

impl RunBody {
    /// A run of protocol v2.
    pub(crate) fn of(
        assistant: &str,
        input: Value,
        config: Option<ConfigBody>,
        metadata: Option<Metadata>,
    ) -> Self {
        Self {
            assistant_id: assistant.to_owned(),
            input,
            command: None,
            config,
            context: None,
            metadata,
            stream_mode: Vec::new(),
            checkpoint: None,
            checkpoint_id: None,
            interrupt_before: Vec::new(),
            interrupt_after: Vec::new(),
            multitask_strategy: None,
            on_disconnect: None,
            if_not_exists: Some("create".into()),
            after_seconds: None,
            webhook: None,
        }
    }

    /// The same, to answer what its thread waits for.
    pub(crate) fn resuming(self, resume: Value) -> Self {
        Self { command: Some(CommandBody { resume: Some(resume), ..CommandBody::default() }), ..self }
    }

    pub(crate) fn modes(&self) -> Result<Modes> {
        Modes::read(&self.stream_mode)
    }

    /// Whether the run is cancelled when its client goes away.
    pub(crate) fn cancels_on_disconnect(&self) -> Result<bool> {
        match self.on_disconnect.as_deref() {
            None | Some("continue") => Ok(false),
            Some("cancel") => Ok(true),
            Some(_) => Err(Error::invalid("on_disconnect", "expected cancel or continue")),
        }
    }

    fn nodes(names: &[String], field: &str) -> Result<Vec<Node>> {
        if names.iter().any(|name| name == "*") {
            return Ok(Node::ALL.to_vec());
        }
        let unknown = || Error::invalid(field, "expected agent, tools or *");
        names.iter().map(|name| Node::from_name(name).ok_or_else(unknown)).collect()
    }

    /// Messages and other values of an input.
    fn values(input: &Value) -> Result<RunInput> {
        let (messages, values) = match input {
            Value::Null => (Vec::new(), Metadata::new()),
            Value::Object(fields) => {
                let mut values = fields.clone();
                let given = values.remove("messages").unwrap_or_default();
                (messages::read_list(&given, "input.messages")?, values)
            }
            Value::Array(_) | Value::String(_) => (messages::read_list(input, "input")?, Metadata::new()),
            _ => return Err(Error::invalid("input", "input must be an object with messages")),
        };
        Ok(RunInput::Messages { messages, values })
    }

    /// What is shown of the request again.
    fn kwargs(&self) -> Metadata {
        let shown = json!({
            "input": self.input, "command": self.command, "config": self.config, "context": self.context,
            "stream_mode": self.stream_mode, "interrupt_before": self.interrupt_before,
            "interrupt_after": self.interrupt_after,
        });
        let Value::Object(mut shown) = shown else { return Metadata::new() };
        shown.retain(|_, value| !value.is_null());
        shown
    }

    fn wait_seconds(&self) -> Result<u32> {
        match self.after_seconds.unwrap_or(0.0) {
            seconds if (0.0..=LONGEST_WAIT).contains(&seconds) => Ok(seconds.ceil() as u32),
            _ => Err(Error::invalid("after_seconds", "after_seconds must be between 0 and a week")),
        }
    }

    fn multitask(&self) -> Result<MultitaskStrategy> {
        let Some(name) = self.multitask_strategy.as_deref() else { return Ok(MultitaskStrategy::Enqueue) };
        let message = "expected reject, enqueue, interrupt or rollback";
        MultitaskStrategy::from_name(name).ok_or_else(|| Error::invalid("multitask_strategy", message))
    }

    fn request(&self, input: RunInput, address: Option<String>) -> Result<RunRequest> {
        if self.webhook.as_ref().is_some_and(|url| !url.is_empty()) {
            return Err(Error::invalid("webhook", "this server sends no webhooks; join or stream the run"));
        }
        let config = self.config.clone().unwrap_or_default();
        let mut configurable = config.configurable.unwrap_or_default();
        configurable.extend(self.context.clone().unwrap_or_default());
        // In protocol v2 the checkpoint is a part of the configuration.
        let named = configurable.get("checkpoint_id").and_then(Value::as_str).map(str::to_owned);
        let checkpoint = self.checkpoint.as_ref().and_then(|at| at.checkpoint_id.clone());
        let from = self.checkpoint_id.clone().or(checkpoint).or(named);
        Ok(RunRequest {
            configurable,
            recursion_limit: config.recursion_limit,
            interrupt_before: Self::nodes(&self.interrupt_before, "interrupt_before")?,
            interrupt_after: Self::nodes(&self.interrupt_after, "interrupt_after")?,
            metadata: self.metadata.clone().unwrap_or_default(),
            kwargs: self.kwargs(),
            multitask: self.multitask()?,
            from: from.as_deref().map(ids::checkpoint_id).transpose()?,
            if_missing: match self.if_not_exists.as_deref() {
                None | Some("reject") => IfMissing::Reject,
                Some("create") => IfMissing::Create,
                Some(_) => return Err(Error::invalid("if_not_exists", "expected create or reject")),
            },
            after_seconds: self.wait_seconds()?,
            address,
            ..RunRequest::new(self.assistant_id.as_str(), input)
        })
    }

    /// Begins the run.
    pub(crate) async fn start(
        &self,
        app: &App,
        caller: &Caller,
        thread: Option<&ThreadId>,
        address: Option<String>,
    ) -> Result<RunRecord> {
        self.cancels_on_disconnect()?;
        let command = self.command.clone().unwrap_or_default();
        if command.goto.is_some_and(|goto| !goto.is_null()) {
            return Err(Error::invalid("command.goto", "the agent decides itself what comes next"));
        }
        let input = match (command.resume, &command.update, thread) {
            (Some(value), update, Some(thread)) => {
                let head = app.agents.state(caller, thread, None).await?;
                let pending = head.map(|head| head.interrupts).unwrap_or_default();
                if let Some(update) = update.as_ref().filter(|update| !update.is_null()) {
                    let update = state_update(update)?;
                    app.agents.update_state(caller, thread, update).await?;
                }
                RunInput::Resume { value: interrupts::read(value, &pending) }
            }
            (Some(_), _, None) => {
                return Err(Error::invalid("command.resume", "a run without a thread waits for nothing"));
            }
            (None, Some(update), _) if !update.is_null() => Self::values(update)?,
            (None, _, _) => Self::values(&self.input)?,
        };
        app.agents.start_run(caller, thread, self.request(input, address)?).boxed().await
    }
}

fn state_update(update: &Value) -> Result<StateUpdate> {
    let RunInput::Messages { messages, values } = RunBody::values(update)? else {
        return Err(Error::invalid("command.update", "an update must be an object"));
    };
    Ok(StateUpdate {
        messages,
        removed: Vec::new(),
        values,
        at: None,
        as_node: None,
        metadata: Metadata::new(),
    })
}

/// The modes of a client that joins: its own, or those that the run was asked for with.
pub(super) fn modes_of_join(asked: Option<&str>, run: &RunRecord) -> Result<Modes> {
    let names = match asked.filter(|names| !names.is_empty()) {
        Some(names) if names.starts_with('[') => serde_json::from_str(names)
            .map_err(|_| Error::invalid("stream_mode", "expected names with commas between them"))?,
        Some(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
        None => {
            let first = run.new.kwargs.get("stream_mode").and_then(Value::as_array);
            first
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect::<Vec<_>>()
        }
    };
    Modes::read(&names)
}
