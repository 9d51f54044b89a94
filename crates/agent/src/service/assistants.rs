//! Assistants. The built-in ones belong to every owner and are never changed.

use super::{Agents, IfExists, NewAssistantRequest, PatchAssistant};
use atoll_core::{Caller, ExtensionOperation};
use atoll_types::{
    AssistantId, Error, ErrorCode, Operation, Result,
    conversation::{Assistant, AssistantQuery, BUILT_IN_GRAPHS, Metadata, NewAssistant, metadata_match},
    time::now_ms,
};
use serde_json::Value;
use uuid::Uuid;

fn missing() -> Error {
    Error::new(ErrorCode::NotFound, "there is no such assistant").at("assistant_id")
}

fn check_graph(graph: &str) -> Result<()> {
    match BUILT_IN_GRAPHS.contains(&graph) {
        true => Ok(()),
        false => Err(Error::invalid("graph_id", format!("expected one of {}", BUILT_IN_GRAPHS.join(", ")))),
    }
}

fn merged(mut old: Metadata, new: Option<Metadata>) -> Metadata {
    old.extend(new.unwrap_or_default());
    old
}

/// A configuration without a provider's key: an assistant is shown to its owner's other clients, too.
fn without_key(config: &Value) -> Result<()> {
    let named = |value: &Value| value.get("api_key").is_some_and(|key| !key.is_null());
    match named(config) || config.get("configurable").is_some_and(named) {
        true => Err(Error::invalid("config", "an assistant keeps no key; put it into the settings")),
        false => Ok(()),
    }
}

impl Agents {
    fn built_in(query: &AssistantQuery) -> Vec<Assistant> {
        let AssistantQuery { graph, name, metadata, .. } = query;
        let fits = |one: &Assistant| {
            graph.as_ref().is_none_or(|graph| one.graph == *graph)
                && name.as_ref().is_none_or(|name| one.name.to_lowercase().contains(&name.to_lowercase()))
                && metadata_match(&one.metadata, metadata)
        };
        BUILT_IN_GRAPHS.iter().filter_map(|graph| Assistant::built_in(graph)).filter(fits).collect()
    }

    /// The caller's assistants, the built-in ones first.
    pub async fn assistants(&self, caller: &Caller, query: &AssistantQuery) -> Result<Vec<Assistant>> {
        let built_in = Self::built_in(query);
        let (offset, limit) = (query.offset as usize, query.limit as usize);
        let mut page: Vec<_> = built_in.iter().skip(offset).take(limit).cloned().collect();
        let rest = AssistantQuery {
            offset: offset.saturating_sub(built_in.len()) as u32,
            limit: (limit - page.len()) as u32,
            ..query.clone()
        };
        if rest.limit > 0 {
            page.extend(self.store.assistants(&caller.owner, &rest).await?.0);
        }
        Ok(page)
    }

    /// How many there are, whatever the query's limit and offset.
    pub async fn count_assistants(&self, caller: &Caller, query: &AssistantQuery) -> Result<u64> {
        let (_, stored) = self.store.assistants(&caller.owner, query).await?;
        Ok(stored + Self::built_in(query).len() as u64)
    }

    /// One by its id or by its graph's name.
    pub async fn assistant(&self, caller: &Caller, id_or_graph: &str) -> Result<Assistant> {
        if let Some(built_in) = Assistant::built_in(id_or_graph) {
            return Ok(built_in);
        }
        let id = AssistantId::from_uuid(Uuid::try_parse(id_or_graph).map_err(|_| missing())?);
        let mut built_in = BUILT_IN_GRAPHS.iter().filter_map(|graph| Assistant::built_in(graph));
        match built_in.find(|one| one.id == id) {
            Some(one) => Ok(one),
            None => self.store.assistant(&caller.owner, id).await?.ok_or_else(missing),
        }
    }

    /// One that the caller may change.
    async fn own_assistant(&self, caller: &Caller, id: &str) -> Result<Assistant> {
        let assistant = self.assistant(caller, id).await?;
        if assistant.is_built_in() {
            let message = "this assistant is every owner's and does not change; make one of your own";
            return Err(Error::new(ErrorCode::PermissionDenied, message));
        }
        Ok(assistant)
    }

