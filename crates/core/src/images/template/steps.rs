//! The steps of a template, in a sandbox whose root filesystem is the image that is built. What a step does is hostile code's:
//! it runs with the sandbox's limits and egress policy, and its output is bounded and only passed on.

use super::files::{BuildFiles, CopyTarget, small_layer};
use crate::{
    files::{Tool, ToolOptions, feed_tool},
    image_specs::dockerfile::{CommandForm, Step, StepKind},
    images::{build_log::BuildLog, config::ids_or_notice, hidden::name_left_out},
    sandboxes::check_environment,
    start_check::{run_once, shown_tail},
};
use atoll_guest_tools::{AppliedLayer, ApplyLayer, Compression, ImageLimits};
use atoll_provider::{Command, Container};
use atoll_types::{Error, ErrorCode, ExecId, ExecReport, ImageConfig, ImageStart, Result, time::now_ms};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long one command may take.
const LONGEST_STEP: Duration = Duration::from_secs(3600);
/// Output that waits for this server; the command then waits too.
const WAITING: u64 = 4 << 20;
/// The longest file of users or groups that is read.
const LONGEST_USERS: u64 = 1 << 20;
/// The most characters of a step that are shown.
const SHOWN: usize = 200;

/// Where steps run, and what is known of the image so far.
pub(super) struct Steps {
    pub(super) container: Arc<dyn Container>,
    pub(super) log: BuildLog,
    pub(super) files: Option<BuildFiles>,
    pub(super) config: ImageConfig,
    /// Whether commands run as root, and not as the image's user.
    pub(super) as_root: bool,
}

/// What a step applies to the image.
#[derive(Debug, Clone, Copy)]
enum LayerForm {
    /// A layer that this server wrote.
    Layer,
    /// An archive of the caller's, which may be compressed, and whose names are never whiteouts.
    PlainArchive,
}

/// Whether a step changes files; the others change the configuration alone.
pub(super) fn changes_files(kind: &StepKind) -> bool {
    matches!(
        kind,
        StepKind::Run { .. } | StepKind::Copy { .. } | StepKind::File { .. } | StepKind::Workdir(_)
    )
}

fn command_line(command: &CommandForm) -> String {
    match command {
        CommandForm::Shell(line) => line.clone(),
        CommandForm::Exec(words) => serde_json::to_string(words).unwrap_or_default(),
    }
}

