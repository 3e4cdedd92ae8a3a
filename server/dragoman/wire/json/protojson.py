"""ProtoJSON codecs, compiled on first use and once per message type, from its descriptor, over orjson.

Equivalent to `google.protobuf.json_format` with `ignore_unknown_fields`, except for these intended differences.
Rejected: unknown enum names and numbers (json_format drops the name, keeps the number), characters outside of base64
(it skips them), a field under two keys with different values (it takes the last), a Duration with a plus or more than
nine fractional digits (it skips, rounds). Accepted: spellings of a `JsonDialect`, underscores in FieldMask paths,
times without a zone (UTC), the largest floats as written (it rejects its own 3.4028235e+38). A null Value beside
another member of its oneof is absent (it takes the last); an integer in a Value is written without `.0`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Generic, TypeVar, cast

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.core.errors import InvalidParams
from dragoman.wire.json.protojson_decoder import Decode, Decoders, Spellings
from dragoman.wire.json.protojson_encoder import Encode, Encoders
from dragoman.wire.json.wellknown import FieldError

M = TypeVar("M", bound=Message)


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
    fields: Mapping[str, Spellings] = field(default_factory=dict)
    enums: Mapping[str, Spellings] = field(default_factory=dict)
    always_emitted: Mapping[str, Set[str]] = field(default_factory=dict)
    enum_words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    decode_hooks: Mapping[str, Callable[[Decode], Decode]] = field(default_factory=dict)
    encode_hooks: Mapping[str, Callable[[Encode], Encode]] = field(default_factory=dict)
    rejects_unknown: bool = False
    enum_numbers: bool = False

    @cached_property
    def decoders(self) -> Decoders:
        return Decoders(
            self.fields, self.enums, self.enum_words, self.decode_hooks, rejects_unknown=self.rejects_unknown
        )

    @cached_property
    def encoders(self) -> Encoders:
        return Encoders(self.always_emitted, self.enum_words, self.encode_hooks, enum_numbers=self.enum_numbers)

    @cached_property
    def codecs(self) -> dict[type[Message], Codec[Any]]:
        return {}


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

    def decode(self, data: object, *, path: str = "") -> M:
        """Decodes a parsed JSON value. Unknown keys are ignored, unless the dialect rejects them; null means absent.

        `path` is the path of `data` within the client's JSON. Raises InvalidParams with the path of the field, the
        rule and the allowed values.
        """
        message = self.cls()
        self.merge(message, data, path=path)
        return message

    def merge(self, message: M, data: object, *, path: str = "") -> None:
        """Decodes a parsed JSON value into `message`: fields in `data` are replaced, messages merged.

        Raises InvalidParams as `decode` does; `message` is then partially filled.
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
