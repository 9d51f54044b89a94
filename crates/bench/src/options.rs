//! The command line.

use crate::{figures::Figure, pace::Scale};
use clap::Parser;
use std::path::PathBuf;

/// Measures what Atoll promises, each figure beside a baseline of the same run. Needs root.
#[derive(Debug, Parser)]
#[command(name = "atoll-bench", version)]
pub(crate) struct Options {
    /// Only see whether every figure can be taken, in seconds
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Take more of everything
    #[arg(long)]
    pub(crate) full: bool,
    /// Write every single measurement there
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Take this figure only; several are separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) only: Vec<Figure>,
}

impl Options {
    pub(crate) fn scale(&self) -> Scale {
        match (self.quick, self.full) {
            (true, _) => Scale::Quick,
            (false, true) => Scale::Full,
            (false, false) => Scale::Usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn several_figures_can_be_named() {
        let only = |line: &[&str]| Options::try_parse_from(line).map(|options| options.only);
        assert_eq!(only(&["atoll-bench"]).unwrap(), []);
        assert_eq!(
            only(&["atoll-bench", "--only", "exec,rest-stream"]).unwrap(),
            [Figure::Exec, Figure::RestStream]
        );
        assert!(only(&["atoll-bench", "--only", "exec,nosuch"]).is_err());
    }
}
