//! Debian's stress-ng as a tenant: every class of its stressors in one sandbox, while a neighbour and the
//! machine must go on. Every stressor must have run, or have said why it cannot. How long the neighbour's commands take
//! meanwhile is printed, and where it runs alone (`make stress`) no class may double the median.

use super::fixture::{Instance, says, shell, spec};
use atoll_provider::{Command, Container, ContainerSpec, Provider};
use atoll_types::Limits;
use std::{
    collections::BTreeSet,
    process,
    sync::Arc,
    time::{Duration, Instant},
};

/// Without `ATOLL_STRESS_CLASSES`: what is quick.
const SHORT: &str = "network,pipe,os";
const EVERY: &str =
    "cpu,cpu-cache,device,filesystem,gpu,interrupt,io,memory,network,os,pipe,scheduler,security,vm";

/// All stressors of a class, a few at a time: all at once exceed the sandbox's processes, and then most never start.
const BATCHES: &str = r#"
cd /workspace && set -- $(stress-ng --class 'CLASS?' | sed 's/.*: //')
code=0
while [ $# -gt 0 ]; do
    batch=
    for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
        if [ $# -gt 0 ]; then batch="$batch --$1 1"; shift; fi
    done
    stress-ng $batch --timeout SECONDSs --metrics-brief >> /dev/shm/said 2>&1 || code=$?
done
exit $code
"#;

/// What the machine itself must still be able to do.
fn machine_works() {
    let made = process::Command::new("sh")
        .args(["-c", "f=$(mktemp) && echo x > $f && rm $f && ls / > /dev/null"])
        .status();
    assert!(made.unwrap().success());
}

/// Times of a neighbour's commands, each of which must succeed.
async fn probe(neighbour: &Arc<dyn Container>, until: impl Fn() -> bool) -> Vec<Duration> {
    let mut times = Vec::new();
    while times.is_empty() || !until() {
        let began = Instant::now();
        assert_eq!(says(neighbour, "echo alive > /tmp/x && cat /tmp/x").await, "alive");
        times.push(began.elapsed());
        machine_works();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    times.sort_unstable();
    times
}

/// What stress-ng says of its stressors: those it started, those that did something, and those it said something of,
/// such as that the sandbox refuses what they need.
#[derive(Debug, Default, PartialEq)]
struct Told<'a> {
    started: BTreeSet<&'a str>,
    ran: BTreeSet<&'a str>,
    named: BTreeSet<&'a str>,
}

fn told(said: &str) -> Told<'_> {
    let mut told = Told::default();
    // `stress-ng: info:  [7] text`
    for line in said.lines().filter(|line| line.starts_with("stress-ng: ")) {
        let Some((head, text)) = line.split_once("] ") else { continue };
        if let Some(list) = text.strip_prefix("dispatching hogs: ") {
            told.started.extend(list.split(", ").filter_map(|one| one.split_once(' ')).map(|(_, name)| name));
        } else if head.contains("metrc:") {
            let mut fields = text.split_whitespace();
            let (name, done) = (fields.next(), fields.next().and_then(|ops| ops.parse::<u64>().ok()));
            told.ran.extend(name.filter(|_| done.is_some_and(|done| done > 0)));
        } else {
            told.named.extend(text.split([' ', ':']).next());
        }
    }
    told
}

#[test]
fn what_stress_ng_says_is_read() {
    let said = "stress-ng: info:  [7] dispatching hogs: 1 sock, 1 sctp, 1 null\n\
                stress-ng: info:  [7] sctp: SCTP protocol not supported, skipping stressor\n\
                stress-ng: metrc: [7] stressor       bogo ops real time  usr time  sys time   bogo ops/s\n\
                stress-ng: metrc: [7] sock                27      1.04      0.01      0.03        25.97\n\
                stress-ng: metrc: [7] null                 0      1.04      0.01      0.03        25.97\n";
    let told = told(said);
    assert_eq!(told.started, ["null", "sctp", "sock"].into());
    assert_eq!((told.ran, told.named), (["sock"].into(), ["sctp"].into()));
}

/// The time below which this many percent of them are, in milliseconds.
fn at(times: &[Duration], percent: usize) -> f64 {
    times[(times.len() - 1) * percent / 100].as_secs_f64() * 1000.0
}

fn shown(times: &[Duration]) -> String {
    let (median, slow) = (at(times, 50), at(times, 95));
    format!("median {median:.1} ms, 95th percentile {slow:.1} ms of {}", times.len())
}

#[tokio::test]
async fn a_tenant_that_stresses_everything_harms_only_itself() {
    let instance = Instance::start().await;
    let asked = std::env::var("ATOLL_STRESS_CLASSES");
    let (classes, seconds) = match asked.as_deref() {
        Ok("every") => (EVERY.to_owned(), "3"),
        Ok(named) => (named.to_owned(), "3"),
        Err(_) => (SHORT.to_owned(), "1"),
    };
    let neighbour = instance.container("default").await;
    let began = Instant::now();
    let quiet = probe(&neighbour, || began.elapsed() > Duration::from_secs(1)).await;
    println!("nothing: {}", shown(&quiet));
    let mut slow = Vec::new();
    for class in classes.split(',') {
        let limits = Limits { memory_bytes: 256 << 20, ..Limits::default() };
        let tenant = instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap();
        let line = BATCHES.replace("CLASS", class).replace("SECONDS", seconds);
        let command = Command { timeout: Some(Duration::from_secs(250)), ..Command::shell(&line) };
        let stressed = Arc::clone(&tenant);
        let stress = tokio::spawn(async move { stressed.guest().run(&command).await });
        let times = probe(&neighbour, || stress.is_finished()).await;
        let ended = stress.await.unwrap();
        let code = ended.as_ref().map_or(None, |ended| ended.report.exit_code);
        let ratio = at(&times, 50) / at(&quiet, 50);
        println!("{class}: {}, {ratio:.1} times ({:?})", shown(&times), ended.as_ref().map(|_| code));
        if ratio > 2.0 {
            slow.push((class, ratio));
        }
        // Whatever became of its commands, the tenant's sandbox is there or has a reason.
        if tenant.state().await.is_ok_and(|state| state == atoll_provider::State::Running) {
            shell(&tenant, "true").await;
            let said = says(&tenant, "cat /dev/shm/said").await;
            let Told { started, ran, named } = told(&said);
            let silent: Vec<_> =
                started.iter().filter(|name| !ran.contains(*name) && !named.contains(*name)).collect();
            println!("  {} stressors, {} ran; nothing is known of {silent:?}", started.len(), ran.len());
            assert!(!started.is_empty(), "{class}: nothing was started ({code:?}): {said}");
            // Of one that the memory limit ended nothing is known, nor of any where it ended stress-ng itself.
            let whole = said.contains("metrc:");
            assert!(
                !whole || !ran.is_empty() && silent.len() * 4 <= started.len(),
                "{class}: {silent:?} did not run: {said}"
            );
        }
        instance.provider.destroy(tenant.id()).await.unwrap();
    }
    // Beside other tests a time says nothing.
    assert!(asked.is_err() || slow.is_empty(), "a neighbour's commands took longer than twice: {slow:?}");
}
