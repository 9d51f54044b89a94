//! The agent, beside the same model asked without it: a scripted provider that answers at once, so that what is measured is what
//! the loop adds. A turn with a tool is set beside both requests to the model and the command through REST.

mod model;

use super::Bench;
use crate::{
    Result,
    http::Client,
    pace::{Pace, timed},
    report::{Baseline, Row},
    server::{Server, exec, sandbox_of},
    stats::Samples,
};
use futures_util::future::{join_all, try_join_all};
use model::{COMMAND, FIRST};
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Instant};

const DIRECT: &str = "the same model, asked directly";
/// Words of an answer that is streamed.
const WORDS: u32 = 50;

/// A server whose agent asks the model, and the model.
struct Asked<'a> {
    server: &'a Server,
    model: SocketAddr,
}

impl Asked<'_> {
    async fn client(&self) -> Result<Client> {
        self.server.connect().await
    }

    async fn direct(&self) -> Result<Client> {
        Client::connect(self.model, None).await
    }
}

/// What the model is asked without the agent, after as many results of tools.
fn question(said: &str, results: usize) -> String {
    let result = json!({ "role": "tool", "tool_call_id": "call-x", "content": "{}" });
    let mut messages = vec![json!({ "role": "user", "content": said })];
    messages.extend(vec![result; results]);
    json!({ "model": "gpt-4o", "stream": true, "messages": messages }).to_string()
}

const COMPLETIONS: &str = "/v1/chat/completions";

async fn ask_directly(client: &mut Client, said: &str, results: usize) -> Result<()> {
    client.ask("POST", COMPLETIONS, &question(said, results)).await?.expect(200).map(drop)
}

/// A run's body.
fn run(said: &str, more: &Value) -> String {
    let input = json!({ "messages": [{ "role": "user", "content": said }] });
    let mut body = json!({ "assistant_id": "agent", "input": input, "stream_mode": ["messages-tuple"] });
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    body.to_string()
}

async fn new_thread(client: &mut Client) -> Result<String> {
    let made: Value = serde_json::from_slice(&client.ask("POST", "/threads", "{}").await?.expect(200)?)?;
    Ok(format!("/threads/{}", made["thread_id"].as_str().ok_or("a thread without an id")?))
}

/// The values after a run, which must have so many messages.
async fn wait(client: &mut Client, thread: &str, body: &str, messages: usize) -> Result<Value> {
    let answer = client.ask("POST", &format!("{thread}/runs/wait"), body).await?.expect(200)?;
    let values: Value = serde_json::from_slice(&answer)?;
    match values["messages"].as_array().map(Vec::len) {
        Some(count) if count == messages => Ok(values),
        _ => Err(format!("the run went wrong: {values}").into()),
    }
}

