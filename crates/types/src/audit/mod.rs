//! What the audit trail holds: rows about operations and about network requests of sandboxes. How a row
//! becomes bytes is the store's business, and what links the rows is the ledger's.

mod egress;
mod facts;
mod hash;
mod query;

pub use egress::{EGRESS_PER_PAGE, Egress, EgressQuery, EgressRow, EgressTotals};
pub use facts::{
    Begin, Checkpoint, DETAIL_KEPT, Detail, End, Evidence, FILES_KEPT, FileChanged, Note, NoteKind, Outcome,
    Output, Part, Problem, UNNAMED_FILES,
};
pub use hash::{HashError, Mac, Sha256};
pub use query::{
    AuditOutput, FileHistoryQuery, OPERATIONS_PER_PAGE, OpenOperation, OperationEnd, OperationQuery,
    OperationRow, Summary, Tally, search_detail,
};
