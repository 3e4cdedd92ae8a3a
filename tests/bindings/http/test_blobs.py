"""Links to large parts: in responses, and what they download."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import aiohttp
import grpc
import pytest
from aiohttp.test_utils import make_mocked_request

from dragoman import Turn, agent
from dragoman.bindings.http.blobs import blob_response
from dragoman.core.task.contents import ContentMissing, ContentReader, RowData, RowSize, StoredContent
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import Blobs
from dragoman.settings.settings import Settings
from dragoman.types import file
from dragoman.wiring.app import open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc

CONTENT = bytes(range(256)) * 2048


@agent(default=True)
async def file_agent(turn: Turn) -> Any:
    return file(CONTENT, name='a "file"; ü.html', media_type=turn.text)


@asynccontextmanager
async def serve(tmp_path: Path, **settings: Any) -> AsyncIterator[str]:
    options = {"store": f"sqlite:///{tmp_path}/t.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **settings}
    async with open_app(Settings(**options), [file_agent]) as app:
        yield f"http://{app.http}"


async def produce_part(http: aiohttp.ClientSession, base: str, media_type: str = "text/html") -> dict[str, Any]:
    """Returns the part that a task produces."""
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": media_type}]}}
    async with http.post(f"{base}/message:send", json=body, headers={"A2A-Version": "1.0"}) as response:
        task = (await response.json())["task"]
    async with http.get(f"{base}/tasks/{task['id']}", headers={"A2A-Version": "1.0"}) as response:
        task = await response.json()
    part: dict[str, Any] = task["artifacts"][0]["parts"][0]
    return part


def with_query(url: str, **query: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), **query})))


@pytest.mark.parametrize(
    "media_type",
    [
        *("text/javascript", "Text/JavaScript; charset=utf-8", "application/javascript", "application/x-javascript"),
        *("text/ecmascript", "application/x-ecmascript", "text/javascript1.5", "text/jscript", "text/livescript"),
        "text/css",
    ],
)
async def test_no_page_of_the_server_loads_what_an_agent_wrote(tmp_path: Path, media_type: str) -> None:
    """Browsers refuse scripts and styles of another type, if `nosniff` says so."""
    async with serve(tmp_path, inline_bytes=1) as base, aiohttp.ClientSession() as http:
        part = await produce_part(http, base, media_type)
        assert part["mediaType"] == media_type
        async with http.get(part["url"]) as response:
            assert response.headers["Content-Type"] == "application/octet-stream"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert await response.read() == CONTENT


async def test_a_link_downloads_the_bytes_with_name_and_media_type(tmp_path: Path) -> None:
    async with serve(tmp_path, inline_bytes=0) as base, aiohttp.ClientSession() as http:
        part = await produce_part(http, base)
        assert part["url"].startswith(f"{base}/blobs/")
        async with http.get(part["url"]) as response:
            assert response.status == 200
            assert await response.read() == CONTENT
            headers: Mapping[str, str] = response.headers
        assert headers["Content-Type"] == "text/html"
        assert headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%20%22file%22%3B%20%C3%BC.html"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in headers["Content-Security-Policy"]
        async with http.get(part["url"], headers={"Range": "bytes=256-257"}) as response:
            assert (response.status, await response.read()) == (206, b"\0\1")
        async with http.head(part["url"]) as response:
            assert (response.status, response.content_length) == (200, len(CONTENT))


async def test_parts_within_the_limit_are_inline(tmp_path: Path) -> None:
    async with serve(tmp_path) as base, aiohttp.ClientSession() as http:
        part = await produce_part(http, base)
        assert set(part) == {"raw", "filename", "mediaType"}


async def test_links_begin_with_the_public_url(tmp_path: Path) -> None:
    public = "https://example.com/agents"
    async with (
        serve(tmp_path, inline_bytes=0, public_url=public, insecure=True) as base,
        aiohttp.ClientSession() as http,
    ):
        assert (await produce_part(http, base))["url"].startswith(f"{public}/blobs/")


@pytest.mark.parametrize("media_type", ["text/html\r\nX-Evil: yes", "nonsense", "a/b, c/d"])
async def test_an_invalid_media_type_is_not_sent(tmp_path: Path, media_type: str) -> None:
    async with serve(tmp_path, inline_bytes=0) as base, aiohttp.ClientSession() as http:
        part = await produce_part(http, base, media_type)
        async with http.get(part["url"]) as response:
            assert response.headers["Content-Type"] == "application/octet-stream"
            assert "X-Evil" not in response.headers


async def test_a_changed_link_is_rejected(tmp_path: Path) -> None:
    async with serve(tmp_path, inline_bytes=0) as base, aiohttp.ClientSession() as http:
        url = (await produce_part(http, base))["url"]
        for changed_url in (
            with_query(url, expires="99999999999"),
            with_query(url, type="text/plain"),
            with_query(url, filename="other"),
            with_query(url, signature="0" * 64),
            with_query(url, signature="ü"),
            url.partition("?")[0],
        ):
            async with http.get(changed_url) as response:
                assert response.status == 403
                assert "expired" in await response.text()
                assert response.headers["Cache-Control"] == "no-store"


async def test_deleted_blobs_and_invalid_paths_are_not_found(tmp_path: Path) -> None:
    async with serve(tmp_path, inline_bytes=0) as base, aiohttp.ClientSession() as http:
        url = (await produce_part(http, base))["url"]
        for blob in (tmp_path / "t.db.blobs").glob("*/*"):
            blob.unlink()
        async with http.get(url) as response:
            assert response.status == 404
        for path in ("/blobs/../t.db", "/blobs/short", f"/blobs/{'A' * 64}"):
            async with http.get(base + path) as response:
                assert response.status == 404


# Contents of rows ------------------------------------------------------------------------------------------------

TEXT = "".join(f"{number:07d}ä" for number in range(50_000))
"""More than a part that stays in a response without a limit; its characters have one or two bytes."""


@agent
async def text_agent(turn: Turn) -> AsyncIterator[str]:
    for at in range(0, len(TEXT), 1000):
        yield TEXT[at : at + 1000]


@asynccontextmanager
async def serve_text(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[str, Any]]:
    options = {"store": f"sqlite:///{tmp_path}/t.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "inline_bytes": 0}
    async with open_app(Settings(**options, **settings), [text_agent]) as app:
        yield f"http://{app.http}", app


async def test_a_streamed_text_is_downloaded_in_pieces(tmp_path: Path) -> None:
    async with serve_text(tmp_path) as (base, _), aiohttp.ClientSession() as http:
        part = await produce_part(http, base)
        assert set(part) == {"url", "mediaType"}
        assert part["mediaType"] == "text/plain"
        encoded = TEXT.encode()
        async with http.get(part["url"]) as response:
            assert (response.status, response.content_length) == (200, len(encoded))
            assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert response.headers["Content-Disposition"] == "attachment"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert "sandbox" in response.headers["Content-Security-Policy"]
            assert await response.read() == encoded
            etag = response.headers["ETag"]
        async with http.head(part["url"]) as response:
            assert (response.status, response.content_length) == (200, len(encoded))
        for value, start, end in (
            ("bytes=300000-300009", 300_000, 300_010),
            ("bytes=-5", len(encoded) - 5, len(encoded)),
            ("bytes=449990-", 449_990, len(encoded)),
        ):
            async with http.get(part["url"], headers={"Range": value, "If-Range": etag}) as response:
                assert (response.status, await response.read()) == (206, encoded[start:end])
                assert response.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(encoded)}"
        async with http.get(part["url"], headers={"Range": "bytes=0-1", "If-Range": '"other"'}) as response:
            assert (response.status, response.content_length) == (200, len(encoded))
        for value in ("bytes=9999999-", "bytes=x"):
            async with http.get(part["url"], headers={"Range": value}) as response:
                assert response.status == 416


async def test_a_changed_link_to_a_text_is_rejected(tmp_path: Path) -> None:
    async with serve_text(tmp_path) as (base, _), aiohttp.ClientSession() as http:
        url = (await produce_part(http, base))["url"]
        longer = url.replace(f"-{len(TEXT.encode())}-", f"-{len(TEXT.encode()) - 1}-")
        for changed_url in (longer, with_query(url, type="text/html"), url.partition("?")[0]):
            assert changed_url != url
            async with http.get(changed_url) as response:
                assert response.status == 403


async def test_a_text_of_an_erased_task_is_not_found(tmp_path: Path) -> None:
    async with serve_text(tmp_path) as (base, app), aiohttp.ClientSession() as http:
        url = (await produce_part(http, base))["url"]
        await app.runtime.store.erasures.erase(TaskSelection(agent="text-agent", older_than=-1, principal="anonymous"))
        async with http.get(url) as response:
            assert response.status == 404
            assert "read the task again" in await response.text()
            assert response.headers["Cache-Control"] == "no-store"


async def test_every_binding_and_list_shows_the_link(tmp_path: Path) -> None:
    async with serve_text(tmp_path) as (base, app), aiohttp.ClientSession() as http:
        await produce_part(http, base)
        shown: list[str] = []
        async with http.get(f"{base}/tasks?includeArtifacts=true", headers={"A2A-Version": "1.0"}) as response:
            (task,) = (await response.json())["tasks"]
            shown.append(task["artifacts"][0]["parts"][0]["url"])
        for method, params in (("tasks/get", {"id": task["id"]}), ("GetTask", {"id": task["id"]})):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            async with http.post(
                base, json=body, headers={"A2A-Version": "1.0"} if method == "GetTask" else {}
            ) as response:
                (part,) = (await response.json())["result"]["artifacts"][0]["parts"]
                shown.append(part["url"] if "url" in part else part["file"]["uri"])
        async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
            one = await a2a_pb2_grpc.A2AServiceStub(channel).GetTask(pb.GetTaskRequest(id=task["id"]))
            shown.append(one.artifacts[0].parts[0].url)
        for url in shown:
            async with http.get(url) as response:
                assert await response.text() == TEXT


async def test_a_text_that_is_replaced_while_it_is_sent_breaks_the_connection(tmp_path: Path) -> None:
    transport = Mock()
    request = make_mocked_request("GET", "/blobs/x?type=text/plain", transport=transport)
    content = ContentReader(StoredContent(1, bytes(16), 1, 0, 100, "out"), *replaced_after_one_row())
    blobs = SimpleNamespace(content=lambda name, query: content)
    with pytest.raises(ContentMissing):
        _ = [piece async for piece in content.pieces()]
    response = await blob_response(request, cast(Blobs, blobs), "x")
    assert response.prepared
    transport.abort.assert_called_once()


def replaced_after_one_row() -> tuple[Any, Any]:
    async def read(content: StoredContent, first: int, limit: int) -> list[RowData]:
        return [RowData(1, True, b"x" * 10)]

    async def sizes(content: StoredContent) -> list[RowSize]:
        return []

    return read, sizes
