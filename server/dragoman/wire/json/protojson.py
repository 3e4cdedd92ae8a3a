"""ProtoJSON codecs, compiled on first use and once per message type, from its descriptor, over orjson.

Equivalent to `google.protobuf.json_format` with `ignore_unknown_fields`, except for these intended differences.
Rejected: unknown enum names and numbers (json_format drops the name, keeps the number), characters outside of base64
(it skips them), a field under two keys with different values (it takes the last), a Duration with a plus or more than
nine fractional digits (it skips, rounds). Accepted: spellings of a `JsonDialect`, underscores in FieldMask paths,
times without a zone (UTC), the largest floats as written (it rejects its own 3.4028235e+38). A null Value beside
another member of its oneof is absent (it takes the last); an integer in a Value is written without `.0`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from decimal import Decimal
from functools import cache, cached_property, partial
from typing import Any, Generic, TypeVar, cast

import orjson
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.core.errors import InvalidParams
from dragoman.wire.json import wellknown
from dragoman.wire.json.wellknown import WELL_KNOWN, Decode, Encode, FieldError, describe_value

M = TypeVar("M", bound=Message)

Convert = Callable[[object], Any]
"""Converts a JSON value to a field's value. Raises FieldError."""

Spellings = Sequence[Sequence[str]]  # groups of synonymous names


@dataclass(frozen=True, eq=False)
class JsonDialect:
    """A JSON form of a package's messages. Codecs are created from it once and cached.

    `fields` and `enums` map the full name of a message or enum to groups of synonyms; the declared name is written,
    all are read. `always_emitted` maps the full name of a message to the fields (proto names) that are written even
    with their default value.

    For older forms, `enum_words` maps the full name of an enum to the words written for it (declared name to word;
    both are read); `decode_hooks` and `encode_hooks` map the full name of a message to a wrapper around its decoding
    or encoding function. `rejects_unknown`: unknown keys are errors, as are unknown query parameters.
    `enum_numbers`: enums are written as numbers.
    """

    name: str
    fields: Mapping[str, Spellings] = dataclass_field(default_factory=dict)
    enums: Mapping[str, Spellings] = dataclass_field(default_factory=dict)
    always_emitted: Mapping[str, Set[str]] = dataclass_field(default_factory=dict)
    enum_words: Mapping[str, Mapping[str, str]] = dataclass_field(default_factory=dict)
    decode_hooks: Mapping[str, Callable[[Decode], Decode]] = dataclass_field(default_factory=dict)
    encode_hooks: Mapping[str, Callable[[Encode], Encode]] = dataclass_field(default_factory=dict)
    rejects_unknown: bool = False
    enum_numbers: bool = False
    codecs: dict[type[Message], Codec[Any]] = dataclass_field(default_factory=dict, init=False, repr=False)

    @cached_property
    def decoders(self) -> Decoders:
        return Decoders(self)

    @cached_property
    def encoders(self) -> Encoders:
        return Encoders(self)


class Codec(Generic[M]):
    """Decodes and encodes one message type as JSON, in one dialect.

    Both directions are compiled on first use: a server has more than a hundred codecs, and needs a few of them.
    Raises TypeError for a field of an unsupported kind, and one that the dialect cannot always emit.
    """

    __slots__ = ("_decode", "_dialect", "_encode", "cls")

    def __init__(self, cls: type[M], dialect: JsonDialect) -> None:
        dialect.encoders.check_always_emitted(_message_types(cast(Descriptor, cls.DESCRIPTOR)))
        self.cls = cls
        self._dialect = dialect
        self._encode: Encode = self._compile_encoder
        self._decode: Decode = self._compile_decoder

    def _compile_encoder(self, message: M) -> object:
        self._encode = self._dialect.encoders.encoder_for(cast(Descriptor, self.cls.DESCRIPTOR))
        return self._encode(message)

    def _compile_decoder(self, message: M, data: object) -> None:
        self._decode = self._dialect.decoders.decoder_for(cast(Descriptor, self.cls.DESCRIPTOR))
        self._decode(message, data)

    def to_dict(self, message: M) -> dict[str, Any]:
        """The JSON value of a message: new dicts, lists and scalars.

        Raises ValueError if JSON cannot represent it: NaN or infinity in a Value, a Timestamp out of range.
        """
        return cast("dict[str, Any]", self._encode(message))

    def encode(self, message: M) -> bytes:
        """The message as compact JSON in UTF-8. Raises ValueError as `to_dict` does."""
        return orjson.dumps(self._encode(message))

    def decode(self, data: object) -> M:
        """Decodes a parsed JSON value. Unknown keys are ignored, unless the dialect rejects them; null means absent.

        Raises InvalidParams with the path of the field, the rule and the allowed values.
        """
        message = self.cls()
        self.merge(message, data)
        return message

    def merge(self, message: M, data: object, *, path: str = "") -> None:
        """Decodes a parsed JSON value into `message`: fields in `data` are replaced, messages merged.

        `path` is the path of `data` within the client's JSON. Raises InvalidParams as `decode` does; `message` is then
        partially filled.
        """
        try:
            self._decode(message, data)
        except FieldError as error:
            raise InvalidParams.field(error.field(path) or "body", error.rule) from None


