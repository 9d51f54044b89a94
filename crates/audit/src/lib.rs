//! The tamper-evident audit trail.
//!
//! Every operation has a row before it and a row after it. Each row carries a MAC over itself and the MAC of
//! the row before, made with a key that is not in the database; the end of the trail is signed in a file
//! beside it. So an attacker who can write to the database but has no key can neither change, remove, move
//! nor add a row without detection, nor cut the end off.
//!
//! Here are the writer of the chain ([`Ledger`]), its verification ([`verify()`]), and the redaction and
//! packing of outputs before they become rows. There is no SQL here, and no HTTP.
//!
//! Invariant: one task writes rows, in the order of its queue, and a row is on its way to the database before
//! its operation begins.

mod capture;
mod export;
mod head;
mod key;
mod ledger;
mod redact;
mod verify;
mod walk;

pub use atoll_store::{Mac, StoreError};
pub use capture::{Capture, HEAD_KEPT, TAIL_KEPT, unpack};
pub use export::Export;
pub use head::{Head, HeadFile, HeadState};
pub use key::AuditKey;
pub use ledger::{Cleaned, Ledger, Opened, OperationGuard};
pub use redact::{Redactor, Stream};
pub use verify::{Report, Verdict, verify};
pub use walk::{Fault, FaultKind};
