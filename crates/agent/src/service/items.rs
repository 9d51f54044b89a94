//! Items that an owner stores beside its conversations.

use super::Agents;
use atoll_core::{Caller, ExtensionOperation};
use atoll_types::{
    Error, Operation, Result,
    conversation::{ItemQuery, Metadata, NamespaceQuery, StoreItem},
    time::now_ms,
};

/// The most words of a namespace, and the most bytes of each and of a key.
const MOST_WORDS: usize = 32;
const LONGEST_WORD: usize = 256;

fn check(namespace: &[String], key: &str) -> Result<()> {
    let word = |word: &String| (1..=LONGEST_WORD).contains(&word.len()) && !word.contains('.');
    if namespace.is_empty() || namespace.len() > MOST_WORDS || !namespace.iter().all(word) {
        let message =
            format!("a namespace is 1 to {MOST_WORDS} words without dots, of 1 to {LONGEST_WORD} bytes");
        return Err(Error::invalid("namespace", message));
    }
    match (1..=LONGEST_WORD).contains(&key.len()) {
        true => Ok(()),
        false => Err(Error::invalid("key", format!("a key has 1 to {LONGEST_WORD} bytes"))),
    }
}

impl Agents {
    /// Stores an item; one of the same name is replaced.
    pub async fn put_item(
        &self,
        caller: &Caller,
        namespace: Vec<String>,
        key: String,
        value: Metadata,
    ) -> Result<()> {
        check(&namespace, &key)?;
        let operation =
            ExtensionOperation::new(Operation::ItemPut).with(format!("{}/{key}", namespace.join(".")));
        let now = now_ms();
        let item = StoreItem { namespace, key, value, created_at: now, updated_at: now };
        let put = async { Ok(self.store.put_item(&caller.owner, item).await?) };
        self.core.operations.carry_out(caller, operation, put).await
    }

    /// One item.
    pub async fn item(&self, caller: &Caller, namespace: &[String], key: &str) -> Result<Option<StoreItem>> {
        Ok(self.store.item(&caller.owner, namespace, key).await?)
    }

    /// Removes an item; fine where there is none.
    pub async fn delete_item(&self, caller: &Caller, namespace: &[String], key: &str) -> Result<()> {
        let detail = format!("{}/{key}", namespace.join("."));
        let operation = ExtensionOperation::new(Operation::ItemDelete).with(detail);
        let removed = async { Ok(self.store.remove_item(&caller.owner, namespace, key).await.map(|_| ())?) };
        self.core.operations.carry_out(caller, operation, removed).await
    }

    /// Items.
    pub async fn items(&self, caller: &Caller, query: &ItemQuery) -> Result<Vec<StoreItem>> {
        Ok(self.store.items(&caller.owner, query).await?)
    }

    /// Namespaces that have items.
    pub async fn namespaces(&self, caller: &Caller, query: &NamespaceQuery) -> Result<Vec<Vec<String>>> {
        Ok(self.store.item_namespaces(&caller.owner, query).await?)
    }
}