@cache
def _message_types(descriptor: Descriptor) -> Mapping[str, Descriptor]:
    """A message type and those of its fields, by name. Raises TypeError for a field of an unsupported kind."""
    pending, types = [descriptor], {descriptor.full_name: descriptor}
    while pending:
        for each in pending.pop().fields:
            if each.type == FieldDescriptor.TYPE_GROUP:
                raise TypeError(f"{each.full_name} is of a kind that has no JSON codec")
            if each.message_type is not None and each.message_type.full_name not in types:
                types[each.message_type.full_name] = each.message_type
                pending.append(each.message_type)
    return types


def compile(type_: type[M] | Descriptor, dialect: JsonDialect) -> Codec[M]:
    """The codec of a message class (or descriptor, for types without an import), cached per dialect."""
    cls = cast("type[M]", GetMessageClass(type_) if isinstance(type_, Descriptor) else type_)
    codec = dialect.codecs.get(cls)
    if codec is None:
        codec = dialect.codecs[cls] = Codec(cls, dialect)
    return cast("Codec[M]", codec)


# ---- encoder: one Python function per message type, generated from its descriptor
#
# Walking the descriptor for each message would cost more than reading its fields, so it is walked once to generate
# code, as `dataclasses` does for its methods. The code for a book:
#
#     def encode_Book(m):
#         out = {}
#         if v := m.genre: out["genre"] = names_Genre.get(v, v)
#         if m.HasField("author"): out["author"] = encode_Author(m.author)
#         ...
#         return out
#
# Functions call each other through their shared namespace, so recursive types need no special case.

INT64_TYPES = {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64}
"""In JSON these are strings, because JavaScript rounds large numbers."""
_FLOAT_TYPES = {FieldDescriptor.TYPE_DOUBLE: "double", FieldDescriptor.TYPE_FLOAT: "short"}
_NAMESPACE = {
    "encode_bytes": wellknown.encode_bytes,
    "double": wellknown.encode_double,
    "short": wellknown.encode_float,
    "text": str,
}
"""The functions that generated code calls for scalars."""


