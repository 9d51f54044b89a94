//! The options of GNU `df`.

use super::table::{Column, Unit};
use std::{collections::VecDeque, ffi::OsString, os::unix::ffi::OsStrExt, path::PathBuf};

const HELP: &str = "\
Usage: df [OPTION]... [FILE]...
Show how full the file systems are on which each FILE lies, or all file systems.
A volume of this sandbox has the size of its disk limit.

  -a, --all             also what is empty, a duplicate or not accessible
  -B, --block-size=SIZE sizes in units of SIZE, such as 1M or 1GB
      --total           a row with the sum
  -h, --human-readable  sizes in powers of 1024, such as 1.5G
  -H, --si              sizes in powers of 1000, such as 1.6G
  -i, --inodes          inodes instead of blocks
  -k                    like --block-size=1K
  -l, --local           local file systems, which all of them are
      --output[=LIST]   these columns: source, fstype, itotal, iused, iavail, ipcent,
                        size, used, avail, pcent, file, target
  -P, --portability     the format of POSIX
  -t, --type=TYPE       only file systems of this type
  -T, --print-type      a column with the type
  -x, --exclude-type=TYPE  no file systems of this type
      --sync, --no-sync accepted without effect
      --help, --version
";

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Table(Options),
    /// Help or the version.
    Text(String),
}

/// How the table is made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) all: bool,
    pub(super) total: bool,
    pub(super) unit: Unit,
    pub(super) posix: bool,
    pub(super) inodes: bool,
    pub(super) with_type: bool,
    pub(super) columns: Option<Vec<Column>>,
    pub(super) only: Vec<String>,
    pub(super) without: Vec<String>,
    pub(super) paths: Vec<PathBuf>,
}

impl Options {
    /// Whether file systems of this type are shown.
    pub(super) fn takes(&self, kind: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|one| one == kind);
        (self.only.is_empty() || named(&self.only)) && !named(&self.without)
    }
}

/// Reads the arguments. An error is a sentence for stderr.
pub(super) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Asked, String> {
    let mut options = Options::default();
    let mut rest: VecDeque<OsString> = arguments.collect();
    while let Some(argument) = rest.pop_front() {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            options.paths.extend(rest.drain(..).map(PathBuf::from));
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            if let Some(text) = long_option(&mut options, &String::from_utf8_lossy(long), &mut rest)? {
                return Ok(Asked::Text(text));
            }
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            short_options(&mut options, &String::from_utf8_lossy(&bytes[1..]), &mut rest)?;
        } else {
            options.paths.push(argument.into());
        }
    }
    if options.columns.is_some() && (options.inodes || options.posix || options.with_type) {
        return Err("--output cannot be combined with -i, -P or -T".into());
    }
    Ok(Asked::Table(options))
}

fn short_options(options: &mut Options, letters: &str, rest: &mut VecDeque<OsString>) -> Result<(), String> {
    for (number, letter) in letters.char_indices() {
        match letter {
            'a' => options.all = true,
            'h' => options.unit = Unit::Human,
            'H' => options.unit = Unit::Si,
            'i' => options.inodes = true,
            'k' => options.unit = Unit::default(),
            'm' => options.unit = Unit::of("1M")?,
            'l' => {}
            'P' => options.posix = true,
            'T' => options.with_type = true,
            'B' | 't' | 'x' => {
                let behind = &letters[number + 1..];
                let value =
                    if behind.is_empty() { next(rest, &format!("-{letter}"))? } else { behind.into() };
                return with_value(options, letter, value);
            }
            _ => return Err(format!("invalid option -- '{letter}'")),
        }
    }
    Ok(())
}

fn long_option(
    options: &mut Options,
    long: &str,
    rest: &mut VecDeque<OsString>,
) -> Result<Option<String>, String> {
    let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
    match (name, value) {
        ("all", None) => options.all = true,
        ("total", None) => options.total = true,
        ("human-readable", None) => options.unit = Unit::Human,
        ("si", None) => options.unit = Unit::Si,
        ("inodes", None) => options.inodes = true,
        ("portability", None) => options.posix = true,
        ("print-type", None) => options.with_type = true,
        ("local" | "sync" | "no-sync", None) => {}
        ("output", None) => options.columns = Some(Column::ALL.to_vec()),
        ("output", Some(list)) => options.columns = Some(columns(list)?),
        ("help", None) => return Ok(Some(HELP.into())),
        ("version", None) => return Ok(Some(format!("df (Atoll) {}\n", env!("CARGO_PKG_VERSION")))),
        ("block-size" | "type" | "exclude-type", value) => {
            let value = value.map_or_else(|| next(rest, &format!("--{name}")), |value| Ok(value.into()))?;
            let letter = if name == "block-size" { 'B' } else { name.chars().next().unwrap_or('t') };
            with_value(options, if letter == 'e' { 'x' } else { letter }, value)?;
        }
        _ => return Err(format!("unrecognized option '--{long}'")),
    }
    Ok(None)
}

fn with_value(options: &mut Options, letter: char, value: String) -> Result<(), String> {
    match letter {
        'B' => options.unit = Unit::of(&value)?,
        't' => options.only.push(value),
        _ => options.without.push(value),
    }
    Ok(())
}

fn next(rest: &mut VecDeque<OsString>, option: &str) -> Result<String, String> {
    let value = rest.pop_front().map(|value| value.to_string_lossy().into_owned());
    value.ok_or_else(|| format!("option '{option}' needs a value"))
}

fn columns(list: &str) -> Result<Vec<Column>, String> {
    let of = |name: &str| {
        let found = Column::ALL.into_iter().find(|column| column.name() == name);
        found.ok_or_else(|| format!("option --output: there is no column '{name}'"))
    };
    list.split(',').map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(line: &str) -> Result<Options, String> {
        match parse(line.split_whitespace().map(OsString::from))? {
            Asked::Table(options) => Ok(options),
            Asked::Text(text) => Err(text),
        }
    }

    #[test]
    fn options_are_read_in_any_form() {
        let options = table("-haT -x tmpfs --exclude-type=proc -t btrfs /workspace -- -odd").unwrap();
        assert!(options.all && options.with_type && options.unit == Unit::Human);
        assert!(options.takes("btrfs") && !options.takes("ext4") && !options.takes("tmpfs"));
        assert_eq!(options.paths, ["/workspace", "-odd"].map(PathBuf::from));
        assert_eq!(table("-BM").unwrap().unit, table("--block-size 1M").unwrap().unit);
        let chosen = table("--output=target,size").unwrap().columns.unwrap();
        assert_eq!(chosen, [Column::Target, Column::Size]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, word) in [
            ("-z", "'z'"),
            ("--no-such", "--no-such"),
            ("-B", "-B"),
            ("-B 1Q", "1Q"),
            ("-B 0", "0"),
            ("--output=size,nothing", "nothing"),
            ("--output -i", "--output"),
            ("--help", "Usage"),
        ] {
            assert!(table(line).unwrap_err().contains(word), "{line}");
        }
    }
}
