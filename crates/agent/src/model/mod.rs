//! One model, wherever it is: which one a run uses ([`target`]), what it is told ([`prompt`], [`window`], [`summary`]), what it answers
//! ([`answer`]), and what its provider's errors mean ([`failure`]).
//!
//! What a provider sends is bounded before the library reads it ([`forward`]).
//!
//! A key is sent to the base URL that it belongs to and to no other: redirects are not followed, and the addresses that an
//! owner's base URL leads to are checked when they are resolved ([`network`]).

mod answer;
mod failure;
mod forward;
mod network;
mod prompt;
mod summary;
mod target;
mod window;

pub(crate) use answer::Delta;
pub(crate) use failure::ModelFailure;
pub(crate) use prompt::shown_beside;
pub(crate) use target::{ModelTarget, endpoint_of, provider_of, stated};
pub(crate) use window::estimated;

use answer::Answer;
use atoll_egress::Reach;
use atoll_tool_sessions::describe;
use atoll_types::{Result, conversation::Message};
use forward::Forwarder;
use futures_util::StreamExt;
use genai::{
    Client, ModelIden, ServiceTarget,
    chat::{ChatOptions, ChatRequest, ChatStreamEvent, Tool},
    resolver::{AuthData, Endpoint},
};
use network::Clients;
use std::{sync::Arc, time::Duration};

/// How long a provider may take to begin its answer, and between two pieces of it.
const SILENCE: Duration = Duration::from_secs(300);

/// The way to models.
pub(crate) struct Models {
    clients: Clients,
}

/// What a model is asked.
pub(crate) struct Question<'a> {
    pub(crate) system: &'a str,
    pub(crate) messages: &'a [Arc<Message>],
    /// The id of the message that it answers with.
    pub(crate) id: &'a str,
    /// Of the model's window, what may be used: smaller after the provider said that it was too much.
    pub(crate) share: f64,
}

impl Models {
    pub(crate) fn new(reach: Reach) -> Result<Self> {
        Ok(Self { clients: Clients::new(reach)? })
    }

    /// Whether the place of a model may be asked at all.
    pub(crate) fn may_ask(&self, target: &ModelTarget) -> Result<(), ModelFailure> {
        self.clients.of(target).map(|_| ())
    }

    /// Asks once. What comes is passed on as it comes; the message is the whole of it.
    pub(crate) async fn ask(
        &self,
        target: &ModelTarget,
        question: &Question<'_>,
        told: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Message, ModelFailure> {
        let messages = window::fit(question.messages, question.system, target, question.share);
        let fetchable = prompt::fetchable(&messages, target).await;
        let request = ChatRequest::new(prompt::messages(&messages, target, &fetchable))
            .with_system(question.system)
            .with_tools(tools());
        let forwarder = Forwarder::new(self.clients.of(target)?, target, SILENCE);
        let forwarder = Arc::new(forwarder.map_err(|_| ModelFailure::Unreachable)?);
        let web = self.clients.to(&forwarder).map_err(|_| ModelFailure::Unreachable)?;
        let client = Client::builder().with_reqwest(web).build();
        let client = client.map_err(|error| ModelFailure::of(&error, target))?;
        let to = ServiceTarget {
            endpoint: Endpoint::from_owned(forwarder.endpoint()),
            auth: AuthData::from_single(target.key.clone().unwrap_or_default()),
            model: ModelIden::new(target.adapter, target.model.as_str()),
        };
        let answered = tokio::select! {
            answered = answer(client, to, request, Answer::new(question.id, target), target, told) => answered,
            failure = forwarder.serve() => Err(failure),
        };
        // The forwarder knows more than that a connection ended.
        answered.map_err(|failure| forwarder.failure().unwrap_or(failure))
    }
}

async fn answer(
    client: Client,
    to: ServiceTarget,
    request: ChatRequest,
    mut answer: Answer<'_>,
    target: &ModelTarget,
    told: &mut (dyn FnMut(Delta) + Send),
) -> Result<Message, ModelFailure> {
    let options = ChatOptions {
        capture_usage: Some(true),
        capture_reasoning_content: Some(true),
        // Of chat completions they are put together here: by the number that a delta names, which a hostile provider
        // chooses, the library would allocate.
        capture_tool_calls: Some(!target.has_numbered_calls()),
        ..ChatOptions::default()
    };
    let asked = client.exec_chat_stream(to, request, Some(&options)).await;
    let mut stream = asked.map_err(|error| ModelFailure::of(&error, target))?.stream;
    while let Some(event) = stream.next().await {
        match event.map_err(|error| ModelFailure::of(&error, target))? {
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat => {}
            // The library keeps signatures for the end.
            ChatStreamEvent::ThoughtSignatureChunk(chunk) => answer.grow(chunk.content.len())?,
            ChatStreamEvent::Chunk(chunk) => answer.text(chunk.content, told)?,
            ChatStreamEvent::ReasoningChunk(chunk) => answer.reasoning(chunk.content, told)?,
            ChatStreamEvent::ToolCallChunk(chunk) => answer.call(chunk.tool_call, told)?,
            ChatStreamEvent::End(end) => return answer.end(end, told),
        }
    }
    Err(ModelFailure::Cut)
}

/// The six tools as a provider is told of them.
fn tools() -> Vec<Tool> {
    let tool = |tool: &atoll_tool_sessions::ToolDescription| {
        let schema = serde_json::Value::Object(tool.input.clone());
        Tool::new(tool.name).with_description(tool.description).with_schema(schema)
    };
    describe().iter().map(tool).collect()
}
