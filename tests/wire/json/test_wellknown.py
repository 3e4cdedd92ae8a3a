from datetime import UTC, datetime, timedelta, timezone

import pytest
from google.protobuf import struct_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from dragoman.wire.json.wellknown import (
    FieldError,
    decode_bytes,
    decode_timestamp,
    encode_bytes,
    encode_struct,
    encode_timestamp,
)

Timestamp = timestamp_pb2.Timestamp


def read(text: object) -> Timestamp:
    message = Timestamp()
    decode_timestamp(message, text)
    return message


@pytest.mark.parametrize(
    ("seconds", "nanos", "text"),
    [
        (0, 0, "1970-01-01T00:00:00Z"),
        (1, 5_000_000, "1970-01-01T00:00:01.005Z"),
        (1, 5_000, "1970-01-01T00:00:01.000005Z"),
        (-1, 5, "1969-12-31T23:59:59.000000005Z"),
        (-62135596800, 0, "0001-01-01T00:00:00Z"),
        (253402300799, 999_999_999, "9999-12-31T23:59:59.999999999Z"),
    ],
)
def test_a_time_has_no_three_six_or_nine_fraction_digits(seconds: int, nanos: int, text: str) -> None:
    message = Timestamp(seconds=seconds, nanos=nanos)
    assert encode_timestamp(message) == text == message.ToJsonString()
    assert read(text) == message


@pytest.mark.parametrize(("seconds", "nanos"), [(-62135596801, 0), (253402300800, 0), (0, -1), (0, 10**9)])
def test_a_time_out_of_range_cannot_be_encoded(seconds: int, nanos: int) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        encode_timestamp(Timestamp(seconds=seconds, nanos=nanos))


@pytest.mark.parametrize(
    "text",
    [
        "1970-01-01T01:00:00+01:00",
        "1969-12-31T20:30:00-03:30",
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:00.0",
        "1970-01-01t00:00:00z",
        "1970-01-01 00:00:00.000000000Z",
        "1970-01-01T00:00:00.00Z",
    ],
)
def test_offsets_missing_zones_and_any_fraction_decode_to_utc(text: str) -> None:
    assert read(text) == Timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        0,
        None,
        "1970-01-01",
        "1970-13-01T00:00:00Z",
        "1970-02-30T00:00:00Z",
        "1970-02-30T00:00:00.5Z",
        "1970-01-01T24:00:00Z",
        "1970-01-01T00:00:60Z",
        "1970-01-01T00:00:00.1234567890Z",
        "1970-01-01T00:00:00.Z",
        "1970-01-01T00:00:00+24:00",
        "1970-01-01T00:00:00+01:60",
        "1970-01-01T00:00:00+01:00Z",
        "1970-01-01T00:00:00.12+01Z",
        "1970-01-01T00:00:00-010000Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "١٩٧٠-01-01T00:00:00Z",
        " 1970-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z\n",
    ],
)
def test_an_invalid_time_is_rejected(text: object) -> None:
    with pytest.raises(FieldError, match="RFC 3339"):
        read(text)


ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES | st.just(UTC)))
def test_offsets_are_equivalent_to_datetime(moment: datetime) -> None:
    expected = Timestamp()
    expected.FromDatetime(moment)
    assert read(moment.isoformat()) == expected
    assert read(encode_timestamp(expected)) == expected


@given(st.text("0123456789-:.TZ+, W", max_size=30) | st.from_regex(r"\A\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d.{0,8}Z\Z"))
def test_accepted_times_are_equivalent_to_json_format(text: str) -> None:
    try:
        ours = read(text)
    except FieldError:
        return
    theirs = Timestamp()
    theirs.FromJsonString(text.replace(" ", "T") + ("" if text[-1] == "Z" or "+" in text or "-" in text[10:] else "Z"))
    assert ours == theirs


@given(st.binary(max_size=50), st.booleans(), st.booleans())
def test_bytes_are_decoded_in_either_alphabet_with_or_without_padding(
    data: bytes, url_safe: bool, padded: bool
) -> None:
    text = encode_bytes(data)
    if url_safe:
        text = text.replace("+", "-").replace("/", "_")
    if not padded:
        text = text.rstrip("=")
    assert decode_bytes(text) == data


@pytest.mark.parametrize("text", ["YW\r\nJj\r\n", "YW\nJ\nj", "Y\n-\n_-"])
def test_line_breaks_in_base64_are_skipped(text: str) -> None:
    assert decode_bytes(text) == decode_bytes("".join(text.split()))


@pytest.mark.parametrize("text", ["a", "YW=Jj", "YWJj====", "YW Jj", "YWJj\t", "%%%%", "é", "YWJjé", "=", 5, b"YWJj"])
def test_invalid_base64_is_rejected(text: object) -> None:
    with pytest.raises(FieldError, match="base64"):
        decode_bytes(text)


def test_the_keys_of_an_object_are_sorted() -> None:
    """Protobuf orders a map differently in each process, and with enough keys never alphabetically."""
    keys = [f"key-{number:02}" for number in range(40)]
    message = struct_pb2.Struct()
    message.update({key: {"b": 1, "a": 2} for key in reversed(keys)})
    found = encode_struct(message)
    assert list(found) == keys
    assert all(list(value) == ["a", "b"] for value in found.values() if isinstance(value, dict))
