"""Validates JSON against the JSON Schemas that agents declare (2026-07-28 basic, "JSON Schema Usage")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

MAX_PROBLEM_CHARACTERS: Final = 300

FindProblem = Callable[[object], str]
"""Returns why a value does not match a schema: the path, and the rule; empty if it does."""


def compile_schema(schema: Mapping[str, Any] | None) -> FindProblem:
    """The check of a schema; of an invalid schema, it finds a problem with every value. Without one, with none.

    The dialect is 2020-12 unless `$schema` names another. References to other documents are not resolved.
    """
    if schema is None:
        return lambda value: ""
    import jsonschema  # 60 ms, needed by agents with schemas alone
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        problem = _cut(f"the agent's schema is invalid: {error.message}")
        return lambda value: problem
    validator = kind(schema, registry=Registry())

    def find_problem(value: object) -> str:
        try:
            found = jsonschema.exceptions.best_match(validator.iter_errors(value))
        except Unresolvable as error:
            return _cut(f"the agent's schema refers to another document: {error}")
        if found is None:
            return ""
        path = ".".join(str(part) for part in found.absolute_path)
        return _cut(f"{path}: {found.message}" if path else found.message)

    return find_problem


def _cut(text: str) -> str:
    return text[:MAX_PROBLEM_CHARACTERS]
