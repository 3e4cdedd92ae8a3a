"""JSON codecs of well-known types and bytes (ProtoJSON format guide, "Well-known types").

Decoders raise FieldError, which collects the field's path while it propagates; valid input pays nothing for paths.
"""

from __future__ import annotations

import json
import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from datetime import MAXYEAR, date, datetime, timedelta
from functools import lru_cache
from math import copysign
from struct import pack
from typing import Any, Final, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

Encode = Callable[[Any], Any]
Decode = Callable[[Any, object], None]
"""Decodes a JSON value into an empty message. Raises FieldError."""

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST_SECOND = (date.min.toordinal() - _EPOCH_DAY) * 86400
_LAST_SECOND = (date(MAXYEAR, 12, 31).toordinal() - _EPOCH_DAY + 1) * 86400 - 1
_LARGEST_EXACT = 2**53

_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))?"
)
_BASE64_RULE = "must be valid base64 (standard or URL-safe alphabet), without blanks"
_UTC_SEPARATORS = ("--T::Z", "--T::.")
"""Every third character of 2026-11-20T10:11:12.345Z, the form that nearly all clients send."""

_TIMESTAMP_RULE = "must be an RFC 3339 time such as 2026-11-20T10:11:12.345Z, from year 0001 to 9999"

MAX_QUOTED_CHARS: Final = 40  # maximum characters of a value that an error quotes


def describe_value(value: object) -> str:
    """A short description of a JSON value for an error text."""
    match value:
        case list():
            return "an array"
        case dict():
            return "an object"
        case int() if value.bit_length() > 64:
            return "a number of more than 64 bits"
        case str():
            text = json.dumps(value[: MAX_QUOTED_CHARS + 1], ensure_ascii=False)
        case _:
            text = json.dumps(value, default=repr)
    return text if len(text) <= MAX_QUOTED_CHARS else f"{text[: MAX_QUOTED_CHARS - 1]}…"


class FieldError(Exception):
    """A value violates a rule. `path` is the path to it, innermost first; an index is an int."""

    def __init__(self, rule: str, *path: str | int) -> None:
        super().__init__(rule)
        self.rule = rule
        self.path = list(path)

    def field(self, start: str = "") -> str:
        """The dotted path below `start`, as in `message.parts[0].raw`."""
        text = start
        for step in reversed(self.path):
            if isinstance(step, int):
                text += f"[{step}]"
            else:
                text += f".{step}" if text else step
        return text


# ---- bytes


def encode_bytes(value: bytes) -> str:
    """Encodes as base64 with the standard alphabet and padding."""
    return b2a_base64(value, newline=False).decode("ascii")


def decode_bytes(data: object) -> bytes:
    """Decodes base64 in either alphabet, with or without padding, and with line breaks, which MIME encoders write.

    Other characters are rejected.
    """
    if type(data) is not str:
        raise FieldError("must be a string with base64")
    try:
        if "\n" in data:
            data = data.replace("\r", "").replace("\n", "")
        if "-" in data or "_" in data:
            data = data.replace("-", "+").replace("_", "/")
        if len(data) % 4:
            data += "=" * (-len(data) % 4)
        if data.endswith("==="):  # never valid, but the decoder accepts any number
            raise FieldError(_BASE64_RULE)
        return a2b_base64(data, strict_mode=True)
    except (Base64Error, ValueError):
        raise FieldError(_BASE64_RULE) from None


# ---- Timestamp


@lru_cache(maxsize=1024)  # the times in one response are close together
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def encode_timestamp(message: Any) -> str:
    """RFC 3339 in UTC with `Z` and 0, 3, 6 or 9 fractional digits. Raises ValueError outside of years 0001 to 9999."""
    seconds, nanos = message.seconds, message.nanos
    if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos <= 999_999_999):
        raise ValueError(f"a Timestamp of {seconds} s and {nanos} ns cannot be written")
    if not nanos:
        return _second(seconds) + "Z"
    if not nanos % 1_000_000:
        return f"{_second(seconds)}.{nanos // 1_000_000:03}Z"
    if not nanos % 1_000:
        return f"{_second(seconds)}.{nanos // 1_000:06}Z"
    return f"{_second(seconds)}.{nanos:09}Z"


def decode_timestamp(message: Any, data: object) -> None:
    """Decodes an RFC 3339 time. A time without a zone is UTC, as clients that omit it intend."""
    fraction = sign = hours = minutes = ""
    try:
        if type(data) is str and len(data) in (20, 24, 27) and data[4:20:3] in _UTC_SEPARATORS and data[-1] == "Z":
            elapsed = datetime.fromisoformat(data[:-1]) - _EPOCH
        elif type(data) is str and (match := _TIMESTAMP.fullmatch(data)):
            day, time, fraction, sign, hours, minutes = match.groups()
            elapsed = datetime.fromisoformat(f"{day}T{time}") - _EPOCH
        else:
            raise FieldError(_TIMESTAMP_RULE)
    except (ValueError, TypeError):  # TypeError: a zone before the Z
        raise FieldError(_TIMESTAMP_RULE) from None
    seconds = elapsed.days * 86400 + elapsed.seconds
    if sign:
        if int(hours) > 23 or int(minutes) > 59:
            raise FieldError(_TIMESTAMP_RULE)
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds += offset if sign == "-" else -offset
        if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
            raise FieldError(_TIMESTAMP_RULE)
    message.seconds = seconds
    message.nanos = int(fraction.ljust(9, "0")) if fraction else elapsed.microseconds * 1000


