//! Debian's stress-ng as a tenant: every class of its stressors in one sandbox, while a neighbour and the
//! machine must go on. How long the neighbour's commands take meanwhile is printed (`make stress`), and not
//! asserted on.

use super::fixture::{Instance, says, shell, spec};
use atoll_provider::{Command, Container, ContainerSpec, Provider};
use atoll_types::Limits;
use std::{
    process,
    sync::Arc,
    time::{Duration, Instant},
};

/// Without `ATOLL_STRESS_CLASSES`: what is quick.
const SHORT: &str = "network,pipe,os";
const EVERY: &str =
    "cpu,cpu-cache,device,filesystem,gpu,interrupt,io,memory,network,os,pipe,scheduler,security,vm";

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

fn shown(times: &[Duration]) -> String {
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1000.0;
    format!("median {:.1} ms, 95th percentile {:.1} ms of {}", at(50), at(95), times.len())
}

#[tokio::test]
async fn a_tenant_that_stresses_everything_harms_only_itself() {
    let instance = Instance::start().await;
    let (classes, seconds) = match std::env::var("ATOLL_STRESS_CLASSES").as_deref() {
        Ok("every") => (EVERY.to_owned(), "3"),
        Ok(named) => (named.to_owned(), "3"),
        Err(_) => (SHORT.to_owned(), "1"),
    };
    let neighbour = instance.container("default").await;
    let began = Instant::now();
    let quiet = probe(&neighbour, || began.elapsed() > Duration::from_secs(1)).await;
    println!("nothing: {}", shown(&quiet));
    for class in classes.split(',') {
        let limits = Limits { memory_bytes: 256 << 20, ..Limits::default() };
        let tenant = instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap();
        let line = format!(
            "cd /workspace && stress-ng --class {class} --all 1 --timeout {seconds}s --quiet 2>&1 | tail -3"
        );
        let command = Command { timeout: Some(Duration::from_secs(30)), ..Command::shell(&line) };
        let stressed = Arc::clone(&tenant);
        let stress = tokio::spawn(async move { stressed.guest().run(&command).await });
        let times = probe(&neighbour, || stress.is_finished()).await;
        // Whatever became of its commands, the tenant's sandbox is there or has a reason.
        let ended = stress.await.unwrap();
        println!(
            "{class}: {} ({})",
            shown(&times),
            ended.map_or_else(|e| e.to_string(), |f| format!("{:?}", f.report.exit_code))
        );
        if tenant.state().await.is_ok_and(|state| state == atoll_provider::State::Running) {
            shell(&tenant, "true").await;
        }
        instance.provider.destroy(tenant.id()).await.unwrap();
    }
}
