"""Encoding of bus messages: round trips, size limits, and malformed input."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.names import Owner
from dragoman.core.task.log import Event, TaskRef
from dragoman.extensions.nats import codec
from dragoman.extensions.nats.codec import BusHeartbeat, InvalidBusMessage, Subjects
from dragoman.ports import Job, RegistryChange, TaskSignal

pytestmark = pytest.mark.long

texts = st.text(max_size=20)
refs = st.builds(TaskRef, st.builds(Owner, texts, texts), st.binary(min_size=16, max_size=16))
events = st.lists(
    st.builds(Event, st.integers(1, 2**63), st.binary(min_size=1, max_size=60), st.integers(0, 8), st.booleans())
)


@given(events, st.integers(20, 200))
def test_events_survive_a_round_trip_except_oversized_data(response: list[Event], limit: int) -> None:
    messages = list(codec.encode_events(response, limit))
    assert all(len(message) <= limit for message in messages)
    found = [event for message in messages for event in codec.decode_events(message)]
    assert [(one.sequence, one.state, one.ends) for one in found] == [
        (one.sequence, one.state, one.ends) for one in response
    ]
    for one, other in zip(found, response, strict=True):
        assert one.data in (other.data, b"")
        assert bool(one.data) == (len(other.data) + 15 <= limit)


@given(texts, refs, st.sampled_from(TaskSignal))
def test_jobs_and_signals_survive_a_round_trip(agent: str, ref: TaskRef, signal: TaskSignal) -> None:
    assert codec.decode_job(codec.encode_job(Job(agent, ref))) == Job(agent, ref)
    assert codec.decode_signal(codec.encode_signal(ref, signal)) == (ref, signal)


@given(st.sampled_from(RegistryChange), refs, st.sampled_from(TaskSignal))
def test_changes_and_signals_share_a_subject_and_are_distinguished(
    news: RegistryChange, ref: TaskRef, signal: TaskSignal
) -> None:
    assert codec.decode_change(codec.encode_change(news)) == news
    with pytest.raises(InvalidBusMessage):
        codec.decode_signal(codec.encode_change(news))
    with pytest.raises(InvalidBusMessage):
        codec.decode_change(codec.encode_signal(ref, signal))


@given(st.binary())
def test_any_message_is_decoded_or_rejected(message: bytes) -> None:
    for read in (
        codec.decode_events,
        codec.decode_job,
        codec.decode_signal,
        codec.decode_change,
        codec.decode_heartbeat,
    ):
        for one in (message, b"\x01" + message):
            try:
                read(one)
            except InvalidBusMessage:
                continue


@pytest.mark.parametrize("text", ["", "one two", "x" * 65, "a\n", "é"])
def test_names_in_a_heartbeat_are_printable(text: str) -> None:
    with pytest.raises(InvalidBusMessage):
        codec.decode_heartbeat(codec.encode_heartbeat(BusHeartbeat(text, "abc", False)))
    with pytest.raises(InvalidBusMessage):
        codec.decode_heartbeat(codec.encode_heartbeat(BusHeartbeat("abc", text, False)))


@given(refs, texts)
def test_subjects_contain_no_caller_input(ref: TaskRef, agent: str) -> None:
    subjects = Subjects("prefix", "0a")
    for subject in (subjects.events(ref), subjects.jobs(agent or "a")):
        assert re.fullmatch(r"prefix\.0a\.(event|job)\.[A-Za-z0-9_-]+", subject)
    assert subjects.events(ref) != subjects.events(TaskRef(Owner(ref.owner.scope + "x", ref.owner.principal), ref.key))
