"""Fetching a linked content: limits, sizes, and what a refusal becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from dragoman.calling.contents import MAX_CONTENT_BYTES, ContentAbsent, content_chunks, read_part
from dragoman.calling.errors import ClientError, ProtocolError, ServerUnavailable
from dragoman.wire.content_links import ContentLink
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

URL = "https://a.example/blobs/x?expires=1"


class Response:
    """Implements `HttpResponse`."""

    headers: Mapping[str, str] = {}

    def __init__(self, status: int, *chunks: bytes) -> None:
        self.status = status
        self._chunks = chunks

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


class Http:
    """Implements `HttpClient`: one response, or a failure to connect."""

    def __init__(self, response: Response | None) -> None:
        self._response = response

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        idle_timeout: float | None,
    ) -> AsyncIterator[Response]:
        assert (method, url, headers, body) == ("GET", URL, {}, None)
        if self._response is None:
            raise ServerUnavailable.for_reason("no connection", may_have_arrived=False)
        yield self._response

    async def close(self) -> None:
        """Does nothing."""


async def read(response: Response | None, *, size: int | None = None, limit: int = MAX_CONTENT_BYTES) -> bytes:
    link = ContentLink(pb.Part(url=URL), URL, size)
    return (await read_part(link, content_chunks(Http(response), link, limit=limit))).raw


async def test_a_content_is_read_up_to_its_limit() -> None:
    assert await read(Response(200, b"ab", b"cd"), size=4, limit=4) == b"abcd"
    assert await read(Response(200, b"ab", b"cd")) == b"abcd"
    assert await read(Response(200)) == b""


@pytest.mark.parametrize(
    ("size", "limit", "problem"),
    [
        (5, 4, "the content has 5 bytes; at most 4 are read"),
        (None, 3, "the content is longer than 3 bytes"),
        (5, None, "the content has 4 bytes instead of 5"),
    ],
)
async def test_a_content_of_another_size_raises(size: int | None, limit: int | None, problem: str) -> None:
    with pytest.raises(ProtocolError, match=f"https://a.example/blobs/x: {problem}$"):
        await read(Response(200, b"ab", b"cd"), size=size, limit=limit or MAX_CONTENT_BYTES)


@pytest.mark.parametrize(
    ("status", "error"),
    [(403, ContentAbsent), (404, ContentAbsent), (429, ServerUnavailable), (503, ServerUnavailable)]
    + [(status, ProtocolError) for status in (204, 206, 302, 401, 500)],
)
async def test_a_refusal_names_the_place_the_status_and_the_reason(status: int, error: type[ClientError]) -> None:
    with pytest.raises(error, match=rf"https://a.example/blobs/x responded with {status}: why$") as raised:
        await read(Response(status, b"why\n"))
    assert type(raised.value) is error
    assert "expires" not in raised.value.message


async def test_a_server_that_cannot_be_reached_has_received_the_call_that_linked() -> None:
    with pytest.raises(
        ServerUnavailable, match=r"could not be read from https://a\.example/blobs/x: no conn"
    ) as raised:
        await read(None)
    assert raised.value.may_have_arrived
