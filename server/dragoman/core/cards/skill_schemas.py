"""Schemas of an agent's input and output, by skill: the A2A extension `urn:dragoman:schemas:v1`.

The parameters of the extension are `{SKILL: {"input": {...}, "output": {...}, "annotations": {...}}}`, where the key ""
stands for the agent itself. They may come from a worker or from the card of an upstream agent, so they are read with
tolerance: what has another form, or is too large or too deep, is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dragoman.core.cards.agent_spec import AgentSpec, Extension
from dragoman.core.schemas import MAX_SCHEMA_SIZE, schema_problem, size_of

SCHEMAS_URI: Final = "urn:dragoman:schemas:v1"

_DESCRIPTION: Final = "JSON Schemas of what the agent and its skills take and return."

MAX_SCHEMAS_SIZE: Final = 1_048_576
MAX_SCHEMA_SKILLS: Final = 256
"""Size of all schemas of an agent, and number of its skills with schemas, after which the rest is ignored."""

ANNOTATIONS: Final[Mapping[str, type]] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}
"""The annotations of a tool (MCP 2025-11-25, ToolAnnotations), with their types. All are hints."""


@dataclass(frozen=True, slots=True)
class SkillSchemas:
    """Schemas of a skill's input and output. None where it is not declared.

    `input` is always the schema of an object: its `type` is "object". `annotations` has keys of ANNOTATIONS only.
    """

    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] | None = None


NO_SCHEMAS: Final = SkillSchemas()


def schemas_of(spec: AgentSpec) -> Mapping[str, SkillSchemas]:
    """The declared schemas by skill id, "" for the agent itself. Invalid ones are left out."""
    params = next((extension.params for extension in spec.extensions if extension.uri == SCHEMAS_URI), {})
    schemas: dict[str, SkillSchemas] = {}
    size = 0
    for skill, entry in params.items():
        if not isinstance(entry, Mapping) or (parsed := _parse_entry(entry)) == NO_SCHEMAS:
            continue
        size += sum(size_of(schema) for schema in (parsed.input, parsed.output) if schema is not None)
        if size > MAX_SCHEMAS_SIZE or len(schemas) == MAX_SCHEMA_SKILLS:
            break
        schemas[skill] = parsed
    return schemas


def schemas_of_skill(schemas: Mapping[str, SkillSchemas], skill: str) -> SkillSchemas:
    """The schemas of a call of this skill: its own, and the agent's input and output where it has none.

    `schemas`: those of the agent (`schemas_of`), which are read once for all its skills.
    """
    own, agent = schemas.get(skill, NO_SCHEMAS), schemas.get("", NO_SCHEMAS)
    return SkillSchemas(
        agent.input if own.input is None else own.input,
        agent.output if own.output is None else own.output,
        own.annotations,
    )


def with_schemas(spec: AgentSpec, schemas: Mapping[str, SkillSchemas]) -> AgentSpec:
    """The agent with these schemas, in place of those that it has. Entries without any schema are left out."""
    others = tuple(extension for extension in spec.extensions if extension.uri != SCHEMAS_URI)
    if not (params := _params(schemas)):
        return replace(spec, extensions=others)
    return replace(spec, extensions=(*others, Extension(uri=SCHEMAS_URI, description=_DESCRIPTION, params=params)))


def shown_extensions(spec: AgentSpec, *, extended: bool) -> tuple[Extension, ...]:
    """The agent's extensions for a card: with the schemas of the agent, and of the skills on that card.

    `extended`: the reader also sees the extended skills.
    """
    if not any(extension.uri == SCHEMAS_URI for extension in spec.extensions):
        return spec.extensions
    skills = {"", *(skill.id for skill in (*spec.skills, *(spec.extended_skills if extended else ())))}
    params = _params({id: schemas for id, schemas in schemas_of(spec).items() if id in skills})
    return tuple(
        replace(extension, params=params) if extension.uri == SCHEMAS_URI else extension
        for extension in spec.extensions
        if extension.uri != SCHEMAS_URI or params
    )


def input_schema_problem(schema: object) -> str:
    """The same for an input, which must describe an object: a caller names its arguments."""
    if problem := schema_problem(schema):
        return problem
    assert isinstance(schema, Mapping)
    if schema.get("type") != "object":
        return 'must describe an object: its "type" must be "object"'
    return ""


def _params(schemas: Mapping[str, SkillSchemas]) -> dict[str, Any]:
    params = {}
    for skill, one in schemas.items():
        members = {"input": one.input, "output": one.output, "annotations": one.annotations}
        if entry := {name: dict(value) for name, value in members.items() if value is not None}:
            params[skill] = entry
    return params


def _parse_entry(entry: Mapping[str, Any]) -> SkillSchemas:
    input, output = entry.get("input"), entry.get("output")
    if isinstance(input, Mapping) and "type" not in input:
        input = {"type": "object", **input}  # arguments are an object in any case
    return SkillSchemas(
        None if input_schema_problem(input) else input,
        None if schema_problem(output) else output,
        _parse_annotations(entry.get("annotations")),
    )


def _parse_annotations(annotations: object) -> Mapping[str, Any] | None:
    if not isinstance(annotations, Mapping):
        return None
    known = {name: annotations[name] for name, kind in ANNOTATIONS.items() if isinstance(annotations.get(name), kind)}
    return known if known and size_of(known) <= MAX_SCHEMA_SIZE else None
