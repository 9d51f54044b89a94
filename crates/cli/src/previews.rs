//! `atoll preview`: servers inside a sandbox, by a URL for a browser, which is valid for a while.

use crate::{Failure, args::Preview, resolve, table, terminal, when};
use atoll_client::{Client, CreatePreviewToken, Uuid, ValidPreviewToken};

/// Prints the URL of a port's page, lists what was made, or revokes one of it.
pub(crate) async fn run(options: Preview) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let id = resolve::sandbox(&client, &options.id).await?;
    if options.list {
        return list(&client, id, &options).await;
    }
    if let Some(token) = &options.revoke {
        let token = resolve::preview_token(&client, id, token).await?;
        client.revoke_preview_token(id, token).await?;
        terminal::print(&format!("{}\n", resolve::short(token)))?;
        return Ok(0);
    }
    let port = options.port.unwrap_or_default();
    let ttl_seconds = options.ttl.map(|time| time.as_secs_f64().ceil() as u64);
    let new = CreatePreviewToken { port: Some(port), ttl_seconds };
    let made =
        client.create_preview_token(id, &new).await.map_err(|e| Failure::from(e).about(&options.id))?;
    if options.server.json {
        terminal::print_json(&made.json)?;
    } else {
        let below = || client.preview_url(id, port, &made.token);
        let url = made.host_url.clone().unwrap_or_else(below);
        terminal::print(&format!("{}\n", terminal::plain(&url)))?;
    }
    Ok(0)
}

async fn list(client: &Client, id: Uuid, options: &Preview) -> Result<u8, Failure> {
    let tokens = client.preview_tokens(id).await.map_err(|e| Failure::from(e).about(&options.id))?;
    if options.server.json {
        terminal::print_json(&tokens.json)?;
    } else {
        terminal::print(&rendered(&tokens.value))?;
    }
    Ok(0)
}

fn rendered(tokens: &[ValidPreviewToken]) -> String {
    let row = |token: &ValidPreviewToken| {
        let ValidPreviewToken { id, port, created_at, expires_at } = token;
        let port = port.map_or_else(|| "all".to_owned(), |port| port.to_string());
        [resolve::short(*id), port, when::since(created_at), when::since(expires_at)]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    table::render(["ID", "PORT", "CREATED", "EXPIRES"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_for_people() {
        let tokens: Vec<ValidPreviewToken> = serde_json::from_value(serde_json::json!([
            {"id": "3f2a11bc-0000-4000-8000-000000000001", "port": 8080, "created_at": "then", "expires_at": "later"},
            {"id": "beef11bc-0000-4000-8000-000000000001", "port": null, "created_at": "then", "expires_at": "later"},
        ]))
        .unwrap();
        insta::assert_snapshot!(rendered(&tokens), @r"
        ID        PORT  CREATED  EXPIRES
        3f2a11bc  8080  then     later
        beef11bc  all   then     later
        ");
    }
}
