"""JSON encoder: one Python function per message type, generated from its descriptor.

Walking the descriptor for each message would cost more than reading its fields, so it is walked once to generate
code, as `dataclasses` does for its methods. The code for a book:

    def encode_Book(m):
        out = {}
        if v := m.genre: out["genre"] = names_Genre.get(v, v)
        if m.HasField("author"): out["author"] = encode_Author(m.author)
        ...
        return out

Functions call each other through their shared namespace, so recursive types need no special case.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Set
from copy import copy
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor

from dragoman.wire.json import wellknown

Encode = Callable[[Any], Any]

WELL_KNOWN_ENCODERS: Mapping[str, Encode] = {
    "google.protobuf.Timestamp": wellknown.encode_timestamp,
    "google.protobuf.Struct": wellknown.encode_struct,
    "google.protobuf.Value": wellknown.encode_value,
    "google.protobuf.ListValue": wellknown.encode_list,
    "google.protobuf.Duration": wellknown.encode_duration,
    "google.protobuf.FieldMask": wellknown.encode_mask,
    "google.protobuf.Empty": lambda _: {},
}

INT64_TYPES = {
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_SINT64,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED64,
}
_PLAIN_TYPES = {
    FieldDescriptor.TYPE_BOOL,
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_INT32,
    FieldDescriptor.TYPE_UINT32,
    FieldDescriptor.TYPE_SINT32,
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_SFIXED32,
}
_FLOAT_TYPES = {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT}


def _double(value: float) -> float | str:
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


class Encoders:
    """The encoding functions of one dialect, created on first use."""

    def __init__(
        self,
        always_emitted: Mapping[str, Set[str]],
        enum_words: Mapping[str, Mapping[str, str]],
        encode_hooks: Mapping[str, Callable[[Encode], Encode]],
        *,
        enum_numbers: bool = False,
    ) -> None:
        self._enum_numbers = enum_numbers
        self._always_emitted = always_emitted
        self._enum_words = enum_words
        self._encode_hooks = encode_hooks
        self._namespace: dict[str, Any] = {
            "encode_bytes": wellknown.encode_bytes,
            "double": _double,
            "short": wellknown.encode_float,
            "text": str,
        }

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
        for name in types.keys() & self._always_emitted.keys():
            fields = {field.name: field for field in types[name].fields}
            if unknown := self._always_emitted[name] - fields.keys():
                raise TypeError(f"{name} has no field {', '.join(sorted(unknown))}")
            for field in map(fields.__getitem__, self._always_emitted[name]):
                oneof = field.containing_oneof
                if field.has_presence and (oneof is None or len(oneof.fields) == 1):
                    raise TypeError(f"{field.full_name} tells absence from its default and cannot be forced")

    def _message(self, descriptor: Descriptor) -> str:
        name = "encode_" + _identifier(descriptor.full_name)
        if name not in self._namespace:
            if descriptor.full_name in WELL_KNOWN_ENCODERS:
                self._namespace[name] = WELL_KNOWN_ENCODERS[descriptor.full_name]
            elif descriptor.full_name == wellknown.ANY_TYPE:
                self._namespace[name] = wellknown.any_encoder(self.encoder_for)
            elif descriptor.full_name in wellknown.WRAPPER_TYPES:
                value = self._value(descriptor.fields_by_name["value"], "m.value")
                exec(f"def {name}(m): return {value}", self._namespace)
            else:
                self._namespace[name] = None  # a recursive type finds its own name defined
                self._define_encoder(name, descriptor)
                if around := self._encode_hooks.get(descriptor.full_name):
                    self._namespace[name] = around(self._namespace[name])
        return name

    def _define_encoder(self, name: str, descriptor: Descriptor) -> None:
        always = self._always_emitted.get(descriptor.full_name, frozenset())
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
        match _entry(field, "key").type:
            case FieldDescriptor.TYPE_STRING:
                return "k"
            case FieldDescriptor.TYPE_BOOL:
                return "'true' if k else 'false'"
            case _:
                return "text(k)"

    def _value(self, field: FieldDescriptor, variable: str) -> str:
        if field.type in _PLAIN_TYPES:
            return variable
        if field.type in INT64_TYPES:
            return f"text({variable})"
        if field.type == FieldDescriptor.TYPE_BYTES:
            return f"encode_bytes({variable})"
        if field.type == FieldDescriptor.TYPE_DOUBLE:
            return f"double({variable})"
        if field.type == FieldDescriptor.TYPE_FLOAT:
            return f"short({variable})"
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            return f"{self._message(cast(Descriptor, field.message_type))}({variable})"
        if field.type == FieldDescriptor.TYPE_ENUM:
            return self._enum(cast(EnumDescriptor, field.enum_type), variable)
        raise TypeError(f"{field.full_name} is of a kind that has no JSON codec")

    def _enum(self, enum: EnumDescriptor, variable: str) -> str:
        if enum.full_name == "google.protobuf.NullValue":
            return "None"
        if self._enum_numbers:
            return variable
        names = "names_" + _identifier(enum.full_name)
        # Of several names for one number, the first is written.
        words = self._enum_words.get(enum.full_name, {})
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