/// A step as a person would write it.
pub(super) fn shown(kind: &StepKind) -> String {
    let pairs = |pairs: &[(String, String)]| {
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    let text = match kind {
        StepKind::Run { command, .. } => format!("RUN {}", command_line(command)),
        StepKind::Copy { sources, target, unpack, .. } => {
            format!("{} {} {target}", if *unpack { "ADD" } else { "COPY" }, sources.join(" "))
        }
        StepKind::File { path, .. } => format!("file {path}"),
        StepKind::Env(set) => format!("ENV {}", pairs(set)),
        StepKind::Workdir(path) => format!("WORKDIR {path}"),
        StepKind::User(user) => format!("USER {user}"),
        StepKind::Entrypoint(command) => format!("ENTRYPOINT {}", command_line(command)),
        StepKind::Cmd(command) => format!("CMD {}", command_line(command)),
        StepKind::Label(labels) => format!("LABEL {}", pairs(labels)),
    };
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    atoll_types::text::cut(&plain, SHOWN).to_owned()
}

fn words(command: &CommandForm) -> Vec<String> {
    match command {
        CommandForm::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        CommandForm::Exec(words) => words.clone(),
    }
}

/// A path from the root, by the working directory where it is relative.
pub(super) fn absolute(config: &ImageConfig, path: &str) -> String {
    match (path.starts_with('/'), config.working_directory.as_deref()) {
        (true, _) => path.to_owned(),
        (false, Some(directory)) => format!("{}/{path}", directory.trim_end_matches('/')),
        (false, None) => format!("/{path}"),
    }
}

/// What a step makes of the configuration.
pub(super) fn configure(config: &mut ImageConfig, kind: &StepKind) -> Result<()> {
    match kind {
        StepKind::Env(set) => {
            config.environment.extend(set.iter().cloned());
            check_environment("env", &config.environment)?;
        }
        StepKind::Workdir(path) => {
            let path = absolute(config, path);
            let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
            if parts.contains(&"..") {
                return Err(Error::invalid("dockerfile", format!("WORKDIR {path:?} holds `..`")));
            }
            config.working_directory = Some(format!("/{}", parts.join("/"))).filter(|path| path != "/");
        }
        StepKind::User(user) => config.user = Some(user.clone()),
        StepKind::Entrypoint(command) => {
            // A new entry point has no arguments until a CMD says some.
            (config.entrypoint, config.command) = (words(command), Vec::new());
        }
        StepKind::Cmd(command) => config.command = words(command),
        StepKind::Label(labels) => {
            config.labels.extend(labels.iter().cloned());
            ImageStart::read(&config.labels).map_err(|e| e.at("dockerfile"))?;
        }
        StepKind::Run { .. } | StepKind::Copy { .. } | StepKind::File { .. } => {}
    }
    Ok(())
}

/// Why a command that ran did not succeed.
fn verdict(report: &ExecReport, tail: &[u8]) -> Option<(ErrorCode, String)> {
    if let Some(failure) = &report.failure {
        return Some((ErrorCode::ExecFailed, format!("could not be started: {}", failure.message)));
    }
    let tail = shown_tail(tail);
    match report.exit_code {
        _ if report.timed_out => {
            Some((ErrorCode::Timeout, format!("took more than {} seconds", LONGEST_STEP.as_secs())))
        }
        _ if report.oom_killed => {
            Some((ErrorCode::LimitExceeded, "needed more memory than the build may have".into()))
        }
        Some(0) => None,
        Some(code) => Some((ErrorCode::ExecFailed, format!("ended with exit code {code}{tail}"))),
        None => {
            let signal = report.signal.unwrap_or_default();
            Some((ErrorCode::ExecFailed, format!("was ended by signal {signal}{tail}")))
        }
    }
}

/// Runs a command to its end, with its output in the log. `what` names it in errors.
pub(super) async fn run_logged(
    container: &Arc<dyn Container>,
    log: &BuildLog,
    mut command: Command,
    what: &str,
) -> Result<()> {
    command.timeout = Some(LONGEST_STEP);
    (command.lossless, command.output_limit) = (true, Some(WAITING));
    let (report, tail) = run_once(container, ExecId::random(), &command, &mut |data| log.write(data)).await?;
    match verdict(&report, &tail) {
        Some((code, why)) => Err(Error::new(code, format!("{what} {why}"))),
        None => Ok(()),
    }
}

impl Steps {
    /// Carries a step out, and what it makes of the configuration.
    pub(super) async fn step(&mut self, step: &Step) -> Result<()> {
        match &step.kind {
            StepKind::Run { command, arguments } => self.run(command, arguments, &shown(&step.kind)).await?,
            StepKind::Copy { sources, target, unpack, owner, mode } => {
                self.copy(sources, target, *unpack, owner.as_deref(), mode.as_deref()).await?;
            }
            StepKind::File { path, content, mode } => {
                let mode = octal(mode.as_deref()).unwrap_or(0o644);
                let layer = small_layer(path, Some(content.as_bytes()), mode, now_ms() / 1000);
                self.apply("/", LayerForm::Layer, stream::iter([Bytes::from(layer)])).await?;
            }
            _ => {}
        }
        configure(&mut self.config, &step.kind)?;
        if let (StepKind::Workdir(_), Some(path)) = (&step.kind, self.config.working_directory.clone())
            && !self.is_folder(&path).await?
        {
            let layer = small_layer(&path, None, 0o755, now_ms() / 1000);
            self.apply("/", LayerForm::Layer, stream::iter([Bytes::from(layer)])).await?;
        }
        Ok(())
    }

    async fn run(&self, command: &CommandForm, arguments: &[(String, String)], what: &str) -> Result<()> {
        let mut run = Command::new(words(command));
        let mut environment: BTreeMap<String, String> = arguments.iter().cloned().collect();
        environment.extend(self.config.environment.clone());
        run.environment = environment;
        run.working_directory = self.config.working_directory.clone().unwrap_or_else(|| "/".into());
        run.user = match self.as_root {
            // The user of the sandbox that builds.
            true => String::new(),
            false => self.config.user.clone().unwrap_or_default(),
        };
        run_logged(&self.container, &self.log, run, what).await
    }

    async fn is_folder(&self, path: &str) -> Result<bool> {
        match self.container.guest().stat(path, true).await {
            Ok(entry) => Ok(entry.kind == atoll_provider::EntryKind::Directory),
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn copy(
        &self,
        sources: &[String],
        target: &str,
        unpack: bool,
        owner: Option<&str>,
        mode: Option<&str>,
    ) -> Result<()> {
        let files = self.files.as_ref().ok_or_else(no_files)?;
        let path = absolute(&self.config, target);
        let mut exists = self.is_folder(&path).await?;
        let owner = match owner {
            Some(owner) => self.owner(owner).await?,
            None => (0, 0),
        };
        let mut copied = Vec::new();
        for source in sources {
            let mut selected = files.select(source)?;
            let archives = if unpack { BuildFiles::take_archives(&mut selected)? } else { Vec::new() };
            copied.extend(selected);
            for archive in archives {
                if !exists {
                    self.container.guest().make_dir(&path, true).await?;
                    exists = true;
                }
                self.apply(&path, LayerForm::PlainArchive, files.archive(archive)).await?;
            }
        }
        if copied.is_empty() {
            return Ok(());
        }
        let is_folder = exists || sources.len() > 1;
        let target = CopyTarget { path, exists, is_folder, owner, mode: octal(mode) };
        self.apply("/", LayerForm::Layer, files.layer(&copied, &target)?).await
    }

    /// Applies a layer to a folder of the image.
    async fn apply(
        &self,
        target: &str,
        form: LayerForm,
        layer: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<()> {
        let (compression, plain) = match form {
            LayerForm::Layer => (Compression::None, false),
            LayerForm::PlainArchive => (Compression::Detect, true),
        };
        let request = ApplyLayer {
            target: target.to_owned(),
            compression,
            digest: None,
            diff_id: None,
            limits: ImageLimits::default(),
            plain,
        };
        let tool = Tool::start(&self.container, "apply-layer", &request, ToolOptions::fed()).await?;
        let applied: AppliedLayer = feed_tool(&self.container, tool, layer.map(Ok)).await?;
        name_left_out(&self.log, [applied.left_out]);
        Ok(())
    }

    /// A text file of the image; empty where there is none.
    async fn users(&self, path: &str) -> String {
        let Ok(file) = self.container.guest().read_file(path, 0, LONGEST_USERS).await else {
            return String::new();
        };
        let bytes = file.collect(LONGEST_USERS as usize).await.unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The ids of an owner: `user` or `user:group`, each by name or number.
    async fn owner(&self, owner: &str) -> Result<(u32, u32)> {
        let (user, group) = owner.split_once(':').map_or((owner, None), |(user, group)| (user, Some(group)));
        let (users, groups) = (self.users("/etc/passwd").await, self.users("/etc/group").await);
        let field = |text: &str, name: &str, at: usize| {
            let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
            line.split(':').nth(at)?.parse::<u32>().ok()
        };
        let unknown =
            || Error::invalid("dockerfile", format!("--chown={owner}: the image has no such owner"));
        let uid = user.parse().ok().or_else(|| field(&users, user, 2)).ok_or_else(unknown)?;
        let gid = match group {
            Some(group) => group.parse().ok().or_else(|| field(&groups, group, 2)),
            None => field(&users, user, 3).or(Some(uid)),
        };
        Ok((uid, gid.ok_or_else(unknown)?))
    }

    /// The configuration of the finished image.
    pub(super) async fn finished(&self) -> ImageConfig {
        let mut config = self.config.clone();
        let user = config.user.clone().unwrap_or_default();
        config.ids = match user.is_empty() {
            true => None,
            false => {
                let (users, groups) = (self.users("/etc/passwd").await, self.users("/etc/group").await);
                ids_or_notice(&user, &users, &groups, &self.log)
            }
        };
        config
    }
}

fn octal(mode: Option<&str>) -> Option<u32> {
    mode.and_then(|mode| u32::from_str_radix(mode, 8).ok())
}

pub(super) fn no_files() -> Error {
    Error::invalid("dockerfile", "a step copies files, and none came with the build")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_make_the_configuration() {
        let mut config = ImageConfig::default();
        let shell = |line: &str| CommandForm::Shell(line.into());
        for kind in [
            StepKind::Env(vec![("A".into(), "1".into())]),
            StepKind::Workdir("srv".into()),
            StepKind::Workdir("./app//x".into()),
            StepKind::User("app".into()),
            StepKind::Cmd(shell("gone")),
            StepKind::Entrypoint(CommandForm::Exec(vec!["run".into()])),
            StepKind::Label(vec![("l".into(), "v".into())]),
        ] {
            configure(&mut config, &kind).unwrap();
        }
        assert_eq!(config.working_directory.as_deref(), Some("/srv/app/x"));
        assert_eq!((config.entrypoint.clone(), config.command.clone()), (vec!["run".into()], vec![]));
        assert_eq!(config.user.as_deref(), Some("app"));
        configure(&mut config, &StepKind::Cmd(shell("echo a"))).unwrap();
        assert_eq!(config.command, ["/bin/sh", "-c", "echo a"]);
        assert!(configure(&mut config, &StepKind::Workdir("../x".into())).is_err());
        assert!(configure(&mut config, &StepKind::Env(vec![("A=B".into(), String::new())])).is_err());
        let label = |value: &str| StepKind::Label(vec![("atoll.start_command".into(), value.into())]);
        configure(&mut config, &label("serve")).unwrap();
        assert!(configure(&mut config.clone(), &label(" ")).is_err());
        configure(&mut config, &StepKind::Workdir("/".into())).unwrap();
        assert_eq!(config.working_directory, None);
    }

    #[test]
    fn a_step_is_shown_in_one_line() {
        let run =
            StepKind::Run { command: CommandForm::Shell("a\nb \u{1b}[2J".into()), arguments: Vec::new() };
        assert_eq!(shown(&run), "RUN a b  [2J");
        let long = StepKind::User("x".repeat(1000));
        assert!(shown(&long).len() <= SHOWN);
    }
}
