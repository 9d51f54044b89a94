//! Assistants: configurations of the agent.

use super::Metadata;
use crate::{AssistantId, Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// The graphs that exist: both are the one agent. Each has an assistant of its own that every owner has.
pub const BUILT_IN_GRAPHS: [&str; 2] = ["sandbox-agent", "agent"];

/// The ids of their assistants: version 5 UUIDs of the graphs' names, as other servers of this API derive them.
const BUILT_IN_IDS: [Uuid; 2] = [
    Uuid::from_u128(0x9fdf_3917_3483_5853_8316_c231_bb6d_ee0f),
    Uuid::from_u128(0xfe09_6781_5601_53d2_b2f6_0d34_03f7_e9ca),
];

/// A configuration of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    /// Which.
    pub id: AssistantId,
    /// One of [`BUILT_IN_GRAPHS`].
    pub graph: String,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Its configuration: `configurable` has the model, the budgets and the approval rule.
    pub config: Value,
    /// Its context, likewise.
    pub context: Value,
    /// What the client keeps with it.
    pub metadata: Metadata,
    /// Counted from 1.
    pub version: u32,
    /// When it was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

impl Assistant {
    /// The assistant of a graph that every owner has.
    #[must_use]
    pub fn built_in(graph: &str) -> Option<Self> {
        let at = BUILT_IN_GRAPHS.iter().position(|name| *name == graph)?;
        Some(Self {
            id: AssistantId::from_uuid(BUILT_IN_IDS[at]),
            graph: graph.to_owned(),
            name: graph.to_owned(),
            description: Some("An agent that works in its own sandboxes".to_owned()),
            config: Value::Object(Metadata::new()),
            context: Value::Object(Metadata::new()),
            metadata: [("created_by".to_owned(), Value::from("system"))].into_iter().collect(),
            version: 1,
            created_at: 0,
            updated_at: 0,
        })
    }

    /// Whether every owner has it: such a one is neither changed nor deleted.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        Self::built_in(&self.graph).is_some_and(|built_in| built_in.id == self.id)
    }
}

/// An assistant, or a new version of one.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAssistant {
    pub id: AssistantId,
    pub graph: String,
    pub name: String,
    pub description: Option<String>,
    pub config: Value,
    pub context: Value,
    pub metadata: Metadata,
}

/// Which assistants of an owner, the last made first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AssistantQuery {
    /// Of this graph.
    pub graph: Option<String>,
    /// Whose name has this in it, in any case.
    pub name: Option<String>,
    /// With these metadata.
    pub metadata: Metadata,
    /// At most so many.
    pub limit: u32,
    /// Without the first ones.
    pub offset: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_assistants_keep_their_ids() {
        let id = |graph: &str| Assistant::built_in(graph).unwrap().id.uuid().to_string();
        assert_eq!(id("agent"), "fe096781-5601-53d2-b2f6-0d3403f7e9ca");
        assert_ne!(id("sandbox-agent"), id("agent"));
        assert_eq!(Assistant::built_in("other"), None);
        assert!(Assistant::built_in("agent").unwrap().is_built_in());
    }
}
