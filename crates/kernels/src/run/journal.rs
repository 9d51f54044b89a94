//! The record of cells: those that wait or run, and the last that have ended, for requests that repeat or follow
//! one.
//!
//! A cell is stored as its events. Its report holds what they do not, and is assembled when it is sent.
//!
//! The last 64 ended cells are kept, or 16 MiB of them, so that a cell can be followed or requested again later.

use super::out::Out;
use crate::{CellEvent, CellReport, CellStream};
use atoll_types::{CellId, KernelId};
use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    rc::Rc,
};

/// Ended cells that are kept.
const MOST_ENDED: usize = 64;
const MOST_BYTES: usize = 16 << 20;
/// Output of one kind is put together up to this, so that many small pieces cost little.
const PIECE: usize = 32 << 10;

/// A cell.
pub(super) struct Record {
    pub(super) id: CellId,
    pub(super) kernel: KernelId,
    /// Whether its events are sent as they come.
    streaming: Cell<bool>,
    began: Cell<Option<u64>>,
    events: RefCell<Vec<CellEvent>>,
    report: RefCell<Option<CellReport>>,
}

impl Record {
    fn new(id: CellId, kernel: KernelId, stream: bool) -> Rc<Self> {
        Rc::new(Self {
            id,
            kernel,
            streaming: Cell::new(stream),
            began: Cell::default(),
            events: RefCell::default(),
            report: RefCell::default(),
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.report.borrow().is_some()
    }

    /// It begins to run.
    pub(super) fn begin(&self, out: &Out, execution_count: u64) {
        self.began.set(Some(execution_count));
        if self.streaming.get() {
            out.tell(self.id, CellEvent::Began { execution_count });
        }
    }

    /// It printed or displayed an output.
    pub(super) fn add(&self, out: &Out, event: CellEvent) {
        if self.streaming.get() {
            out.tell(self.id, event.clone());
        }
        let mut events = self.events.borrow_mut();
        if let (
            Some(CellEvent::Output { stream: last, text: before }),
            CellEvent::Output { stream, text: more },
        ) = (events.last_mut(), &event)
            && last == stream
            && before.len() < PIECE
        {
            before.push_str(more);
        } else {
            events.push(event);
        }
    }

    /// Its events are sent no more, only its end.
    pub(super) fn stop_streaming(&self) {
        self.streaming.set(false);
    }

    /// All events again, then those to come; or only its end.
    pub(super) fn replay(&self, out: &Out, stream: bool) {
        if stream {
            self.streaming.set(true);
            if let Some(execution_count) = self.began.get() {
                out.tell(self.id, CellEvent::Began { execution_count });
            }
            for event in self.events.borrow().iter() {
                out.tell(self.id, event.clone());
            }
        }
        if let Some(report) = self.whole_report() {
            out.tell(self.id, CellEvent::Ended(Box::new(report)));
        }
    }

    /// The report with everything that the events hold.
    fn whole_report(&self) -> Option<CellReport> {
        let mut report = self.report.borrow().clone()?;
        for event in self.events.borrow().iter() {
            match event {
                CellEvent::Output { stream: CellStream::Stdout, text } => report.stdout.push_str(text),
                CellEvent::Output { stream: CellStream::Stderr, text } => report.stderr.push_str(text),
                CellEvent::Display(display) => report.display_outputs.push(display.clone()),
                CellEvent::Began { .. } | CellEvent::Ended(_) => {}
            }
        }
        Some(report)
    }

    fn bytes(&self) -> usize {
        let of_event = |event: &CellEvent| match event {
            CellEvent::Output { text, .. } => text.len(),
            CellEvent::Display(display) => display.data.len() + display.mime.len(),
            CellEvent::Began { .. } | CellEvent::Ended(_) => 0,
        };
        let of_report = |report: &CellReport| {
            let error = report.error.as_ref().map_or(0, |e| {
                e.kind.as_str().len() + e.message.len() + e.traceback.as_ref().map_or(0, String::len)
            });
            error + report.result.iter().flatten().map(|(mime, data)| mime.len() + data.len()).sum::<usize>()
        };
        self.events.borrow().iter().map(of_event).sum::<usize>()
            + self.report.borrow().as_ref().map_or(0, of_report)
            + size_of::<Self>()
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Journal {
    cells: RefCell<HashMap<CellId, Rc<Record>>>,
    /// The oldest first, with their sizes.
    ended: RefCell<VecDeque<(CellId, usize)>>,
}

impl Journal {
    pub(super) fn find(&self, id: CellId) -> Option<Rc<Record>> {
        self.cells.borrow().get(&id).cloned()
    }

    pub(super) fn insert(&self, id: CellId, kernel: KernelId, stream: bool) -> Rc<Record> {
        let record = Record::new(id, kernel, stream);
        self.cells.borrow_mut().insert(id, record.clone());
        record
    }

    /// One that was refused.
    pub(super) fn forget(&self, id: CellId) {
        self.cells.borrow_mut().remove(&id);
    }

    /// It has ended: the report is sent, and kept for a while.
    pub(super) fn end(&self, out: &Out, record: &Record, report: CellReport) {
        *record.report.borrow_mut() = Some(report);
        record.replay(out, false);
        let mut ended = self.ended.borrow_mut();
        ended.push_back((record.id, record.bytes()));
        let mut bytes: usize = ended.iter().map(|(_, bytes)| bytes).sum();
        // The last one stays whatever its size: a request for it may be on its way.
        while ended.len() > 1 && (ended.len() > MOST_ENDED || bytes > MOST_BYTES) {
            if let Some((oldest, size)) = ended.pop_front() {
                bytes -= size;
                self.cells.borrow_mut().remove(&oldest);
            }
        }
    }
}
