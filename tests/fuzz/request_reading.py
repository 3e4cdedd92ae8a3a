"""Whether a generated request fits the OpenAPI document, read as the server reads it.

Schemas cannot say everything that ProtoJSON and our query rules accept; the description of the document does. What it
says is applied here to a request before it is compared with the schemas, and nothing else is excused:

- `null`, and an empty query parameter or header, counts as absent;
- a number stands for the name of an enum, and a text for a number;
- parameters in the query and headers are texts: `true`, `7`;
- unknown keys and parameters are ignored (schemas of objects are open);
- on Google's paths a page may be asked for with more than the maximum, and their system parameters are read only of
  callers that do not name version 1.0;
- `configId` in the query replaces the id in the body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

DOCUMENT: Final = "urn:document"
GOOGLE_PARAMETERS: Final = ("alt", "fields", "prettyPrint", "$.xgafv")

_INTEGER: Final = re.compile(r"-?\d+(\.0+)?")


def fits(document: Mapping[str, Any], path: str, method: str, request: Mapping[str, Any]) -> bool:
    """Whether a request to an operation fits the document, as read by the server.

    `request`: its `query`, `headers` and `path` parameters as texts, and its `body`; each may be missing.
    """
    operation = document["paths"][path][method.lower()]
    pointer = f"#/paths/{path.replace('~', '~0').replace('/', '~1')}/{method.lower()}"
    validate = _Schemas(document)
    is_google, is_v1 = "{project}" in path, _values(request, "headers").get("A2A-Version") == "1.0"
    for number, parameter in enumerate(operation.get("parameters", ())):
        schema = f"{parameter.get('$ref') or f'{pointer}/parameters/{number}'}/schema"
        parameter = validate.resolved(parameter)
        name, place = parameter["name"], parameter["in"]
        text = _values(request, {"header": "headers"}.get(place, place)).get(name)
        if isinstance(text, list) and len(set(text)) == 1:
            text = text[0]  # given twice, with one value
        if text in (None, "", "null") and place != "path":
            continue
        if is_google and is_v1 and name in GOOGLE_PARAMETERS:
            continue
        if is_google and name == "pageSize" and _INTEGER.fullmatch(str(text)):
            text = str(min(int(float(str(text))), validate.maximum(schema)))
        if not validate(schema, text, is_text=True):
            return False
    body = _without_null(request.get("body"))
    if isinstance(body, dict) and "pushNotificationConfig" in body and is_google and is_v1:
        body.pop("name", None)  # of the request in 0.3: 1.0 has none
    if "requestBody" not in operation or body is None:
        return not operation.get("requestBody", {}).get("required", False)
    config = body.get("pushNotificationConfig") if isinstance(body, dict) else None
    if isinstance(config, dict) and _values(request, "query").get("configId"):
        config.pop("id", None)
    return validate(f"{pointer}/requestBody/content/application~1json/schema", body)


def _values(request: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    return request.get(place) or {}


def _without_null(value: Any) -> Any:
    """The value without the members of objects that are null, but `data`, which is any JSON in 1.0."""
    if isinstance(value, dict):
        return {key: _without_null(member) for key, member in value.items() if member is not None or key == "data"}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


class _Schemas:
    """The schemas of a document, by JSON pointers such as `#/components/schemas/a`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        resource = Resource.from_contents(dict(document), default_specification=DRAFT202012)
        self._registry: Any = Registry().with_resource(DOCUMENT, resource)

    def resolved(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a reference names, or the value itself."""
        return self._lookup(value["$ref"]) if "$ref" in value else value

    def maximum(self, pointer: str) -> int:
        return int(self.resolved(self._lookup(pointer))["maximum"])

    def __call__(self, pointer: str, value: Any, *, is_text: bool = False) -> bool:
        """Whether a value fits a schema. `is_text`: it is a text that stands for a number or a truth value."""
        schema = {"$ref": f"{DOCUMENT}{pointer}"}
        validator = Draft202012Validator(schema, registry=self._registry, format_checker=FormatChecker())
        return all(_is_excused(error, is_text) for error in validator.iter_errors(value))

    def _lookup(self, pointer: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._registry.resolver().lookup(f"{DOCUMENT}{pointer}").contents
        return found


def _is_excused(error: ValidationError, is_text: bool) -> bool:
    """Whether the server accepts what the schema refuses here: numbers for names of enums, texts for numbers."""
    value, schema = error.instance, error.schema
    if value is None:
        return True
    if error.context:  # anyOf, oneOf: one branch that is wholly excused is enough
        branches: dict[object, list[ValidationError]] = {}
        for inner in error.context:
            branches.setdefault(inner.schema_path[0], []).append(inner)
        return any(all(_is_excused(inner, is_text) for inner in branch) for branch in branches.values())
    if not isinstance(schema, Mapping):
        return False
    if "enum" in schema and schema.get("type") == "string" and not is_text:
        return isinstance(value, int) and not isinstance(value, bool)
    if "enum" in schema and is_text:
        return "UNSPECIFIED" in str(schema["enum"]) and _INTEGER.fullmatch(str(value)) is not None
    if error.validator == "type" and schema.get("type") == "integer" and isinstance(value, str):
        return _INTEGER.fullmatch(value) is not None and _is_within(int(float(value)), schema)
    return error.validator == "type" and schema.get("type") == "boolean" and is_text and value in _BOOLEANS


_BOOLEANS: Final = ("true", "false", "1", "0")


def _is_within(number: int, schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("minimum", number) <= number <= schema.get("maximum", number))


def described(case: Any) -> dict[str, Any]:
    """The parts of a schemathesis case, for `fits`."""
    return {
        "path": {name: str(value) for name, value in (case.path_parameters or {}).items()},
        "query": dict(case.query or {}),
        "headers": dict(case.headers or {}),
        "body": case.body if isinstance(case.body, dict | list | str | int | float) else None,
    }
