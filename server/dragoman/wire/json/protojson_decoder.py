"""JSON decoder: per message type, a table from accepted key to the function that sets the field.

Lenient where ProtoJSON is (both spellings, unknown keys, numbers for enums) and where real clients need it. Rejects
ambiguous input: two members of one oneof, one field under two keys, characters outside of base64, unknown enum names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor

from dragoman.wire.json import wellknown
from dragoman.wire.json.protojson_encoder import is_map
from dragoman.wire.json.wellknown import FieldError, describe_value

Decode = Callable[[Any, object], None]
"""Decodes a JSON value into an empty message. Raises FieldError."""

Convert = Callable[[object], Any]
"""Converts a JSON value to a field's value. Raises FieldError."""

Spellings = Sequence[Sequence[str]]
"""Groups of synonymous names."""

WELL_KNOWN_DECODERS: Mapping[str, Decode] = {
    "google.protobuf.Timestamp": wellknown.decode_timestamp,
    "google.protobuf.Struct": wellknown.decode_struct,
    "google.protobuf.Value": wellknown.decode_value,
    "google.protobuf.ListValue": wellknown.decode_list,
    "google.protobuf.Duration": wellknown.decode_duration,
    "google.protobuf.FieldMask": wellknown.decode_mask,
}

_INTEGER = re.compile(r"-?[0-9]+(?:\.0+)?")
_SIGNED_32 = (-(2**31), 2**31 - 1)
_SIGNED_64 = (-(2**63), 2**63 - 1)
_BOUNDS = {
    FieldDescriptor.TYPE_INT32: _SIGNED_32,
    FieldDescriptor.TYPE_SINT32: _SIGNED_32,
    FieldDescriptor.TYPE_SFIXED32: _SIGNED_32,
    FieldDescriptor.TYPE_INT64: _SIGNED_64,
    FieldDescriptor.TYPE_SINT64: _SIGNED_64,
    FieldDescriptor.TYPE_SFIXED64: _SIGNED_64,
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_FIXED64: (0, 2**64 - 1),
}


class Decoders:
    """The decoding functions of one dialect, created on first use.

    `fields` has additional spellings by message, `enums` by enum; each group contains the declared name. `enum_words`
    has the words of an enum by declared name, `decode_hooks` the wrapper around a message's function. With
    `rejects_unknown`, errors also name a field by the spelling that was sent.
    """

    def __init__(
        self,
        fields: Mapping[str, Spellings],
        enums: Mapping[str, Spellings],
        enum_words: Mapping[str, Mapping[str, str]],
        decode_hooks: Mapping[str, Callable[[Decode], Decode]],
        *,
        rejects_unknown: bool = False,
    ) -> None:
        self._rejects_unknown = rejects_unknown
        self._fields = fields
        self._enums = enums
        self._enum_words = enum_words
        self._decode_hooks = decode_hooks
        self._decoders: dict[str, Decode] = {}
        self._enum_converters: dict[str, Convert] = {}

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
        if name in WELL_KNOWN_DECODERS:
            return WELL_KNOWN_DECODERS[name]
        if name not in self._decoders:
            if name == wellknown.ANY_TYPE:
                self._decoders[name] = wellknown.any_decoder(self.decoder_for)
                return self._decoders[name]
            if name in wellknown.WRAPPER_TYPES:
                self._decoders[name] = wellknown.wrapper_decoder(self.converter_for(descriptor.fields_by_name["value"]))
                return self._decoders[name]
            # A recursive type uses this while its own function is being created.
            self._decoders[name] = self._deferred(name)
            decode = self._message(descriptor)
            self._decoders[name] = self._decode_hooks[name](decode) if name in self._decode_hooks else decode
        return self._decoders[name]

    def _deferred(self, name: str) -> Decode:
        def decode(message: Any, data: object) -> None:
            self._decoders[name](message, data)

        return decode

    def accepted_keys(self, descriptor: Descriptor) -> dict[str, FieldDescriptor]:
        """All keys that a message accepts, with their fields."""
        names = {field.name: field for field in descriptor.fields}
        names |= {field.json_name: field for field in descriptor.fields}
        for group in self._fields.get(descriptor.full_name, ()):
            declared = next((names[name] for name in group if name in names), None)
            if declared is not None:
                for name in group:
                    names.setdefault(name, declared)
        return names

    def converter_for(self, field: FieldDescriptor) -> Convert:
        """The conversion function for a scalar value of `field`."""
        if field.type in _BOUNDS:
            return partial(_integer, *_BOUNDS[field.type])
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
                return _float
            case FieldDescriptor.TYPE_ENUM:
                return self._enum(cast(EnumDescriptor, field.enum_type))
        raise TypeError(f"{field.full_name} is of a kind that has no JSON codec")

    def _enum(self, enum: EnumDescriptor) -> Convert:
        if enum.full_name not in self._enum_converters:
            numbers = {value.name: value.number for value in enum.values}
            words = self._enum_words.get(enum.full_name, {})
            # A role is required, so ROLE_UNSPECIFIED is not offered.
            allowed = ", ".join(words.get(name, name) for name in numbers if name != "ROLE_UNSPECIFIED")
            # If two names share a word, the word means the first.
            numbers |= {word: numbers[name] for name, word in reversed(tuple(words.items()))}
            for group in self._enums.get(enum.full_name, ()):
                declared = next((numbers[name] for name in group if name in numbers), None)
                if declared is not None:
                    for name in group:
                        numbers.setdefault(name, declared)
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

        strict = self._rejects_unknown

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
            return _scalar_map_step(field.name, convert_key, self.converter_for(value))
        nullable = value.message_type.full_name == "google.protobuf.Value"
        return _message_map_step(field.name, convert_key, self._decoder(value.message_type), nullable)


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


