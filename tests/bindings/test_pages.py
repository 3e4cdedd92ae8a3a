"""Pages for browsers: the console and the API documentation, their files and their content security policy."""

from __future__ import annotations

import re
import subprocess
import sys
from urllib.parse import urljoin

import pytest
from tests.bindings.fake_service import FakeService, over_http

BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


async def test_console_page_and_files_are_served() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/console") as response:
            assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
            text = await response.text()
        linked = [file for file in re.findall(r'(?:src|href)="([^"]+)"', text) if not file.startswith("data:")]
        assert [link.split("?v=")[0] for link in linked] == ["console/console.css", "console/console.js"]
        for file, media_type in zip(linked, ("text/css", "text/javascript"), strict=True):
            async with client.get(urljoin("/console", file)) as response:
                assert (response.status, response.headers["Content-Type"]) == (200, f"{media_type}; charset=utf-8")
                assert len(await response.read()) > 5_000


async def test_console_page_may_load_only_from_this_server() -> None:
    async with over_http(FakeService()) as client:
        for path in ("/console", "/console/console.js", "/console/console.css"):
            async with client.get(path) as response:
                policy, text = response.headers["Content-Security-Policy"], await response.text()
                assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert response.headers["X-Frame-Options"] == "DENY"
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Referrer-Policy"] == "no-referrer"
            assert not re.search(r"""(?:src|href|url\()=?["']?(?:https?:)?//|\beval\(|\son[a-z]+=["']""", text), path


async def test_a_cached_console_file_is_not_sent() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/console/console.js") as response:
            assert response.headers["Cache-Control"] == "no-cache"
            tag = response.headers["ETag"]
        for etag, status in ((tag, 304), ('"another"', 200)):
            async with client.get("/console/console.js", headers={"If-None-Match": etag}) as response:
                assert (response.status, response.headers["ETag"]) == (status, tag)


async def test_console_files_are_sent_compressed_and_kept_by_their_hash() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/console") as response:
            assert response.headers["Cache-Control"] == "no-cache"
            (link,) = re.findall(r'src="([^"]+)"', await response.text())
        plain = {"Accept-Encoding": "identity"}
        async with client.get(f"/{link}", headers=plain) as response:
            content, tag = await response.read(), response.headers["ETag"]
            assert "Content-Encoding" not in response.headers
            assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        async with client.get(f"/{link}", headers={"Accept-Encoding": "gzip, br"}) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            assert response.headers["Vary"] == "Accept-Encoding"
            assert response.headers["ETag"] != tag
            assert int(response.headers["Content-Length"]) < len(content) / 2
            assert await response.read() == content
        async with client.get(f"/{link}", headers={"Accept-Encoding": "br, gzip;q=0"}) as response:
            assert "Content-Encoding" not in response.headers
        # The hash of another version is not kept.
        async with client.get("/console/console.js?v=0123456789abcdef", headers=plain) as response:
            assert response.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("name", ["index.html", "nope.js", "..%2Fconsole.py", "a/console.js"])
async def test_other_console_files_are_not_found(name: str) -> None:
    async with over_http(FakeService()) as client, client.get(f"/console/{name}") as response:
        assert response.status == 404


@pytest.mark.parametrize(("path", "to"), [("/", "console"), ("/console/", "../console")])
async def test_browsers_are_redirected_to_the_console(path: str, to: str) -> None:
    # Relative, because a proxy may have put a path before it.
    async with over_http(FakeService()) as client, client.get(path, headers=BROWSER, allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (302, to)
        assert urljoin(f"/behind/a/proxy{path}", to) == "/behind/a/proxy/console"


async def test_slashes_after_the_console_are_removed() -> None:
    path = "/console///"
    async with over_http(FakeService()) as client, client.get(path, headers=BROWSER, allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (302, "../")


async def test_docs_page_and_files_are_served() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/docs") as response:
            assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
            text = await response.text()
        files = re.findall(r'(?:src|href)="([^"]+)"', text)
        assert files == ["data:,", "docs/swagger-ui.css", "docs/swagger-ui-bundle.js"]
        for file, media_type, size in ((files[1], "text/css", 100_000), (files[2], "text/javascript", 1_000_000)):
            async with client.get(urljoin("/docs", file)) as response:
                assert (response.status, response.headers["Content-Type"]) == (200, f"{media_type}; charset=utf-8")
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert len(await response.read()) > size


async def test_docs_page_shows_the_openapi_document() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/docs") as response:
            (url,) = re.findall(r'url: "([^"]+)"', await response.text())
        async with client.get(urljoin("/docs", url)) as response:
            assert (await response.json())["openapi"] == "3.1.0"


async def test_docs_page_may_load_only_from_this_server() -> None:
    async with over_http(FakeService()) as client, client.get("/docs") as response:
        policy = response.headers["Content-Security-Policy"]
        text = await response.text()
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "connect-src 'self'; img-src 'self' data:;" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:|=\"//|\son[a-z]+=", text)


async def test_other_docs_files_are_not_found() -> None:
    async with over_http(FakeService()) as client:
        for name in ("redoc.js", "..%2Furl.json", "nope"):
            async with client.get(f"/docs/{name}") as response:
                assert response.status == 404


def test_the_package_of_swagger_ui_is_not_imported() -> None:
    # Importing it reads 9 MB.
    code = (
        "import sys; from dragoman.bindings import pages; pages.docs_asset('swagger-ui.css'); "
        "print('offapi' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "False"
