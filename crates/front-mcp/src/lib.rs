//! The MCP server: the six tools of `atoll_tool_sessions`, for any client that speaks the Model Context
//! Protocol, over stdio and over Streamable HTTP. The protocol itself is the official SDK's; here tools
//! become MCP tools, replies become results, exported files become resources, and requests over HTTP are
//! checked before the SDK sees them. What a tool does is not decided here.

mod extra;
mod http;
mod hub;
mod log;
mod progress;
mod resources;
mod result;
mod server;
mod settings;
mod stdio;
mod tools;

pub use http::{Http, PATH};
pub use server::ServerContext;
pub use settings::{IDLE_SECONDS, McpSettings, SESSIONS_PER_KEY, VANISHED_SECONDS};
pub use stdio::serve as serve_stdio;
