import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.errors import ParseError, PayloadTooLarge
from dragoman.wire.http.sse import KEEP_ALIVE, SseEvent, SseParser, comment, frame


def test_a_frame_is_one_data_line_with_a_space_and_a_blank_line() -> None:
    assert frame(b'{"a":1}') == b'data: {"a":1}\n\n'


def test_id_and_event_name_come_before_the_data() -> None:
    assert frame(b"{}", id="e.t.7", event="error") == b"id: e.t.7\nevent: error\ndata: {}\n\n"


@pytest.mark.parametrize("data", [b"", b"a\nb", b"a\rb"])
def test_a_payload_that_would_break_the_framing_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        frame(data)


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b"])
def test_an_id_that_would_break_the_framing_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="id of an event"):
        frame(b"{}", id=text)


def test_comments_are_not_events() -> None:
    assert comment("hi") == b": hi\n\n"
    assert SseParser().feed(KEEP_ALIVE + comment("hi") + frame(b"1")) == [SseEvent(b"1")]


LINES = st.binary(min_size=1, max_size=20).filter(lambda data: not set(data) & set(b"\r\n"))
TEXTS = st.text(max_size=5).filter(lambda text: not set(text) & set("\r\n\0"))


@given(st.lists(st.tuples(LINES, TEXTS, TEXTS), max_size=5), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_frames_parse_back_in_chunks_of_any_size(
    items: list[tuple[bytes, str, str]], line_end: bytes, data: st.DataObject
) -> None:
    stream = b"".join(frame(payload, id=id, event=event) + KEEP_ALIVE for payload, id, event in items)
    stream = stream.replace(b"\n", line_end)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parser = SseParser()
    events = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        events += parser.feed(stream[start:end])
    assert events == [SseEvent(payload, event or "message", id) for payload, id, event in items]


def test_single_byte_chunks_are_parsed() -> None:
    parser = SseParser()
    stream = b"\xef\xbb\xbfid: 1\r\ndata: a\r\n\r\ndata:b\n\n"
    events = [event for byte in stream for event in parser.feed(bytes([byte]))]
    assert events == [SseEvent(b"a", id="1"), SseEvent(b"b", id="1")]


def test_several_data_lines_are_joined_by_line_feeds() -> None:
    assert SseParser().feed(b"data: a\ndata\ndata:  b\n\n") == [SseEvent(b"a\n\n b")]


def test_unknown_fields_and_ids_with_nul_are_skipped() -> None:
    assert SseParser().feed(b"retry: 10\nfoo: bar\nid: a\0b\ndata: x\n\n") == [SseEvent(b"x")]


def test_an_event_name_applies_to_one_event_only() -> None:
    assert SseParser().feed(b"event: a\n\nevent: b\ndata: 1\n\ndata: 2\n\n") == [SseEvent(b"1", "b"), SseEvent(b"2")]


def test_an_incomplete_event_is_dropped() -> None:
    assert SseParser().feed(b"data: 1\n") == []


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 100, b"data: aaaaaaaaaa\n" * 10, b": " + b"x" * 100])
def test_an_event_beyond_the_limit_is_rejected(stream: bytes) -> None:
    with pytest.raises(PayloadTooLarge, match="64 bytes"):
        SseParser(limit=64).feed(stream)


def test_the_limit_counts_one_event_and_not_the_stream() -> None:
    parser = SseParser(limit=64)
    for _ in range(50):
        assert parser.feed(b"data: " + b"x" * 20) == []
        assert parser.feed(b"y\n\n") == [SseEvent(b"x" * 20 + b"y")]


def test_an_id_that_is_not_utf8_is_rejected() -> None:
    with pytest.raises(ParseError, match="UTF-8"):
        SseParser().feed(b"id: \xff\n")
