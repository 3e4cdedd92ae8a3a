"""The body of an HTTP request: read no further than it may be large, and only if it is JSON."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import HttpVersion11, web

from dragoman.bindings import connections
from dragoman.core.errors import ContentTypeNotSupported, InvalidRequest, PayloadTooLarge
from dragoman.wire import body_scan

_JSON: Final = re.compile(r"\s*application/([a-z0-9!#$&^_.+-]+\+)?json\s*(;.*)?", re.IGNORECASE)

_SLACK: Final = 1024 * 1024
"""Room for keys and punctuation around the payload."""

_WITHOUT: Final = frozenset({"GET", "HEAD", "DELETE"})
"""Methods whose body means nothing (RFC 9110 §9.3): it is not looked at."""


def cap(message_bytes: int) -> int:
    """The largest HTTP body: what base64 makes of a message of the decoded limit, and some room."""
    return message_bytes * 4 // 3 + _SLACK


async def read(request: web.BaseRequest, message_bytes: int, *, lossy_numbers: bool = False) -> object:
    """The JSON value of the body, None when there is no body.

    Raises ContentTypeNotSupported, PayloadTooLarge, ParseError, and InvalidParams for JSON that two readers could
    understand differently.
    """
    if request.method in _WITHOUT or not request.can_read_body:
        return None
    given = request.headers.get("Content-Type", "")
    if given and not _JSON.fullmatch(given):
        raise ContentTypeNotSupported(
            f'Content-Type: "{given[:100]}" is not supported; use application/json',
            metadata={"field": "Content-Type", "accepted": "application/json, application/a2a+json"},
        )
    data = await _read(request, cap(message_bytes))
    return body_scan.loads(data, lossy_numbers=lossy_numbers) if data else None


async def _read(request: web.BaseRequest, limit: int) -> bytes:
    """Raises PayloadTooLarge as soon as it is certain, without reading on."""
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= HttpVersion11:
        # Only now, so that a client that asks first never sends what would be refused.
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    budget = connections.budget(request) if not request.content.is_eof() else None
    if budget is None and request.content.exception() is None:  # all of it is here
        data = request.content.read_nowait()
        if len(data) > limit:
            raise _too_large(limit)
        return data
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.content.iter_any():
            if budget is not None:
                budget.take(len(chunk))
            size += len(chunk)
            if size > limit:
                if "Content-Encoding" in request.headers:
                    connections.unpack_no_more(request)
                raise _too_large(limit)
            chunks.append(chunk)
    except web.RequestPayloadError as error:
        raise InvalidRequest(f"the body cannot be read: {error}") from None
    finally:
        if budget is not None:
            budget.give_back(size)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"body: at most {limit} bytes are accepted")