def _scalar_map_step(name: str, key: Convert, value: Convert) -> Decode:
    def step(message: Any, data: object) -> None:
        if type(data) is not dict:
            raise FieldError("must be a JSON object")
        container = getattr(message, name)
        for text, item in data.items():
            try:
                container[key(text)] = value(item)
            except FieldError as error:
                error.path.append(text)
                raise

    return step


def _message_map_step(name: str, key: Convert, decode: Decode, nullable: bool) -> Decode:
    def step(message: Any, data: object) -> None:
        if type(data) is not dict:
            raise FieldError("must be a JSON object")
        container = getattr(message, name)
        for text, item in data.items():
            try:
                if item is None and not nullable:
                    raise FieldError("must not be null")
                decode(container[key(text)], item)
            except FieldError as error:
                error.path.append(text)
                raise

    return step


# ---- scalars


def _string(data: object) -> str:
    if type(data) is not str:
        raise FieldError(f"must be a string, not {describe_value(data)}")
    return data


def _bool(data: object) -> bool:
    if type(data) is not bool:
        raise FieldError(f"must be true or false, not {describe_value(data)}")
    return data


def _bool_key(data: object) -> bool:
    if data not in ("true", "false"):
        raise FieldError('the key must be "true" or "false"')
    return data == "true"


def _integer(low: int, high: int, data: object) -> int:
    # ProtoJSON accepts numbers and strings, also with a zero fraction.
    number: int | None = None
    if type(data) is int:
        number = data
    elif type(data) is float and data.is_integer():
        number = int(data)
    elif type(data) is str and len(data) <= 40 and _INTEGER.fullmatch(data):
        number = int(data.partition(".")[0])
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
            if number - number == 0 and data.strip() == data:
                return number
    raise FieldError(f'must be a number, or one of "NaN", "Infinity", "-Infinity", not {describe_value(data)}')


def _float(data: object) -> float:
    return wellknown.to_float32(_double(data))


def _enum(numbers: Mapping[str, int], known: frozenset[int], rule: str, data: object) -> int:
    if type(data) is str:
        number = numbers.get(data)
        if number is not None:
            return number
    elif type(data) is int and data in known:
        return data
    raise FieldError(f"{rule}; not {describe_value(data)}")
