//! What a client knows: what was answered is so, and what was not may be so or not. There is no third.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What may be the case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct May<T>(Vec<T>);

impl<T: PartialEq> May<T> {
    pub(super) fn only(value: T) -> Self {
        Self(vec![value])
    }

    /// Somebody asked for this; was it answered?
    pub(super) fn asked(&mut self, value: T, answered: bool) {
        if answered {
            self.0.clear();
        }
        self.0.push(value);
    }

    pub(super) fn allows(&self, value: &T) -> bool {
        self.0.contains(value)
    }

    /// Whether this and nothing else is the case.
    pub(super) fn must_be(&self, value: &T) -> bool {
        self.0.iter().all(|one| one == value)
    }

    /// Both are possible now.
    pub(super) fn or(&mut self, value: T) {
        self.0.push(value);
    }
}

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    Paused,
    Stopped,
    /// It is gone, or never was.
    Gone,
}

/// The content of a file; none where there is no file.
pub(super) type Content = Option<Arc<[u8]>>;

/// What is known of one sandbox.
#[derive(Debug)]
pub(super) struct Believed {
    /// The label by which it is known again.
    pub(super) name: String,
    /// None where its create was not answered.
    pub(super) path: Option<String>,
    pub(super) life: May<Life>,
    pub(super) files: BTreeMap<String, May<Content>>,
    /// What commands wrote down that were answered: each once.
    pub(super) once: BTreeSet<String>,
    /// What commands may have written down that were not: each once at most.
    pub(super) at_most_once: BTreeSet<String>,
    /// The host that it may reach, if any.
    pub(super) egress: May<String>,
}

impl Believed {
    pub(super) fn new(name: String, path: Option<String>) -> Self {
        let mut life = May::only(Life::Running);
        if path.is_none() {
            life.or(Life::Gone);
            life.or(Life::Stopped);
        }
        Self {
            name,
            path,
            life,
            files: BTreeMap::new(),
            once: BTreeSet::new(),
            at_most_once: BTreeSet::new(),
            egress: May::only(String::new()),
        }
    }

    /// A command was to write this down.
    pub(super) fn wrote(&mut self, word: String, answered: bool) {
        if answered {
            self.at_most_once.remove(&word);
            self.once.insert(word);
        } else {
            self.at_most_once.insert(word);
        }
    }

    /// Whether somebody asked for its end.
    pub(super) fn was_deleted(&self) -> bool {
        self.life.allows(&Life::Gone)
    }
}

/// All that one client knows.
#[derive(Debug, Default)]
pub(super) struct Beliefs {
    pub(super) sandboxes: Vec<Believed>,
    /// Creates that were refused: of these there must be nothing.
    pub(super) refused: BTreeSet<String>,
    /// Keys by id: the secret, and whether it may still be worth something, or nothing.
    pub(super) keys: BTreeMap<String, (String, May<bool>)>,
    /// The setting that this client changes, if it does.
    pub(super) setting: Option<May<u64>>,
}

/// What was found to be otherwise than it must be.
#[derive(Debug, Default)]
pub(super) struct Faults(pub(super) Vec<String>);

impl Faults {
    pub(super) fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}
