"""Which callers are on this machine: one rule, by peer, headers and settings."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from dragoman.core.access.local_callers import is_local_caller

PACKAGE: Final = Path(__file__).parents[3] / "server" / "dragoman"
LOCAL: Final = "127.0.0.1"


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("ipv4:127.0.0.1:4711", True),
        ("ipv6:%5B::1%5D:4711", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:4711", True),
        ("unix:", True),
        ("", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("::ffff:10.0.0.1", False),
        ("ipv4:192.0.2.1:4711", False),
        ("ipv4:12.7.0.1:4711", False),
        ("ipv6:%5B2001:db8::1%5D:4711", False),
        ("127.0.0.1.example", False),
    ],
)
def test_a_caller_is_local_by_its_peer(address: str, is_local: bool) -> None:
    assert is_local_caller(address, (), behind_proxy=False) is is_local
    assert not is_local_caller(address, (), behind_proxy=True)


@pytest.mark.parametrize(
    "name",
    [
        *("Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Proto", "x-forwarded-host"),
        *("x-envoy-external-address", "CF-Connecting-IP", "True-Client-IP"),
    ],
)
def test_a_header_that_proxies_add_makes_a_caller_remote(name: str) -> None:
    assert is_local_caller(LOCAL, [("accept", "*/*"), ("user-agent", "curl")], behind_proxy=False)
    assert not is_local_caller(LOCAL, [("accept", "*/*"), (name, "")], behind_proxy=False)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "a.localhost"])
def test_a_caller_that_names_this_machine_is_local(host: str) -> None:
    assert is_local_caller(LOCAL, [("Host", host)], behind_proxy=False, names_host=True)
    assert is_local_caller(LOCAL, [(":authority", host)], behind_proxy=False)


@pytest.mark.parametrize("host", ["", "agents.example", "10.0.0.1:80", "localhost.example", "dragoman_http", "[x"])
def test_a_caller_that_names_another_machine_is_remote(host: str) -> None:
    assert not is_local_caller(LOCAL, [("Host", host)], behind_proxy=False, names_host=True)
    assert not is_local_caller(LOCAL, [(":authority", host)], behind_proxy=False)


def test_a_request_has_one_host_where_the_protocol_names_one() -> None:
    assert not is_local_caller(LOCAL, [], behind_proxy=False, names_host=True)
    twice = [("Host", "localhost"), ("Host", "localhost")]
    assert not is_local_caller(LOCAL, twice, behind_proxy=False, names_host=True)


HOME: Final = "core/access/local_callers.py"
WORDS: Final = {"is_loopback", "is_loopback_host", "names_this_machine", "is_local_name"}
MAY_USE_THEM: Final = {
    HOME: "who is local",
    "core/net/addresses.py": "what a loopback address is",
    "core/net/targets.py": "the hosts of URLs and of `Host`",
    "core/access/jwt_claims.py": "issuers without TLS",
    "settings/types.py": "addresses to listen on",
    "settings/settings.py": "addresses to listen on, and public names",
    "settings/groups.py": "addresses to listen on",
    "cli/serve/command.py": "what the banner says",
    "wiring/doctor.py": "addresses to listen on",
    "bindings/http/cors.py": "`Host` against DNS rebinding",
    "bindings/pages.py": "the same for the port of the metrics",
}
"""The files that ask whether something is loopback, and about what. Only the first may ask about callers."""


_ADDRESS: Final = re.compile(r"(ipv[46]:|127\.)\S*$")


def uses(source: str) -> set[str]:
    """The words and texts of a source that decide on loopback."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in WORDS:
            found.add(name)
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and _ADDRESS.match(text) and text != "127.0.0.1":
            found.add(text)
    return found


def test_only_one_file_decides_which_callers_are_local() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if uses(path.read_text("utf-8"))}
    assert {file for file in found if file.split("/")[0] in ("bindings", "security", "core", "settings")} <= set(
        MAY_USE_THEM
    )
    assert set(MAY_USE_THEM) <= found
    callers = [path for path in PACKAGE.rglob("*.py") if "is_local_caller" in path.read_text("utf-8")]
    assert {path.relative_to(PACKAGE).as_posix() for path in callers} == {HOME, "bindings/pipeline.py"}


def test_the_check_finds_a_second_place() -> None:
    assert uses('def local(context): return context.peer().startswith(("ipv4:127.", "unix:"))') == {"ipv4:127."}
    assert uses("ip_address(request.remote).is_loopback") == {"is_loopback"}
