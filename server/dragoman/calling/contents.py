"""Fetches contents that a server left out of a response, and puts them into its parts.

The links are their own credentials, so requests have none. A response is whole or fails: a content that cannot be read
raises ClientError.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from dragoman.calling.errors import ClientError, ProtocolError, ServerUnavailable
from dragoman.calling.transport import HttpClient, HttpResponse
from dragoman.wire.content_links import ContentLink
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_CONTENT_BYTES: Final = (1 << 31) - 1  # of one part that protobuf can hold
MAX_REASON_BYTES: Final = 500


class ContentAbsent(ClientError):
    """The link has expired, or the content was replaced or deleted since the response. Reading the task again helps."""

    def __init__(self, message: str) -> None:
        super().__init__("DATA_LOSS", message)


async def content_chunks(
    http: HttpClient, link: ContentLink, *, limit: int = MAX_CONTENT_BYTES, idle_timeout: float | None = None
) -> AsyncGenerator[bytes, None]:
    """Yields a content as it arrives. limit: bytes of the content. Raises ContentAbsent, ProtocolError for a content
    that is longer than the limit or not as long as its link says, and the errors of `http`."""
    address = link.url.partition("?")[0]
    if (link.size or 0) > limit:
        raise ProtocolError(f"{address}: the content has {link.size} bytes; at most {limit} are read")
    received = 0
    try:
        async with http.open("GET", link.url, {}, idle_timeout=idle_timeout) as response:
            if response.status != 200:
                raise await _refusal(address, response)
            async for chunk in response.chunks():
                received += len(chunk)
                if received > limit:
                    raise ProtocolError(f"{address}: the content is longer than {limit} bytes")
                yield chunk
    except ServerUnavailable as error:
        # The call that returned the link has arrived, whatever became of this request.
        reason = f"a content of the response could not be read from {address}: {error.message}"
        raise ServerUnavailable.for_reason(reason) from error
    if link.size is not None and received != link.size:
        raise ProtocolError(f"{address}: the content has {received} bytes instead of {link.size}")


async def read_part(link: ContentLink, chunks: AsyncGenerator[bytes, None]) -> pb.Part:
    """The part of a link with its content, read whole. Raises ClientError."""
    content = bytearray()
    async with aclosing(chunks):
        async for chunk in chunks:
            content += chunk
    try:
        return link.restore(bytes(content))
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{link.url.partition('?')[0]}: the content is not UTF-8") from error


async def _refusal(address: str, response: HttpResponse) -> ClientError:
    reason = bytearray()
    async for chunk in response.chunks():
        reason += chunk
        if len(reason) > MAX_REASON_BYTES:
            break
    text = reason[:MAX_REASON_BYTES].decode(errors="replace").strip()
    message = f"a content of the response could not be read: {address} responded with {response.status}: {text}"
    if response.status in (403, 404):
        return ContentAbsent(message)
    if response.status in (429, 502, 503, 504):
        return ServerUnavailable.for_reason(message)
    return ProtocolError(message)
