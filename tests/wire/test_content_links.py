"""Which links of parts are the server's own, and what the parts become."""

from __future__ import annotations

import pytest

from dragoman.core.task.blob_references import blob_link_query, text_type
from dragoman.core.task.contents import StoredContent
from dragoman.wire.content_links import ContentLink, content_link
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NAME = StoredContent(1, bytes(16), 3, 0, 300_000, "output").name
SERVER = "http://127.0.0.1:8080"


def link_part(base: str = SERVER, name: str = NAME, *, media_type: str = "text/plain", text: bool = True) -> pb.Part:
    query = blob_link_query(b"secret", name, 2_000_000_000, "", text_type(media_type) if text else media_type)
    return pb.Part(url=f"{base}/blobs/{name}?{query}", media_type=media_type)


def recognized(part: pb.Part, *addresses: str) -> ContentLink:
    link = content_link(part, addresses)
    assert link is not None
    return link


@pytest.mark.parametrize("name", [NAME, "ab" * 32])
@pytest.mark.parametrize(
    ("base", "address", "fetched_from"),
    [
        (SERVER, f"{SERVER}/agent", SERVER),
        ("https://agents.example", "https://agents.example:443/x", "https://agents.example"),
        ("https://agents.example/prefix", "https://agents.example/prefix/agent", "https://agents.example/prefix"),
        ("http://127.0.0.1:8080", "http://localhost:8080", "http://localhost:8080"),
        ("http://localhost:8080", "http://10.0.0.5:8080/agent", "http://10.0.0.5:8080"),
        ("http://localhost:8080", "https://agents.example", "https://agents.example"),
        ("https://agents.example", "grpcs://agents.example:9090", "https://agents.example"),
        ("http://localhost:8080", "grpc://10.0.0.5:9090", "http://10.0.0.5:8080"),
        ("http://[::1]:8080", "grpc://[fd00::1]:9090", "http://[fd00::1]:8080"),
    ],
)
def test_a_link_of_the_server_is_fetched_from_it(name: str, base: str, address: str, fetched_from: str) -> None:
    assert recognized(link_part(base, name), address).url.startswith(f"{fetched_from}/blobs/{name}?expires=")


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("https://elsewhere.example", "https://agents.example"),
        ("https://agents.example:8443", "https://agents.example"),
        ("http://agents.example", "https://agents.example"),
        ("http://agents.example", "grpcs://agents.example:9090"),
        ("https://elsewhere.example", "grpcs://agents.example:9090"),
        ("https://user@agents.example", "https://agents.example"),
        ("ftp://agents.example", "https://agents.example"),
        ("http://127.0.0.1:99999999", "http://127.0.0.1:8080"),
    ],
)
def test_a_link_to_another_server_is_none(base: str, address: str) -> None:
    assert content_link(link_part(base), [address]) is None


@pytest.mark.parametrize(
    "url",
    [
        f"{SERVER}/blobs/report.pdf?expires=1&signature={'a' * 64}",
        f"{SERVER}/blobs/{NAME}",
        f"{SERVER}/blobs/{NAME}?expires=1",
        f"{SERVER}/blobs/{NAME}?expires=soon&signature={'a' * 64}",
        f"{SERVER}/blobs/{NAME}?expires=1&signature=abc",
        f"{SERVER}/blobs/{NAME}?expires=1&signature={'a' * 64}&more=1",
        f"{SERVER}/blobs/{NAME}?expires=1&expires=2&signature={'a' * 64}",
        f"{SERVER}/files/{NAME}?expires=1&signature={'a' * 64}",
    ],
)
def test_a_link_of_an_agent_to_the_same_server_is_none(url: str) -> None:
    assert content_link(pb.Part(url=url), [SERVER]) is None


def test_parts_with_contents_are_no_links() -> None:
    assert content_link(pb.Part(text=link_part().url), [SERVER]) is None


def test_the_size_is_that_of_the_name() -> None:
    assert recognized(link_part(), SERVER).size == 300_000
    assert recognized(link_part(name="ab" * 32), SERVER).size is None


def test_a_text_becomes_text_and_loses_only_the_servers_media_type() -> None:
    assert recognized(link_part(), SERVER).restore("é".encode()) == pb.Part(text="é")
    markdown = link_part(media_type="text/markdown")
    assert recognized(markdown, SERVER).restore(b"# a") == pb.Part(text="# a", media_type="text/markdown")


def test_bytes_become_bytes_with_their_name() -> None:
    part = link_part(media_type="text/csv; charset=utf-8", text=False)
    part.filename = "a.csv"
    part.metadata["k"] = "v"
    restored = recognized(part, SERVER).restore(b"\xff")
    assert (restored.raw, restored.filename, restored.media_type) == (b"\xff", "a.csv", "text/csv; charset=utf-8")
    assert restored.metadata["k"] == "v"
    assert recognized(link_part(media_type="", text=False), SERVER).restore(b"\xff") == pb.Part(raw=b"\xff")
