//! The committed description of the API: which operation a request is, whether a value fits a schema, and
//! the values that a schema allows.

use serde_json::{Map, Value, json};

pub(crate) struct Document(Value);

/// One operation of the description.
pub(crate) struct Operation<'a> {
    pub(crate) id: &'a str,
    pub(crate) value: &'a Value,
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn kind_fits(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("a type {other}"),
    }
}

impl Document {
    pub(crate) fn load() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        Self(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
    }

    pub(crate) fn schema(&self, name: &str) -> &Value {
        self.0["components"]["schemas"].get(name).unwrap_or_else(|| panic!("no schema {name}"))
    }

    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        schema["$ref"].as_str().map_or(schema, |path| self.schema(path.rsplit('/').next().unwrap()))
    }

    /// The operation of a method and a path; where several fit, the one that says more of the path.
    pub(crate) fn operation(&self, method: &str, path: &str) -> Option<Operation<'_>> {
        let asked: Vec<&str> = path.split('/').collect();
        let fits = |template: &str| {
            let parts: Vec<&str> = template.split('/').collect();
            let rest = template.ends_with("{path}") && asked.len() >= parts.len();
            let same =
                |(part, asked): (&&str, &&str)| part == asked || part.starts_with('{') && !asked.is_empty();
            (rest || parts.len() == asked.len()) && parts.iter().zip(&asked).all(same)
        };
        let found = self.0["paths"].as_object()?.iter().filter(|(template, _)| fits(template));
        let (_, item) = found.min_by_key(|(template, _)| template.matches('{').count())?;
        let value = item.get(method.to_ascii_lowercase())?;
        Some(Operation { id: value["operationId"].as_str()?, value })
    }

    /// The names of all operations.
    pub(crate) fn operations(&self) -> impl Iterator<Item = &str> {
        let items = self.0["paths"].as_object().into_iter().flat_map(Map::values);
        items.flat_map(|item| item.as_object().unwrap().values()).filter_map(|of| of["operationId"].as_str())
    }

    /// What is wrong with a value. Patterns are not looked at.
    pub(crate) fn problems(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let schema = self.resolved(schema);
        let mut all = Vec::new();
        let kinds = texts(&schema["type"]);
        if !kinds.is_empty() && !kinds.iter().any(|kind| kind_fits(kind, value)) {
            all.push(format!("{at}: {value} is none of {kinds:?}"));
        }
        let allowed = schema.get("enum").and_then(Value::as_array);
        if allowed.is_some_and(|allowed| !allowed.contains(value))
            || schema.get("const").is_some_and(|one| one != value)
        {
            all.push(format!("{at}: {value} is not allowed"));
        }
        if value.as_f64().is_some_and(|n| schema["exclusiveMinimum"].as_f64().is_some_and(|least| n <= least))
        {
            all.push(format!("{at}: {value} is too small"));
        }
        if let (Some(number), Some(least)) = (value.as_f64(), schema["minimum"].as_f64()) {
            let most = schema["maximum"].as_f64().unwrap_or(f64::INFINITY);
            if !(least..=most).contains(&number) {
                all.push(format!("{at}: {number} is not from {least} to {most}"));
            }
        }
        if let Some(object) = value.as_object() {
            all.extend(self.object_problems(schema, object, at));
        }
        if let (Some(items), Some(of)) = (value.as_array(), schema.get("items")) {
            all.extend(items.iter().flat_map(|item| self.problems(of, item, &format!("{at}[]"))));
        }
        all.extend(self.combined_problems(schema, value, at));
        all
    }

    fn object_problems(&self, schema: &Value, object: &Map<String, Value>, at: &str) -> Vec<String> {
        let missing = texts(&schema["required"]).into_iter().filter(|name| !object.contains_key(*name));
        let mut all: Vec<String> = missing.map(|name| format!("{at}: {name} is missing")).collect();
        for (name, value) in object {
            let at = format!("{at}.{name}");
            match (schema["properties"].get(name), &schema["additionalProperties"]) {
                (Some(of), _) => all.extend(self.problems(of, value, &at)),
                (None, Value::Bool(false)) => all.push(format!("{at}: there is no such field")),
                (None, of) => all.extend(self.problems(of, value, &at)),
            }
        }
        all
    }

    fn combined_problems(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let branches = |word: &str| schema[word].as_array().cloned().unwrap_or_default();
        let fits = |of: &Value| self.problems(of, value, at).is_empty();
        let mut all: Vec<String> =
            branches("allOf").iter().flat_map(|of| self.problems(of, value, at)).collect();
        for word in ["oneOf", "anyOf"] {
            let branches = branches(word);
            if !branches.is_empty() && !branches.iter().any(fits) {
                let of: Vec<String> = branches.iter().flat_map(|of| self.problems(of, value, at)).collect();
                all.push(format!("{at}: fits nothing of {word}: {of:?}"));
            }
        }
        if schema.get("not").is_some_and(fits) {
            all.push(format!("{at}: {value} is what it must not be"));
        }
        all
    }

    /// Values of a schema: the first has every field, with the largest numbers; in each of the others one
    /// thing differs: a field is left out or null, or one of a set.
    pub(crate) fn examples(&self, schema: &Value) -> Vec<Value> {
        let schema = self.resolved(schema);
        if let Some(all) = schema["enum"].as_array() {
            return all.clone();
        }
        for word in ["oneOf", "anyOf"] {
            if let Some(branches) = schema[word].as_array() {
                // Null is not what a reader should see first.
                let mut all: Vec<Value> = branches.iter().flat_map(|of| self.examples(of)).collect();
                all.sort_by_key(Value::is_null);
                return all;
            }
        }
        let mut kinds = texts(&schema["type"]);
        if kinds.is_empty() && schema.get("allOf").is_some() {
            kinds.push("object");
        }
        kinds.sort_by_key(|kind| *kind == "null");
        match kinds.is_empty() {
            true => vec![json!("anything")],
            false => kinds.iter().flat_map(|kind| self.examples_of(schema, kind)).collect(),
        }
    }

    fn examples_of(&self, schema: &Value, kind: &str) -> Vec<Value> {
        match kind {
            "null" => vec![Value::Null],
            "boolean" => vec![json!(true), json!(false)],
            "integer" => vec![schema.get("maximum").cloned().unwrap_or(json!(u64::MAX))],
            "number" => vec![json!(0.5), json!(1)],
            "string" => vec![match (schema["format"].as_str(), schema["pattern"].as_str()) {
                (Some("uuid"), _) => json!("6b1f2f60-9d0f-4a7c-8f52-0d9e61a70001"),
                (Some("date-time"), _) => json!("2026-11-16T12:00:00.000Z"),
                (_, Some("^[0-9a-f]{32}$")) => json!("6b1f2f609d0f4a7c8f520d9e61a70001"),
                _ => json!("text"),
            }],
            "array" => {
                let items = self.examples(schema.get("items").unwrap_or(&Value::Null));
                items.into_iter().map(|item| json!([item])).chain([json!([])]).collect()
            }
            _ => self.objects(schema),
        }
    }

    fn objects(&self, schema: &Value) -> Vec<Value> {
        let mut full = Map::new();
        let mut others = Vec::new();
        for schema in self.parts(schema) {
            for (name, of) in schema["properties"].as_object().into_iter().flatten() {
                let mut values = self.examples(of).into_iter();
                full.insert(name.clone(), values.next().unwrap());
                others.extend(values.map(|value| (name, Some(value))));
                if !texts(&schema["required"]).contains(&name.as_str()) {
                    others.push((name, None));
                }
            }
        }
        if let Some(of) = schema.get("additionalProperties").filter(|of| of.is_object()) {
            full.insert("name".into(), self.examples(of).swap_remove(0));
        }
        let with = |(name, value): (&String, Option<Value>)| {
            let mut one = full.clone();
            match value {
                Some(value) => drop(one.insert(name.clone(), value)),
                None => drop(one.remove(name)),
            }
            Value::Object(one)
        };
        let others: Vec<Value> = others.into_iter().map(with).collect();
        [Value::Object(full.clone())].into_iter().chain(others).collect()
    }

    /// A schema and those that it is put together of.
    fn parts<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        let parts = schema["allOf"].as_array().into_iter().flatten();
        std::iter::once(schema).chain(parts.map(|of| self.resolved(of))).collect()
    }

    /// The names of a schema's fields.
    pub(crate) fn fields<'a>(&'a self, schema: &'a Value) -> Vec<&'a str> {
        let parts = self.parts(self.resolved(schema)).into_iter();
        parts
            .flat_map(|of| of["properties"].as_object().into_iter().flat_map(Map::keys))
            .map(String::as_str)
            .collect()
    }
}
