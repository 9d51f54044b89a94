"""Writes models.py from the OpenAPI document: a TypedDict for what is sent, a frozen dataclass for what is only
received, an alias for the rest."""

import json
import sys
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

HEADER = '''# Generated from docs/openapi.json by generate/models.py.
"""The objects of the HTTP API. Those that are sent are typed dictionaries; those that come are data classes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

'''

PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def name_of(schema: Schema) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[-1]


def union(parts: list[str]) -> str:
    parts = list(dict.fromkeys(parts))
    if "Any" in parts:
        return "Any"
    return " | ".join([part for part in parts if part != "None"] + ["None"] * ("None" in parts))


def literal(values: list[Any]) -> str:
    words = [json.dumps(value) for value in values if value is not None]
    return union(([f"Literal[{', '.join(words)}]"] if words else []) + ["None"] * (None in values))


def of_type(kind: str, schema: Schema) -> str:
    if kind == "array":
        return f"list[{annotation(schema.get('items', {}))}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {annotation(values) if isinstance(values, dict) else 'Any'}]"
    if kind == "string" and schema.get("format") == "date-time":
        return "datetime"
    return PLAIN[kind]


def annotation(schema: Schema) -> str:
    if "$ref" in schema:
        return name_of(schema)
    if "const" in schema:
        return literal([schema["const"]])
    if "enum" in schema:
        return literal(schema["enum"])
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return union([annotation(part) for part in schema[word]])
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return union([of_type(kind, schema) for kind in kinds]) if kinds else "Any"


def flattened(schema: Schema, schemas: dict[str, Schema]) -> tuple[Schema, set[str]]:
    """The properties of an object, those that it takes over from others included, and which are required."""
    if "$ref" in schema:
        return flattened(schemas[name_of(schema)], schemas)
    properties, required = dict(schema.get("properties", {})), set(schema.get("required", []))
    for part in schema.get("allOf", []):
        more, needed = flattened(part, schemas)
        # Parts that only constrain repeat properties with less of their type.
        properties = {**more, **properties}
        required |= needed
    return properties, required


def reached(start: Any, schemas: dict[str, Schema]) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        here = pending.pop()
        if isinstance(here, list):
            pending.extend(here)
        elif isinstance(here, dict):
            if isinstance(here.get("$ref"), str) and name_of(here) not in found:
                found.add(name_of(here))
                pending.append(schemas[name_of(here)])
            pending.extend(here.values())
    return found


def comment(text: str | None, indent: str = "") -> str:
    words = " ".join((text or "").split())
    if not words:
        return ""
    return f'{indent}"""{words.replace(chr(92), chr(92) * 2)}"""\n'


def class_of(name: str, schema: Schema, schemas: dict[str, Schema], sent: bool) -> str:
    properties, required = flattened(schema, schemas)
    lines = comment(schema.get("description"), "    ")
    for field, about in properties.items():
        kind = annotation(about)
        if sent:
            kind = kind if field in required else f"NotRequired[{kind}]"
            lines += f"    {field}: {kind}\n"
        elif field in required:
            lines += f"    {field}: {kind}\n"
        else:
            optional = kind if kind == "Any" or kind.endswith("None") else f"{kind} | None"
            lines += f"    {field}: {optional} = None\n"
        lines += comment(about.get("description"), "    ")
    lines = lines or "    pass\n"
    if sent and not all(field.isidentifier() for field in properties):
        raise ValueError(f"{name}: a field that is no identifier")
    # `from` is a keyword, which a class body cannot have.
    if sent and "from" in properties:
        fields = [(f, annotation(a), f in required) for f, a in properties.items()]
        inner = ", ".join(f'"{f}": {k if needed else f"NotRequired[{k}]"}' for f, k, needed in fields)
        return f'{name} = TypedDict("{name}", {{{inner}}})\n\n'
    if sent:
        return f"class {name}(TypedDict):\n{lines}\n\n"
    return f"@dataclass(frozen=True, slots=True, kw_only=True)\nclass {name}:\n{lines}\n\n"


def generate(description: Path) -> str:
    document = json.loads(description.read_text())
    schemas: dict[str, Schema] = document["components"]["schemas"]
    bodies = [
        operation.get("requestBody", {})
        for path in document["paths"].values()
        for operation in path.values()
        if isinstance(operation, dict)
    ]
    sent = reached(bodies, schemas)
    aliases, classes = "", ""
    for name, schema in schemas.items():
        if flattened(schema, schemas)[0]:
            classes += class_of(name, schema, schemas, name in sent)
        else:
            aliases += f"{name}: TypeAlias = {annotation(schema)}\n{comment(schema.get('description'))}"
    return HEADER + aliases + "\n\n" + classes.rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(generate(Path(sys.argv[1])))
