//! Prints what the audit trail costs on this machine with a million operations in it, or as many as are
//! named: `cargo run --release -p atoll-audit --example audit_figures [operations] [folder]`.
#![allow(clippy::unwrap_used)]

use atoll_audit::{AuditKey, Capture, Ledger, Redactor, Verdict, verify};
use atoll_store::{
    Audits, Begin, Detail, End, FileChanged, KeyId, OperationId, OperationQuery, Outcome, SandboxId,
};
use atoll_store_sqlite::SqliteStore;
use atoll_types::files::FileAction;
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use uuid::Uuid;

fn spread(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!("{what:48} {:8.3} ms p50 {:8.3} ms p95 {:8.3} ms p99", at(50), at(95), at(99));
}

fn id(kind: u64, number: u64) -> Uuid {
    Uuid::from_u64_pair(kind, number)
}

/// Numbers that look random and are the same in every run.
fn scatter(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
}

/// One owner has half of everything, a hundred share the rest.
fn begin(number: u64) -> Begin {
    let dice = scatter(number);
    let owner = if dice.is_multiple_of(2) { 0 } else { 1 + scatter(dice) % 100 };
    let kind = match dice / 300 % 1000 {
        0..700 => "exec",
        700..850 => "file.write",
        850..950 => "file.read",
        950..999 => "sandbox.create",
        _ => "key.revoke",
    };
    let detail = match dice / 7 % 20 {
        0 => format!("import sys\n# step {number}\n{}", "print(sum(range(1000)))  # and so on\n".repeat(30)),
        1..8 => format!("python3 -m pytest -q tests/test_{}.py -k case_{}", dice % 5000, dice % 97),
        8..14 => format!("grep -rn needle{} src/module_{}", dice % 10_000, dice % 300),
        _ => format!("cat /workspace/results/run-{}/output.txt", number),
    };
    Begin {
        front: "rest".into(),
        key: Some(KeyId::from_uuid(id(1, owner * 3 + dice % 3))),
        owner: format!("owner-{owner}"),
        address: Some("192.0.2.7:51234".into()),
        kind: kind.into(),
        sandbox: Some(SandboxId::from_uuid(id(2, owner * 200 + scatter(dice + 1) % 200))),
        detail: Detail::new(&detail),
        directory: Some("/workspace".into()),
        variables: vec!["PATH".into(), "API_TOKEN".into()],
        extra: Default::default(),
    }
}

fn end(number: u64, output: &atoll_store::Output) -> End {
    let dice = scatter(number + 1_000_000_000);
    let exit_code = match dice % 10_000 {
        0 => 42,
        1..20 => 137,
        20..1500 => 1,
        _ => 0,
    };
    let outcome = if dice % 1000 == 7 { Outcome::Failed } else { Outcome::Ok };
    End {
        exit_code: Some(exit_code),
        cpu_us: Some(900),
        peak_memory: Some(1 << 20),
        stdout: Some(output.clone()),
        files: vec![FileChanged {
            path: "results/output.txt".into(),
            action: FileAction::Created,
            size: Some(5),
        }],
        ..End::new(outcome, dice % 100_000)
    }
}

async fn fill(ledger: &Ledger, from: u64, to: u64, output: &atoll_store::Output) {
    const TOGETHER: u64 = 250;
    for number in (from..to).step_by(TOGETHER as usize) {
        let starts = (number..(number + TOGETHER).min(to)).map(|number| {
            let ledger = ledger.clone();
            tokio::spawn(async move { (number, ledger.begin(begin(number)).await.unwrap()) })
        });
        let mut ends = Vec::new();
        for start in starts.collect::<Vec<_>>() {
            let (number, operation): (u64, OperationId) = start.await.unwrap();
            ends.push(ledger.end(operation, end(number, output), vec![], vec![]));
        }
        for end in ends {
            end.await.unwrap();
        }
    }
}

