"""Downloads the large contents that an agent's responses hold as links, because these links expire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dragoman.calling.errors import ProtocolError, ServerUnavailable
from dragoman.calling.transport import HttpClient, TransportLimits
from dragoman.calling.transport_http import read_body
from dragoman.wire.content_links import ContentLink, content_links
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class LinkedContents:
    """The contents behind the links of one agent.

    A response may have as many bytes with its contents as without, so a turn needs no more memory for them.
    """

    def __init__(
        self, addresses: Iterable[str], http: HttpClient, headers: Mapping[str, str], limits: TransportLimits
    ) -> None:
        """addresses: the HTTP URLs of its card and interfaces, the only servers that are called. headers: sent with
        each download."""
        self.addresses = tuple(addresses)
        self._http = http
        self._headers = headers
        self._limits = limits

    def are_in(self, event: pb.StreamResponse) -> bool:
        """Whether an event has links to contents."""
        return bool(self._links(event))

    async def download(self, event: pb.StreamResponse) -> None:
        """Replaces the links in an event by their contents.

        Raises ServerUnavailable for a content that cannot be read now, ProtocolError for an event that is too long or
        a text that is not UTF-8, and CallForbidden.
        """
        for link in self._links(event):
            content = await self._read(link, event.ByteSize())
            try:
                link.part.CopyFrom(link.restore(content))
            except UnicodeDecodeError:
                raise ProtocolError("a text behind a link is not UTF-8") from None

    def _links(self, event: pb.StreamResponse) -> Sequence[ContentLink]:
        # The history is not written: our task has its own.
        responses = (event.task.status, *event.task.artifacts) if event.HasField("task") else (event,)
        return [link for response in responses for link in content_links(response, self.addresses)]

    async def _read(self, link: ContentLink, used_bytes: int) -> bytes:
        """The content of a link in an event that has `used_bytes` already."""
        limits, max_bytes = self._limits, None
        if limits.max_response_bytes is not None:
            max_bytes = limits.max_response_bytes - used_bytes
        timeout = limits.response_timeout
        async with self._http.open("GET", link.url, self._headers, idle_timeout=timeout) as response:
            if response.status != 200:
                raise ServerUnavailable.for_reason(f"its link responded with status {response.status}")
            try:
                content = await read_body(response, "its link", max_bytes, limits.blocking_timeout)
            except ProtocolError:
                text = f"a response is longer than {limits.max_response_bytes} bytes with its large contents"
                raise ProtocolError(text) from None
        if link.size not in (None, len(content)):
            raise ServerUnavailable.for_reason(f"its link responded with {len(content)} of {link.size} bytes")
        return content
