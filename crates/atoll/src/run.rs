//! `atoll run`: one throw-away sandbox for one command. Input, output and signals pass through, and
//! the exit code is the command's. Whatever ends this process ends the sandbox.

use crate::{FAULT, cli, own, run_image, run_mount, run_network::Network};
use atoll_provider::{
    Command, Container, ContainerSpec, ExecEvent, ExecReport, Guest, OutputStream, Provider,
};
use atoll_provider_native::{LaunchOptions, NativeProvider, Started, ensure_launcher};
use atoll_types::{Error, ErrorCode, ExecId, Isolation, Limits, Profile, Result, StartStage};
use bytes::Bytes;
use futures_util::stream;
use std::{collections::BTreeMap, os::unix::ffi::OsStrExt, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    signal::unix::{SignalKind, signal},
};

/// Runs the command and returns its exit code.
pub(crate) async fn run(mut options: cli::Run) -> Result<u8> {
    let network = Network::prepare(&options).await?;
    let mut spec = spec(&options)?;
    if let Some(image) = &options.image {
        let directory = run_image::apply(&options.data.dir(), image, &mut spec).await?;
        if options.workdir.is_empty() {
            options.workdir = directory.unwrap_or_default();
        }
    }
    if let Some(network) = &network {
        let given = std::mem::take(&mut spec.environment);
        spec.environment = network.variables.iter().cloned().chain(given).collect();
    }
    let Some((own, launch)) = run_mount::prepare(&options, &mut spec.profile)? else {
        let launch = LaunchOptions {
            data_dir: options.data.dir(),
            client_uids: Vec::new(),
            ephemeral: true,
            extra: Vec::new(),
        };
        return run_in(&launch, spec, network.as_ref(), &options, None).await;
    };
    let sweeping = tokio::spawn(own::sweep(options.data.dir().join(own::RUNS)));
    let result = run_in(&launch, spec, network.as_ref(), &options, Some(&own)).await;
    let _ = sweeping.await;
    // Also where no sandbox could be made.
    own.end().await.and(result)
}

/// Runs the command in a sandbox of this launcher.
async fn run_in(
    launch: &LaunchOptions,
    spec: ContainerSpec,
    network: Option<&Network>,
    options: &cli::Run,
    own: Option<&own::Own>,
) -> Result<u8> {
    let Started { client, visit, .. } = ensure_launcher(launch).await?;
    let provider = NativeProvider::new(client);
    let id = spec.id;
    // The sandbox ends with this process, however that ends.
    let (container, held) = provider.create_held(spec).await?;
    drop(visit);
    // Before the command starts, so that none of its connections is lost.
    let served = match network {
        Some(network) => Some(network.serve(&container).await?),
        None => None,
    };
    let result = follow(container, &command(options)).await;
    drop(served);
    match own {
        // While the container is held: the launcher ends with its last one.
        Some(own) => own.end().await?,
        None => provider.destroy(id).await?,
    }
    drop(held);
    result.map(|report| explain(&report))
}

fn spec(options: &cli::Run) -> Result<ContainerSpec> {
    let mut profile = Profile::builtin(&options.profile).ok_or_else(|| {
        let message =
            format!("there is no profile {:?}; there are {}", options.profile, Profile::BUILTIN.join(", "));
        Error::invalid("profile", message)
    })?;
    if let Some(runtime) = &options.runtime {
        profile.isolation = Isolation::Runtime(runtime.clone());
    }
    let limits = Limits {
        memory_bytes: options.memory,
        cpu_millis: options.cpus,
        disk_bytes: options.disk,
        processes: options.processes,
        ..Limits::default()
    };
    profile.validate()?;
    limits.validate()?;
    Ok(ContainerSpec {
        limits,
        environment: environment(&options.env)?,
        ..ContainerSpec::throw_away(profile)
    })
}

fn environment(wanted: &[String]) -> Result<BTreeMap<String, String>> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => match std::env::var(text) {
            Ok(value) => Ok((text.clone(), value)),
            Err(_) => Err(Error::invalid("env", format!("{text} is not set here; give it as {text}=VALUE"))),
        },
    };
    wanted.iter().map(pair).collect()
}

fn command(options: &cli::Run) -> Command {
    let mut command = Command::new(options.command.iter().map(|part| part.as_bytes().to_vec()));
    command.working_directory.clone_from(&options.workdir);
    command.user.clone_from(&options.user);
    command.timeout = options.timeout;
    command.stdin = true;
    command.lossless = true;
    command
}

async fn follow(container: Arc<dyn Container>, command: &Command) -> Result<ExecReport> {
    let guest = container.guest();
    let id = ExecId::random();
    let mut events = guest.exec(id, command).await?;
    let helpers =
        [tokio::spawn(pass_stdin(guest.clone(), id)), tokio::spawn(pass_signals(guest.clone(), id))];
    let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
    let mut listening = true;
    let report = loop {
        match events.next().await? {
            Some(ExecEvent::Started(_)) => {}
            Some(ExecEvent::Output { .. }) if !listening => {}
            Some(ExecEvent::Output { stream, data, .. }) => {
                let written = match stream {
                    OutputStream::Stdout => write(&mut stdout, &data).await,
                    OutputStream::Stderr => write(&mut stderr, &data).await,
                };
                // The pipe is closed, as in `atoll run … | head`: the command ends as it would there.
                if written.is_err() {
                    listening = false;
                    let _ = guest.signal(id, 13).await;
                }
            }
            Some(ExecEvent::Ended(report)) => break report,
            None => return Err(Error::new(ErrorCode::Unavailable, "the command's output broke off")),
        }
    };
    for helper in helpers {
        helper.abort();
    }
    Ok(report)
}

async fn write(to: &mut (impl AsyncWriteExt + Unpin), data: &[u8]) -> std::io::Result<()> {
    to.write_all(data).await?;
    to.flush().await
}

async fn pass_stdin(guest: Guest, id: ExecId) {
    let input = stream::unfold(tokio::io::stdin(), |mut stdin| async move {
        let mut buffer = vec![0; 64 * 1024];
        match stdin.read(&mut buffer).await {
            Ok(n) if n > 0 => {
                buffer.truncate(n);
                Some((Bytes::from(buffer), stdin))
            }
            _ => None,
        }
    });
    // A command that does not read its input is no fault.
    let _ = guest.write_stdin(id, input).await;
}

/// Forwards signals from a terminal or a supervisor.
async fn pass_signals(guest: Guest, id: ExecId) {
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ];
    let waiting = kinds.into_iter().filter_map(|kind| Some((kind, signal(kind).ok()?)));
    let tasks = waiting.map(|(kind, mut signals)| {
        let guest = guest.clone();
        async move {
            while signals.recv().await.is_some() {
                let _ = guest.signal(id, kind.as_raw_value()).await;
            }
        }
    });
    futures_util::future::join_all(tasks).await;
}

/// Explains what the exit code alone does not, and returns it.
fn explain(report: &ExecReport) -> u8 {
    if let Some(failure) = &report.failure {
        eprintln!("atoll: {}", failure.message);
        return if failure.stage == StartStage::Exec { report.shell_code().as_u8() } else { FAULT };
    }
    if report.oom_killed {
        eprintln!("atoll: the memory limit ended the command; give it more with --memory");
    }
    if report.timed_out {
        eprintln!("atoll: the command's time was up");
    }
    if report.dropped_bytes > 0 {
        eprintln!("atoll: {} bytes of output were dropped", report.dropped_bytes);
    }
    report.shell_code().as_u8()
}
