"""Types that authors declare for input and output: their JSON Schemas, and the validation of a message.

pydantic makes the schemas and validates. It is imported only for agents that declare a type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from dragoman.agents.functions.spec import check_known, check_type, checked_json
from dragoman.core.cards.agent_spec import AgentSpec, Skill
from dragoman.core.cards.skill_schemas import (
    ANNOTATIONS,
    MAX_SCHEMA_SKILLS,
    MAX_SCHEMAS_SIZE,
    SCHEMAS_URI,
    SkillSchemas,
    input_schema_problem,
    schemas_of,
    with_schemas,
)
from dragoman.core.exceptions import name_of, text_of
from dragoman.core.schemas import schema_problem
from dragoman.wire.json import remote_values

ValidateJson = Callable[[bytes], Any]

MAX_SHOWN_PROBLEMS: Final = 5  # problems of an input that a caller is told


class InvalidInput(ValueError):
    """A message does not have the declared input. The text names the fields and the rules, for the caller."""


InputTypes = Mapping[str, ValidateJson | None]
"""The declared inputs by skill id, "" for the agent's own. None: by a JSON Schema, whose values are not checked."""


def read_input(data: Sequence[Any], text: str, validate: ValidateJson | None) -> Any:
    """The input in a message: its only data part, or its text as JSON. Raises InvalidInput."""
    value = _json_of(data, text)
    return value if validate is None else _validated(validate, value)


def with_declared_types(
    spec: AgentSpec, *, input: object, output: object, annotations: object
) -> tuple[AgentSpec, InputTypes]:
    """The agent with the schemas that `@agent` and its skills declare, and the types to validate messages with.

    Raises TypeError or ValueError that names the argument.
    """
    declarations = [("", "", input, output, annotations)]
    for argument, skills in (("skills", spec.skills), ("extended_skills", spec.extended_skills)):
        declarations += [
            (skill.id, f"{argument}[{index}].", skill.input, skill.output, skill.annotations)
            for index, skill in enumerate(skills)
        ]
    schemas: dict[str, SkillSchemas] = {}
    types: dict[str, ValidateJson | None] = {}
    for id, prefix, input, output, annotations in declarations:
        input_schema = output_schema = None
        if input is not None:
            types[id], input_schema = _read_declared(f"{prefix}input", input, is_input=True)
        if output is not None:
            _, output_schema = _read_declared(f"{prefix}output", output, is_input=False)
        hints = None if annotations is None else _annotations(f"{prefix}annotations", annotations)
        if (one := SkillSchemas(input_schema, output_schema, hints)) != SkillSchemas():
            schemas[id] = one
    if not schemas:
        return spec, types
    if any(extension.uri == SCHEMAS_URI for extension in spec.extensions):
        raise ValueError(f"@agent: extensions has {SCHEMAS_URI}, which input=, output= and annotations= write; omit it")
    plain = replace(
        spec,
        skills=_plain(spec.skills),
        extended_skills=_plain(spec.extended_skills),
        validates_input=frozenset(id for id, validate in types.items() if validate is not None),
    )
    declared = with_schemas(plain, schemas)
    if len(schemas_of(declared)) < len(schemas):
        raise ValueError(
            f"@agent: the schemas have more than {MAX_SCHEMAS_SIZE:,} characters or {MAX_SCHEMA_SKILLS} skills in all"
        )
    return declared, types


def _plain(skills: tuple[Skill, ...]) -> tuple[Skill, ...]:
    return tuple(replace(skill, input=None, output=None, annotations=None) for skill in skills)


def _read_declared(argument: str, declared: object, *, is_input: bool) -> tuple[ValidateJson | None, Mapping[str, Any]]:
    """The validation and the JSON Schema of a declared input or output."""
    validate = None
    if isinstance(declared, Mapping):
        schema = checked_json(argument, declared)
    else:
        # Answers have the names of fields, not their aliases, unless the model says otherwise (agents/values.py).
        by_alias = is_input or bool(getattr(declared, "model_config", {}).get("serialize_by_alias"))
        mode = "validation" if is_input else "serialization"
        adapter, schema = _adapter_and_schema(argument, declared, mode=mode, by_alias=by_alias)
        schema, validate = _root_definition(schema), adapter.validate_json
    if problem := input_schema_problem(schema) if is_input else schema_problem(schema):
        raise ValueError(f"@agent: {argument} {problem}")
    return validate, schema


def _adapter_and_schema(argument: str, declared: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    import pydantic
    from typing_extensions import is_typeddict  # before Python 3.12, pydantic reads those of typing_extensions only

    is_model = isinstance(declared, type) and issubclass(declared, pydantic.BaseModel)
    if not (is_model or (isinstance(declared, type) and dataclasses.is_dataclass(declared)) or is_typeddict(declared)):
        raise TypeError(
            f"@agent: {argument}={declared!r} must be a pydantic model, a dataclass, a TypedDict or a JSON Schema"
        )
    try:
        adapter: Any = pydantic.TypeAdapter(declared)
        return adapter, adapter.json_schema(**options)
    except Exception as error:  # pydantic has several, one for each kind of type that it cannot read
        reason, *_ = text_of(error).splitlines() or [name_of(error)]
        raise TypeError(f"@agent: {argument}={declared!r} has no JSON Schema: {reason}") from error


def _root_definition(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its definition in place of a reference to it: pydantic refers to a type that contains itself."""
    reference = schema.get("$ref", "")
    definition = schema.get("$defs", {}).get(str(reference).removeprefix("#/$defs/"))
    if definition is None:
        return schema
    return {**definition, **{key: value for key, value in schema.items() if key != "$ref"}}


def _annotations(argument: str, annotations: Any) -> Mapping[str, Any]:
    check_type(argument, annotations, Mapping, "a dict")
    check_known(argument, annotations, ANNOTATIONS)
    for name, value in annotations.items():
        check_type(f"{argument}.{name}", value, ANNOTATIONS[name], _ANNOTATION_RULES[ANNOTATIONS[name]])
    return dict(annotations)


_ANNOTATION_RULES: Final[Mapping[type, str]] = {str: "a string", bool: "True or False"}


def _json_of(data: Sequence[Any], text: str) -> Any:
    if len(data) > 1:
        raise InvalidInput(f"The message has {len(data)} data parts. Send one, with the input.")
    if data:
        return data[0]
    try:
        return remote_values.loads_numbers(text)
    except remote_values.LongInteger as error:
        raise InvalidInput(f"The input cannot be read: {error}.") from None
    except ValueError:
        raise InvalidInput("The message has no input. Send it as a data part, or as a text that is JSON.") from None


def _validated(validate: ValidateJson, value: Any) -> Any:
    from pydantic import ValidationError

    try:
        return validate(orjson.dumps(value))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [_problem_text(problem) for problem in problems[:MAX_SHOWN_PROBLEMS]]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        shown.append(f"and {len(problems) - MAX_SHOWN_PROBLEMS} more")
    raise InvalidInput(f"The input is not valid. {'; '.join(shown)}.")


def _problem_text(problem: Mapping[str, Any]) -> str:
    """Field and rule, as in `items[0].quantity: Input should be greater than 0`."""
    path = ""
    for step in problem["loc"]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return f"{path.removeprefix('.') or 'input'}: {problem['msg']}"
