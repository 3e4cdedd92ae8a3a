"""docs/how-to/troubleshooting.md has every reason of an ended task; pages name existing tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest
from tests.docs import errors_page
from tests.docs.protocol_client import DOCS, served, v1

from dragoman.runtime.turn import finish
from dragoman.runtime.turn.finish import SystemStatus
from dragoman.wire.dialects import Dialect
from dragoman.wire.errors import codes

PAGE: Final = (DOCS / "how-to" / "troubleshooting.md").read_text("utf-8")
CODES: Final = (DOCS / "reference" / "protocol" / "errors.md").read_text("utf-8")
TESTED: Final = re.compile(r"`((?:tests|server/dragoman/testing)/[\w/]+\.py)`")
UPSTREAM: Final = re.compile(r'"(UPSTREAM_[A-Z]+)')


def reasons_of() -> set[str]:
    upstream = Path(finish.__file__).parents[1] / "agents" / "upstream"
    found = {reason for file in upstream.glob("*.py") for reason in UPSTREAM.findall(file.read_text("utf-8"))}
    return found | {one.reason for one in vars(finish).values() if isinstance(one, SystemStatus)}


@pytest.mark.parametrize("reason", sorted(reasons_of()))
def test_each_end_reason_has_a_row(reason: str) -> None:
    assert re.search(rf"^\| [^|]*\b{reason}\b", PAGE, re.M)


def test_each_error_reason_is_on_a_page() -> None:
    reasons = {codes(errors_page.created(kind), Dialect.V1).reason for kind in errors_page.kinds()}
    missing = {reason for reason in reasons if reason not in PAGE + CODES}
    assert not missing


@pytest.mark.parametrize("page", sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")))
def test_pages_name_existing_tests(page: str) -> None:
    named = TESTED.findall((DOCS / page).read_text("utf-8"))
    assert not [name for name in named if not (DOCS.parent / name).is_file()]
    assert named or not page.startswith("reference/protocol/"), "a page of the protocol says which tests hold it"


def test_each_quoted_line_of_the_log_is_logged() -> None:
    package = DOCS.parent / "server" / "dragoman"
    trees = (ast.parse(path.read_text("utf-8")) for path in package.rglob("*.py"))
    constants = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = "\n".join(value for value in constants if isinstance(value, str))
    rows = PAGE.partition("## A line in the log")[2].partition("\n**Tests")[0].splitlines()
    lines = [line for row in rows for line in re.findall(r"`([^`]+)`", row.partition("|")[2].partition("|")[0])]
    assert len(lines) > 30
    pieces = [piece.strip() for line in lines for piece in line.split("...") if len(piece.strip()) > 3]
    assert not [piece for piece in pieces if piece not in texts]


async def test_quoted_error_messages_are_sent(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        done = await server.task()

        async def response(path: str, message: object) -> str:
            return str((await server.ask("POST", path, message)).json["error"]["message"])

        for sentence, path, sent in (
            ("The task has ended and takes no more messages", "/message:send", {"message": v1("x", taskId=done["id"])}),
            ("this agent does not stream", "/still/message:stream", {"message": v1("x")}),
            ("is given twice in one object", "/message:send", b'{"message": {"messageId": "a", "messageId": "b"}}'),
            ("an integer must lie between", "/message:send", b'{"message": {"metadata": {"n": 9007199254740993}}}'),
        ):
            assert sentence in PAGE
            assert sentence in await response(path, sent)
        for reason, requested in (
            ("TASK_NOT_FOUND", server.ask("GET", "/tasks/none")),
            ("AGENT_NOT_FOUND", server.ask("GET", "/nobody/tasks")),
            ("VERSION_NOT_SUPPORTED", server.ask("GET", "/tasks", **{"A2A-Version": "9"})),
            ("EXTENSION_SUPPORT_REQUIRED", server.ask("POST", "/strict/message:send", {"message": v1("x")})),
        ):
            assert reason in PAGE
            assert (await requested).reason == reason