async fn one_by_one(what: &str, ledger: &Ledger, from: u64, output: &atoll_store::Output) {
    let (mut begins, mut ends, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for number in from..from + 3000 {
        let start = Instant::now();
        let operation = ledger.start(begin(number)).await.unwrap();
        begins.push(start.elapsed());
        let middle = Instant::now();
        operation.end(end(number, output), vec![], vec![]).await.unwrap();
        ends.push(middle.elapsed());
        both.push(start.elapsed());
    }
    spread(&format!("begin, {what}"), begins);
    spread(&format!("end, {what}"), ends);
    spread(&format!("both, {what}"), both);
}

fn queries(operations: u64, sandbox: Option<SandboxId>) -> Vec<(&'static str, OperationQuery)> {
    let any = OperationQuery::default;
    let some = |text: &str| Some(text.to_owned());
    let (busy, quiet) = (some("owner-0"), some("owner-7"));
    // When the operation half way through was begun is not known here; seq stands for it.
    let half = Some(operations);
    vec![
        ("the newest 50", any()),
        ("the newest 500", OperationQuery { limit: 500, ..any() }),
        ("a page half way through", OperationQuery { before: half, ..any() }),
        ("sandbox", OperationQuery { sandbox, ..any() }),
        ("sandbox, unknown", OperationQuery { sandbox: Some(SandboxId::random()), ..any() }),
        ("owner of half", OperationQuery { owner: busy.clone(), ..any() }),
        ("owner of 1 in 200", OperationQuery { owner: quiet.clone(), ..any() }),
        ("key", OperationQuery { key: Some(KeyId::from_uuid(id(1, 22))), ..any() }),
        ("kind, common", OperationQuery { kind: some("exec"), ..any() }),
        ("kind, rare", OperationQuery { kind: some("key.revoke"), ..any() }),
        ("kind, unknown", OperationQuery { kind: some("nothing"), ..any() }),
        ("exit code 0", OperationQuery { exit_code: Some(0), ..any() }),
        ("exit code 42, rare", OperationQuery { exit_code: Some(42), ..any() }),
        ("outcome ok", OperationQuery { outcome: Some(Outcome::Ok), ..any() }),
        ("outcome failed", OperationQuery { outcome: Some(Outcome::Failed), ..any() }),
        ("outcome lost, none", OperationQuery { outcome: Some(Outcome::Lost), ..any() }),
        ("open", OperationQuery { open: true, ..any() }),
        ("text, common", OperationQuery { text: some("pytest"), ..any() }),
        ("text, rare", OperationQuery { text: some("needle7777 src"), ..any() }),
        ("text, one", OperationQuery { text: some("/run-123456/"), ..any() }),
        ("text, none", OperationQuery { text: some("rm -rf /"), ..any() }),
        ("text, two letters", OperationQuery { text: some("gr"), ..any() }),
        ("exit code 42, owner of half", OperationQuery { exit_code: Some(42), owner: busy.clone(), ..any() }),
        (
            "exit code 137, owner of 1 in 200",
            OperationQuery { exit_code: Some(137), owner: quiet.clone(), ..any() },
        ),
        (
            "kind rare, owner of half",
            OperationQuery { kind: some("key.revoke"), owner: busy.clone(), ..any() },
        ),
        ("text common, owner of half", OperationQuery { text: some("pytest"), owner: busy.clone(), ..any() }),
        (
            "text common, owner of 1 in 200",
            OperationQuery { text: some("pytest"), owner: quiet.clone(), ..any() },
        ),
        (
            "text rare, owner of half",
            OperationQuery { text: some("needle7777"), owner: busy.clone(), ..any() },
        ),
        ("text rare, owner of 1 in 200", OperationQuery { text: some("needle7777"), owner: quiet, ..any() }),
        ("text none, owner of half", OperationQuery { text: some("rm -rf /"), owner: busy, ..any() }),
        (
            "text common, unknown owner",
            OperationQuery { text: some("pytest"), owner: some("nobody"), ..any() },
        ),
        ("text common, exit code 42", OperationQuery { text: some("pytest"), exit_code: Some(42), ..any() }),
        (
            "kind exec, exit 137, outcome failed",
            OperationQuery {
                kind: some("exec"),
                exit_code: Some(137),
                outcome: Some(Outcome::Failed),
                ..any()
            },
        ),
    ]
}

async fn pages(store: &SqliteStore, operations: u64) {
    let middle = OperationQuery { before: Some(operations), limit: 1, ..OperationQuery::default() };
    let sandbox = store.audit_operations(&middle).await.unwrap()[0].begin.sandbox;
    let mut cases = queries(operations, sandbox);
    // A tenth of the time, somewhere in the middle.
    let at = async |seq| {
        store
            .audit_operations(&OperationQuery { before: Some(seq), limit: 1, ..OperationQuery::default() })
            .await
            .unwrap()[0]
            .at
    };
    let (since, until) = (Some(at(operations * 9 / 10).await), Some(at(operations).await));
    let any = OperationQuery::default;
    cases.push(("since and until", OperationQuery { since, until, ..any() }));
    cases.push(("until", OperationQuery { until, ..any() }));
    let quiet = Some("owner-7".to_owned());
    cases
        .push(("owner of 1 in 200, since and until", OperationQuery { owner: quiet, since, until, ..any() }));
    cases.push(("sandbox, since and until", OperationQuery { sandbox, since, until, ..any() }));
    let text = Some("needle7777".to_owned());
    cases.push(("text rare, since and until", OperationQuery { text, since, until, ..any() }));
    println!("a page, {operations} operations there, 50 a page:");
    for (what, query) in cases {
        let mut times = Vec::new();
        let mut found = 0;
        for _ in 0..30 {
            let start = Instant::now();
            found = store.audit_operations(&query).await.unwrap().len();
            times.push(start.elapsed());
        }
        spread(&format!("  {what} ({found})"), times);
    }
}

#[tokio::main]
async fn main() {
    let operations: u64 = std::env::args().nth(1).map_or(1_000_000, |count| count.parse().unwrap());
    let parent = std::env::args().nth(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(parent).unwrap();
    let (file, head) = (folder.path().join("atoll.db"), folder.path().join("audit.head"));
    let key = AuditKey::from_secret(&[1; 32]);
    let store = SqliteStore::open(&file).await.unwrap();
    let (ledger, _) = Ledger::open(Arc::new(store.clone()), key.clone(), &head).await.unwrap();
    let mut capture = Capture::new(&Redactor::default());
    capture.take(b"....................                                                     [100%]\n20 passed in 0.31s\n");
    let output = capture.finish();
    one_by_one("empty trail", &ledger, 0, &output).await;
    let start = Instant::now();
    fill(&ledger, 3000, operations, &output).await;
    let each = start.elapsed().as_secs_f64() / (operations - 3000) as f64;
    println!("250 at once: {:.0} operations a second, {:.3} ms each", 1.0 / each, each * 1e3);
    one_by_one("full trail", &ledger, operations, &output).await;
    pages(&store, operations).await;
    for (what, query) in [
        ("all", OperationQuery::default()),
        (
            "one owner of 1 in 200",
            OperationQuery { owner: Some("owner-7".into()), ..OperationQuery::default() },
        ),
    ] {
        let start = Instant::now();
        let summary = store.audit_summary(&query).await.unwrap();
        println!(
            "summary of {what} ({}): {:.0} ms",
            summary.total.count,
            start.elapsed().as_secs_f64() * 1e3
        );
    }
    ledger.close().await;
    let start = Instant::now();
    let Verdict::Sound(report) = verify(&store, &key, &head, None).await.unwrap() else {
        panic!("not sound")
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("verify, {} rows: {:.1} s; {peak}", report.last, start.elapsed().as_secs_f64());
    let (ledger, _) = Ledger::open(Arc::new(store.clone()), key, &head).await.unwrap();
    let start = Instant::now();
    let at = store.audit_rows(operations / 10, 1).await.unwrap()[0].at;
    let cleaned = ledger.cleanup(at, None).await.unwrap();
    println!("cleanup of {} rows: {:.1} s", cleaned.rows, start.elapsed().as_secs_f64());
    ledger.close().await;
    store.close().await;
    println!("the file: {} MB", std::fs::metadata(&file).unwrap().len() / 1_000_000);
}
