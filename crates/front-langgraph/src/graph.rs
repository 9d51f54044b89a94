//! The agent as a graph, for clients that draw one: the model, the tools, and the way between them.

use atoll_types::conversation::{Assistant, Node};
use serde_json::{Value, json};

/// The nodes and the edges.
pub(crate) fn drawing() -> Value {
    let edge = |from: &str, to: &str, conditional: bool| json!({ "source": from, "target": to, "conditional": conditional });
    let (agent, tools) = (Node::Agent.as_str(), Node::Tools.as_str());
    let end = |id: &str| json!({ "id": id, "type": "schema", "data": { "name": id } });
    let node = |id: &str| json!({ "id": id, "type": "runnable", "data": { "name": id } });
    json!({
        "nodes": [end("__start__"), node(agent), node(tools), end("__end__")],
        "edges": [
            edge("__start__", agent, false), edge(agent, tools, true), edge(agent, "__end__", true),
            edge(tools, agent, false),
        ],
    })
}

/// The schemas of what goes in and comes out, and of `config.configurable`.
pub(crate) fn schemas(assistant: &Assistant) -> Value {
    let messages = json!({
        "type": "object", "title": "AgentState",
        "properties": { "messages": { "type": "array", "items": { "type": "object" } } },
    });
    let text = |title: &str| json!({ "type": "string", "title": title });
    let whole = |title: &str| json!({ "type": "integer", "title": title, "minimum": 1 });
    let configurable = json!({
        "type": "object", "title": "Configurable",
        "properties": {
            "model": text("Model"), "model_provider": text("Provider"), "api_key": text("API key"),
            "base_url": text("Base URL"), "supports_vision": { "type": "boolean", "title": "The model sees pictures" },
            "system_prompt": text("System prompt"),
            "approval": { "type": "string", "title": "Tools that need approval", "enum": ["none", "all", "write", "network"] },
            "max_iterations": whole("Most requests to the model"), "max_tokens": whole("Most tokens"),
            "max_seconds": whole("Most seconds"),
        },
    });
    json!({
        "graph_id": assistant.graph, "input_schema": messages, "output_schema": messages, "state_schema": messages,
        "config_schema": configurable, "context_schema": configurable,
    })
}