async fn with_agent(work: impl AsyncFnOnce(&Asked<'_>) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    let model = model::start()?;
    // A small machine's limits must not be what is measured.
    let settings = ["warm_pool_enabled=false", "tool_sessions.network_enabled=false"];
    let variables = [
        ("CHAT_MODEL", "gpt-4o".to_owned()),
        ("CHAT_MODEL_PROVIDER", "openai".to_owned()),
        ("CHAT_MODEL_BASE_URL", format!("http://{model}/v1")),
        ("CHAT_MODEL_API_KEY", "a-key".to_owned()),
        ("ATOLL_AGENT_RUNS_AT_ONCE", "1000".to_owned()),
    ];
    let asked = async move |server: &Server| work(&Asked { server, model }).await;
    Server::with(&settings.map(str::to_owned), &variables, asked).await
}

fn pair(name: &str, pace: Pace, series: Vec<Samples>, baseline: &'static str) -> Result<Row> {
    let mut series = series.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (own, beside) = (next()?, Baseline::new(baseline, next()?));
    Ok(Row::latency(name, pace.name, own, vec![beside]))
}

/// What the loop adds to a turn.
pub(super) async fn turns(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_agent(async |asked| {
        let (mut client, mut direct) = (asked.client().await?, asked.direct().await?);
        let mut rows = Vec::new();
        for pace in bench.paces(200) {
            let round = async || {
                let thread = new_thread(&mut client).await?;
                pace.wait().await;
                let (own, _) = timed(wait(&mut client, &thread, &run("hello", &json!({})), 2)).await?;
                pace.wait().await;
                let (beside, ()) = timed(ask_directly(&mut direct, "hello", 0)).await?;
                Ok(vec![own, beside])
            };
            rows.push(pair("agent turn", pace, pace.take(round).await?, DIRECT)?.by_difference());
        }
        rows.extend(with_a_tool(bench, &mut client, &mut direct).await?);
        Ok(rows)
    })
    .await
}

/// The same with a tool. Every turn goes on from the same checkpoint, so that no conversation grows.
async fn with_a_tool(bench: &Bench<'_>, client: &mut Client, direct: &mut Client) -> Result<Vec<Row>> {
    let thread = new_thread(client).await?;
    let made = wait(client, &thread, &run("make", &json!({})), 4).await?;
    let result = &made["messages"][2];
    let content: Value = serde_json::from_str(result["content"].as_str().unwrap_or_default())?;
    let session = content["session_id"].as_str().ok_or("a session without an id")?;
    let id =
        result["additional_kwargs"]["atoll"]["sandbox_id"].as_str().ok_or("a session without a sandbox")?;
    let sandbox = sandbox_of(client, id).await?;
    let state = client.ask("GET", &format!("{thread}/state"), "").await?.expect(200)?;
    let state: Value = serde_json::from_slice(&state)?;
    let from = json!({ "checkpoint_id": state["checkpoint"]["checkpoint_id"] });
    let (said, command) = (format!("tool {session}"), json!({ "command": COMMAND }).to_string());
    let mut rows = Vec::new();
    for pace in bench.paces(200) {
        let round = async || {
            pace.wait().await;
            let (own, _) = timed(wait(client, &thread, &run(&said, &from), 8)).await?;
            pace.wait().await;
            let parts = async {
                ask_directly(direct, &said, 0).await?;
                exec(client, &sandbox, &command).await?;
                ask_directly(direct, &said, 1).await
            };
            let (beside, ()) = timed(parts).await?;
            Ok(vec![own, beside])
        };
        let name = "the model twice, and REST exec";
        rows.push(pair("agent turn with a tool", pace, pace.take(round).await?, name)?.by_difference());
    }
    Ok(rows)
}

/// How long it takes until the first word of an answer came. The rest is read, too.
async fn first_word(client: &mut Client, path: &str, body: &str) -> Result<f64> {
    let (began, mut seen, mut first) = (Instant::now(), Vec::new(), None);
    let sink = |piece: &[u8]| {
        if first.is_none() {
            seen.extend_from_slice(piece);
            let found = seen.windows(FIRST.len()).any(|some| some == FIRST.as_bytes());
            first = found.then(|| began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(())
    };
    client.follow((path, body), sink).await?;
    first.ok_or_else(|| "an answer without its first word".into())
}

/// The first token.
pub(super) async fn first_token(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_agent(async |asked| {
        let (mut client, mut direct) = (asked.client().await?, asked.direct().await?);
        let said = format!("write {WORDS}");
        let mut rows = Vec::new();
        for pace in bench.paces(200) {
            let round = async || {
                let path = format!("{}/runs/stream", new_thread(&mut client).await?);
                pace.wait().await;
                let own = first_word(&mut client, &path, &run(&said, &json!({}))).await?;
                pace.wait().await;
                let beside = first_word(&mut direct, COMPLETIONS, &question(&said, 0)).await?;
                Ok(vec![own, beside])
            };
            rows.push(pair("agent first token", pace, pace.take(round).await?, DIRECT)?.by_difference());
        }
        Ok(rows)
    })
    .await
}

/// Many streams at once, each with a connection of its own, until all have ended.
pub(super) async fn streams(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let count = bench.scale.pick(10, 100, 100);
    with_agent(async |asked| {
        let mut clients = try_join_all((0..count).map(|_| asked.client())).await?;
        let mut directs = try_join_all((0..count).map(|_| asked.direct())).await?;
        let said = format!("write {WORDS}");
        let round = async || {
            let threads = clients.iter_mut().map(new_thread);
            let threads = join_all(threads).await.into_iter().collect::<Result<Vec<_>>>()?;
            let paths = threads.iter().map(|thread| format!("{thread}/runs/stream"));
            let (body, question) = (run(&said, &json!({})), question(&said, 0));
            let own = at_once(clients.iter_mut().zip(paths), &body);
            let (own, ()) = timed(own).await?;
            let paths = std::iter::repeat(COMPLETIONS.to_owned());
            let beside = at_once(directs.iter_mut().zip(paths), &question);
            let (beside, ()) = timed(beside).await?;
            Ok(vec![own, beside])
        };
        let pace = Pace::tight(bench.scale.pick(1, 5, 20));
        let series = pace.take(round).await?;
        Ok(vec![pair(&format!("agent {count} streams at once"), pace, series, DIRECT)?])
    })
    .await
}

async fn at_once<'a>(each: impl Iterator<Item = (&'a mut Client, String)>, body: &str) -> Result<()> {
    // One that fails does not cancel the others, which would go on unobserved.
    let all = each.map(async |(client, path)| first_word(client, &path, body).await);
    join_all(all).await.into_iter().try_for_each(|one| one.map(drop))
}
