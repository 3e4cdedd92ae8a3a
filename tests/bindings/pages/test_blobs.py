"""Links to large parts, from the answer that gives them to the bytes."""

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
async def giver(turn: Turn) -> Any:
    return file(CONTENT, name='a "file"; ü.html', media_type=turn.text)


@asynccontextmanager
async def served(tmp_path: Path, **settings: Any) -> AsyncIterator[str]:
    given = {"store": f"sqlite:///{tmp_path}/t.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **settings}
    async with open_app(Settings(**given), [giver]) as app:
        yield f"http://{app.http}"


async def requested(http: aiohttp.ClientSession, base: str, media_type: str = "text/html") -> dict[str, Any]:
    """The part that a task gives."""
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": media_type}]}}
    async with http.post(f"{base}/message:send", json=body, headers={"A2A-Version": "1.0"}) as response:
        task = (await response.json())["task"]
    async with http.get(f"{base}/tasks/{task['id']}", headers={"A2A-Version": "1.0"}) as response:
        read = await response.json()
    part: dict[str, Any] = read["artifacts"][0]["parts"][0]
    return part


def changed(url: str, **query: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), **query})))


async def test_a_link_gives_the_bytes_and_says_what_they_are(tmp_path: Path) -> None:
    async with served(tmp_path, inline_bytes=0) as base, aiohttp.ClientSession() as http:
        part = await requested(http, base)
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


async def test_an_answer_holds_the_bytes_up_to_the_limit(tmp_path: Path) -> None:
    async with served(tmp_path) as base, aiohttp.ClientSession() as http:
        part = await requested(http, base)
        assert set(part) == {"raw", "filename", "mediaType"}


async def test_links_begin_with_the_public_address(tmp_path: Path) -> None:
    public = "https://example.com/agents"
    async with served(tmp_path, inline_bytes=0, public_url=public) as base, aiohttp.ClientSession() as http:
        assert (await requested(http, base))["url"].startswith(f"{public}/blobs/")


@pytest.mark.parametrize("media_type", ["text/html\r\nX-Evil: yes", "nonsense", "a/b, c/d"])
async def test_a_media_type_that_is_none_is_not_repeated(tmp_path: Path, media_type: str) -> None:
    async with served(tmp_path, inline_bytes=0) as base, aiohttp.ClientSession() as http:
        part = await requested(http, base, media_type)
        async with http.get(part["url"]) as response:
            assert response.headers["Content-Type"] == "application/octet-stream"
            assert "X-Evil" not in response.headers


async def test_a_link_that_was_changed_gives_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, inline_bytes=0) as base, aiohttp.ClientSession() as http:
        url = (await requested(http, base))["url"]
        for wrong in (
            changed(url, expires="99999999999"),
            changed(url, type="text/plain"),
            changed(url, filename="other"),
            changed(url, signature="0" * 64),
            changed(url, signature="ü"),
            url.partition("?")[0],
        ):
            async with http.get(wrong) as response:
                assert response.status == 403
                assert "expired" in await response.text()
                assert response.headers["Cache-Control"] == "no-store"


async def test_bytes_that_are_gone_are_not_found(tmp_path: Path) -> None:
    async with served(tmp_path, inline_bytes=0) as base, aiohttp.ClientSession() as http:
        url = (await requested(http, base))["url"]
        for blob in (tmp_path / "t.db.blobs").glob("*/*"):
            blob.unlink()
        async with http.get(url) as response:
            assert response.status == 404
        for path in ("/blobs/../t.db", "/blobs/short", f"/blobs/{'A' * 64}"):
            async with http.get(base + path) as response:
                assert response.status == 404
