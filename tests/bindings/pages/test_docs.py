"""The page with the description: whole, from this server alone, and held to it."""

from __future__ import annotations

import re
import subprocess
import sys
from urllib.parse import urljoin

from tests.bindings.fake_service import FakeService, over_http


async def test_the_page_and_its_files_are_served() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/docs") as answer:
            assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
            text = await answer.text()
        files = re.findall(r'(?:src|href)="([^"]+)"', text)
        assert files == ["data:,", "docs/swagger-ui.css", "docs/swagger-ui-bundle.js"]
        for file, media_type, size in ((files[1], "text/css", 100_000), (files[2], "text/javascript", 1_000_000)):
            async with client.get(urljoin("/docs", file)) as answer:
                assert (answer.status, answer.headers["Content-Type"]) == (200, f"{media_type}; charset=utf-8")
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert len(await answer.read()) > size


async def test_the_page_shows_the_description() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/docs") as answer:
            (url,) = re.findall(r'url: "([^"]+)"', await answer.text())
        async with client.get(urljoin("/docs", url)) as answer:
            assert (await answer.json())["openapi"] == "3.1.0"


async def test_the_page_holds_itself_to_this_server() -> None:
    async with over_http(FakeService()) as client, client.get("/docs") as answer:
        policy = answer.headers["Content-Security-Policy"]
        text = await answer.text()
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "connect-src 'self'; img-src 'self' data:;" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:|=\"//|\son[a-z]+=", text)


async def test_there_are_no_other_files() -> None:
    async with over_http(FakeService()) as client:
        for name in ("redoc.js", "..%2Furl.json", "nope"):
            async with client.get(f"/docs/{name}") as answer:
                assert answer.status == 404


def test_the_package_with_the_files_is_read_but_not_imported() -> None:
    # Importing it reads nine megabytes.
    code = (
        "import sys; from dragoman.bindings.pages import files; files.docs_asset('swagger-ui.css'); "
        "print('offapi' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
