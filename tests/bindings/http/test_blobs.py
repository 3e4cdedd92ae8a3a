"""Links to large parts: in responses, and what they download."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import aiohttp
import pytest

from dragoman import Turn, agent
from dragoman.settings.settings import Settings
from dragoman.types import file
from dragoman.wiring.app import open_app

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
    async with serve(tmp_path, inline_bytes=0, public_url=public) as base, aiohttp.ClientSession() as http:
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
