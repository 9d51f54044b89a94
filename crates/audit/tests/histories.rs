//! Any history verifies, and in any history anything that is touched is found.

use crate::fixture::{Folder, done, exec, faulty, sound};
use atoll_store::OperationId;
use proptest::{collection::vec, prelude::*};

#[derive(Debug, Clone)]
enum Step {
    Begin,
    End(usize),
    Drop,
    Clean,
    Reopen,
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Begin),
        5 => (0..8_usize).prop_map(Step::End),
        1 => Just(Step::Drop),
        1 => Just(Step::Clean),
        1 => Just(Step::Reopen),
        1 => Just(Step::Sweep),
    ]
}

async fn live(folder: &Folder, steps: Vec<Step>) {
    let mut trail = folder.open().await;
    let mut open: Vec<OperationId> = Vec::new();
    for (step, n) in steps.into_iter().zip(0..) {
        match step {
            Step::Begin => open.push(trail.ledger.begin(exec(&format!("step {n}"))).await.unwrap()),
            Step::End(which) if which < open.len() => {
                trail.ledger.end(open.remove(which), done(), vec![], vec![]).await.unwrap();
            }
            Step::End(_) => {}
            Step::Drop => drop(trail.ledger.start(exec("dropped")).await.unwrap()),
            Step::Clean => drop(trail.ledger.cleanup(i64::MAX, None).await.unwrap()),
            Step::Reopen => {
                trail.close().await;
                trail = folder.open().await;
                assert_eq!(trail.opened.evidence, vec![]);
            }
            Step::Sweep => {
                trail.ledger.sweep(&open[..open.len() / 2]).await.unwrap();
                let left = &trail.opened.open;
                let kept = open.len() / 2;
                let mut place = 0;
                open.retain(|id| {
                    place += 1;
                    place <= kept || !left.contains(id)
                });
            }
        }
    }
    trail.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_history_is_sound_until_it_is_touched(steps in vec(step(), 1..40), picks in vec((any::<u32>(), 0..5_u8), 6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = Folder::new();
            live(&folder, steps).await;
            let report = sound(folder.verify().await);
            for (pick, how) in picks {
                let seq = report.first + u64::from(pick) % (report.last - report.first + 1);
                let sql = match how {
                    0 => format!("DELETE FROM audit_rows WHERE seq = {seq}"),
                    1 => format!("UPDATE audit_rows SET facts = CAST(facts || x'20' AS BLOB) WHERE seq = {seq}"),
                    2 => format!("UPDATE audit_rows SET mac = zeroblob(32) WHERE seq = {seq}"),
                    3 => format!("UPDATE audit_rows SET at = at + 1 WHERE seq = {seq}"),
                    _ => format!("UPDATE audit_rows SET output = CAST(output || x'00' AS BLOB) WHERE seq = {seq}"),
                };
                let copy = folder.copy();
                copy.tamper(&sql).await;
                let fault = faulty(copy.verify().await);
                // Without its checkpoint a trail does not know where it begins, and says so there.
                assert!(fault.seq == seq || fault.seq < report.first && how == 0, "{sql}: {fault:?}");
            }
        });
    }
}
