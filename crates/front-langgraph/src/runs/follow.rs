//! The events of a run or of a thread as an answer. The body is pulled: a client that reads slowly holds nothing but its
//! connection, and the log of the thread, which is bounded, tells it what it missed.

use super::resumes_after;
use crate::{
    App, ids,
    stream::{Modes, RunRenderer, modes::RunFacts, written},
};
use atoll_agent::{Agents, CancelAction, Event, EventKind, RunFollow};
use atoll_core::Caller;
use atoll_http::{Ending, Failure, Who, event_stream, keep_alive};
use atoll_types::{RunId, ThreadId, conversation::RunRecord, sse};
use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use futures_util::{Stream, stream};
use std::collections::{HashMap, hash_map::Entry};

/// Cancels a run when its client goes away before it has ended.
pub(super) struct CancelOnDrop {
    agents: Agents,
    caller: Caller,
    thread: ThreadId,
    run: RunId,
    armed: bool,
}

impl CancelOnDrop {
    pub(super) fn new(app: &App, caller: &Caller, run: &RunRecord, armed: bool) -> Self {
        let (thread, run) = (run.new.thread.clone(), run.new.id);
        Self { agents: app.agents.clone(), caller: caller.clone(), thread, run, armed }
    }

    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (agents, caller, thread, run) =
            (self.agents.clone(), self.caller.clone(), self.thread.clone(), self.run);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // A run that has ended meanwhile needs no cancelling.
                let _ = agents.cancel_run(&caller, &thread, run, CancelAction::Interrupt, false).await;
            });
        }
    }
}

/// The next event; none when the log ends, breaks or the server shuts down.
async fn next(follow: &mut RunFollow, ending: &Ending) -> Option<Event> {
    tokio::select! {
        next = follow.next() => next.inspect_err(|error| tracing::warn!(%error, "events of a run cannot be read")).ok()?,
        () = ending.wait() => None,
    }
}

/// The events of a run after a number, to its end.
pub(crate) async fn follow(
    app: &App,
    caller: Caller,
    run: &RunRecord,
    modes: Modes,
    after: u64,
    leaves: bool,
    ending: Ending,
) -> Result<Response, Failure> {
    let follow = app.agents.follow_run(&caller, &run.new.thread, run.new.id, 0).await?;
    let renderer = RunRenderer::new(modes, RunFacts::of(run));
    let guard = CancelOnDrop::new(app, &caller, run, leaves);
    let events = stream::unfold(Some((follow, renderer, guard, ending)), move |state| async move {
        let (mut follow, mut renderer, mut guard, ending) = state?;
        loop {
            let Some(event) = next(&mut follow, &ending).await else {
                // The server ends, and not the client.
                guard.disarm();
                return None;
            };
            let wire = renderer.feed(&event);
            let last = matches!(event.kind, EventKind::Finished { .. });
            let text = if event.seq > after { written(event.seq, wire) } else { String::new() };
            if last {
                guard.disarm();
                return (!text.is_empty()).then_some((text, None));
            }
            if !text.is_empty() {
                return Some((text, Some((follow, renderer, guard, ending))));
            }
        }
    });
    Ok(event_stream(keep_alive(events)))
}

/// The modes of all runs of a thread that is followed as a whole.
const THREAD_MODES: [&str; 3] = ["values", "messages-tuple", "custom"];

/// The events of all runs of a thread, without an end.
pub(super) async fn follow_thread(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    ending: Ending,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let thread = ids::thread_of(&thread)?;
    let after = resumes_after(&headers)?;
    app.agents.thread(&caller, &thread).await?;
    let follow = app.agents.follow_thread(&caller, &thread, 0).await?;
    let modes = Modes::read(&THREAD_MODES.map(str::to_owned))?;
    Ok(event_stream(keep_alive(thread_events(app, caller, thread, follow, modes, after, ending))))
}

fn thread_events(
    app: App,
    caller: Caller,
    thread: ThreadId,
    follow: RunFollow,
    modes: Modes,
    after: u64,
    ending: Ending,
) -> impl Stream<Item = String> + Send {
    let renderers: HashMap<RunId, RunRenderer> = HashMap::new();
    stream::unfold((follow, renderers), move |(mut follow, mut renderers)| {
        let (app, caller, thread, modes, ending) =
            (app.clone(), caller.clone(), thread.clone(), modes.clone(), ending.clone());
        async move {
            loop {
                let event = next(&mut follow, &ending).await?;
                let renderer = match renderers.entry(event.run) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(fresh) => {
                        // A run that is gone has no events that a client could use.
                        let Ok(run) = app.agents.run(&caller, &thread, event.run).await else { continue };
                        fresh.insert(RunRenderer::new(modes.clone(), RunFacts::of(&run)))
                    }
                };
                let wire = renderer.feed(&event);
                let last = matches!(event.kind, EventKind::Finished { .. });
                if last {
                    renderers.remove(&event.run);
                }
                let mut text = if event.seq > after { written(event.seq, wire) } else { String::new() };
                if last && event.seq > after {
                    let run = ids::hyphenated(event.run.uuid());
                    sse::write(&mut text, Some(event.seq), Some("run_done"), |out| {
                        out.push_str(&serde_json::json!({ "run_id": run }).to_string());
                    });
                }
                if !text.is_empty() {
                    return Some((text, (follow, renderers)));
                }
            }
        }
    })
}