class Encoders:
    """The encoding functions of one dialect, created on first use."""

    def __init__(self, dialect: JsonDialect) -> None:
        self._dialect = dialect
        self._namespace: dict[str, Any] = dict(_NAMESPACE)

    def encoder_for(self, descriptor: Descriptor) -> Encode:
        """The encoding function of a message type. Raises TypeError for a field of an unsupported kind."""
        name = "encode_" + _identifier(descriptor.full_name)
        if name not in self._namespace:
            draft = copy(self)  # another thread sees complete functions only
            draft._namespace = dict(self._namespace)
            draft._message(descriptor)
            self._namespace.update(draft._namespace)
        return cast(Encode, self._namespace[name])

    def check_always_emitted(self, types: Mapping[str, Descriptor]) -> None:
        """Raises TypeError unless these message types, by name, have the fields to emit always."""
        for name in types.keys() & self._dialect.always_emitted.keys():
            fields = {field.name: field for field in types[name].fields}
            if unknown := self._dialect.always_emitted[name] - fields.keys():
                raise TypeError(f"{name} has no field {', '.join(sorted(unknown))}")
            for field in map(fields.__getitem__, self._dialect.always_emitted[name]):
                oneof = field.containing_oneof
                if field.has_presence and (oneof is None or len(oneof.fields) == 1):
                    raise TypeError(f"{field.full_name} tells absence from its default and cannot be forced")

    def _message(self, descriptor: Descriptor) -> str:
        name = "encode_" + _identifier(descriptor.full_name)
        if name not in self._namespace:
            if descriptor.full_name in WELL_KNOWN:
                self._namespace[name], _ = WELL_KNOWN[descriptor.full_name]
            elif descriptor.full_name == wellknown.ANY_TYPE:
                self._namespace[name] = wellknown.any_encoder(self.encoder_for)
            elif descriptor.full_name in wellknown.WRAPPER_TYPES:
                value = self._value(descriptor.fields_by_name["value"], "m.value")
                exec(f"def {name}(m): return {value}", self._namespace)
            else:
                self._namespace[name] = None  # a recursive type finds its own name defined
                self._define_encoder(name, descriptor)
                if around := self._dialect.encode_hooks.get(descriptor.full_name):
                    self._namespace[name] = around(self._namespace[name])
        return name

    def _define_encoder(self, name: str, descriptor: Descriptor) -> None:
        always = self._dialect.always_emitted.get(descriptor.full_name, frozenset())
        lines = [f"def {name}(m):", " out = {}"]
        for field in sorted(descriptor.fields, key=lambda field: field.number):
            oneof = field.containing_oneof
            if oneof is None or len(oneof.fields) == 1:
                lines += self._field(field, field.name in always)
            elif field is oneof.fields[0]:
                lines += self._oneof(oneof)
        lines.append(" return out")
        exec("\n".join(lines), self._namespace)

    def _field(self, field: FieldDescriptor, always: bool) -> list[str]:
        key = f"out[{field.json_name!r}]"
        if is_map(field):
            item = self._value(_entry(field, "value"), "v[k]")
            read = f"{{{self._map_key(field)}: {item} for k in v}}"
        elif field.is_repeated:
            item = self._value(field, "x")
            read = "list(v)" if item == "x" else f"[{item} for x in v]"
        elif field.has_presence:
            return [f" if m.HasField({field.name!r}): {key} = {self._value(field, _read_expression(field))}"]
        else:
            read = self._value(field, "v")
        if always:
            return [f" v = {_read_expression(field)}", f" {key} = {read}"]
        if field.type in _FLOAT_TYPES and not field.is_repeated:
            # -0.0 is not the default value.
            return [f" v = {_read_expression(field)}", f" if v or text(v) == '-0.0': {key} = {read}"]
        return [f" if v := {_read_expression(field)}: {key} = {read}"]

    def _oneof(self, oneof: OneofDescriptor) -> list[str]:
        # One WhichOneof call for all members; most messages have one of the first set.
        lines = [f" which = m.WhichOneof({oneof.name!r})"]
        for number, field in enumerate(oneof.fields):
            read = self._value(field, _read_expression(field))
            lines.append(f" {'elif' if number else 'if'} which == {field.name!r}: out[{field.json_name!r}] = {read}")
        return lines

    def _map_key(self, field: FieldDescriptor) -> str:
        texts = {FieldDescriptor.TYPE_STRING: "k", FieldDescriptor.TYPE_BOOL: "'true' if k else 'false'"}
        return texts.get(_entry(field, "key").type, "text(k)")

    def _value(self, field: FieldDescriptor, variable: str) -> str:
        match field.type:
            case FieldDescriptor.TYPE_MESSAGE:
                return f"{self._message(cast(Descriptor, field.message_type))}({variable})"
            case FieldDescriptor.TYPE_ENUM:
                return self._enum(cast(EnumDescriptor, field.enum_type), variable)
            case FieldDescriptor.TYPE_BYTES:
                return f"encode_bytes({variable})"
            case FieldDescriptor.TYPE_GROUP:
                raise TypeError(f"{field.full_name} is of a kind that has no JSON codec")
        call = "text" if field.cpp_type in INT64_TYPES else _FLOAT_TYPES.get(field.type)
        return f"{call}({variable})" if call else variable

    def _enum(self, enum: EnumDescriptor, variable: str) -> str:
        if enum.full_name == "google.protobuf.NullValue":
            return "None"
        if self._dialect.enum_numbers:
            return variable
        names = "names_" + _identifier(enum.full_name)
        # Of several names for one number, the first is written.
        words = self._dialect.enum_words.get(enum.full_name, {})
        self._namespace[names] = {value.number: words.get(value.name, value.name) for value in reversed(enum.values)}
        # An unknown number, of a later version, is written as a number.
        return f"{names}.get({variable}, {variable})"


