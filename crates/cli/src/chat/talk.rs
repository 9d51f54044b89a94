//! One conversation with the agent: what is said, what comes back, cancelling and approvals.

use super::screen::{Screen, text_of};
use crate::{Failure, terminal};
use atoll_client::{Client, Error as ClientError, RunAgent, RunEvent, RunEvents};
use atoll_types::Error;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};

/// How long a server that went away is waited for: it goes on with the run when it is there again.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long before it is asked again: twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(3);
const MODES: [&str; 3] = ["values", "messages-tuple", "custom"];

/// How a turn of the agent ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnEnd {
    /// The agent answered, or was cancelled.
    Done,
    /// It waits for a decision about these actions.
    Asks(Vec<Value>),
    /// It failed, and the person knows.
    Failed,
    /// The person wants to leave.
    Leave,
}

/// How often ctrl-c was pressed during a turn.
struct Stop {
    signals: Signal,
    times: u32,
    /// Whether the run was cancelled for it.
    sent: bool,
}

impl Stop {
    fn new() -> Result<Self, Failure> {
        let signals = signal(SignalKind::interrupt())
            .map_err(|e| Error::internal(format!("ctrl-c cannot be waited for: {e}")))?;
        Ok(Self { signals, times: 0, sent: false })
    }

    /// Waits for ctrl-c, and says whether it is not the first one.
    async fn asked(&mut self) -> bool {
        if self.signals.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        self.times += 1;
        self.times > 1
    }
}

/// A stream that broke off before the end of its run.
struct Outage {
    began: Instant,
    wait: Duration,
}

impl Outage {
    fn new() -> Self {
        Self { began: Instant::now(), wait: FIRST_WAIT }
    }

    /// How long to wait now; none where it was long enough.
    fn next(&mut self) -> Option<Duration> {
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        (self.began.elapsed() < PATIENCE).then_some(wait)
    }
}

/// Whether the same request may succeed when the server is there again.
fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Unexpected(_) => true,
        ClientError::Api(error) => matches!(error.status, 429 | 502..=504),
        ClientError::Url(_) => false,
    }
}

/// A conversation.
pub(crate) struct Talk {
    pub(crate) client: Client,
    pub(crate) thread: String,
    pub(crate) model: Option<String>,
    pub(crate) approve: Option<String>,
    /// Files that the next message names.
    pub(crate) attached: Vec<String>,
    pub(crate) json: bool,
}

