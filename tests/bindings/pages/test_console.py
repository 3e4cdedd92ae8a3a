"""The console's files: there, from this server alone, held to it, and of no use to anybody without credentials."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import pytest
from tests.bindings.fake_service import FakeService, over_http

BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


async def test_the_page_and_its_files_are_served() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/console") as answer:
            assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
            text = await answer.text()
        named = [file for file in re.findall(r'(?:src|href)="([^"]+)"', text) if not file.startswith("data:")]
        assert named == ["console/console.css", "console/console.js"]
        for file, media_type in zip(named, ("text/css", "text/javascript"), strict=True):
            async with client.get(urljoin("/console", file)) as answer:
                assert (answer.status, answer.headers["Content-Type"]) == (200, f"{media_type}; charset=utf-8")
                assert len(await answer.read()) > 5_000


async def test_the_page_holds_itself_to_this_server() -> None:
    async with over_http(FakeService()) as client:
        for path in ("/console", "/console/console.js", "/console/console.css"):
            async with client.get(path) as answer:
                policy, text = answer.headers["Content-Security-Policy"], await answer.text()
                assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert answer.headers["X-Frame-Options"] == "DENY"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert not re.search(r"""(?:src|href|url\()=?["']?(?:https?:)?//|\beval\(|\son[a-z]+=["']""", text), path


async def test_a_browser_that_knows_a_file_does_not_get_it_again() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/console/console.js") as answer:
            assert answer.headers["Cache-Control"] == "no-cache"
            tag = answer.headers["ETag"]
        for named, status in ((tag, 304), ('"another"', 200)):
            async with client.get("/console/console.js", headers={"If-None-Match": named}) as answer:
                assert (answer.status, answer.headers["ETag"]) == (status, tag)


@pytest.mark.parametrize("name", ["index.html", "nope.js", "..%2Fconsole.py", "a/console.js"])
async def test_there_are_no_other_files(name: str) -> None:
    async with over_http(FakeService()) as client, client.get(f"/console/{name}") as answer:
        assert answer.status == 404


@pytest.mark.parametrize(("path", "to"), [("/", "console"), ("/console/", "../console")])
async def test_a_browser_is_led_to_it(path: str, to: str) -> None:
    # Relative, because a proxy may have put a path before it.
    async with over_http(FakeService()) as client, client.get(path, headers=BROWSER, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, to)
        assert urljoin(f"/behind/a/proxy{path}", to) == "/behind/a/proxy/console"
