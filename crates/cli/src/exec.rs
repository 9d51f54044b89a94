//! `atoll exec`: the command's output is passed through byte by byte while it runs, and its exit code becomes
//! ours. Only with `--json` and without `--stream` the answer is one piece, after the command. Standard input
//! is passed too where it is no terminal, or with `-i`; with `-t` the command has a terminal.

use crate::{
    FAULT, Failure,
    args::{Exec, Shell},
    input, pairs,
    print::{Printer, Step},
    resolve, shell, terminal,
};
use atoll_client::{Client, ExecRequest, Uuid};
use std::io::{self, Read};

/// The server's largest request, less room for the rest of it.
const LARGEST_STDIN: u64 = (4 << 20) - (64 << 10);

/// What a shell shows for a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// All of standard input, for a result that is one piece of JSON.
fn stdin() -> Result<String, Failure> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(LARGEST_STDIN + 1).read_to_end(&mut text);
    read.map_err(|e| Failure::file("standard input".as_ref(), &e))?;
    let whole = || Failure::usage("stdin", "with --json input is UTF-8 text of 4 MiB at most; add --stream");
    let text = String::from_utf8(text).map_err(|_| whole())?;
    let sent = serde_json::to_string(&text).map_or(u64::MAX, |json| json.len() as u64);
    if sent > LARGEST_STDIN {
        return Err(whole());
    }
    Ok(text)
}

/// Where a command's input comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    None,
    /// Sent while the command runs.
    Passed,
    /// Sent with the request.
    Whole,
}

/// Whether the result is one JSON value, which is printed after the command: nothing is printed or sent before.
fn one_piece(options: &Exec) -> bool {
    options.server.json && !options.stream && !options.detach
}

fn input(options: &Exec) -> Input {
    match (options.interactive, one_piece(options) || options.detach) {
        (true, _) if one_piece(options) => Input::Whole,
        (true, _) => Input::Passed,
        (false, false) if input::is_given() => Input::Passed,
        (false, _) => Input::None,
    }
}

fn request(options: Exec, input: Input) -> Result<ExecRequest, Failure> {
    let streams = !one_piece(&options) && !options.detach;
    let Exec { timeout, env, workdir, user, shell, command, .. } = options;
    Ok(ExecRequest {
        arguments: shell.is_none().then_some(command),
        command: shell,
        timeout_seconds: timeout.map(|time| time.as_secs_f64()),
        working_directory: workdir,
        env_vars: pairs::map(env),
        stdin: if input == Input::Whole { Some(stdin()?) } else { None },
        stdin_open: input == Input::Passed,
        // A slow reader must not cost output; a command in the background has no reader.
        lossless: streams,
        user,
    })
}

pub(crate) async fn run(options: Exec) -> Result<u8, Failure> {
    if options.tty {
        return shell::run(at_terminal(options)).await;
    }
    let client = options.server.client()?;
    let (json, typed) = (options.server.json, options.id.clone());
    let id = resolve::sandbox(&client, &typed).await?;
    let about = |failure: Failure| failure.about(&typed);
    let input = input(&options);
    let (one_piece, detaches) = (one_piece(&options), options.detach);
    let request = request(options, input)?;
    if detaches {
        let exec = client.exec_background(id, &request).await.map_err(|e| about(e.into()))?;
        match json {
            true => terminal::print_json(&exec.json)?,
            false => terminal::print(&format!("{}\n", exec.exec_id.simple()))?,
        }
        if input == Input::Passed {
            let sent = client.exec_stdin(id, exec.exec_id, input::pieces()).await;
            sent.map_err(|e| about(e.into()))?;
        }
        return Ok(0);
    }
    if !one_piece {
        return stream(&client, id, &request, json).await.map_err(about);
    }
    let result = client.exec(id, &request).await.map_err(|e| about(e.into()))?;
    quietly(terminal::print_json(&result.json))?;
    Ok(u8::try_from(result.exit_code).unwrap_or(u8::MAX))
}

