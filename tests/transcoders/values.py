"""Values of every kind of field, in the forms that clients write: in JSON and as text in a path or query."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor


class Form(NamedTuple):
    """One way of writing a value."""

    json: str | None
    """JSON; None where a body cannot have it."""
    text: str | None
    """Text of a path or query; None where those cannot have it."""
    oddity: str = ""
    """The name of what readers may judge differently; empty if all of them have to agree."""


def _plain(*values: object) -> list[Form]:
    return [Form(json.dumps(value), value if isinstance(value, str) else json.dumps(value)) for value in values]


def _texts(**forms: str) -> list[Form]:
    """Odd forms that are a JSON string in a body."""
    return [Form(json.dumps(text), text, oddity.replace("_", " ")) for oddity, text in forms.items()]


def _integers(name: str, low: int, high: int) -> list[Form]:
    quoted = [Form(json.dumps(str(value)), str(value)) for value in (0, 1, 12, low, high)]
    numbers = [Form(str(value), str(value)) for value in (0, 7, 2_000_000)]
    bounds = [
        Form(str(value), str(value), "" if high < 2**53 else "integer beyond 2^53, unquoted") for value in (high,)
    ]
    return [
        *quoted, *numbers, *bounds,
        Form(json.dumps(str(high + 1)), str(high + 1), f"{name} too large"),
        Form(json.dumps(str(low - 1)), str(low - 1), f"{name} too small"),
        Form("1.5", "1.5", "integer with a fraction"),
        Form("5.0", None, "integer written 5.0"),
        Form("1e3", None, "integer written 1e3"),
        Form('"5.0"', "5.0", 'integer written "5.0"'),
        Form('"1e3"', "1e3", 'integer written "1e3"'),
        Form('"+5"', "+5", "integer with a plus"),
        Form('"007"', "007", "integer with leading zeros"),
        Form('" 5"', " 5", "integer with a blank"),
        Form('"0x1F"', "0x1F", "integer in hexadecimal"),
        Form('"1_000"', "1_000", "integer with an underscore"),
        Form('"\u0665"', "\u0665", "integer in other digits"),
        Form('"five"', "five", "integer as a word"),
        Form('""', None, "integer as an empty string"),
        Form("true", None, "integer as a boolean"),
    ]  # fmt: skip


def _floats(*, is_single: bool) -> list[Form]:
    return [
        *_plain(0, 1.5, -2.25, 100, 1e10, "NaN", "Infinity", "-Infinity"),
        Form('"1.5"', "1.5"),
        Form("-0.0", "-0.0", "negative zero"),
        Form("1e400", "1e400", "number beyond a double"),
        *([Form("1e39", "1e39", "number beyond a float")] if is_single else _plain(1e300)),
        *_texts(
            float_as_a_word="much", float_inf="inf", float_nan_in_lower_case="nan", float_in_hexadecimal="0x1p3",
            float_with_an_underscore="1_0.5", float_with_a_blank=" 1.5", float_without_zero=".5",
            float_with_a_plus="+1.5",
        ),
        Form("true", None, "float as a boolean"),
    ]  # fmt: skip


FORMS: Final[dict[str, list[Form]]] = {
    "string": [
        *_plain("a", "two words", "a/b", "ünï", "日本", "100%", "a+b", "x:y", "q?&=#", "0", "true", "null", "\t"),
        Form(r'"\u00fc\ud83d\ude00"', "ü😀"),
        Form('""', "", "empty string"),
        Form("5", None, "string as a number"),
        Form("true", None, "string as a boolean"),
        Form('{"a": 1}', None, "string as an object"),
        Form(r'"a\ud800"', None, "lone surrogate"),
        Form(r'"a\u0000"', "a\0", "NUL in a string"),
    ],
    "bytes": [
        *[Form(json.dumps(text), text) for text in ("aGk=", "AAEC", "/+8=")],
        Form('""', "", "empty bytes"),
        *_texts(
            base64_of_the_URL_alphabet="_-8=", base64_without_padding="aGk", base64_with_wrong_characters="a*b=",
            base64_with_too_much_padding="aGk==", base64_with_a_blank="aG k=", base64_of_one_character="a",
            base64_of_both_alphabets="_+8=", base64_with_bits_beyond_its_end="aGl=",
        ),
        Form(r'"aGVs\nbG8="', "aGVs\nbG8=", "base64 with line breaks"),
        Form("[1, 2]", None, "bytes as a list"),
    ],
    "bool": [
        *_plain(True, False),
        Form('"true"', None, "boolean as a string"),
        Form("1", None, "boolean as a number"),
        *[Form(None, text, f"boolean written {text}") for text in ("1", "0", "True", "TRUE", "t", "yes")],
    ],
    "int32": _integers("int32", -(2**31), 2**31 - 1),
    "uint32": _integers("uint32", 0, 2**32 - 1),
    "int64": _integers("int64", -(2**63), 2**63 - 1),
    "uint64": _integers("uint64", 0, 2**64 - 1),
    "double": _floats(is_single=False),
    "float": _floats(is_single=True),
    "google.protobuf.Timestamp": [
        *_plain(
            "2026-11-20T10:11:12Z", "2026-11-20T10:11:12.345Z", "2026-11-20T10:11:12.345678Z", "1969-12-31T23:59:59.5Z",
            "2026-11-20T10:11:12.123456789Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z",
            "2026-11-20T10:11:12+02:00", "2026-11-20T10:11:12.5-09:30", "2024-02-29T00:00:00Z",
        ),
        *_texts(
            time_without_a_zone="2026-11-20T10:11:12", time_with_t_and_z="2026-11-20t10:11:12z",
            time_with_a_blank="2026-11-20 10:11:12Z", time_in_the_year_0="0000-01-01T00:00:00Z",
            time_in_the_year_10000="10000-01-01T00:00:00Z", time_with_ten_digits="2026-11-20T10:11:12.1234567891Z",
            time_of_a_day="2026-11-20", time_with_a_leap_second="2016-12-31T23:59:60Z",
            time_of_no_day="2026-02-30T00:00:00Z", time_of_hour_24="2026-11-20T24:00:00Z",
            time_with_a_zone_of_24_hours="2026-11-20T10:11:12+24:00",
            time_with_a_zone_before_year_1="0001-01-01T00:00:00+01:00",
            time_with_a_zone_without_colon="2026-11-20T10:11:12+0200", time_with_a_comma="2026-11-20T10:11:12,5Z",
            time_as_a_word="now",
        ),
        Form("1795168800", "1795168800", "time as a number"),
    ],
    "google.protobuf.Duration": [
        *_plain("1.5s", "0s", "-3s", "3600s", "-0.000000001s", "9000000000s"),
        Form('"315576000000s"', None),
        Form(None, "315576000000s", "duration of 10,000 years"),
        *_texts(
            duration_without_unit="15", duration_with_ten_digits="1.0123456789s", duration_of_Go="1h30m",
            duration_in_ms="15ms", duration_with_a_plus="+1s", duration_too_long="315576000001s",
            duration_beyond_by_nanoseconds="315576000000.5s",
            duration_without_zero=".5s", duration_with_a_bare_point="1.s", duration_with_a_blank="1 s",
        ),
        Form("15", None, "duration as a number"),
    ],
    "google.protobuf.FieldMask": [
        *_plain("text", "text,flag"),
        Form('"child.maybeText"', None),
        Form(None, "child.maybeText", "mask in camelCase"),
        *_texts(
            mask_with_an_underscore="child.maybe_text", mask_with_an_empty_path="text,,flag", empty_mask="",
            mask_with_a_blank="text, flag", mask_of_unknown_fields="nothing.there", mask_of_everything="*",
        ),
        Form('["text"]', None, "mask as a list"),
    ],
    "google.protobuf.Struct": [
        *[Form(text, None) for text in ("{}", '{"a": 1}', '{"a": {"b": [true, null, "c"]}}')],
        Form('"a"', None, "struct as a string"),
        Form("[1]", None, "struct as a list"),
        Form(None, '{"a": 1}', "struct in a query"),
    ],
    "google.protobuf.Value": [
        *[Form(text, None) for text in ("null", "1.5", '"a"', "false", '{"a": [1]}', "[1, null]")],
        Form('"NaN"', None),
        Form(None, "1.5", "value in a query"),
    ],
    "google.protobuf.ListValue": [
        *[Form(text, None) for text in ("[]", '[1, "a", null]')],
        Form('"a"', None, "list as a string"),
    ],
}  # fmt: skip
"""By kind of field, or by the name of a well-known type."""

_KINDS: Final = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_SINT32: "int32",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
}
_WRAPPERS: Final = "google.protobuf."


def forms(field: FieldDescriptor) -> list[Form]:
    """The forms of one value of a field; empty for a message of fields."""
    if field.enum_type is not None:
        return _enum_forms(field)
    if field.message_type is None:
        return FORMS[_KINDS[field.type]]
    name = field.message_type.full_name
    return _inner_forms(field.message_type) if is_wrapper(field.message_type) else FORMS.get(name, [])


def is_wrapper(message: Descriptor) -> bool:
    name: str = message.full_name
    return name.startswith(_WRAPPERS) and name.endswith("Value") and "value" in message.fields_by_name


def _inner_forms(wrapper: Descriptor) -> list[Form]:
    return [*forms(wrapper.fields_by_name["value"]), Form("null", None)]


def _enum_forms(field: FieldDescriptor) -> list[Form]:
    assert field.enum_type is not None
    if field.enum_type.full_name == "google.protobuf.NullValue":
        return [Form("null", None)]
    values = field.enum_type.values
    name = values[-1].name
    return [
        *[Form(json.dumps(value.name), value.name) for value in values[:4]],
        *[Form(str(value.number), str(value.number)) for value in values[:4]],
        Form(json.dumps(name.lower()), name.lower(), "enum in lower case"),
        Form('"NONE_OF_THEM"', "NONE_OF_THEM", "unknown name of an enum"),
        Form("9999", "9999", "unknown number of an enum"),
        Form("-1", "-1", "unknown number of an enum"),
        Form(json.dumps(str(values[-1].number)), None, "number of an enum in quotes"),
        Form("1.5", "1.5", "enum with a fraction"),
        Form("true", None, "enum as a boolean"),
    ]


@cache
def _possible(field: FieldDescriptor, as_text: bool) -> tuple[list[Form], list[Form]]:
    """The plain and the odd forms of a field."""
    possible = [form for form in forms(field) if (form.text if as_text else form.json) is not None]
    return [form for form in possible if not form.oddity], [form for form in possible if form.oddity]


class Choice:
    """Chooses forms for one case: at most one oddity, which explains all differences of the case."""

    def __init__(self, rng: random.Random, *, odd: bool) -> None:
        self.rng = rng
        self._odd = odd
        self.oddity = ""

    def wants_oddity(self, chance: float) -> bool:
        return self._odd and not self.oddity and self.rng.random() < chance

    def form(self, field: FieldDescriptor, *, as_text: bool) -> Form | None:
        """A form of one value; None if a path or query cannot have the field."""
        plain, odd = _possible(field, as_text)
        if odd and self.wants_oddity(0.5):
            chosen = self.rng.choice(odd)
            self.oddity = f"{chosen.oddity}, in {'text' if as_text else 'JSON'}"
            return chosen
        return self.rng.choice(plain) if plain else None
