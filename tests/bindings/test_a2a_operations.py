"""The operations of A2A: their kinds, and the older method names of JSON-RPC that call them."""

from __future__ import annotations

from typing import Final

import pytest

from dragoman.bindings import a2a_operations
from dragoman.bindings.a2a_operations import (
    MESSAGE_METHODS,
    OLD_PUSH_METHODS,
    PUSH_METHODS,
    TASK_METHODS,
    A2AOperation,
)

EVERY: Final = {name: value for name, value in vars(a2a_operations).items() if isinstance(value, A2AOperation)}


def test_only_the_public_card_shows_the_card_of_an_agent() -> None:
    assert [name for name, operation in EVERY.items() if operation.shows_card] == ["PUBLIC_CARD"]


def test_only_cards_have_no_operation_of_the_runtime() -> None:
    assert {name for name, operation in EVERY.items() if operation.operation is None} == {
        "EXTENDED_CARD",
        "PUBLIC_CARD",
    }


def test_streaming_operations_answer_with_stream_responses() -> None:
    for name, operation in EVERY.items():
        assert operation.streaming == (operation.response.DESCRIPTOR.name == "StreamResponse"), name


@pytest.mark.parametrize("methods", [MESSAGE_METHODS, OLD_PUSH_METHODS, PUSH_METHODS, TASK_METHODS])
def test_older_names_call_operations_that_the_runtime_has(methods: dict[str, A2AOperation]) -> None:
    for name, operation in methods.items():
        assert operation in EVERY.values(), name