def is_map(field: FieldDescriptor) -> bool:
    """Whether the field is a map, which is a repeated entry message in a descriptor."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _read_expression(field: FieldDescriptor) -> str:
    """The Python expression for the field's value; Python keywords need getattr."""
    return f"getattr(m, {field.name!r})" if keyword.iskeyword(field.name) else f"m.{field.name}"


def _entry(field: FieldDescriptor, part: str) -> FieldDescriptor:
    return cast(Descriptor, field.message_type).fields_by_name[part]


def _identifier(full_name: str) -> str:
    return full_name.replace("_", "__").replace(".", "_")


# ---- decoder: per message type, a table from accepted key to the function that sets the field
#
# Lenient where ProtoJSON is (both spellings, unknown keys, numbers for enums) and where real clients need it. Rejects
# ambiguous input: two members of one oneof, one field under two keys, characters outside of base64, unknown enum names.

_INTEGER = re.compile(r"-?[0-9]+(?:\.0+)?")
_EXPONENT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]{1,2}")
_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


class Decoders:
    """The decoding functions of one dialect, created on first use."""

    def __init__(self, dialect: JsonDialect) -> None:
        self._dialect = dialect
        self._decoders: dict[str, Decode] = {}
        self._enum_converters: dict[str, Convert] = {}
        self._keys: dict[str, dict[str, FieldDescriptor]] = {}

    def decoder_for(self, descriptor: Descriptor) -> Decode:
        """The decoding function of a message type. Raises TypeError for a field of an unsupported kind."""
        if descriptor.full_name not in self._decoders:
            draft = copy(self)  # another thread sees complete functions only
            draft._decoders = dict(self._decoders)
            draft._decoders[descriptor.full_name] = draft._decoder(descriptor)
            self._decoders.update(draft._decoders)
        return self._decoders[descriptor.full_name]

    def _decoder(self, descriptor: Descriptor) -> Decode:
        name = descriptor.full_name
        if name in WELL_KNOWN:
            return WELL_KNOWN[name][1]
        if name not in self._decoders:
            # A recursive type uses this while its own function is being created.
            self._decoders[name] = partial(self._decode_later, name)
            if name == wellknown.ANY_TYPE:
                decode = wellknown.any_decoder(self.decoder_for)
            elif name in wellknown.WRAPPER_TYPES:
                decode = _scalar_step("value", self.converter_for(descriptor.fields_by_name["value"]))
            else:
                decode = self._message(descriptor)
            around = self._dialect.decode_hooks.get(name)
            self._decoders[name] = around(decode) if around else decode
        return self._decoders[name]

    def _decode_later(self, name: str, message: Any, data: object) -> None:
        self._decoders[name](message, data)

    def accepted_keys(self, descriptor: Descriptor) -> dict[str, FieldDescriptor]:
        names = self._keys.get(descriptor.full_name)
        if names is None:
            names = {field.name: field for field in descriptor.fields}
            names |= {field.json_name: field for field in descriptor.fields}
            _add_synonyms(names, self._dialect.fields.get(descriptor.full_name, ()))
            self._keys[descriptor.full_name] = names
        return names

    def converter_for(self, field: FieldDescriptor) -> Convert:
        """The conversion function for a scalar value of `field`."""
        if field.cpp_type in _BOUNDS:
            return partial(_integer, *_BOUNDS[field.cpp_type])
        match field.type:
            case FieldDescriptor.TYPE_STRING:
                return _string
            case FieldDescriptor.TYPE_BOOL:
                return _bool
            case FieldDescriptor.TYPE_BYTES:
                return wellknown.decode_bytes
            case FieldDescriptor.TYPE_DOUBLE:
                return _double
            case FieldDescriptor.TYPE_FLOAT:
                return lambda data: wellknown.to_float32(_double(data))
            case FieldDescriptor.TYPE_ENUM:
                return self._enum(cast(EnumDescriptor, field.enum_type))
        raise TypeError(f"{field.full_name} is of a kind that has no JSON codec")

    def _enum(self, enum: EnumDescriptor) -> Convert:
        if enum.full_name not in self._enum_converters:
            numbers = {value.name: value.number for value in enum.values}
            words = self._dialect.enum_words.get(enum.full_name, {})
            # A role is required, so ROLE_UNSPECIFIED is not offered.
            allowed = ", ".join(words.get(name, name) for name in numbers if name != "ROLE_UNSPECIFIED")
            # If two names share a word, the word means the first.
            numbers |= {word: numbers[name] for name, word in reversed(tuple(words.items()))}
            _add_synonyms(numbers, self._dialect.enums.get(enum.full_name, ()))
            numbers |= {str(number): number for number in enum.values_by_number}
            self._enum_converters[enum.full_name] = partial(
                _enum, numbers, frozenset(enum.values_by_number), f"must be one of {allowed}"
            )
        return self._enum_converters[enum.full_name]

    def _message(self, descriptor: Descriptor) -> Decode:
        names = self.accepted_keys(descriptor)
        steps = {field.json_name: self._step(field) for field in descriptor.fields}
        # Most fields are plain strings, which are set without a call.
        strings = {
            field.json_name: field.name
            for field in descriptor.fields
            if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated
        }
        keys = {name: field.json_name for name, field in names.items() if name != field.json_name}
        spellings: dict[str, list[str]] = {}
        for name, field in names.items():
            spellings.setdefault(field.json_name, []).append(name)
        # Fields for which null is a value, each with the keys that must be absent then.
        nulls = {
            field.json_name: [
                name
                for name, other in names.items()
                if field.containing_oneof is not None and other.containing_oneof is field.containing_oneof
            ]
            for field in descriptor.fields
            if _takes_null(field)
        }
        # An `optional` scalar has a oneof of its own, which cannot be violated.
        members = [
            {name for name, field in names.items() if field.containing_oneof is oneof}
            for oneof in descriptor.oneofs
            if len(oneof.fields) > 1
        ]

        strict = self._dialect.rejects_unknown

        def decode(message: Any, data: object) -> None:
            if type(data) is not dict:
                raise FieldError("must be a JSON object")
            for sent, value in data.items():
                key = sent
                if type(value) is str and (name := strings.get(key)):
                    setattr(message, name, value)
                    continue
                step = steps.get(key)
                if step is None:
                    if key not in keys:
                        if strict:
                            raise FieldError(f"is not a field of {descriptor.name}; use {', '.join(steps)}", key)
                        continue
                    key = keys[key]
                    _check_duplicates(data, spellings[key], key)
                    step = steps[key]
                # `{"text": "x", "data": null}` is a text: clients write null for unused members.
                if value is None and (key not in nulls or any(data.get(name) is not None for name in nulls[key])):
                    continue
                try:
                    step(message, value)
                except FieldError as error:
                    error.path.append(sent if strict else key)
                    raise
            if members and len(data) > 1:
                for oneof in members:
                    given = [key for key in data if key in oneof and data[key] is not None]
                    if len(given) > 1:
                        _check_oneof([names[key] for key in given])

        return decode

    def _step(self, field: FieldDescriptor) -> Decode:
        if is_map(field):
            return self._map_step(field)
        if field.message_type is not None:
            decode = self._decoder(field.message_type)
            if not field.is_repeated:
                return _message_step(field.name, decode)
            return _messages_step(field.name, decode, field.message_type.full_name == "google.protobuf.Value")
        convert = self.converter_for(field)
        return _scalars_step(field.name, convert) if field.is_repeated else _scalar_step(field.name, convert)

    def _map_step(self, field: FieldDescriptor) -> Decode:
        entry = cast(Descriptor, field.message_type)
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        convert_key = _bool_key if key.type == FieldDescriptor.TYPE_BOOL else self.converter_for(key)
        if value.message_type is None:
            convert = self.converter_for(value)
            return _map_step(
                field.name, convert_key, lambda container, key, item: container.__setitem__(key, convert(item))
            )
        decode, nullable = self._decoder(value.message_type), _takes_null(value)

        def put(container: Any, key: Any, item: object) -> None:
            if item is None and not nullable:
                raise FieldError("must not be null")
            decode(container[key], item)

        return _map_step(field.name, convert_key, put)


