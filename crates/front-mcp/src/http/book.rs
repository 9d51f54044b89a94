//! Whose MCP sessions there are. The SDK gives a session to whoever knows its id; here it is its key's alone.

use atoll_core::Caller;
use atoll_sessions::ThreadId;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

/// MCP sessions of all keys together.
const MOST: usize = 4096;

/// An MCP session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    holder: String,
    /// The thread that was named when it began.
    pub(super) thread: Option<ThreadId>,
}

/// A key; or an owner where there are no keys.
fn holder(caller: &Caller) -> String {
    match &caller.key {
        Some(key) => format!("key {key}"),
        None => format!("owner {}", caller.owner),
    }
}

impl Entry {
    pub(super) fn new(caller: &Caller, thread: Option<ThreadId>) -> Self {
        Self { holder: holder(caller), thread }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Book {
    per_key: usize,
    opening: tokio::sync::Mutex<()>,
    entries: Mutex<HashMap<String, Entry>>,
}

impl Book {
    pub(super) fn new(per_key: usize) -> Self {
        Self { per_key, opening: tokio::sync::Mutex::new(()), entries: Mutex::default() }
    }

    /// The session of this id, if it is the caller's.
    pub(super) fn find(&self, id: &str, caller: &Caller) -> Option<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(id).filter(|entry| entry.holder == holder(caller)).cloned()
    }

    /// To begin one; waits for whoever begins one just now.
    pub(super) async fn opening(&self) -> Opening<'_> {
        Opening { book: self, _turn: self.opening.lock().await }
    }
}

/// A session that begins.
pub(super) struct Opening<'a> {
    book: &'a Book,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Opening<'_> {
    /// Whether the caller may have another, after those are forgotten that are no more.
    pub(super) fn has_room(&mut self, caller: &Caller, alive: &HashSet<Arc<str>>) -> bool {
        let mut entries = self.book.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|id, _| alive.contains(id.as_str()));
        let holder = holder(caller);
        let own = entries.values().filter(|entry| entry.holder == holder).count();
        own < self.book.per_key && entries.len() < MOST
    }

    pub(super) fn add(&mut self, id: &str, entry: Entry) {
        let mut entries = self.book.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(id.to_owned(), entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(owner: &str) -> Caller {
        Caller { owner: owner.into(), ..Caller::local() }
    }

    #[tokio::test]
    async fn a_session_is_its_holders_alone_and_there_are_not_too_many() {
        let book = Book::new(2);
        let (ann, bob) = (caller("ann"), caller("bob"));
        let mut alive: HashSet<Arc<str>> = HashSet::new();
        for id in ["1", "2"] {
            let mut opening = book.opening().await;
            assert!(opening.has_room(&ann, &alive));
            opening.add(id, Entry::new(&ann, None));
            alive.insert(id.into());
        }
        assert!(
            book.find("1", &ann).is_some()
                && book.find("1", &bob).is_none()
                && book.find("3", &ann).is_none()
        );
        assert!(!book.opening().await.has_room(&ann, &alive) && book.opening().await.has_room(&bob, &alive));
        alive.remove("1");
        assert!(book.opening().await.has_room(&ann, &alive), "what has ended leaves its place");
        assert!(book.find("1", &ann).is_none());
    }
}
