//! Which files of a sandbox's volume changed since the last request: [`Observer`] for btrfs, where the kernel
//! reports changes to the launcher, and [`Scanner`] for every other file system, where it compares scans.
//!
//! Linked only into the root launcher; synchronous, one thread. Nothing here runs in a sandbox, follows a
//! sandbox's symbolic link or trusts a path of its making. The invariant: a change is reported once, or the
//! answer says `truncated`.

mod change;
mod doubt;
mod event;
mod fanotify;
mod found;
mod life;
mod links;
mod mapped;
mod net;
mod places;
mod reported;
mod scanner;
mod sys;
mod touched;
mod tree;
mod walk;
mod window;

pub use change::{Action, Change, Changes, Kind};
pub use fanotify::{Limits, Observer};
pub use scanner::Scanner;
