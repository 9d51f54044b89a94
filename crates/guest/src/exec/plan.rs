//! Everything that a fork needs, made before it: after it nothing may be allocated.

use super::{
    environment::{self, Variables},
    program::{Named, Program, c_string},
    registry::{ProcessLimits, Shared},
    terminal::TerminalPlan,
    users::User,
};
use crate::sys::{PointerList, caps};
use atoll_types::Result;
use std::{
    ffi::CString,
    os::fd::{AsRawFd, RawFd},
};

const WORKSPACE: &str = "/workspace";

pub(crate) struct Plan {
    pub(crate) argv: PointerList,
    pub(crate) envp: PointerList,
    /// The files to try, in order.
    pub(crate) candidates: Vec<CString>,
    /// This program itself, instead of any of them.
    pub(crate) own: Option<RawFd>,
    /// PID 1's own view of /proc.
    pub(crate) proc: RawFd,
    pub(crate) directory: CString,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    /// Held by the command, as a mask.
    pub(crate) capabilities: u64,
    /// Removed from the bounding set, beyond what PID 1 has removed for all.
    pub(crate) drop_bounding: u64,
    pub(crate) limits: ProcessLimits,
    /// Its streams are a terminal, and not pipes.
    pub(crate) terminal: Option<TerminalPlan>,
    named: Named,
}

impl Plan {
    pub(crate) fn new(
        program: Program,
        variables: &Variables,
        directory: CString,
        user: User,
        limits: ProcessLimits,
        terminal: Option<TerminalPlan>,
        shared: &Shared,
    ) -> Result<Self> {
        let path = variables.get("PATH").map_or("", String::as_str);
        let candidates = program.candidates(path);
        let name = program.argv.first().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let named = Named { name, line: program.line, files: candidates.clone() };
        let allowed = caps::mask(&shared.config.capabilities);
        let (capabilities, drop_bounding) = if user.uid == 0 { (allowed, 0) } else { (0, allowed) };
        Ok(Self {
            argv: PointerList::new(program.argv),
            envp: PointerList::new(environment::strings(variables)?),
            candidates,
            own: None,
            proc: shared.proc.as_raw_fd(),
            directory,
            uid: user.uid,
            gid: user.gid,
            groups: user.groups,
            capabilities,
            drop_bounding,
            limits,
            terminal,
            named,
        })
    }

    /// The program as the request names it, for messages. The rest is of no use after the fork.
    pub(crate) fn into_named(self) -> Named {
        self.named
    }
}

/// Where a command starts: absolute, or below the workspace.
pub(crate) fn working_directory(wanted: &str) -> Result<CString> {
    let field = "working_directory";
    match wanted {
        "" => c_string(field, WORKSPACE),
        absolute if absolute.starts_with('/') => c_string(field, absolute),
        relative => c_string(field, format!("{WORKSPACE}/{relative}")),
    }
}

#[cfg(test)]
mod tests {
    use super::working_directory;

    #[test]
    fn directories_are_absolute_or_below_the_workspace() {
        assert_eq!(working_directory("").unwrap().as_c_str(), c"/workspace");
        assert_eq!(working_directory("/a").unwrap().as_c_str(), c"/a");
        assert_eq!(working_directory("a/b").unwrap().as_c_str(), c"/workspace/a/b");
        assert!(working_directory("a\0").is_err());
    }
}
