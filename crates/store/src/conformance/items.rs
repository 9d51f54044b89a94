//! Items that owners store.

use super::{NOW, Outcome, Shared, same};
use atoll_types::conversation::{ItemQuery, NamespaceQuery, StoreItem};
use serde_json::{Value, json};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn item(namespace: &str, key: &str, value: Value, at: i64) -> StoreItem {
    let value = value.as_object().cloned().unwrap_or_default();
    StoreItem { namespace: words(namespace), key: key.into(), value, created_at: at, updated_at: at }
}

pub(super) async fn an_item_is_its_owners_by_name(store: Shared) -> Outcome {
    let first = item("users ada", "k", json!({ "likes": "Tea", "n": 1 }), NOW);
    store.put_item("a", first.clone()).await?;
    let again = StoreItem {
        created_at: NOW + 9,
        ..item("users ada", "k", json!({ "likes": "tea", "n": 2 }), NOW + 9)
    };
    store.put_item("a", again.clone()).await?;
    let wanted = StoreItem { created_at: NOW, ..again };
    same("replaced", store.item("a", &words("users ada"), "k").await?, Some(wanted.clone()))?;
    same("not another's", store.item("b", &words("users ada"), "k").await?, None)?;
    store.put_item("a", item("users bob", "k", json!({ "n": 2 }), NOW + 10)).await?;
    store.put_item("a", item("notes", "x y", json!({}), NOW + 11)).await?;
    let count = async |query: ItemQuery| store.items("a", &query).await.map(|items| items.len());
    let all = ItemQuery { limit: 9, ..ItemQuery::default() };
    same("all", count(all.clone()).await?, 3)?;
    same("below a prefix", count(ItemQuery { prefix: words("users"), ..all.clone() }).await?, 2)?;
    let two = json!({ "n": 2 }).as_object().cloned().unwrap_or_default();
    same("by value", count(ItemQuery { filter: two, ..all.clone() }).await?, 2)?;
    same("by text", count(ItemQuery { text: Some("TEA".into()), ..all.clone() }).await?, 1)?;
    same("a page", count(ItemQuery { offset: 2, ..all }).await?, 1)?;
    let query = NamespaceQuery { prefix: words("*"), depth: Some(1), limit: 9, ..NamespaceQuery::default() };
    same("namespaces", store.item_namespaces("a", &query).await?, vec![words("notes"), words("users")])?;
    let query = NamespaceQuery { suffix: words("ada"), limit: 9, ..NamespaceQuery::default() };
    same("by their end", store.item_namespaces("a", &query).await?, vec![words("users ada")])?;
    same("removed", store.remove_item("a", &words("users ada"), "k").await?, true)?;
    same("once", store.remove_item("a", &words("users ada"), "k").await?, false)
}
