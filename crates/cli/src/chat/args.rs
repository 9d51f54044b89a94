//! The command line of conversations with the agent.

use crate::server::Server;
use clap::Args;

/// `chat`.
#[derive(Debug, Args)]
#[command(
    after_help = "ctrl-c cancels what the agent does, and leaves where it does nothing; ctrl-d leaves. /help lists what else can be typed."
)]
pub struct Chat {
    /// What to say, or - to read it from standard input; without it a conversation begins at the terminal
    #[arg(value_name = "MESSAGE")]
    pub(crate) message: Option<String>,
    /// Go on with this conversation instead of the last one
    #[arg(long, value_name = "THREAD", conflicts_with = "new")]
    pub(crate) thread: Option<String>,
    /// Begin a new conversation
    #[arg(long)]
    pub(crate) new: bool,
    /// The model of this conversation
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Tools that need your word: none, all, write or network
    #[arg(long, value_name = "TOOLS")]
    pub(crate) approve: Option<String>,
    /// Show a conversation again, with what its tools really printed
    #[arg(long, value_name = "THREAD", conflicts_with_all = ["message", "thread", "new", "model", "approve"])]
    pub(crate) replay: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}