# ---- Struct, Value, ListValue


def encode_struct(message: Any) -> dict[str, object]:
    """Encodes as a JSON object, with sorted keys.

    The order of a map differs between processes. A webhook that is repeated after a crash has to have the same bytes.
    """
    fields = message.fields  # read by key: the container's items() is a generator in Python
    return {key: encode_value(fields[key]) for key in sorted(fields)}


def encode_list(message: Any) -> list[object]:
    return [encode_value(value) for value in message.values]


def encode_value(message: Any) -> object:
    """Encodes as any JSON value; an unset Value is null. Raises ValueError for NaN and infinities.

    An integer is written without `.0`, as in Go and Java, so that a client gets back the 1 that it sent.
    """
    kind = message.WhichOneof("kind")
    if kind == "string_value":
        return message.string_value
    if kind == "number_value":
        number = message.number_value
        # NaN and infinities fail the comparison; -0.0 stays a float to keep its sign.
        if -_LARGEST_EXACT <= number <= _LARGEST_EXACT:
            return int(number) if number.is_integer() and (number or copysign(1, number) > 0) else number
        if number - number != 0:
            raise ValueError("a number that is NaN or infinite cannot be written as JSON")
        return number
    if kind == "struct_value":
        return encode_struct(message.struct_value)
    if kind == "list_value":
        return encode_list(message.list_value)
    if kind == "bool_value":
        return message.bool_value
    return None


MAX_LEVELS: Final = 30
"""Levels of arrays and objects in a Struct or Value. An object takes three levels of protobuf messages, and parsers
stop at 100: a message with more could be built here, but neither copied nor read again."""

_LEVELS_RULE: Final = f"nests more than {MAX_LEVELS} levels of arrays and objects"


def decode_struct(message: Any, data: object, levels_left: int = MAX_LEVELS) -> None:
    if type(data) is not dict:
        raise FieldError("must be a JSON object")
    if not levels_left:
        raise FieldError(_LEVELS_RULE)
    fields = message.fields
    for key, item in data.items():
        try:
            decode_value(fields[key], item, levels_left - 1)
        except FieldError as error:
            error.path.append(key)
            raise


def decode_list(message: Any, data: object, levels_left: int = MAX_LEVELS) -> None:
    if type(data) is not list:
        raise FieldError("must be a JSON array")
    if not levels_left:
        raise FieldError(_LEVELS_RULE)
    add = message.values.add
    for index, item in enumerate(data):
        try:
            decode_value(add(), item, levels_left - 1)
        except FieldError as error:
            error.path.append(index)
            raise


def decode_value(message: Any, data: object, levels_left: int = MAX_LEVELS) -> None:
    """Decodes any JSON value; null is a value here, not absence."""
    # Exact types, as parsers return them: cheaper than isinstance, and a bool does not count as an int.
    kind = type(data)
    if kind is str:
        message.string_value = data
    elif kind is int or kind is float:
        number = cast(float, data)
        if number - number != 0:
            raise FieldError("must be a finite number")
        message.number_value = number
    elif kind is dict:
        inner = message.struct_value
        inner.SetInParent()
        decode_struct(inner, data, levels_left)
    elif kind is bool:
        message.bool_value = data
    elif kind is list:
        inner = message.list_value
        inner.SetInParent()
        decode_list(inner, data, levels_left)
    elif data is None:
        message.null_value = 0
    else:
        raise FieldError("must be a JSON value")


