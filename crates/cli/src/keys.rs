//! `atoll keys`.

use crate::{
    Failure,
    args::{Keys, KeysCreate, KeysLs, KeysRevoke},
    resolve, table, terminal, when,
};
use atoll_client::{Client, CreateKey, Key};
use serde_json::Value;

/// Keys of one request for the list.
const PAGE: u32 = 200;

/// Carries out a command about keys and returns the exit code. Errors are already printed.
pub async fn run(command: Keys) -> u8 {
    let json = command.json();
    let result = match command {
        Keys::Create(options) => create(options).await,
        Keys::Ls(options) => list(options).await,
        Keys::Revoke(options) => revoke(options).await,
    };
    result.unwrap_or_else(|failure| failure.report(json))
}

async fn create(options: KeysCreate) -> Result<u8, Failure> {
    let KeysCreate { name, owner, scope, tier, expires_in, server } = options;
    let expires_in_seconds = expires_in.map(|time| time.as_secs_f64().ceil() as u64);
    let new = CreateKey { name, owner, scope, tier, expires_in_seconds };
    let issued = server.client()?.create_key(&new).await?;
    if server.json {
        terminal::print_json(&issued.json)?;
        return Ok(0);
    }
    // Alone on standard output, so that a script can keep it.
    terminal::print(&format!("{}\n", terminal::plain(&issued.secret)))?;
    let id = resolve::short(issued.key.id);
    terminal::note(&format!("this is shown only once; `atoll keys revoke {id}` makes it worthless"));
    Ok(0)
}

async fn list(options: KeysLs) -> Result<u8, Failure> {
    let (keys, items) = all(&options.server.client()?).await?;
    if options.server.json {
        // As the API has it: one page with everything.
        let page = serde_json::json!({
            "total": items.len(), "page": 1, "page_size": items.len(), "items": items,
        });
        terminal::print_json(&page.to_string())?;
    } else {
        terminal::print(&rendered(&keys))?;
    }
    Ok(0)
}

/// The keys of every page, and the same as the server wrote them.
async fn all(client: &Client) -> Result<(Vec<Key>, Vec<Value>), Failure> {
    let (mut keys, mut items) = (Vec::new(), Vec::new());
    for number in 1.. {
        let page = client.list_keys(number, PAGE).await?;
        let written: Value = serde_json::from_str(&page.json).unwrap_or_default();
        items.extend(written["items"].as_array().cloned().unwrap_or_default());
        let (total, last) = (page.total, page.items.is_empty());
        keys.extend(page.value.items);
        if last || keys.len() as u64 >= total {
            break;
        }
    }
    Ok((keys, items))
}

async fn revoke(options: KeysRevoke) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let (keys, _) = all(&client).await?;
    let revoked = client.revoke_key(resolve::key(keys, &options.key)?).await?;
    if options.server.json {
        terminal::print_json(&revoked.json)?;
    } else {
        terminal::print(&format!("{}\n", resolve::short(revoked.id)))?;
    }
    Ok(0)
}

fn rendered(keys: &[Key]) -> String {
    let time = |time: &Option<String>| time.as_deref().map(when::since).unwrap_or_default();
    let row = |key: &Key| {
        [
            resolve::short(key.id),
            key.name.clone(),
            key.owner.clone(),
            key.scope.clone(),
            key.tier.clone().unwrap_or_default(),
            format!("{}…", key.prefix),
            when::since(&key.created_at),
            time(&key.last_used_at),
            time(&key.expires_at),
            time(&key.revoked_at),
        ]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    let heading = ["ID", "NAME", "OWNER", "SCOPE", "TIER", "KEY", "CREATED", "USED", "EXPIRES", "REVOKED"];
    table::render(heading, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_for_people() {
        let key: Key = serde_json::from_value(serde_json::json!({
            "id": "3f2a11bc-0000-4000-8000-000000000001", "name": "ci", "owner": "ann", "scope": "user",
            "tier": "standard", "prefix": "atoll_0a1b2c", "created_at": "then", "revoked_at": null,
        }))
        .unwrap();
        insta::assert_snapshot!(rendered(&[key]), @r"
        ID        NAME  OWNER  SCOPE  TIER      KEY            CREATED  USED  EXPIRES  REVOKED
        3f2a11bc  ci    ann    user   standard  atoll_0a1b2c…  then     -     -        -
        ");
    }
}
