"""Options: the names of settings outside of their groups, and how groups are read from values by these names.

A group is a frozen model whose fields have defaults and an `Option`. Those of extensions are no different from ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from dragoman.ports.extension import Option


def setting(
    default: Any,
    value: str,
    help: str,
    *,
    name: str = "",
    kind: Any = None,
    may_hold_secrets: bool = False,
    **bounds: Any,
) -> Any:
    """A field with an `Option`, and with the bounds of pydantic's `Field`.

    By default the option has the field's name after the group's prefix, and its kind: a flag, a path or a text.
    """
    field = Field(default=default, **bounds)
    field.metadata.append(Option(name, value, help, kind, may_hold_secrets=may_hold_secrets))
    return field


@cache
def options_of(group: type[BaseModel]) -> Mapping[str, tuple[Option, FieldInfo]]:
    """The option and the field of each setting, by the field's name. Raises ValueError for a field without one."""
    options = {}
    for name, field in group.model_fields.items():
        option = next((item for item in field.metadata if isinstance(item, Option)), None)
        if option is None:
            raise ValueError(f"the setting {name} has no Option")
        if not option.name:
            option = replace(option, name=f"{getattr(group, 'prefix', '')}{name}")
        if option.kind is None:
            types = (field.annotation, *get_args(field.annotation))
            option = replace(option, kind=next((kind for kind in (bool, Path) if kind in types), str))
        options[name] = option, field
    return options


def fields_by_option(groups: Iterable[type[BaseModel]]) -> dict[str, tuple[Option, FieldInfo]]:
    """All settings of some groups by the names of their options."""
    return {option.name: (option, field) for group in groups for option, field in options_of(group).values()}


class InvalidGroups(ValueError):
    """Settings are invalid. `errors` has their details, located by the names of the options."""

    def __init__(self, errors: Sequence[ErrorDetails]) -> None:
        problems = [(str(error["loc"][0]).replace("_", "-"), error["msg"]) for error in errors]
        super().__init__("; ".join(f"--{name}: {text.removeprefix('Value error, ')}" for name, text in problems))
        self.errors = errors


def take_values(groups: Mapping[str, type[BaseModel]], values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Moves values, by the names of options, out of `values` into one mapping by field for each group."""
    return {
        name: {
            field: values.pop(option.name) for field, (option, _) in options_of(group).items() if option.name in values
        }
        for name, group in groups.items()
    }


def read_groups(groups: Mapping[str, type[BaseModel]], values: Mapping[str, Any]) -> dict[str, BaseModel]:
    """The groups by name, with values by the names of options. Raises InvalidGroups, also for unknown names."""
    found: dict[str, BaseModel] = {}
    errors: list[ErrorDetails] = []
    unknown = dict(values)
    for name, given in take_values(groups, unknown).items():
        try:
            found[name] = groups[name].model_validate(given)
        except ValidationError as error:
            options = options_of(groups[name])
            for item in error.errors():
                field, *rest = item["loc"]
                errors.append({**item, "loc": (options[str(field)][0].name, *rest)})
    for name, value in unknown.items():
        errors.append({"type": "extra_forbidden", "loc": (name,), "msg": "is not a setting", "input": value})
    if errors:
        raise InvalidGroups(errors)
    return found


def broken_rule(option: str, reason: str) -> ErrorDetails:
    """The details of a value that does not fit others."""
    return {"type": "value_error", "loc": (option,), "msg": reason, "input": None, "ctx": {"error": reason}}