def _add_synonyms(meanings: dict[str, Any], groups: Spellings) -> None:
    """Gives each name of a group the meaning of its first known one, unless it has a meaning of its own."""
    for group in groups:
        declared = next((meanings[name] for name in group if name in meanings), None)
        if declared is not None:
            meanings.update((name, declared) for name in group if name not in meanings)


def _takes_null(field: FieldDescriptor) -> bool:
    type_ = field.message_type
    return type_ is not None and not field.is_repeated and type_.full_name == "google.protobuf.Value"


def _check_duplicates(data: dict[str, object], spellings: Sequence[str], key: str) -> None:
    given = [name for name in spellings if data.get(name) is not None]
    if any(data[name] != data[given[0]] for name in given):
        raise FieldError(f"is given more than once, as {' and '.join(given)}, with different values", key)


def _check_oneof(members: Sequence[FieldDescriptor]) -> None:
    first, *others = members
    for other in others:
        if other is not first:
            allowed = ", ".join(field.json_name for field in cast(OneofDescriptor, first.containing_oneof).fields)
            raise FieldError(f"cannot stand beside {first.json_name}; give only one of {allowed}", other.json_name)


# ---- setting one field


def _scalar_step(name: str, convert: Convert) -> Decode:
    def step(message: Any, data: object) -> None:
        setattr(message, name, convert(data))

    return step


