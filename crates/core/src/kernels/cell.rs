//! The events of one cell in their order, and how it ended. Any number of callers may read them, each at its
//! own pace, and none slows the task that reads the kernel manager's stream. What is kept is bounded and counts for
//! the owner who asked, as long as a reader may still want it; a reader that misses some of it finds it in the report.

use crate::{AnswerBudget, HeldAnswer};
use atoll_kernels::{CellEvent, CellReport};
use atoll_types::{CellId, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Bytes of events that are kept of one cell.
const KEPT: usize = 32 << 20;
/// Events that are kept of one cell.
const MOST: usize = 100_000;

/// What an event takes beside its text.
const EVENT: usize = 128;

/// How a cell ended, or why that is not known.
pub(super) type Ending = Result<Arc<CellReport>>;

#[derive(Default)]
struct Heard {
    events: Vec<Arc<CellEvent>>,
    bytes: usize,
    /// What is kept, as it counts for its owner; none where no caller reads it, and nothing is kept.
    held: Option<HeldAnswer>,
    /// Something is missing, so nothing more is kept but the end.
    lossy: bool,
    ended: Option<Ending>,
}

/// Whom a cell's events count for.
#[derive(Clone)]
pub(super) struct CellBudget {
    pub(super) answers: AnswerBudget,
    pub(super) owner: String,
}

impl CellBudget {
    /// Counts what is kept of a cell from now on. An owner with no room left gets its end alone.
    pub(super) fn charge(&self, cell: &Cell) {
        if let Ok(held) = self.answers.hold(&self.owner) {
            cell.charge(held);
        }
    }
}

/// One cell.
pub(super) struct Cell {
    pub(super) id: CellId,
    heard: Mutex<Heard>,
    /// Counts the events.
    news: watch::Sender<u64>,
}

/// What a reader finds.
pub(super) enum Next {
    Event(Arc<CellEvent>),
    Ended(Ending),
}

fn size(event: &CellEvent) -> usize {
    match event {
        CellEvent::Began { .. } | CellEvent::Ended(_) => 0,
        CellEvent::Output { text, .. } => text.len(),
        CellEvent::Display(display) => display.mime.len() + display.data.len(),
    }
}

fn report_size(report: &CellReport) -> usize {
    let result = report.result.iter().flatten().map(|(mime, data)| mime.len() + data.len());
    let displays = report.display_outputs.iter().map(|display| display.mime.len() + display.data.len());
    let error = report
        .error
        .iter()
        .map(|error| error.message.len() + error.traceback.as_ref().map_or(0, String::len));
    report.stdout.len() + report.stderr.len() + result.chain(displays).chain(error).sum::<usize>()
}

impl Cell {
    pub(super) fn new(id: CellId) -> Self {
        Self { id, heard: Mutex::default(), news: watch::Sender::new(0) }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what comes, as far as there is room for it.
    pub(super) fn charge(&self, held: HeldAnswer) {
        self.heard().held.get_or_insert(held);
    }

    /// Adds an event.
    pub(super) fn hear(&self, event: CellEvent) {
        let mut heard = self.heard();
        let size = size(&event);
        heard.bytes = heard.bytes.saturating_add(size);
        heard.lossy |= heard.bytes > KEPT || heard.events.len() >= MOST;
        heard.lossy = heard.lossy || !heard.held.as_mut().is_some_and(|held| held.grow(size + EVENT));
        if !heard.lossy {
            heard.events.push(Arc::new(event));
        }
        drop(heard);
        self.news.send_modify(|n| *n += 1);
    }

    /// Some of the cell's events were lost before they reached the server.
    pub(super) fn lose(&self) {
        self.heard().lossy = true;
    }

    /// Nothing more comes. The first end that is set holds.
    pub(super) fn end(&self, ending: Ending) {
        let mut heard = self.heard();
        let first = heard.ended.is_none();
        if let (Ok(report), Some(held), true) = (&ending, &mut heard.held, first)
            && !held.grow(report_size(report))
        {
            // The end is given all the same, and its owner begins nothing more until it is read.
            held.fill();
        }
        heard.ended.get_or_insert(ending);
        drop(heard);
        self.news.send_modify(|n| *n += 1);
    }

    /// The event with this number, or how it ended.
    pub(super) async fn next(&self, number: usize) -> Next {
        let mut news = self.news.subscribe();
        loop {
            news.borrow_and_update();
            {
                let heard = self.heard();
                match (heard.events.get(number), &heard.ended) {
                    (Some(event), _) => return Next::Event(Arc::clone(event)),
                    (None, Some(ending)) => return Next::Ended(ending.clone()),
                    (None, None) => {}
                }
            }
            // The sender is ours.
            let _ = news.changed().await;
        }
    }

    /// How it ended.
    pub(super) async fn ended(&self) -> Ending {
        let mut number = 0;
        loop {
            match self.next(number).await {
                Next::Ended(ending) => return ending,
                Next::Event(_) => number = usize::MAX,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_kernels::CellStream;

    fn printed(text: &str) -> CellEvent {
        CellEvent::Output { stream: CellStream::Stdout, text: text.into() }
    }

    #[tokio::test]
    async fn each_reads_at_its_own_pace_and_all_hear_the_end() {
        let cell = Cell::new(CellId::random());
        cell.charge(HeldAnswer::unshared(1 << 20));
        cell.hear(printed("a"));
        cell.hear(printed("b"));
        let lost = atoll_types::Error::internal("gone");
        cell.end(Err(lost.clone()));
        cell.end(Err(atoll_types::Error::internal("another")));
        for _ in 0..2 {
            let Next::Event(event) = cell.next(1).await else { panic!("no event") };
            assert_eq!(*event, printed("b"));
        }
        assert_eq!(cell.ended().await, Err(lost));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let cell = Cell::new(CellId::random());
        cell.charge(HeldAnswer::unshared(1 << 30));
        for _ in 0..40 {
            cell.hear(printed(&"x".repeat(1 << 20)));
        }
        assert_eq!(cell.heard().events.len(), 32);
        cell.hear(printed("more"));
        assert_eq!(cell.heard().events.len(), 32, "nothing after what is missing");
    }

    #[test]
    fn what_is_kept_counts_for_its_owner() {
        let (cell, unread) = (Cell::new(CellId::random()), Cell::new(CellId::random()));
        let held = HeldAnswer::unshared(3 << 20);
        let has_room = |bytes: usize| held.another().grow(bytes);
        cell.charge(held.another());
        for _ in 0..40 {
            cell.hear(printed(&"x".repeat(1 << 20)));
            unread.hear(printed(&"x".repeat(1 << 20)));
        }
        assert_eq!(cell.heard().events.len(), 2, "the third does not fit with what an event takes");
        assert!(unread.heard().events.is_empty(), "no caller reads it");
        assert!(!has_room(1 << 20) && has_room(1 << 19));
        drop(cell);
        assert!(has_room(3 << 20), "what was kept is free with the cell");
    }
}
