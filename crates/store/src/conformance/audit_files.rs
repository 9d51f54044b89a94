//! The history of a file: the operations whose ends name it, and those that changed files without naming them.

use super::{
    NOW, Outcome as Checked, Shared,
    audit::{Trail, begin, begins, ends, linked, rows},
    same,
};
use crate::{
    Begin, Checkpoint, End, Facts, FileChanged, FileHistoryQuery, Mac, OperationId, OperationRow, Outcome,
    SandboxId,
};
use atoll_types::files::FileAction;

fn changed(files: &[&str], count: u64) -> End {
    let file =
        |path: &&str| FileChanged { path: (*path).into(), action: FileAction::Modified, size: Some(1) };
    let files = files.iter().map(file).collect();
    End { files, files_count: count, ..End::new(Outcome::Ok, 1) }
}

fn numbers(found: &[OperationRow]) -> Vec<u64> {
    found.iter().map(|operation| operation.seq).collect()
}

pub(super) async fn a_file_has_its_history(store: Shared) -> Checked {
    let [one, two] = [SandboxId::random(), SandboxId::random()];
    let of = |sandbox| Begin { sandbox: Some(sandbox), ..begin() };
    let long = "l".repeat(1023);
    let mut trail = Trail::new();
    trail.add(NOW, of(one), Some(changed(&["a", "b", "é/%_"], 3))); // rows 1 and 2
    trail.add(NOW, of(two), Some(changed(&["a"], 1))); // 3, 4
    trail.add(NOW, of(one), Some(changed(&["a"], 200))); // 5, 6: the list was cut
    trail.add(NOW, of(one), Some(End { files_truncated: true, ..changed(&[], 0) })); // 7, 8
    trail.add(NOW, of(one), Some(changed(&[&long], 1))); // 9, 10: the path was cut
    trail.add(NOW, begin(), Some(changed(&["a"], 1))); // 11, 12: on no sandbox
    trail.add(NOW, of(one), None); // 13
    trail.write(&store).await?;
    // Two that overlap: the one begun first ends last.
    let ids = [OperationId::random(), OperationId::random()];
    let end = |seq, id| linked(seq, Some(id), NOW, ends(changed(&["b"], 1)));
    let begun = |seq, id| linked(seq, Some(id), NOW, begins(of(one)));
    let batch = vec![begun(14, ids[0]), begun(15, ids[1]), end(16, ids[1]), end(17, ids[0])];
    store.append_audit(rows(batch)).await?;
    let ask = async |path: &str, before, limit| {
        let query = FileHistoryQuery { sandbox: one, path: path.into(), before, limit };
        Ok::<_, super::Failure>(numbers(&store.audit_file_history(&query).await?))
    };
    same("a", ask("a", None, 9).await?, vec![9, 7, 5, 1])?;
    same("b, by its ends", ask("b", None, 9).await?, vec![14, 15, 9, 7, 5, 1])?;
    same("another spelling", ask("A", None, 9).await?, vec![9, 7, 5])?;
    same("odd letters", ask("é/%_", None, 9).await?, vec![9, 7, 5, 1])?;
    same("a cut path", ask(&long, None, 9).await?, vec![9, 7, 5])?;
    same("a page", ask("b", None, 2).await?, vec![14, 15])?;
    same("the next", ask("b", Some(16), 2).await?, vec![9, 7])?;
    same("the last", ask("b", Some(8), 2).await?, vec![5, 1])?;
    let other = FileHistoryQuery { sandbox: two, path: "a".into(), before: None, limit: 9 };
    let found = store.audit_file_history(&other).await?;
    same("another sandbox", numbers(&found), vec![3])?;
    same("as it is stored", found.first().cloned(), store.audit_operation(found[0].id).await?)?;
    // Retention stops before 13, which has not ended; an end whose beginning is gone is not found any more.
    let checkpoint = Checkpoint { removed_to: 7, mac: Mac([1; 32]), before: NOW, evidence: Vec::new() };
    store.remove_audit(7, linked(18, None, NOW, Facts::Checkpoint(checkpoint))).await?;
    same("what is left of a", ask("a", None, 9).await?, vec![9])
}
