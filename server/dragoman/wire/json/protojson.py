"""ProtoJSON, compiled once per message type from its descriptor, over orjson.

It means what `google.protobuf.json_format` means with `ignore_unknown_fields`, and departs from it on purpose
only here:

- Further spellings of a dialect are accepted, listed in a `JsonDialect`: what real clients send.
- An enum name or number that the enum does not have is refused, where json_format drops the
  name and keeps the number.
- Paths of a FieldMask may have underscores, as people write them into a query, where json_format refuses them.
- A Duration has at most nine digits of a fraction and no plus, where json_format rounds and skips.
- The largest floats are read as they are written, where json_format refuses its own 3.4028235e+38.
- Characters outside of base64 are refused, where json_format skips them.
- A time without a zone is UTC, where json_format refuses it.
- One field under two keys with different values is refused, where json_format takes the last.
- A null Value beside another member of its oneof is absent, where json_format lets the last of the two win.
- A whole number in a Value is written without `.0`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import orjson
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.core.errors import InvalidParams
from dragoman.wire.json.protojson_decoder import Decode, Decoders, Spellings
from dragoman.wire.json.protojson_encoder import Encode, Encoders
from dragoman.wire.json.wellknown import FieldError

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, eq=False)
class JsonDialect:
    """One way to spell the messages of a package. Codecs are made from it once, and shared.

    `fields` and `enums` map the full name of a message or enum to groups of names that mean the same; the one
    that the type declares is written, all are read. `always` maps the full name of a message to the fields
    (proto names) that are written even with their default value.

    What older shapes need beyond that: `spell` maps the full name of an enum to the words it is written with
    (declared name to word; both are read), and `reads` and `writes` map the full name of a message to what is
    put around its decoding or encoding function.
    """

    name: str
    fields: Mapping[str, Spellings] = field(default_factory=dict)
    enums: Mapping[str, Spellings] = field(default_factory=dict)
    always_emitted: Mapping[str, Set[str]] = field(default_factory=dict)
    enum_words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    decode_hooks: Mapping[str, Callable[[Decode], Decode]] = field(default_factory=dict)
    encode_hooks: Mapping[str, Callable[[Encode], Encode]] = field(default_factory=dict)

    @cached_property
    def decoders(self) -> Decoders:
        return Decoders(self.fields, self.enums, self.enum_words, self.decode_hooks)

    @cached_property
    def encoders(self) -> Encoders:
        return Encoders(self.always_emitted, self.enum_words, self.encode_hooks)

    @cached_property
    def codecs(self) -> dict[type[Message], Codec[Any]]:
        return {}


class Codec(Generic[M]):
    """Reads and writes one message type as JSON, in one dialect."""

    __slots__ = ("_decode", "_encode", "cls")

    def __init__(self, cls: type[M], dialect: JsonDialect) -> None:
        self.cls = cls
        descriptor = cast(Descriptor, cls.DESCRIPTOR)
        self._encode = dialect.encoders.encoder_for(descriptor)
        self._decode = dialect.decoders.decoder_for(descriptor)

    def to_dict(self, message: M) -> dict[str, Any]:
        """The JSON value of a message: fresh dicts, lists and scalars.

        Raises ValueError for what JSON cannot say: NaN or infinity in a Value, a Timestamp out of range.
        """
        return cast("dict[str, Any]", self._encode(message))

    def encode(self, message: M) -> bytes:
        """The message as compact JSON in UTF-8. Raises ValueError as `to_dict` does."""
        return orjson.dumps(self._encode(message))

    def decode(self, data: object, *, path: str = "") -> M:
        """The message of a parsed JSON value. Unknown keys are ignored and null is absence.

        `at` is the path of `data` in what the client sent, when it is a part of it. Raises InvalidParams with
        the path of the field, the rule and the allowed values.
        """
        message = self.cls()
        self.merge(message, data, path=path)
        return message

    def merge(self, message: M, data: object, *, path: str = "") -> None:
        """Reads a parsed JSON value into `message`: fields that `data` holds are replaced, messages merged.

        Raises InvalidParams as `decode` does; `message` is then half filled.
        """
        try:
            self._decode(message, data)
        except FieldError as error:
            raise InvalidParams.field(error.field(path) or "body", error.rule) from None


def compile(type_: type[M] | Descriptor, dialect: JsonDialect) -> Codec[M]:
    """The codec of a message class (or descriptor, for types without an import), made once per dialect."""
    cls = cast("type[M]", GetMessageClass(type_) if isinstance(type_, Descriptor) else type_)
    codec = dialect.codecs.get(cls)
    if codec is None:
        codec = dialect.codecs[cls] = Codec(cls, dialect)
    return cast("Codec[M]", codec)
