"""HTTP transcoding: path, query and body to a message, and a message to a response body.

Implements "HTTP Transcoding" of google/api/http.proto. Precedence is path, body, query: a query parameter only sets
a field that neither path nor body contains. Unknown query parameters are ignored, including Google's system
parameters (`alt`, `key`, `$.xgafv`), those of later versions, and those that proxies and browsers add; with
`refuses_misspelled`, one that is almost the name of a field is an error. A dialect that rejects unknown keys also
rejects unknown query parameters and a field with different values in path, body and query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from dragoman.core.errors import InvalidParams
from dragoman.core.names import nearest
from dragoman.wire.json import protojson
from dragoman.wire.json.protojson import INT64_TYPES, is_map
from dragoman.wire.json.wellknown import WRAPPER_TYPES, FieldError, decode_duration, decode_mask, decode_timestamp

M = TypeVar("M", bound=Message)

WHOLE_REQUEST: Final = ""  # the body shape in which the body is the request itself

_TEXT_DECODERS: Final[Mapping[str, Callable[[Any, object], None]]] = {
    "google.protobuf.Timestamp": decode_timestamp,
    "google.protobuf.Duration": decode_duration,
    "google.protobuf.FieldMask": decode_mask,
}
"""Message types that are a string in JSON and in a query."""

_EMPTY_TEXT_TYPES: Final = frozenset(f"google.protobuf.{name}" for name in ("StringValue", "BytesValue", "FieldMask"))

MISSPELLING: Final = 0.8  # how near an unknown parameter is to a field: `pageSze`, `page-size`, not `key` or `token`

_REPLACEMENT_CHARACTER: Final = "\ufffd"  # what decoders of URLs put in place of bytes that are not UTF-8

_BOOL_VALUES = {"true": True, "1": True, "false": False, "0": False}


class _FieldPath:
    """A resolved dotted field path."""

    __slots__ = ("fields", "leaf", "name", "path", "plain")

    def __init__(self, fields: Sequence[FieldDescriptor]) -> None:
        self.fields = tuple(fields)
        self.leaf = self.fields[-1]
        self.path = ".".join(field.name for field in fields)
        self.name = ".".join(field.json_name for field in fields)
        leaf = self.leaf
        self.plain = (
            len(fields) == 1
            and leaf.type == FieldDescriptor.TYPE_STRING
            and not leaf.is_repeated
            and leaf.containing_oneof is None
        )
        """A top-level string field, as most path variables are: only its Unicode can be invalid."""


class Transcoder(Generic[M]):
    """Decodes the requests of one method for bindings with the same `body`."""

    def __init__(
        self,
        cls: type[M],
        dialect: protojson.JsonDialect,
        *,
        body: str = "",
        shapes: Sequence[str] = (),
        refuses_misspelled: bool = False,
    ) -> None:
        """`body` is that of the rule: "" for none, "*" for the request, or a field name. If empty, a body is ignored.

        `shapes` are the bodies that real clients send, in order of preference: `WHOLE_REQUEST`, or the dotted path
        (proto names) of the field that the body contains, such as `config.push_notification_config`. The shape that
        knows most of the body's keys is used, the earlier of two equals. Default: the shape of the rule. With shapes,
        an object is read even if the rule has no body, because clients send `{}` or the complete request anyway.
        `refuses_misspelled`: a query parameter that is almost the name of a field is an error. Raises TypeError for an
        unknown body field, a shape that is not a message, and a type without a JSON codec.
        """
        self._codec = protojson.compile(cls, dialect)
        self._dialect = dialect
        self._accepted_keys = dialect.decoders.accepted_keys
        self._refuses_misspelled = refuses_misspelled
        self._field_paths: dict[str, _FieldPath] = {}
        self._body_required = body != ""
        self._reads_body = self._body_required or bool(shapes)
        self._value_body = "" if shapes or body in ("", "*") else self._value_body_name(body)
        chosen = shapes or (WHOLE_REQUEST if body in ("", "*") or self._value_body else body,)
        self._shapes = tuple(self._shape(shape) for shape in chosen)

    def request(
        self, variables: Mapping[str, str] | None = None, query: Iterable[tuple[str, str]] = (), body: object = None
    ) -> M:
        """Builds the message of one HTTP request.

        `variables` are the path variables, `query` the decoded pairs in order, `body` the parsed JSON, None if absent.
        Raises InvalidParams with the field, the rule and the allowed values.
        """
        message = self._codec.cls()
        if body is not None and self._reads_body and (self._body_required or isinstance(body, dict)):
            self._read_body(message, body)
        bound = set()
        filled = self._group_query(query)
        in_body = {field.name for field, _ in message.ListFields()} if filled else set()
        for path, text in (variables or {}).items():
            field_path = self._find(path)
            if field_path is None:
                raise TypeError(f"{self._codec.cls.DESCRIPTOR.full_name} has no field {path}")
            bound.add(field_path.path)
            if self._dialect.rejects_unknown and field_path.plain:
                _check_same(field_path, getattr(message, field_path.path), text)
            if field_path.plain and text.isascii():
                setattr(message, field_path.path, text)
            else:
                self._set(message, field_path, [text])
        for field_path, texts in filled:
            if field_path.path not in bound and field_path.fields[0].name not in in_body:
                self._set(message, field_path, texts)
            elif self._dialect.rejects_unknown:
                if not field_path.plain:
                    raise InvalidParams.field(field_path.name, "is given in the body; leave it out of the query")
                for text in texts:
                    _check_same(field_path, text, getattr(message, field_path.path))
        return message

    def check_variable(self, path: str) -> None:
        """Raises TypeError unless the field exists, is scalar and not repeated (http.proto, "Path variables")."""
        field_path = self._find(path)
        type_ = field_path.leaf.message_type if field_path is not None else None
        if (
            field_path is None
            or field_path.leaf.is_repeated
            or (type_ is not None and type_.full_name not in _TEXT_DECODERS and type_.full_name not in WRAPPER_TYPES)
        ):
            raise TypeError(f"{self._codec.cls.DESCRIPTOR.full_name} has no scalar {path} that a path could bind")

    # ---- the body

    def _value_body_name(self, body: str) -> str:
        """The JSON name of a body field that is not a single message; otherwise ""."""
        field = cast(Descriptor, self._codec.cls.DESCRIPTOR).fields_by_name.get(body)
        return field.json_name if field is not None and (field.is_repeated or field.message_type is None) else ""

    def _shape(self, path: str) -> tuple[tuple[str, ...], str, Descriptor]:
        descriptor = cast(Descriptor, self._codec.cls.DESCRIPTOR)
        if path == WHOLE_REQUEST:
            return (), "", descriptor
        field_path = self._find(path)
        if field_path is None or field_path.leaf.is_repeated or field_path.leaf.message_type is None:
            raise TypeError(f"{descriptor.full_name} has no message {path} that a body could be")
        return tuple(field.name for field in field_path.fields), field_path.name, field_path.leaf.message_type

    def _read_body(self, message: M, body: object) -> None:
        if self._value_body:
            self._codec.merge(message, {self._value_body: body})
            return
        path, name, descriptor = self._shapes[0]
        if len(self._shapes) > 1 and isinstance(body, dict):
            path, name, descriptor = max(
                self._shapes, key=lambda shape: len(body.keys() & self._accepted_keys(shape[2]).keys())
            )
        target: Any = message
        for field in path:
            target = getattr(target, field)
            target.SetInParent()
        protojson.compile(descriptor, self._dialect).merge(target, body, path=name)

    # ---- path and query

    def _find(self, path: str) -> _FieldPath | None:
        """Resolves a dotted path in any accepted spelling; None if unknown."""
        field_path = self._field_paths.get(path)
        if field_path is None:
            field_path = self._resolve(path)
            # Only existing paths are cached. They are few; the bound is for recursive types.
            if field_path is not None and len(self._field_paths) < 256:
                self._field_paths[path] = field_path
        return field_path

    def _resolve(self, path: str) -> _FieldPath | None:
        descriptor: Descriptor | None = cast(Descriptor, self._codec.cls.DESCRIPTOR)
        fields: list[FieldDescriptor] = []
        for name in path.split("."):
            if descriptor is None or (fields and fields[-1].is_repeated):
                return None
            field = self._accepted_keys(descriptor).get(name)
            if field is None:
                return None
            fields.append(field)
            descriptor = field.message_type
        return _FieldPath(fields)

    def _group_query(self, query: Iterable[tuple[str, str]]) -> list[tuple[_FieldPath, list[str]]]:
        groups: dict[str, tuple[_FieldPath, list[str]]] = {}
        for name, text in query:
            field_path = self._find(name)
            if field_path is not None:
                groups.setdefault(field_path.path, (field_path, []))[1].append(text)
            elif self._dialect.rejects_unknown or self._refuses_misspelled:
                fields = cast(Descriptor, self._codec.cls.DESCRIPTOR).fields
                known = [field.json_name for field in fields]
                inner = {
                    one.json_name: f"{field.json_name}.{one.json_name}"
                    for field in fields
                    if not field.is_repeated and (kind := field.message_type) and kind.file.package != "google.protobuf"
                    for one in kind.fields
                }
                names = (one for one in (*known, *inner.values()) if len(one) > 3)
                if near := inner.get(name) or nearest(name, names, cutoff=MISSPELLING):
                    raise InvalidParams.field(name, f"is not a parameter of this method; did you mean {near}?")
                if self._dialect.rejects_unknown:
                    raise InvalidParams.field(name, f"is not a parameter of this method; use {', '.join(known)}")
        return list(groups.values())

    def _set(self, message: M, field_path: _FieldPath, texts: list[str]) -> None:
        try:
            self._set_field(message, field_path, texts)
        except FieldError as error:
            raise InvalidParams.field(error.field(field_path.name), error.rule) from None

    def _set_field(self, message: M, field_path: _FieldPath, texts: list[str]) -> None:
        leaf = field_path.leaf
        if any(_REPLACEMENT_CHARACTER in text for text in texts):
            raise FieldError("must be percent-encoded UTF-8")
        if not _may_be_empty(leaf):
            # An empty input of an HTML form means absent.
            texts = [text for text in texts if text]
            if not texts:
                return
        if len(texts) > 1 and not leaf.is_repeated:
            raise FieldError(f"is given {len(texts)} times; it is allowed once")
        if is_map(leaf) or (leaf.message_type is not None and leaf.is_repeated):
            raise FieldError("cannot be given in a query; send it in the body")
        target: Any = message
        for field in field_path.fields[:-1]:
            _check_member(target, field)
            target = getattr(target, field.name)
        _check_member(target, leaf)
        if leaf.message_type is not None:
            self._set_message(getattr(target, leaf.name), leaf.message_type, texts[0])
            return
        values = [self._value(leaf, text) for text in texts]
        try:
            if leaf.is_repeated:
                target.ClearField(leaf.name)
                getattr(target, leaf.name).extend(values)
            else:
                setattr(target, leaf.name, values[0])
        except UnicodeError:
            raise FieldError("must be valid Unicode") from None

    def _set_message(self, message: Any, descriptor: Descriptor, text: str) -> None:
        if descriptor.full_name in WRAPPER_TYPES:
            message.value = self._value(descriptor.fields_by_name["value"], text)
        elif read := _TEXT_DECODERS.get(descriptor.full_name):
            message.SetInParent()
            try:
                read(message, text)
            except FieldError as error:
                if " " in text:
                    error.rule += "; a + in a query is a space, so write it as %2B"
                raise
        else:
            raise FieldError("is an object and cannot be given as text; name one of its fields")

    def _value(self, leaf: FieldDescriptor, text: str) -> object:
        if leaf.type == FieldDescriptor.TYPE_BOOL:
            truth = _BOOL_VALUES.get(text.lower())
            if truth is None:
                raise FieldError("must be true or false")
            return truth
        return self._dialect.decoders.converter_for(leaf)(text)


def _may_be_empty(leaf: FieldDescriptor) -> bool:
    """Whether an empty text is a value of the field."""
    if leaf.message_type is not None:
        return leaf.message_type.full_name in _EMPTY_TEXT_TYPES
    return leaf.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def _check_same(field_path: _FieldPath, text: str, used: str) -> None:
    """Raises InvalidParams for a second value that differs. A relative name may stand beside the full one."""
    if text and text != used and not used.endswith(f"/{text}"):
        raise InvalidParams.field(field_path.name, f'is also given as "{used[:200]}"; leave one of them out')


def _check_member(target: Any, field: FieldDescriptor) -> None:
    oneof = field.containing_oneof
    if oneof is not None and len(oneof.fields) > 1:
        other = cast("str | None", target.WhichOneof(oneof.name))
        if other is not None and other != field.name:
            names = {member.name: member.json_name for member in oneof.fields}
            raise FieldError(f"cannot stand beside {names[other]}; give only one of {', '.join(names.values())}")


class ResponseEncoder(Generic[M]):
    """Encodes the responses of one method for bindings with the same `response_body`."""

    def __init__(self, cls: type[M], dialect: protojson.JsonDialect, *, response_body: str = "") -> None:
        """`response_body` is that of the rule: "" for the entire response, or a field name.

        Raises TypeError for an unknown field and for a type without a JSON codec.
        """
        self._codec = protojson.compile(cls, dialect)
        self._key, self._empty = "", cast(object, None)
        if response_body:
            field = cast(Descriptor, cls.DESCRIPTOR).fields_by_name.get(response_body)
            if field is None:
                raise TypeError(f"{cls.DESCRIPTOR.full_name} has no field {response_body} that a body could be")
            self._key, self._empty = field.json_name, _empty_value(field)

    def encode(self, message: M) -> bytes:
        """The body as compact JSON in UTF-8. Raises ValueError as `Codec.encode` does."""
        if not self._key:
            return self._codec.encode(message)
        return orjson.dumps(self._codec.to_dict(message).get(self._key, self._empty))


def _empty_value(field: FieldDescriptor) -> object:
    """The JSON value of a field with its default value, which the codec omits."""
    if is_map(field):
        return {}
    if field.is_repeated:
        return []
    if field.message_type is not None:
        return None if field.message_type.full_name.startswith("google.protobuf.") else {}
    if field.enum_type is not None:
        return field.enum_type.values_by_number[field.default_value].name
    if field.type == FieldDescriptor.TYPE_BYTES:
        return ""
    if field.cpp_type in INT64_TYPES:
        return "0"
    return field.default_value
