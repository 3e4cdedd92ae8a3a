"""JSON codec of `google.protobuf.Any`: the packed message, with `@type` (ProtoJSON format guide, "Any").

The types are those of the descriptor pool that the Any comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from dragoman.wire.json.wellknown import WRAPPER_TYPES, FieldError

ANY_TYPE: Final = "google.protobuf.Any"

_VALUE_TYPES: Final = WRAPPER_TYPES | {
    f"google.protobuf.{name}" for name in ("Any", "Duration", "FieldMask", "ListValue", "Struct", "Timestamp", "Value")
}
"""Types that are not a plain object in JSON: they are written under `value`, beside `@type`."""

Encode = Callable[[Any], Any]
Decode = Callable[[Any, object], None]


def any_encoder(encoder_for: Callable[[Descriptor], Encode]) -> Encode:
    """Creates the encoder, which raises ValueError for a type not in the pool, and for invalid bytes."""

    def encode(message: Any) -> dict[str, Any]:
        if not message.type_url and not message.value:
            return {}
        descriptor = _find_type(message, message.type_url)
        if descriptor is None:
            raise ValueError(f"an Any of the unknown type {message.type_url!r} cannot be written")
        try:
            inner = GetMessageClass(descriptor).FromString(message.value)
            written = encoder_for(descriptor)(inner)
        except (DecodeError, TypeError) as error:
            raise ValueError(f"an Any of type {message.type_url} cannot be written: {error}") from None
        head = {"@type": message.type_url}
        return head | ({"value": written} if descriptor.full_name in _VALUE_TYPES else written)

    return encode


def any_decoder(decoder_for: Callable[[Descriptor], Decode]) -> Decode:
    """Creates the decoder, which raises FieldError."""

    def decode(message: Any, data: object) -> None:
        if type(data) is not dict:
            raise FieldError("must be a JSON object")
        if not data:
            return
        url = data.get("@type")
        descriptor = _find_type(message, url) if type(url) is str else None
        if descriptor is None:
            raise _field_error("@type", "must name a known type, as type.googleapis.com/google.rpc.ErrorInfo does")
        try:
            read = decoder_for(descriptor)
        except TypeError as error:
            raise _field_error("@type", str(error)) from None
        inner = GetMessageClass(descriptor)()
        if descriptor.full_name in _VALUE_TYPES:
            if "value" not in data:
                raise _field_error("value", "must be given beside @type")
            try:
                read(inner, data["value"])
            except FieldError as error:
                error.path.append("value")
                raise
        else:
            read(inner, data)  # no field has the key `@type`, so it is ignored
        message.type_url = url
        message.value = inner.SerializePartialToString()

    return decode


def _find_type(message: Any, url: str) -> Descriptor | None:
    try:
        found: Descriptor = message.DESCRIPTOR.file.pool.FindMessageTypeByName(url.rpartition("/")[2])
    except KeyError:
        return None
    return found


def _field_error(key: str, rule: str) -> FieldError:
    error = FieldError(rule)
    error.path.append(key)
    return error