impl Talk {
    fn run(&self, input: Option<Value>, command: Option<Value>) -> RunAgent {
        let named = [("model", &self.model), ("approval", &self.approve)];
        let set =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())));
        let configurable: Map<String, Value> = set.collect();
        RunAgent {
            assistant_id: "agent".into(),
            input,
            command,
            config: Some(json!({ "configurable": configurable })),
            stream_mode: MODES.map(str::to_owned).to_vec(),
        }
    }

    /// Says something.
    pub(crate) async fn say(&mut self, text: &str, screen: &mut Screen) -> Result<TurnEnd, Failure> {
        let mut said = text.to_owned();
        for path in std::mem::take(&mut self.attached) {
            said.push_str(&format!(
                "\n\n(A file is attached: import it with import_files, source {path:?}.)"
            ));
        }
        let input = json!({ "messages": [{ "role": "user", "content": said }] });
        let run = self.run(Some(input), None);
        self.follow(&run, screen).await
    }

    /// Gives the decision for all actions that wait.
    pub(crate) async fn answer(
        &mut self,
        decisions: Vec<Value>,
        screen: &mut Screen,
    ) -> Result<TurnEnd, Failure> {
        let run = self.run(None, Some(json!({ "resume": { "decisions": decisions } })));
        self.follow(&run, screen).await
    }

    /// Begins a run; none where the person leaves meanwhile.
    async fn begin(&self, run: &RunAgent, stop: &mut Stop) -> Result<Option<RunEvents>, Failure> {
        let beginning = self.client.run_agent(&self.thread, run);
        let mut beginning = std::pin::pin!(beginning);
        loop {
            tokio::select! {
                begun = &mut beginning => return Ok(Some(begun?)),
                // The run has no id yet; it is cancelled when it has one.
                again = stop.asked() => if again { return Ok(None) },
            }
        }
    }

    async fn follow(&self, run: &RunAgent, screen: &mut Screen) -> Result<TurnEnd, Failure> {
        let mut stop = Stop::new()?;
        let Some(mut events) = self.begin(run, &mut stop).await? else { return Ok(TurnEnd::Leave) };
        let (mut id, mut after): (Option<String>, Option<String>) = (None, None);
        let (mut asked, mut outage) = (Vec::new(), None);
        loop {
            let next = tokio::select! {
                next = events.next() => next,
                again = stop.asked() => {
                    if again {
                        return Ok(TurnEnd::Leave);
                    }
                    self.cancel(&mut stop, id.as_deref());
                    continue;
                }
            };
            let event = match (next, id.as_deref()) {
                (Ok(Some(event)), _) => event,
                (broken, Some(run)) => {
                    let outage = outage.get_or_insert_with(Outage::new);
                    match self.resume((run, after.as_deref()), broken.err(), outage, &mut stop).await? {
                        Some(again) => events = again,
                        None => return Ok(TurnEnd::Leave),
                    }
                    continue;
                }
                (Ok(None), None) => return Ok(TurnEnd::Done),
                (Err(error), None) => return Err(error.into()),
            };
            outage = None;
            after = event.id.clone().or(after);
            if let Some(run) = event.data["run_id"].as_str().filter(|_| event.name == "metadata") {
                id = Some(run.to_owned());
                self.cancel(&mut stop, id.as_deref());
            }
            if event.name == "values" {
                asked = actions(&event.data);
            }
            if let Some(end) = self.show(&event, screen)? {
                screen.end()?;
                return Ok(if end == TurnEnd::Done && !asked.is_empty() {
                    TurnEnd::Asks(asked)
                } else {
                    end
                });
            }
        }
    }

    /// Cancels the run, once it is wanted and the run is known. In a task of its own: its answer comes with the run's end, and a
    /// second ctrl-c must be heard meanwhile.
    fn cancel(&self, stop: &mut Stop, run: Option<&str>) {
        let Some(run) = run.filter(|_| stop.times > 0 && !stop.sent) else { return };
        stop.sent = true;
        let (client, thread, run) = (self.client.clone(), self.thread.clone(), run.to_owned());
        tokio::spawn(async move { client.cancel_agent(&thread, &run).await });
    }

    /// Follows a run again after its last event, as soon as the server is there; none where the person leaves meanwhile.
    async fn resume(
        &self,
        (run, after): (&str, Option<&str>),
        mut why: Option<ClientError>,
        outage: &mut Outage,
        stop: &mut Stop,
    ) -> Result<Option<RunEvents>, Failure> {
        loop {
            let Some(wait) = outage.next() else {
                let ended = || ClientError::Unexpected("the events of the run end too early".to_owned());
                return Err(why.unwrap_or_else(ended).into());
            };
            let again = async {
                tokio::time::sleep(wait).await;
                self.client.follow_agent(&self.thread, run, after).await
            };
            let again = tokio::select! {
                again = again => again,
                twice = stop.asked() => if twice { return Ok(None) } else { continue },
            };
            match again {
                Ok(events) => {
                    // What was asked of a server that went away may not have reached it.
                    stop.sent = false;
                    self.cancel(stop, Some(run));
                    return Ok(Some(events));
                }
                Err(error) if may_pass(&error) => {
                    if why.is_none() || matches!(why, Some(ClientError::Unexpected(_))) {
                        terminal::note("the server went away; waiting for it (ctrl-c twice leaves)");
                    }
                    why = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What the conversation waits for.
    pub(crate) async fn waiting(&self) -> Result<Vec<Value>, Failure> {
        let found = self.client.conversation(&self.thread).await?;
        let waiting = found.interrupts.as_object().and_then(|all| all.values().next());
        Ok(waiting.map(action_requests).unwrap_or_default())
    }

    fn show(&self, event: &RunEvent, screen: &mut Screen) -> Result<Option<TurnEnd>, Failure> {
        if self.json {
            let line = json!({ "event": event.name, "id": event.id, "data": event.data });
            terminal::print_json(&line.to_string())?;
        }
        match event.name.as_str() {
            "messages" if !self.json => screen.message(&event.data[0])?,
            "custom" if !self.json => screen.custom(&event.data)?,
            "metadata" if !self.json && event.data["attempt"].as_u64().is_some_and(|attempt| attempt > 1) => {
                screen.end()?;
                terminal::note("the server was started anew and goes on with its last step");
            }
            "error" => {
                if !self.json {
                    screen.end()?;
                    terminal::note(event.data["message"].as_str().unwrap_or("the run failed"));
                }
                return Ok(Some(TurnEnd::Failed));
            }
            "end" => return Ok(Some(TurnEnd::Done)),
            _ => {}
        }
        Ok(None)
    }

    /// The messages so far.
    pub(crate) async fn messages(&self) -> Result<Vec<Value>, Failure> {
        let found = self.client.conversation(&self.thread).await?;
        Ok(found.values["messages"].as_array().cloned().unwrap_or_default())
    }

    /// The conversation as Markdown.
    pub(crate) async fn export(&self) -> Result<String, Failure> {
        let mut out = String::new();
        for message in self.messages().await? {
            let (kind, text) = (message["type"].as_str().unwrap_or_default(), text_of(&message["content"]));
            match kind {
                "human" => out.push_str(&format!("## You\n\n{text}\n\n")),
                "ai" => {
                    if !text.is_empty() {
                        out.push_str(&format!("## Agent\n\n{text}\n\n"));
                    }
                    for call in message["tool_calls"].as_array().into_iter().flatten() {
                        let name = call["name"].as_str().unwrap_or_default();
                        out.push_str(&format!("`{name}`\n\n```json\n{:#}\n```\n\n", call["args"]));
                    }
                }
                "tool" => out.push_str(&format!("```\n{}\n```\n\n", text.trim_end())),
                _ => {}
            }
        }
        Ok(out)
    }
}

/// The actions that a state waits for.
fn actions(values: &Value) -> Vec<Value> {
    action_requests(&values["__interrupt__"])
}

/// The actions of the first interrupt.
fn action_requests(interrupts: &Value) -> Vec<Value> {
    interrupts[0]["value"]["action_requests"].as_array().cloned().unwrap_or_default()
}
