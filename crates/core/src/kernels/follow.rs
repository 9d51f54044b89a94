//! Following a cell, and what ties it to its caller.

use super::{cell::Next, execute::CellTask, link::Link, request::CellOutcome};
use atoll_kernels::{CellEvent, CellReport, CellStream, RequestKind};
use atoll_provider::Changed;
use atoll_types::{CellId, KernelId, Result};
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

/// A cell that is followed. Dropped before its end, the cell is interrupted, unless its request may be
/// repeated.
pub struct CellFollow {
    /// Its id.
    pub cell: CellId,
    cell_task: Arc<CellTask>,
    interrupt_on_drop: Option<InterruptOnDrop>,
    /// The number of the next event.
    number: usize,
    /// What was sent so far: characters of both outputs, and displays.
    told: [usize; 3],
    /// What is sent before the end: the part of the report that no event had.
    rest: VecDeque<CellEvent>,
    changed: Option<Changed>,
    done: bool,
}

impl CellFollow {
    pub(super) fn new(cell_task: Arc<CellTask>, interrupt_on_drop: Option<InterruptOnDrop>) -> Self {
        let interrupt_on_drop = interrupt_on_drop.map(|tied| tied.of(&cell_task));
        let cell = cell_task.cell.id;
        Self {
            cell,
            cell_task,
            interrupt_on_drop,
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
                self.detach();
                self.done = true;
                let CellOutcome { cell: _, report, changed, redactor: _ } = outcome?;
                self.changed = changed;
                self.missing(&report);
                self.rest.push_back(CellEvent::Ended(Box::new(report)));
                Ok(self.rest.pop_front())
            }
        }
    }

    /// Which files changed, after the end; none where that is not known.
    #[must_use]
    pub fn changed(&self) -> Option<&Changed> {
        self.changed.as_ref()
    }

    /// Leaves the cell running when this is dropped, as when the server ends and not the caller.
    pub fn detach(&mut self) {
        if let Some(interrupt_on_drop) = &mut self.interrupt_on_drop {
            interrupt_on_drop.disarm();
        }
    }

    /// Waits for all of it.
    pub(super) async fn outcome(mut self) -> Result<CellOutcome> {
        let outcome = self.cell_task.outcome().await;
        self.detach();
        outcome
    }

    fn count(&mut self, event: &CellEvent) {
        match event {
            CellEvent::Output { stream, text } => self.told[*stream as usize] += text.chars().count(),
            CellEvent::Display(_) => self.told[2] += 1,
            CellEvent::Began { .. } | CellEvent::Ended(_) => {}
        }
    }

    /// A caller that joined late, or missed events, gets the rest at the end.
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

/// Interrupts a cell when dropped, unless it was disarmed: its caller went away. The cell's task writes that.
pub(super) struct InterruptOnDrop {
    link: Arc<Link>,
    kernel: KernelId,
    cell: Option<CellId>,
    cell_task: Option<Arc<CellTask>>,
}

impl InterruptOnDrop {
    pub(super) fn new(link: &Arc<Link>, kernel: KernelId, cell: CellId) -> Self {
        Self { link: Arc::clone(link), kernel, cell: Some(cell), cell_task: None }
    }

    /// The task that writes the cell's end.
    fn of(mut self, cell_task: &Arc<CellTask>) -> Self {
        self.cell_task = Some(Arc::clone(cell_task));
        self
    }

    /// The cell has ended, was not taken, or goes on without its caller.
    pub(super) fn disarm(&mut self) {
        self.cell = None;
    }
}

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        if let Some(cell_task) = &self.cell_task {
            cell_task.cancelled.store(true, Ordering::Relaxed);
        }
        let (link, kernel) = (Arc::clone(&self.link), self.kernel);
        tokio::spawn(async move {
            if let Err(error) = link.ask(RequestKind::Interrupt { kernel, cell: Some(cell) }).await {
                tracing::debug!(%error, "a cell whose caller went away cannot be interrupted");
            }
        });
    }
}
