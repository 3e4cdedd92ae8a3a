"""JSON Schemas of others: accepted within bounds, evaluated within 8 ms, and never fetched.

The one module that evaluates JSON Schemas; `tests/test_layers.py` refuses the libraries elsewhere. Patterns run on a
linear engine. The library holds the interpreter's lock while it checks, so a thread would not help: what a check may
cost is computed before, and a check that may cost more is not made. The agent checks its own input in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice
from typing import Any, Final
from urllib.parse import unquote

import orjson

MAX_SCHEMA_DEPTH: Final = 24
"""Levels of objects and arrays in a schema. Each takes up to three of the 100 levels that protobuf parsers allow, and
the frames and messages around it take some, too."""

MAX_SCHEMA_SIZE: Final = 65_536  # size of a schema: the characters of its keys and texts, and one for each value

MAX_SUBSCHEMAS: Final = 2_000
"""Subschemas that can be reached. The library compiles this many in 15 ms."""

MAX_APPLIED: Final = 4_000
"""Subschemas and rules that apply to one value, counted along all references: each adds to the cost of every value."""

MAX_EXPANDED: Final = 500
"""The same, for all subschemas with an unevaluated* rule together: the library expands these when it compiles (14
levels of two references each take a second, 20 take 108 s)."""

MAX_CHECK_STEPS: Final = 250_000
"""Steps of a check: rules times values. A step was measured at 2 to 20 ns: 5 ms."""

MAX_PATTERN_NANOSECONDS: Final = 3_000_000
"""Limit on the cost of a check's patterns. Beyond it the value is checked without them."""

MAX_EXPLAINED_STEPS: Final = 12_000
"""Rules times values, and times 64 characters, up to which a failed check says where it failed: the library copies the
value into each of its errors, 0.4 us for each value."""

MAX_PROBLEM_CHARACTERS: Final = 300

_MAX_PATTERN_BYTES: Final = 16_384
"""Compiled size of a pattern. Larger ones are not checked: matching costs up to their size for each character."""
_MAX_PATTERNS: Final = 64
"""Patterns of a schema. With more, none is checked: each takes up to 0.3 ms to compile."""
_STATE_NANOSECONDS: Final = 25
_PATTERN_NANOSECONDS: Final = 3_000
"""Cost of one character: of a literal pattern for each of its characters, and of any other (measured: 2,828)."""
_MULTIPLE_STEPS: Final = 400  # `multipleOf` calculates with exact fractions: up to 9 us for one number
_MAX_LEVELS: Final = 16
_SATURATED: Final = 1_000_000_000

_IN_PLACE: Final = frozenset({"not", "if", "then", "else", "allOf", "anyOf", "oneOf"})
_IN_PLACE_MAPS: Final = frozenset({"dependentSchemas", "dependencies"})
_PROPERTY_CHILDREN: Final = frozenset({"additionalProperties", "propertyNames", "unevaluatedProperties"})
_ITEM_CHILDREN: Final = frozenset({"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"})
_CHILDREN: Final = _PROPERTY_CHILDREN | _ITEM_CHILDREN
_CHILD_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_LATEST_DRAFT: Final = "Draft202012Validator"
_DRAFTS: Final[Mapping[str, str]] = {
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "https://json-schema.org/draft/2020-12/schema": _LATEST_DRAFT,
}
"""The classes of the library, by the name of a draft."""
_PLAIN_PATTERN: Final = re.compile(
    r"(?:[\w\s@:;,/#%&=<>!\"'~^$-]|\\[.\-/d+*?()\[\]{}|\\]|\.(?=$)|\[[\w.@:/ -]+\][+*?]?|[+*?])+", re.A
)
"""Patterns whose compiled size is about their length: no groups, no counts, no classes beyond ASCII."""

FindProblem = Callable[[object], str]
"""Returns why a value does not match a schema: the path, and the rule; empty if it does."""


class InvalidSchema(Exception):
    """A schema that is not evaluated. The text is the rule in words, as in "must be a JSON object"."""


