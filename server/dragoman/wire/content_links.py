"""Recognizes links to contents of parts that a Dragoman server left out of a response, and signed.

Such a link has the path `/blobs/NAME`, where NAME is a digest or the place of a content, and a query with `expires`
and a `signature` of 64 hexadecimal digits. It counts only if it leads to the server that sent it: agents may link to
files anywhere. The link itself is the credential: whoever fetches it sends no other.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from google.protobuf.message import Message

from dragoman.core.net.addresses import is_loopback_host
from dragoman.core.net.targets import DEFAULT_PORTS
from dragoman.core.task.blob_references import BLOB_NAME, TEXT_MEDIA_TYPE, text_type
from dragoman.core.task.contents import StoredContent
from dragoman.wire.dialects.parts import find_parts
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_PATH: Final = "/blobs/"
_QUERY_FIELDS: Final = frozenset({"expires", "filename", "type", "signature"})
_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ContentLink:
    """A link of the server that sent it, to the content of a part."""

    part: pb.Part  # the part as it was received, with the link
    url: str
    """The URL to fetch. Its host is one of the server's."""
    size: int | None  # bytes of the content; None if the link does not say it

    @property
    def is_text(self) -> bool:
        """Whether the part was text; otherwise it had bytes."""
        served, stated = _query(urlsplit(self.part.url)).get("type", ""), self.part.media_type
        if served == stated:  # a media type with a charset: of a text, or of a file
            return "charset" in stated.lower() and not self.part.filename
        return served == text_type(stated)

    def restore(self, content: bytes) -> pb.Part:
        """The part with its content instead of the link. Raises UnicodeDecodeError for a text that is not UTF-8."""
        part = pb.Part()
        part.CopyFrom(self.part)
        if self.is_text:
            part.text = content.decode()
            if part.media_type == TEXT_MEDIA_TYPE:  # the server's, of a text without one
                part.media_type = ""
        else:
            part.raw = content
        return part


def content_link(part: pb.Part, addresses: Collection[str]) -> ContentLink | None:
    """The content that a part links to, if the link is one of the server with these addresses.

    `addresses`: http(s) URLs that name the server, and grpc(s) URLs, of which only the host counts. A link to loopback
    is fetched from the server's own address: servers that were not told their public address link to it.
    """
    if part.WhichOneof("content") != "url" or _PATH not in part.url:
        return None
    try:
        link = urlsplit(part.url)
        url = _server_url(link, addresses)
        query = _query(link)
    except ValueError:
        return None
    name = link.path.rpartition(_PATH)[2]
    stored = StoredContent.parse(name)
    if stored is None and not BLOB_NAME.fullmatch(name):
        return None
    if url is None or link.fragment or not query.get("expires", "").isdecimal():
        return None
    if not _SIGNATURE.fullmatch(query.get("signature", "")):
        return None
    return ContentLink(part, url, None if stored is None else stored.size)


def content_links(response: Message, addresses: Collection[str]) -> list[ContentLink]:
    """The links of a response, a task, a message or an event to contents of the server with these addresses."""
    links = (content_link(part, addresses) for _, part in find_parts(response))
    return [link for link in links if link is not None]


def _query(link: SplitResult) -> dict[str, str]:
    """The query of a link of ours; empty for any other query."""
    fields = parse_qs(link.query)
    if not fields.keys() <= _QUERY_FIELDS or any(len(values) != 1 for values in fields.values()):
        return {}
    return {name: values[0] for name, values in fields.items()}


def _server_url(link: SplitResult, addresses: Collection[str]) -> str | None:
    """The URL at which a server with these addresses has a link; None for a link to another server."""
    if link.scheme not in DEFAULT_PORTS or not link.hostname or "@" in link.netloc:
        return None
    servers = [urlsplit(address) for address in addresses]
    http = [server for server in servers if server.scheme in DEFAULT_PORTS]
    if any(_origin(server) == _origin(link) for server in http):
        return link.geturl()
    if is_loopback_host(link.hostname):
        if http:
            return link._replace(scheme=http[0].scheme, netloc=http[0].netloc.rpartition("@")[2]).geturl()
        port = f":{link.port}" if link.port else ""
        for server in servers:
            host = f"[{server.hostname}]" if ":" in (server.hostname or "") else server.hostname
            return link._replace(netloc=f"{host}{port}").geturl()
    for server in servers:
        if server.hostname == link.hostname and (server.scheme, link.scheme) != ("grpcs", "http"):
            return link.geturl() if server not in http else None
    return None


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or DEFAULT_PORTS[url.scheme]
