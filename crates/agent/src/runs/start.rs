//! Asking for a run.

use crate::{
    Agents, CancelAction, IfMissing, RunRequest,
    service::no_thread,
    turn::{PlanBase, PlanSources, RunPlan},
};
use atoll_core::{Caller, ExtensionOperation};
use atoll_types::{
    Error, ErrorCode, Operation, Result, RunId, Sealed, ThreadId,
    conversation::{
        Assistant, Checkpoint, Metadata, MultitaskStrategy, NewRun, NewThread, RunInput, RunRecord,
        StopReason,
    },
    time::now_ms,
};
use futures_util::FutureExt;
use serde_json::Value;

/// What a run is for, among the metadata of its thread and of itself: clients find threads by it.
fn marks(assistant: &Assistant) -> Metadata {
    let id = assistant.id.uuid().hyphenated().to_string();
    let pairs = [("graph_id", assistant.graph.clone()), ("assistant_id", id)];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

fn context(run: RunId) -> String {
    format!("run:{run}")
}

impl Agents {
    fn seal_plan(&self, run: RunId, plan: &RunPlan) -> Result<Sealed> {
        let plain = serde_json::to_vec(plan).map_err(|error| Error::internal(error.to_string()))?;
        self.core.operations.seal(&context(run), &plain)
    }

    pub(crate) fn open_plan(&self, run: RunId, sealed: &Sealed) -> Result<RunPlan> {
        let plain = self.core.operations.unseal(&context(run), sealed)?;
        serde_json::from_slice(&plain)
            .map_err(|_| Error::internal("what a run was asked to do cannot be read"))
    }

    /// Begins a run, or lets it wait for its turn. Without a thread it is stateless: it has a thread of its own, which is
    /// deleted when it ends. The answer has the thread's id.
    pub async fn start_run(
        &self,
        caller: &Caller,
        thread: Option<&ThreadId>,
        request: RunRequest,
    ) -> Result<RunRecord> {
        let assistant = self.assistant(caller, &request.assistant).await?;
        let id = request.id.unwrap_or_else(RunId::random);
        let operation = ExtensionOperation::new(Operation::RunStart)
            .with(id.to_string())
            .and("thread", thread.map_or("", ThreadId::as_str))
            .and("assistant", &assistant.graph);
        let work = self.ask_for(caller, thread, id, &assistant, request).boxed();
        let record = self.core.operations.carry_out(caller, operation, work).await?;
        self.dispatch(&record.new.owner, &record.new.thread, record.new.not_before);
        Ok(record)
    }

    async fn ask_for(
        &self,
        caller: &Caller,
        thread: Option<&ThreadId>,
        id: RunId,
        assistant: &Assistant,
        request: RunRequest,
    ) -> Result<RunRecord> {
        let marks = marks(assistant);
        let stateless = thread.is_none();
        let missing = if stateless { IfMissing::Create } else { request.if_missing };
        let thread = thread.cloned().unwrap_or_else(ThreadId::random);
        // What is wrong with the request leaves no thread behind.
        let base = self.check_start(caller, &thread, &request).await?;
        let own = self.own_settings(&caller.owner).await?;
        let sources = PlanSources { server: &self.settings, own: &own, assistant, request: &request, base };
        let plan = RunPlan::new(&sources)?;
        self.prepare_thread(caller, &thread, missing, &marks).await?;
        match request.multitask {
            MultitaskStrategy::Interrupt => {
                self.stop_all(&caller.owner, &thread, CancelAction::Interrupt).await?;
            }
            MultitaskStrategy::Rollback => {
                self.stop_all(&caller.owner, &thread, CancelAction::Rollback).await?;
            }
            MultitaskStrategy::Reject | MultitaskStrategy::Enqueue => {}
        }
        let now = now_ms();
        let mut kwargs = Value::Object(request.kwargs);
        crate::turn::without_keys(&mut kwargs);
        let new = NewRun {
            id,
            owner: caller.owner.clone(),
            owner_name: caller.owner_name.clone(),
            thread,
            assistant: assistant.id,
            key: caller.key,
            scope: caller.scope,
            tier: caller.tier.map(|tier| tier.to_string()),
            metadata: request.metadata.into_iter().chain(marks).collect(),
            input: request.input,
            kwargs: kwargs.as_object().cloned().unwrap_or_default(),
            sealed: self.seal_plan(id, &plan)?,
            multitask: request.multitask,
            from: request.from,
            stateless,
            not_before: now + i64::from(request.after_seconds) * 1000,
            created_at: now,
        };
        self.insert(new).await
    }

    async fn insert(&self, new: NewRun) -> Result<RunRecord> {
        let (owner, thread, stateless) = (new.owner.clone(), new.thread.clone(), new.stateless);
        let inserted = self.store.insert_run(new).await;
        if inserted.is_err() && stateless {
            self.store.remove_conversation(&owner, &thread).await?;
        }
        inserted.map_err(|error| match Error::from(error) {
            error if error.code == ErrorCode::Conflict => {
                let message =
                    "a run of this thread is under way; wait for it, or choose another multitask_strategy";
                Error::new(ErrorCode::Conflict, message).at("multitask_strategy")
            }
            error => error,
        })
    }

    /// Makes the thread where there is none and that is wanted, and marks it with what the run is for.
    async fn prepare_thread(
        &self,
        caller: &Caller,
        thread: &ThreadId,
        missing: IfMissing,
        marks: &Metadata,
    ) -> Result<()> {
        let (owner, now) = (caller.owner.as_str(), now_ms());
        if self.store.merge_thread_metadata(owner, thread, marks.clone(), now).await?.is_some() {
            return Ok(());
        }
        if missing == IfMissing::Reject {
            return Err(no_thread());
        }
        let new = NewThread {
            owner: owner.to_owned(),
            id: thread.clone(),
            metadata: marks.clone(),
            created_at: now,
        };
        match self.store.insert_thread(new).await.map_err(Error::from) {
            // Another request made it meanwhile.
            Err(error) if error.code == ErrorCode::AlreadyExists => Ok(()),
            made => made.map(|_| ()),
        }
    }

    /// What can be known to be wrong before the run begins; and what it begins with.
    async fn check_start(
        &self,
        caller: &Caller,
        thread: &ThreadId,
        request: &RunRequest,
    ) -> Result<PlanBase> {
        let resumes = matches!(request.input, RunInput::Resume { .. });
        if !resumes && !request.input.is_empty() && request.from.is_none() {
            return Ok(PlanBase::Assistant);
        }
        let head = match self.state(caller, thread, request.from).await {
            // It is made for this run.
            Err(error) if error.code == ErrorCode::NotFound && !resumes && request.from.is_none() => None,
            head => head?,
        };
        let pending = head.as_ref().map(|head| head.interrupts.clone()).unwrap_or_default();
        if let RunInput::Resume { value } = &request.input {
            if pending.is_empty() {
                return Err(Error::invalid("command.resume", "the thread waits for no approval"));
            }
            crate::turn::words(value, &pending)?;
        }
        match head {
            Some(head) if resumes || request.input.is_empty() => {
                self.base_after(&caller.owner, head, resumes).await
            }
            _ => Ok(PlanBase::Assistant),
        }
    }

    /// What a run begins with that goes on at a checkpoint: the plan of the run that stopped there, so that neither its
    /// approval rule nor its model lapses with the first answer.
    async fn base_after(&self, owner: &str, mut at: Checkpoint, resumes: bool) -> Result<PlanBase> {
        let thread = at.thread.clone();
        // A change of the state by a client lies between.
        while at.run.is_none()
            && let Some(parent) = at.parent
            && let Some(before) = self.store.thread_checkpoint(owner, &thread, parent).await?
        {
            at = before;
        }
        let stopped = match at.run {
            Some(run) => self.store.run(owner, &thread, run).await?,
            None => None,
        };
        match stopped {
            Some(run) if resumes || run.stopped == Some(StopReason::Approval) => {
                Ok(PlanBase::Interrupted(Box::new(self.open_plan(run.new.id, &run.new.sealed)?)))
            }
            None if resumes => Ok(PlanBase::Unknown),
            _ => Ok(PlanBase::Assistant),
        }
    }
}