def schema_problem(schema: object) -> str:
    """Why a schema of others is not accepted: the rule in words, as in "must be a JSON object"; empty if it is."""
    if not isinstance(schema, Mapping):
        return "must be a JSON object"
    size = size_of(schema)
    if size == TOO_DEEP:
        return f"must nest at most {MAX_SCHEMA_DEPTH} levels of objects and arrays"
    if size > MAX_SCHEMA_SIZE:
        return f"must have at most {MAX_SCHEMA_SIZE:,} characters"
    try:
        _Graph(schema)
    except InvalidSchema as error:
        return str(error)
    return ""


class SchemaCheck:
    """The check of values against one schema. Compiles it for the first value."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @cached_property
    def invalid(self) -> str:
        """Why nothing can be checked against the schema; empty if it can."""
        if problem := schema_problem(self._schema):
            return problem
        try:
            _ = self._validator
        except InvalidSchema as error:
            return str(error)
        return ""

    def find_problem(self, value: object) -> str:
        """Why a value does not match: the path, and the rule; empty if it does, or if the check may cost too much.

        An invalid schema is a problem with every value.
        """
        if self.invalid:
            return f"the agent's schema is invalid: it {self.invalid}"[:MAX_PROBLEM_CHARACTERS]
        try:
            steps, nanoseconds, copies = self._graph.cost(value)
        except (TypeError, ValueError):  # integers that no JSON parser here reads, lone surrogates
            return ""
        if steps > MAX_CHECK_STEPS:
            return ""
        validator = self._validator if nanoseconds <= MAX_PATTERN_NANOSECONDS else self._validator_without_patterns
        try:
            if validator.is_valid(value):
                return ""
        except ValueError:
            return "has a text that is not Unicode"
        if copies > MAX_EXPLAINED_STEPS:
            return "does not match the schema; it is too large to say where"
        from jsonschema_rs import ValidationError

        try:
            validator.validate(value)
        except ValidationError as error:
            return _problem_text(error)[:MAX_PROBLEM_CHARACTERS]
        return ""

    @cached_property
    def _graph(self) -> _Graph:
        return _Graph(self._schema)

    @cached_property
    def _validator(self) -> Any:
        return _compile(self._schema, with_patterns=self._graph.patterns <= _MAX_PATTERNS)

    @cached_property
    def _validator_without_patterns(self) -> Any:
        return _compile(self._schema, with_patterns=False)


def compile_schema(schema: Mapping[str, Any] | None) -> SchemaCheck:
    """The check of a schema; without one, of the schema that every value matches."""
    return SchemaCheck({} if schema is None else schema)


# Compiling ------------------------------------------------------------------------------------------------------------


def _compile(schema: Mapping[str, Any], *, with_patterns: bool) -> Any:
    """The validator of the library. Raises InvalidSchema."""
    import jsonschema_rs  # 10 ms, needed by agents with schemas alone

    kind = getattr(jsonschema_rs, _draft(schema))
    checked = _checked_part(schema, with_patterns)
    for name in ("$schema", "$id", "id") if isinstance(schema.get("id"), str) else ("$schema", "$id"):
        checked.pop(name, None)
    try:
        return kind(checked, offline=True, validate_formats=False, pattern_options=_pattern_options())
    except jsonschema_rs.ValidationError as error:
        raise InvalidSchema(f"breaks a rule of JSON Schema: {_problem_text(error)}") from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchema(f"cannot be read: {error}") from None


def _pattern_options() -> Any:
    import jsonschema_rs

    return jsonschema_rs.RegexOptions(size_limit=_MAX_PATTERN_BYTES, dfa_size_limit=8 * _MAX_PATTERN_BYTES)


def _draft(schema: Mapping[str, Any]) -> str:
    return _DRAFTS.get(str(schema.get("$schema", "")).rstrip("#"), _LATEST_DRAFT)


@lru_cache(maxsize=1024)
def _is_checkable(pattern: str) -> bool:
    """Whether the linear engine takes a pattern, within its size: it knows no lookahead and no back references."""
    import jsonschema_rs

    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=_pattern_options())
    except ValueError:
        return False
    return True


def _checked_part(schema: Mapping[str, Any], with_patterns: bool) -> dict[str, Any]:
    """A copy of a schema without the patterns that are not checked."""

    def takes(pattern: object) -> bool:
        return not isinstance(pattern, str) or (with_patterns and _is_checkable(pattern))

    def copy(one: Any) -> Any:
        if isinstance(one, list | tuple):
            return [copy(item) for item in one]
        return copy_schema(one) if isinstance(one, Mapping) else one

    def copy_schema(one: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        by_pattern = one.get("patternProperties")
        is_partial = isinstance(by_pattern, Mapping) and not all(map(takes, by_pattern))
        for key, value in one.items():
            if key == "pattern" and not takes(value):
                continue
            # Without all patterns of names, nothing is known about the other names.
            if is_partial and key in ("patternProperties", "additionalProperties", "unevaluatedProperties"):
                continue
            if key in _IN_PLACE or key in _CHILDREN:
                result[key] = copy(value)
            elif (key in _IN_PLACE_MAPS or key in _CHILD_MAPS) and isinstance(value, Mapping):
                result[key] = {name: copy(inner) for name, inner in value.items()}
            else:
                result[key] = value
        return result

    return copy_schema(schema)


# Costs ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Node:
    """One subschema: what it costs at the value it applies to, and what else it applies there and one level below."""

    weight: int = 1
    pattern_cost: int = 0  # nanoseconds for one character of text
    factor: int = 1
    in_place: list[int] = field(default_factory=list)
    by_name: dict[object, int] = field(default_factory=dict)  # subschemas for one property or one position
    others: list[int] = field(default_factory=list)  # subschemas for any property or item


class _Graph:
    """The subschemas of one schema that can be reached, with what a check of them costs. Raises InvalidSchema.

    Theory: the library applies a subschema once for each way that leads to it. `_levels[k][n]` is the number of rules
    that node `n` applies to one value `k` levels below its own, which follows from level `k - 1`. A check costs at most
    the number of values times the largest of them.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._draft = _draft(schema)
        self._nodes: list[_Node] = []
        self._index: dict[int, int] = {}
        self._waiting: list[Mapping[str, Any]] = []
        self.patterns = 0
        self._nodes.append(_Node(others=[0]))  # applies to every value below: what `uniqueItems` reads
        self._visit(schema)
        while self._waiting:
            self._read(self._waiting.pop())
        try:
            graph = {number: node.in_place for number, node in enumerate(self._nodes)}
            self._order = tuple(TopologicalSorter(graph).static_order())
            """The nodes, each after those that it applies in place."""
        except CycleError:
            raise InvalidSchema("must not refer to itself for the same value") from None
        applied = self._first_level()[0]
        if max(applied) > MAX_APPLIED:
            raise InvalidSchema(f"must apply at most {MAX_APPLIED:,} rules to one value, counted along its references")
        if sum(one for one, node in zip(applied, self._nodes, strict=True) if node.factor > 1) > MAX_EXPANDED:
            raise InvalidSchema(f"must apply at most {MAX_EXPANDED} rules beside unevaluatedProperties or -Items")

    def cost(self, value: object) -> tuple[int, int, int]:
        """At most how many steps a check takes, the nanoseconds of its patterns, and the copies for an error.

        Raises TypeError, ValueError.
        """
        if not isinstance(value, dict):
            return self._cost([1], [], {}, value)
        # The arguments of a tool are an object: its properties are counted one by one, each with its own subschemas.
        roots, waiting = list[_Node](), [1]
        while waiting:  # what applies in place, each as often as it does
            roots.append(self._nodes[waiting.pop()])
            waiting.extend(roots[-1].in_place)
        factor = max(root.factor for root in roots)
        others = [number for root in roots for number in root.others] * factor
        steps = copies = factor * sum(root.weight for root in roots) * (1 + len(value))
        if steps + len(others) * len(value) > MAX_CHECK_STEPS:
            return _SATURATED, _SATURATED, _SATURATED
        sums: dict[int, tuple[int, int]] = {}
        nanoseconds = sum(map(len, value)) * sum(root.pattern_cost for root in roots)
        for name, inner in value.items():
            named = [root.by_name[name] for root in roots if name in root.by_name]
            more = self._cost(named * factor, others, sums, inner, len(name))
            steps, nanoseconds, copies = steps + more[0], nanoseconds + more[1], copies + more[2]
        return steps, nanoseconds, copies + sum(len(one) for one in value.values() if isinstance(one, str)) // 64

    def _cost(
        self, named: list[int], others: list[int], sums: dict[int, tuple[int, int]], value: object, extra: int = 0
    ) -> tuple[int, int, int]:
        """The cost of a value to which these nodes apply. `sums`: those of `others`, by level. `extra`: of its name."""
        if isinstance(value, str):
            count, length, depth = 1, len(value), 0
        elif value is None or isinstance(value, bool | int | float):
            count, length, depth = 1, 0, 0
        else:
            data = orjson.dumps(value)
            depth = data.count(b"[") + data.count(b"{")
            count, length = 1 + depth + data.count(b","), len(data)
        peaks, is_settled = self._peaks
        if depth >= len(peaks) and not is_settled:
            # The number of its objects and arrays is more than its levels, if there are many beside each other.
            depth = sum(1 for _ in islice(levels(value), _MAX_LEVELS + 2))
            if depth >= len(peaks):
                return _SATURATED, _SATURATED, _SATURATED
        level = min(depth, len(peaks) - 1)
        steps, nanoseconds = peaks[level]
        rules, each = sum(steps[number] for number in named), sum(nanoseconds[number] for number in named)
        if others:
            if level not in sums:
                sums[level] = sum(steps[number] for number in others), sum(nanoseconds[number] for number in others)
            rules, each = rules + sums[level][0], each + sums[level][1]
        rules = max(1, rules)
        return rules * count, each * (length + extra), rules * (count + length // 64)

    # Reading the schema -----------------------------------------------------------------------------------------------

    def _visit(self, schema: object) -> int:
        """The number of a subschema, which is read later."""
        if not isinstance(schema, Mapping):
            schema = _TRUE  # booleans; anything else is refused by the library
        number = self._index.get(id(schema))
        if number is None:
            if len(self._nodes) > MAX_SUBSCHEMAS:
                raise InvalidSchema(f"must have at most {MAX_SUBSCHEMAS:,} subschemas")
            number = self._index[id(schema)] = len(self._nodes)
            self._nodes.append(_Node())
            self._waiting.append(schema)
        return number

    def _read(self, schema: Mapping[str, Any]) -> None:
        node = self._nodes[self._index[id(schema)]]
        if schema is not self._schema and self._has_id(schema):
            raise InvalidSchema("must not have a subschema with $id")
        for key, value in schema.items():
            node.weight += 1
            if key == "$ref":
                node.in_place.append(self._visit(self._target(value)))
            elif key in ("$dynamicRef", "$recursiveRef"):
                raise InvalidSchema(f"must not use {key}")
            elif key in _IN_PLACE:
                node.in_place.extend(map(self._visit, value if isinstance(value, list) else [value]))
            elif key in _IN_PLACE_MAPS and isinstance(value, Mapping):
                node.in_place.extend(self._visit(one) for one in value.values() if not isinstance(one, list))
            elif key == "properties" and isinstance(value, Mapping):
                node.by_name.update((name, self._visit(one)) for name, one in value.items())
            elif key in ("items", "prefixItems") and isinstance(value, list):
                node.by_name.update((position, self._visit(one)) for position, one in enumerate(value))
            elif key in _CHILDREN:
                node.others.append(self._visit(value))
                if key.startswith("unevaluated"):
                    node.factor *= 2
                if key == "contains":  # 50 ns for each item
                    node.others.extend(node.others[-1:] * 2)
            elif key == "patternProperties" and isinstance(value, Mapping):
                for pattern, one in value.items():
                    self._add_pattern(node, pattern)
                    node.others.append(self._visit(one))
            elif key == "pattern":
                self._add_pattern(node, value)
            elif key == "multipleOf":
                node.weight += _MULTIPLE_STEPS
            elif key == "uniqueItems":
                node.others.extend([0] * 4)
            elif key in ("enum", "const", "required", "type"):
                node.weight += _comparison_steps(value)

    def _add_pattern(self, node: _Node, pattern: object) -> None:
        if isinstance(pattern, str):
            self.patterns += 1
            is_plain = _PLAIN_PATTERN.fullmatch(pattern)
            node.pattern_cost += min(
                _PATTERN_NANOSECONDS, len(pattern) * _STATE_NANOSECONDS if is_plain else _PATTERN_NANOSECONDS
            )

    def _has_id(self, schema: Mapping[str, Any]) -> bool:
        return isinstance(schema.get("$id"), str) or (
            self._draft == "Draft4Validator" and isinstance(schema.get("id"), str)
        )

    def _target(self, reference: object) -> object:
        """The subschema that a reference names. Raises InvalidSchema for another document."""
        if not isinstance(reference, str):
            raise InvalidSchema("must have a string as $ref")
        if not reference.startswith("#"):
            raise InvalidSchema(f'must not refer to another document, as "{reference[:80]}" does: none is fetched')
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            if (named := self._anchors.get(fragment)) is None:
                raise InvalidSchema(f'must have what it refers to: "{reference[:80]}"')
            return named
        target: Any = self._schema
        for step in fragment.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and step in target:
                target = target[step]
            elif isinstance(target, list) and step.isdecimal() and len(step) < 6 and int(step) < len(target):
                target = target[int(step)]
            else:
                raise InvalidSchema(f'must have what it refers to: "{reference[:80]}"')
            if isinstance(target, Mapping) and self._has_id(target):
                raise InvalidSchema("must not have a subschema with $id")
        if not isinstance(target, Mapping | bool):
            raise InvalidSchema(f'must refer to schemas, which "{reference[:80]}" is not')
        return target

    @cached_property
    def _anchors(self) -> Mapping[str, Mapping[str, Any]]:
        """The subschemas with a `$anchor`, wherever they are; the outermost of equal names."""
        found: dict[str, Mapping[str, Any]] = {}
        for one in chain.from_iterable(levels(self._schema)):
            if isinstance(one, Mapping) and isinstance(one.get("$anchor"), str):
                found.setdefault(one["$anchor"], one)
        return found

    # Levels -----------------------------------------------------------------------------------------------------------

    def _first_level(self) -> tuple[list[int], list[int]]:
        return self._level([node.weight for node in self._nodes], [node.pattern_cost for node in self._nodes])

    def _level(self, steps: list[int], nanoseconds: list[int]) -> tuple[list[int], list[int]]:
        """Adds to each node what it applies in place."""
        for number in self._order:
            node = self._nodes[number]
            for child in node.in_place:
                steps[number] += steps[child]
                nanoseconds[number] += nanoseconds[child]
            steps[number] = min(steps[number] * node.factor, _SATURATED)
            nanoseconds[number] = min(nanoseconds[number] * node.factor, _SATURATED)
        return steps, nanoseconds

    @cached_property
    def _peaks(self) -> tuple[list[tuple[list[int], list[int]]], bool]:
        """For each level, the largest numbers of it and those above it; whether no deeper value costs more."""
        level = self._first_level()
        peaks = [level]
        for _ in range(_MAX_LEVELS):
            below = self._level(*(self._from_above(numbers) for numbers in level))
            if below == level or not any(below[0]):
                return peaks, True
            level = below
            steps, nanoseconds = (list(map(max, *pair)) for pair in zip(peaks[-1], level, strict=True))
            peaks.append((steps, nanoseconds))
        return peaks, False

    def _from_above(self, numbers: list[int]) -> list[int]:
        """Rules that each node applies one level below its value, for the numbers of the level before."""
        return [
            max((numbers[child] for child in node.by_name.values()), default=0)
            + sum(numbers[child] for child in node.others)
            for node in self._nodes
        ]


def levels(value: object) -> Iterator[list[Any]]:
    """Yields the objects and arrays of a JSON value, level by level from the value itself."""
    level = [value]
    while level:
        yield level
        inner = (item for one in level for item in (one.values() if isinstance(one, Mapping) else one))  # type: ignore[attr-defined]
        level = [item for item in inner if isinstance(item, Mapping | list)]


def _comparison_steps(value: Any) -> int:
    if isinstance(value, list) and not any(isinstance(one, Mapping | list) for one in value):
        return len(value) // 8  # they are compared by hash, or until the first that is missing
    try:
        return len(orjson.dumps(value)) // 32
    except TypeError:  # integers beyond 64 bits
        return MAX_SCHEMA_SIZE // 32


_TRUE: Final[Mapping[str, Any]] = {}

TOO_DEEP: Final = -1


def size_of(schema: Mapping[str, Any]) -> int:
    """The size of a schema as MAX_SCHEMA_SIZE counts it, or a larger number than that; TOO_DEEP."""
    size = 0
    for depth, level in enumerate(levels(schema)):
        if depth == MAX_SCHEMA_DEPTH:
            return TOO_DEEP
        for value in level:
            is_object = isinstance(value, Mapping)
            size += sum(len(str(key)) for key in value) if is_object else 0
            size += sum(len(one) if isinstance(one, str) else 1 for one in (value.values() if is_object else value))
            if size > MAX_SCHEMA_SIZE:
                return size
    return size


# Texts ----------------------------------------------------------------------------------------------------------------

_RULES: Final[Mapping[str, str]] = {
    "minLength": "must have at least {limit} characters",
    "maxLength": "must have at most {limit} characters",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "additionalItems": "must have at most {limit} items",
    "minProperties": "must have at least {limit} properties",
    "maxProperties": "must have at most {limit} properties",
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be more than {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "multipleOf": "must be a multiple of {multiple_of}",
    "pattern": "must match the pattern {pattern}",
    "uniqueItems": "must have no item twice",
    "contains": "must contain an item that the schema asks for",
    "falseSchema": "must be absent",
    "not": "must not match the schema that `not` has",
    "anyOf": "must match one of the alternatives of the schema",
    "oneOf": "must match exactly one of the alternatives of the schema",
}


def _problem_text(error: Any) -> str:
    """Path, rule and what is allowed, as in `items.1: must be an integer`."""
    path = ".".join(str(step) for step in error.instance_path)
    rule = _rule_text(error)
    return f"{path}: {rule}" if path else rule


def _rule_text(error: Any) -> str:
    name, values = error.kind.name, error.kind.as_dict()
    match name:
        case "type":
            return f"must be of type {' or '.join(sorted(map(str, values['types'])))}"
        case "required":
            return f'must have the property "{values["property"]}"'
        case "enum":
            return f"must be one of {_json(values['options'])[1:-1]}"
        case "const":
            return f"must be {_json(values['expected_value'])}"
        case "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems":
            return f"must not have {', '.join(_json(one) for one in values['unexpected'])}"
        case "propertyNames":
            return f"must have other names of properties: {_rule_text(values['error'])}"
        case "falseSchema" if error.schema_path[-1:] == ["additionalProperties"]:
            return "must have no properties"
    rule = _RULES.get(name)
    if rule is None:
        return f'must follow the rule "{name}" of the schema'
    limits = {key: _json(values[key]) for key in ("limit", "multiple_of") if key in values}
    return rule.format(**(values | limits))


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # decimals and integers beyond 64 bits
        return str(value)
