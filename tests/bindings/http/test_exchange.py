"""What every exchange of HTTP reads from the headers."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from dragoman.bindings.http import exchange
from dragoman.core.errors import RateLimited, TaskNotFound


def test_the_version_may_be_in_headers_and_in_the_query() -> None:
    headers = CIMultiDict([("A2A-Version", "0.3"), ("a2a-version", "1.0")])
    request = make_mocked_request("GET", "/tasks?A2A-Version=1.1&x=y", headers=headers)
    assert list(exchange.named_versions(request)) == ["0.3", "1.0", "1.1"]
    assert list(exchange.named_versions(make_mocked_request("GET", "/tasks"))) == []


@pytest.mark.parametrize(("sent", "key"), [("k", "k"), ('"k"', "k"), (' "k" ', "k"), ("", "")])
def test_the_idempotency_key_may_be_quoted(sent: str, key: str) -> None:
    assert exchange.idempotency_key({"Idempotency-Key": sent}) == key


def test_a_delay_is_rounded_up_to_whole_seconds() -> None:
    assert exchange.retry_after_header(RateLimited("l: too many", limit="l", maximum=1, retry_after=1.2)) == {
        "Retry-After": "2"
    }
    assert exchange.retry_after_header(TaskNotFound()) == {}


@pytest.mark.parametrize(
    ("accept", "only_json"),
    [("application/json", True), ("application/json, text/event-stream", False), ("*/*", False), ("", False)],
)
def test_a_client_that_accepts_json_alone_reads_no_stream(accept: str, only_json: bool) -> None:
    request = make_mocked_request("POST", "/", headers=CIMultiDict({"Accept": accept}))
    assert exchange.accepts_only_json(request) is only_json