    /// Makes one.
    pub async fn create_assistant(&self, caller: &Caller, new: NewAssistantRequest) -> Result<Assistant> {
        check_graph(&new.graph)?;
        without_key(&new.config)?;
        without_key(&new.context)?;
        let id = new.id.unwrap_or_else(AssistantId::random);
        let operation = ExtensionOperation::new(Operation::AssistantCreate).with(id.to_string());
        let record = NewAssistant {
            id,
            name: new.name.unwrap_or_else(|| new.graph.clone()),
            graph: new.graph,
            description: new.description,
            config: new.config,
            context: new.context,
            metadata: new.metadata,
        };
        let made = async {
            if BUILT_IN_GRAPHS.iter().filter_map(|graph| Assistant::built_in(graph)).any(|one| one.id == id) {
                return Err(Error::new(ErrorCode::AlreadyExists, "there is an assistant of this id"));
            }
            Ok(self.store.insert_assistant(&caller.owner, record, now_ms()).await?)
        };
        match self.core.operations.carry_out(caller, operation, made).await {
            Err(error) if error.code == ErrorCode::AlreadyExists && new.if_exists == IfExists::DoNothing => {
                self.assistant(caller, &id.uuid().to_string()).await
            }
            made => made,
        }
    }

    /// Makes a new version of one, which becomes its latest. A built-in one is refused.
    pub async fn patch_assistant(
        &self,
        caller: &Caller,
        id: &str,
        patch: PatchAssistant,
    ) -> Result<Assistant> {
        let old = self.own_assistant(caller, id).await?;
        let record = NewAssistant {
            id: old.id,
            graph: patch.graph.unwrap_or(old.graph),
            name: patch.name.unwrap_or(old.name),
            description: patch.description.or(old.description),
            config: patch.config.unwrap_or(old.config),
            context: patch.context.unwrap_or(old.context),
            metadata: merged(old.metadata, patch.metadata),
        };
        check_graph(&record.graph)?;
        without_key(&record.config)?;
        without_key(&record.context)?;
        let operation = ExtensionOperation::new(Operation::AssistantPatch).with(old.id.to_string());
        let changed = async {
            let changed = self.store.add_assistant_version(&caller.owner, record, now_ms()).await?;
            changed.ok_or_else(missing)
        };
        self.core.operations.carry_out(caller, operation, changed).await
    }

    /// Deletes one with its versions. A built-in one is refused.
    pub async fn delete_assistant(&self, caller: &Caller, id: AssistantId) -> Result<()> {
        self.own_assistant(caller, &id.uuid().to_string()).await?;
        let operation = ExtensionOperation::new(Operation::AssistantDelete).with(id.to_string());
        let removed = async {
            match self.store.remove_assistant(&caller.owner, id).await? {
                true => Ok(()),
                false => Err(missing()),
            }
        };
        self.core.operations.carry_out(caller, operation, removed).await
    }

    /// All versions of one, the newest first.
    pub async fn assistant_versions(&self, caller: &Caller, id: &str) -> Result<Vec<Assistant>> {
        let assistant = self.assistant(caller, id).await?;
        if assistant.is_built_in() {
            return Ok(vec![assistant]);
        }
        Ok(self.store.assistant_versions(&caller.owner, assistant.id).await?)
    }

    /// Makes an older version the latest.
    pub async fn set_assistant_version(
        &self,
        caller: &Caller,
        id: AssistantId,
        version: u32,
    ) -> Result<Assistant> {
        self.own_assistant(caller, &id.uuid().to_string()).await?;
        let operation =
            ExtensionOperation::new(Operation::AssistantPatch).with(id.to_string()).and("version", version);
        let changed = async {
            let changed = self.store.set_assistant_version(&caller.owner, id, version, now_ms()).await?;
            changed.ok_or_else(|| Error::new(ErrorCode::NotFound, "there is no such version").at("version"))
        };
        self.core.operations.carry_out(caller, operation, changed).await
    }
}