WRAPPER_TYPES: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages with one field `value`. In JSON they are that value, or null if absent."""

_DURATION: Final = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_DURATION_RULE: Final = "must be seconds with an s, such as 1.5s, from -315576000000s to 315576000000s"
_MAX_DURATION_SECONDS: Final = 315_576_000_000
"""Ten thousand years (google/protobuf/duration.proto)."""

_MASK_PATH: Final = re.compile(r"[^\s,]+")  # includes `*` and map keys in backticks (AIP-161)
_WRITABLE_MASK_PATH: Final = re.compile(r"(?:[^A-Z_\s,]|_(?=[a-z]))+")


# ---- Duration


def decode_duration(message: Any, data: object) -> None:
    """Decodes seconds such as `1.5s`."""
    match = _DURATION.fullmatch(data) if type(data) is str else None
    if match is None or (seconds := int(match[2])) > _MAX_DURATION_SECONDS:
        raise FieldError(_DURATION_RULE)
    sign = -1 if match[1] else 1
    message.seconds = sign * seconds
    message.nanos = sign * int((match[3] or "").ljust(9, "0"))


# ---- FieldMask


def encode_mask(message: Any) -> str:
    """Paths in lowerCamelCase, separated by commas. Raises ValueError for a path that would not round-trip."""
    for path in message.paths:
        if not _WRITABLE_MASK_PATH.fullmatch(path):
            raise ValueError(f"a FieldMask with the path {path!r} cannot be written")
    return ",".join(re.sub("_([a-z])", lambda found: found[1].upper(), path) for path in message.paths)


def decode_mask(message: Any, data: object) -> None:
    """Decodes paths in lowerCamelCase, or in proto spelling, which is common in queries."""
    if type(data) is not str:
        raise FieldError("must be a string of paths separated by commas, such as title,pageCount")
    for path in data.split(",") if data else ():
        if not _MASK_PATH.fullmatch(path):
            raise FieldError(f"{path[:64]!r} is not a path; separate field names by commas")
        message.paths.append(re.sub("[A-Z]", lambda found: "_" + found[0].lower(), path))


WELL_KNOWN: Final[Mapping[str, tuple[Encode, Decode]]] = {
    "google.protobuf.Timestamp": (encode_timestamp, decode_timestamp),
    "google.protobuf.Struct": (encode_struct, decode_struct),
    "google.protobuf.Value": (encode_value, decode_value),
    "google.protobuf.ListValue": (encode_list, decode_list),
    "google.protobuf.Duration": (lambda message: message.ToJsonString(), decode_duration),  # may raise ValueError
    "google.protobuf.FieldMask": (encode_mask, decode_mask),
}
"""Messages whose JSON is not an object of their fields."""


# ---- float


def encode_double(value: float) -> float | str:
    """The number, or its name if JSON has no such number."""
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def encode_float(value: float) -> float | str:
    """The shortest number with the same 32-bit float: 0.1 instead of 0.10000000149011612."""
    if value - value != 0:
        return encode_double(value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if _float32_bytes(short) == _float32_bytes(value):
            return short
    return float(f"{value:.9g}")


def to_float32(value: float) -> float:
    """Checks that a double fits a 32-bit field. Raises FieldError if it is too large."""
    if not _float32_bytes(value):
        raise FieldError("must be a number that a float of 32 bits can hold")
    return value


def _float32_bytes(value: float) -> bytes:
    """The 32-bit float as four bytes; empty if the number is too large."""
    try:
        return pack("<f", value)
    except OverflowError:
        return b""


# ---- Any

ANY_TYPE: Final = "google.protobuf.Any"

_VALUE_TYPES: Final = WRAPPER_TYPES | {ANY_TYPE, *WELL_KNOWN}
"""Types whose JSON is not a plain object; it is written under `value`, beside `@type`."""


def any_encoder(encoder_for: Callable[[Descriptor], Encode]) -> Encode:
    """Creates the encoder of an Any: the packed message with `@type` (ProtoJSON format guide, "Any").

    Types are looked up in the descriptor pool of the Any. The encoder raises ValueError for an unknown type and for
    invalid bytes.
    """

    def encode(message: Any) -> dict[str, Any]:
        if not message.type_url and not message.value:
            return {}
        descriptor = _find_type(message, message.type_url)
        if descriptor is None:
            raise ValueError(f"an Any of the unknown type {message.type_url!r} cannot be written")
        try:
            inner = GetMessageClass(descriptor).FromString(message.value)
            encoded = encoder_for(descriptor)(inner)
        except (DecodeError, TypeError) as error:
            raise ValueError(f"an Any of type {message.type_url} cannot be written: {error}") from None
        head = {"@type": message.type_url}
        return head | ({"value": encoded} if descriptor.full_name in _VALUE_TYPES else encoded)

    return encode


def any_decoder(decoder_for: Callable[[Descriptor], Decode]) -> Decode:
    """Creates the decoder of an Any, for types in its descriptor pool. The decoder raises FieldError."""

    def decode(message: Any, data: object) -> None:
        if type(data) is not dict:
            raise FieldError("must be a JSON object")
        if not data:
            return
        url = data.get("@type")
        descriptor = _find_type(message, url) if type(url) is str else None
        if descriptor is None:
            raise FieldError("must name a known type, as type.googleapis.com/google.rpc.ErrorInfo does", "@type")
        try:
            read = decoder_for(descriptor)
        except TypeError as error:
            raise FieldError(str(error), "@type") from None
        inner = GetMessageClass(descriptor)()
        if descriptor.full_name in _VALUE_TYPES:
            if "value" not in data:
                raise FieldError("must be given beside @type", "value")
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
        descriptor: Descriptor = message.DESCRIPTOR.file.pool.FindMessageTypeByName(url.rpartition("/")[2])
    except KeyError:
        return None
    return descriptor
