//! What the program says of itself, as golden files: a change shows in review.

use std::process::{Command, Output};

fn atoll(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command.args(arguments).env_clear().envs(variables.iter().copied()).output().unwrap()
}

fn help(of: &[&str]) -> String {
    let ran = atoll(&[of, &["--help"]].concat(), &[]);
    assert!(ran.status.success(), "{of:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// The commands that a help lists.
fn listed(help: &str) -> Vec<String> {
    let below = help.lines().skip_while(|line| !line.ends_with("ommands:")).skip(1);
    let lines = below.take_while(|line| line.starts_with("  ") || line.is_empty());
    let named = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = named.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    names.filter(|name| name != "help").collect()
}

/// All commands, with those below them.
fn commands() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut left: Vec<Vec<String>> = listed(&help(&[])).into_iter().map(|name| vec![name]).collect();
    while let Some(command) = left.pop() {
        let names: Vec<&str> = command.iter().map(String::as_str).collect();
        left.extend(listed(&help(&names)).into_iter().map(|name| [command.clone(), vec![name]].concat()));
        all.push(command);
    }
    all
}

#[test]
fn the_help_is_as_it_was() {
    insta::assert_snapshot!("help", help(&[]));
    let all = commands();
    assert!(all.len() > 60 && all.contains(&vec!["keys".to_owned(), "create".to_owned()]), "{all:?}");
    for command in all {
        let names: Vec<&str> = command.iter().map(String::as_str).collect();
        insta::assert_snapshot!(format!("help_{}", command.join("_")), help(&names));
    }
}

#[test]
fn usage_lines_are_the_same_with_an_address_and_a_key_in_the_environment() {
    let set = [("ATOLL_URL", "http://127.0.0.1:1"), ("ATOLL_API_KEY", "key")];
    for command in commands() {
        let names: Vec<&str> = command.iter().map(String::as_str).collect();
        let wrong = [&names[..], &["--no-such-flag"]].concat();
        let usage = |variables: &[(&str, &str)]| {
            let ran = atoll(&wrong, variables);
            let said = String::from_utf8(ran.stderr).unwrap();
            assert_eq!(ran.status.code(), Some(2), "{command:?}: {said}");
            let line = said.lines().find(|line| line.starts_with("Usage: ")).map(str::to_owned);
            line.unwrap_or_else(|| panic!("{command:?}: {said}"))
        };
        let plain = usage(&[]);
        assert!(!plain.contains("--url") && plain.contains(&names.join(" ")), "{plain}");
        assert_eq!(usage(&set), plain);
    }
}
