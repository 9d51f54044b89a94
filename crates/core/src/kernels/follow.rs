//! Following a cell, and what holds it to its follower.

use super::{cell::Next, execute::CellTask, link::Link, request::CellOutcome};
use atoll_kernels::{CellEvent, CellReport, CellStream, RequestKind};
use atoll_provider::Changed;
use atoll_types::{CellId, KernelId, Result};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A cell that is followed. Dropped before its end, the cell is interrupted, unless its request may be
/// repeated.
pub struct CellFollow {
    /// Its id.
    pub cell: CellId,
    cell_task: Arc<CellTask>,
    leash: Option<Arc<Leash>>,
    /// The number of the next event.
    number: usize,
    /// What was told so far: characters of both outputs, and displays.
    told: [usize; 3],
    /// What is told before the end: what the report has and no event had.
    rest: VecDeque<CellEvent>,
    changed: Option<Changed>,
    done: bool,
}

impl CellFollow {
    pub(super) fn new(cell_task: Arc<CellTask>, leash: Option<Leash>) -> Self {
        let leash = leash.map(|leash| Arc::new(leash.with(&cell_task)));
        let cell = cell_task.cell.id;
        Self {
            cell,
            cell_task,
            leash,
            number: 0,
            told: [0; 3],
            rest: VecDeque::new(),
            changed: None,
            done: false,
        }
    }

    /// The next event, the last of which is [`CellEvent::Ended`]; none after that.
    pub async fn next(&mut self) -> Result<Option<CellEvent>> {
        if let Some(event) = self.rest.pop_front() {
            return Ok(Some(event));
        }
        if self.done {
            return Ok(None);
        }
        match self.cell_task.cell.next(self.number).await {
            Next::Event(event) => {
                self.number += 1;
                self.count(&event);
                Ok(Some(CellEvent::clone(&event)))
            }
            Next::Ended(_) => {
                let outcome = self.cell_task.outcome().await;
                self.grip().detach();
                self.done = true;
                let CellOutcome { cell: _, report, changed, redactor: _ } = outcome?;
                self.changed = changed;
                self.missing(&report);
                self.rest.push_back(CellEvent::Ended(Box::new(report)));
                Ok(self.rest.pop_front())
            }
        }
    }

    /// Which files changed, after the end; none where nobody can tell.
    #[must_use]
    pub fn changed(&self) -> Option<&Changed> {
        self.changed.as_ref()
    }

    /// What holds the cell to its follower.
    #[must_use]
    pub fn grip(&self) -> CellGrip {
        CellGrip(self.leash.clone())
    }

    /// Waits for all of it.
    pub(super) async fn outcome(self) -> Result<CellOutcome> {
        let outcome = self.cell_task.outcome().await;
        self.grip().detach();
        outcome
    }

    fn count(&mut self, event: &CellEvent) {
        match event {
            CellEvent::Output { stream, text } => self.told[*stream as usize] += text.chars().count(),
            CellEvent::Display(_) => self.told[2] += 1,
            CellEvent::Began { .. } | CellEvent::Ended(_) => {}
        }
    }

    /// Whoever came late, or lost something on the way, hears the rest at the end.
    fn missing(&mut self, report: &CellReport) {
        for (stream, text) in [(CellStream::Stdout, &report.stdout), (CellStream::Stderr, &report.stderr)] {
            let rest: String = text.chars().skip(self.told[stream as usize]).collect();
            if !rest.is_empty() {
                self.rest.push_back(CellEvent::Output { stream, text: rest });
            }
        }
        let displays = report.display_outputs.iter().skip(self.told[2]).cloned();
        self.rest.extend(displays.map(CellEvent::Display));
    }
}

/// What holds a cell to its follower.
pub struct CellGrip(Option<Arc<Leash>>);

impl CellGrip {
    /// Lets the cell go on without whoever follows it, as when the server ends and not the caller.
    pub fn detach(&self) {
        if let Some(leash) = &self.0 {
            leash.release();
        }
    }
}

/// Interrupts a cell whose caller went away.
pub(super) struct Leash {
    link: Arc<Link>,
    kernel: KernelId,
    cell: CellId,
    cell_task: Option<Arc<CellTask>>,
    released: AtomicBool,
}

impl Leash {
    pub(super) fn new(link: &Arc<Link>, kernel: KernelId, cell: CellId) -> Self {
        Self { link: Arc::clone(link), kernel, cell, cell_task: None, released: AtomicBool::new(false) }
    }

    fn with(mut self, cell_task: &Arc<CellTask>) -> Self {
        self.cell_task = Some(Arc::clone(cell_task));
        self
    }

    /// The cell has ended, or may go on without its caller.
    pub(super) fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if self.released.load(Ordering::Relaxed) {
            return;
        }
        if let Some(cell_task) = &self.cell_task {
            cell_task.cancelled.store(true, Ordering::Relaxed);
        }
        let (link, kernel, cell) = (Arc::clone(&self.link), self.kernel, Some(self.cell));
        tokio::spawn(async move {
            if let Err(error) = link.ask(RequestKind::Interrupt { kernel, cell }).await {
                tracing::debug!(%error, "cannot interrupt a cell that nobody waits for");
            }
        });
    }
}