def _message_step(name: str, decode: Decode) -> Decode:
    def step(message: Any, data: object) -> None:
        inner = getattr(message, name)
        inner.SetInParent()  # `{}` sets the field too
        decode(inner, data)

    return step


def _scalars_step(name: str, convert: Convert) -> Decode:
    def step(message: Any, data: object) -> None:
        if type(data) is not list:
            raise FieldError("must be a JSON array")
        values: list[Any] = []
        for item in data:
            try:
                values.append(convert(item))
            except FieldError as error:
                error.path.append(len(values))
                raise
        message.ClearField(name)
        getattr(message, name).extend(values)

    return step


def _messages_step(name: str, decode: Decode, nullable: bool) -> Decode:
    def step(message: Any, data: object) -> None:
        if type(data) is not list:
            raise FieldError("must be a JSON array")
        message.ClearField(name)
        container = getattr(message, name)
        add = container.add
        try:
            for item in data:
                inner = add()
                if item is None and not nullable:
                    raise FieldError("must not be null")
                decode(inner, item)
        except FieldError as error:
            error.path.append(len(container) - 1)
            raise

    return step


def _map_step(name: str, key: Convert, put: Callable[[Any, Any, object], None]) -> Decode:
    """`put` adds a JSON value to the container, under its key."""

    def step(message: Any, data: object) -> None:
        if type(data) is not dict:
            raise FieldError("must be a JSON object")
        container = getattr(message, name)
        for text, item in data.items():
            try:
                put(container, key(text), item)
            except FieldError as error:
                error.path.append(text)
                raise

    return step


# ---- scalars


def _exact(kind: type, name: str, data: object) -> object:
    if type(data) is not kind:
        raise FieldError(f"must be {name}, not {describe_value(data)}")
    return data


_string = partial(_exact, str, "a string")
_bool = partial(_exact, bool, "true or false")


def _bool_key(data: object) -> bool:
    if data not in ("true", "false"):
        raise FieldError('the key must be "true" or "false"')
    return data == "true"


def _integer(low: int, high: int, data: object) -> int:
    # ProtoJSON accepts numbers and strings, also with a zero fraction or an exponent.
    number: int | None = None
    if type(data) is int:
        number = data
    elif type(data) is float and data.is_integer():
        number = int(data)
    elif type(data) is str and len(data) <= 40 and _INTEGER.fullmatch(data):
        number = int(data.partition(".")[0])
    elif type(data) is str and len(data) <= 40 and _EXPONENT.fullmatch(data):
        exact = Decimal(data)
        number = int(exact) if exact == exact.to_integral_value() else None
    if number is None or not low <= number <= high:
        raise FieldError(f"must be an integer from {low} to {high}, not {describe_value(data)}")
    return number


def _double(data: object) -> float:
    if type(data) is float or type(data) is int:
        if data - data == 0:
            return float(data)
    elif type(data) is str:
        if data in ("NaN", "Infinity", "-Infinity"):
            return float(data)
        try:
            number = float(data)
        except ValueError:
            pass
        else:
            # float() also reads blanks, 1_000 and digits of other scripts.
            if number - number == 0 and data.isascii() and data.strip() == data and "_" not in data:
                return number
    raise FieldError(f'must be a number, or one of "NaN", "Infinity", "-Infinity", not {describe_value(data)}')


def _enum(numbers: Mapping[str, int], known: frozenset[int], rule: str, data: object) -> int:
    if type(data) is str:
        number = numbers.get(data)
        if number is not None:
            return number
    elif type(data) is int and data in known:
        return data
    raise FieldError(f"{rule}; not {describe_value(data)}")
