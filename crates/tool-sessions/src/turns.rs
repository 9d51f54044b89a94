//! Calls of one owner that run one after the other.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Locks by owner: one for each that is wanted at the moment.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    pub(crate) fn of(&self, owner: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(owner.to_owned()).or_default())
    }
}