/// The same command at a terminal, as a line for the shell. Variables go beside it: what a command line has is in the
/// audit trail, and in the list of processes inside.
fn at_terminal(options: Exec) -> Shell {
    let Exec { id, env, workdir, user, shell, command, server, .. } = options;
    let line = shell.unwrap_or_else(|| {
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        format!("exec {}", words.join(" "))
    });
    Shell { id, command: Some(line), attach: None, cwd: workdir, user, env, server }
}

/// One word of a shell, quoted.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Prints while the command runs. Ctrl-C kills the command; so does a broken connection, unless the server
/// itself is gone.
async fn stream(client: &Client, id: Uuid, request: &ExecRequest, json: bool) -> Result<u8, Failure> {
    let mut events = client.exec_stream(id, request).await?;
    let mut printer = Printer::new(0, json);
    let mut feeding = None;
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            _ = tokio::signal::ctrl_c() => {
                if let Some(exec) = printer.exec() {
                    client.exec_kill(id, exec).await?;
                }
                terminal::note("interrupted; the command was ended");
                return Ok(INTERRUPTED);
            }
        };
        let step = match printer.print(event) {
            // The reader is gone, as in `atoll exec … | head`: the command ends as it would there.
            Err(failure) if failure.is_broken_pipe() => {
                printer.mute();
                if let Some(exec) = printer.exec() {
                    let _ = client.exec_signal(id, exec, "PIPE").await;
                }
                Step::More
            }
            step => step?,
        };
        if let (None, true, Some(exec)) = (&feeding, request.stdin_open, printer.exec()) {
            let client = client.clone();
            // A command that ends or closes its input before all of it is read is no fault; the events show
            // its end.
            feeding = Some(tokio::spawn(async move { client.exec_stdin(id, exec, input::pieces()).await }));
        }
        match step {
            Step::More => {}
            Step::Exit(exec) => return Ok(exit_code(&exec)),
            Step::Broken(reason) => {
                let message = format!("{reason}; `atoll logs -f` may show more of it");
                return Err(atoll_types::Error::new(atoll_types::ErrorCode::Unavailable, message).into());
            }
        }
    }
}

/// The command's own, unless Atoll could not come so far as to start its program.
fn exit_code(exec: &atoll_client::Exec) -> u8 {
    if exec.failure.as_ref().is_some_and(|failure| failure.stage != "exec") {
        return FAULT;
    }
    exec.exit_code.map_or(u8::MAX, |code| u8::try_from(code).unwrap_or(u8::MAX))
}

/// A closed output does not change the command's result.
fn quietly(printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(failure) if failure.is_broken_pipe() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Remote;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Remote,
    }

    fn exec(line: &[&str]) -> Exec {
        let words = ["atoll", "exec"].iter().chain(line);
        let Remote::Exec(options) = Cli::parse_from(words).command else { panic!("another command") };
        options
    }

    #[test]
    fn a_command_is_typed_with_and_without_dashes() {
        let plain = exec(&["3f2a", "ls", "-la", "--stream"]);
        assert_eq!(
            (plain.command, plain.stream),
            (vec!["ls".into(), "-la".into(), "--stream".into()], false)
        );
        let dashes = exec(&["3f2a", "--stream", "--", "ls", "-la"]);
        assert_eq!((dashes.command, dashes.stream), (vec!["ls".to_owned(), "-la".into()], true));
        let both = exec(&["-it", "3f2a", "bash"]);
        assert!(both.interactive && both.tty && both.command == ["bash"]);
        assert!(exec(&["-ti", "3f2a", "bash"]).tty && exec(&["3f2a", "-d", "--shell", "x y"]).detach);
    }

    #[test]
    fn a_terminal_gets_the_same_words() {
        let shell =
            at_terminal(exec(&["-t", "-e", "A=it's", "-w", "src", "3f2a", "bash", "-c", "echo $A 'x'"]));
        let line = r"exec bash -c 'echo $A '\''x'\'''";
        assert_eq!((shell.command.as_deref(), shell.cwd.as_deref()), (Some(line), Some("src")));
        assert!(shell.env.len() == 1 && shell.env[0].name == "A" && shell.env[0].value == "it's");
        assert_eq!(at_terminal(exec(&["-t", "3f2a", "--shell", "a | b"])).command.as_deref(), Some("a | b"));
    }
}
