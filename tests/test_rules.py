"""Rules with one home: for each, a check of the sources that finds a second place, and a planted one that it finds.

CONTRIBUTING.md has the same table for people. A check takes a package and returns a line for each second place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests import test_foreign_exceptions, test_layers
from tests.agents.called import test_one_home

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "server" / "dragoman"

Check = Callable[[Path], list[str]]


class Rule(NamedTuple):
    """A rule, its homes, its check, and a second place that the check has to find: a file and its text."""

    name: str
    homes: tuple[str, ...]
    check: Check
    planted: tuple[str, str]


@dataclass(frozen=True)
class OnlyIn:
    """A check that only the allowed files, or folders, have code that matches."""

    pattern: str
    allowed: Mapping[str, str]
    """With the reasons."""
    below: tuple[str, ...] = ("",)

    def __call__(self, package: Path) -> list[str]:
        return [
            f"{place}: has {found[0]}"
            for path in sorted(package.rglob("*.py"))
            if (place := path.relative_to(package).as_posix()).startswith(self.below)
            and not place.startswith(tuple(self.allowed))
            and (found := re.search(self.pattern, path.read_text(encoding="utf-8")))
        ]


def schemas(package: Path) -> list[str]:
    return [line for line in test_layers.violations(package) if "evaluates JSON Schemas" in line]


def readers(package: Path) -> list[str]:
    return list(test_one_home.second_places(package))


OPENS_A_STREAM: Final = re.compile(
    r"\bstream_stream_rpc_method_handler\b|\bWebSocketResponse\(|\bweb\.StreamResponse\("
)
OTHER_STREAMS: Final = {
    "bindings/http/blobs.py": "one content, whose link is signed and expires",
    "bindings/http/request.py": "writes the events of a stream that its caller has registered",
    "bindings/grpc/listener.py": "health and reflection, which need no credentials",
    "bindings/grpc/server.py": "the pipeline registers its streams",
}
"""The files that open a stream without registering it, with the reason."""


def streams(package: Path) -> list[str]:
    """The files that open streams and never register one."""
    return [
        f"{place}: opens a stream that no registry knows"
        for path in sorted(package.rglob("*.py"))
        if OPENS_A_STREAM.search(text := path.read_text(encoding="utf-8"))
        and "streams.open(" not in text
        and (place := path.relative_to(package).as_posix()) not in OTHER_STREAMS
    ]


CALLED_EXTENSIONS: Final = ("extensions/mcp/servers/",)

RULES: Final = (
    Rule(
        "JSON Schemas of others are evaluated within bounds, and fetch nothing",
        ("core/schemas.py",),
        schemas,
        ("extensions/own/tools.py", "import jsonschema"),
    ),
    Rule(
        "what others send is read by readers that return a value or a reason",
        ("wire/", "agents/called/"),
        readers,
        ("agents/own/turn.py", "from dragoman.agents.called.agent import CalledAgent\nimport json\njson.loads('1')"),
    ),
    Rule(
        "no integer of others is rounded: beyond 2^53 it becomes text",
        ("wire/json/remote_values.py",),
        OnlyIn(
            r"\b(?:or)?json\.loads\(",
            {
                "agents/called/agent.py": "our own state, stored with the task",
                "agents/upstream/registry.py": "our own settings, stored in the database",
            },
            below=(
                "agents/called/",
                "agents/upstream/",
                "calling/",
                "client/",
                "wire/cards/",
                "extensions/mcp/servers/",
            ),
        ),
        ("calling/own.py", "answer = json.loads(body)"),
    ),
    Rule(
        "work at another server is canceled by the agent that called it",
        ("agents/called/",),
        OnlyIn(
            r'"CancelTask"|\bcancel_task\(|"tasks/cancel"',
            {
                "agents/called/agent.py": "the home: repeats it until that server confirms",
                "agents/upstream/agent.py": "a task of an A2A server",
                "extensions/mcp/servers/agent.py": "a task of an MCP server",
                "extensions/mcp/servers/tasks_extension.py": "the request of MCP",
            },
            below=("agents/", "extensions/mcp/servers/"),
        ),
        ("agents/upstream/turn.py", 'await transport.call("CancelTask", request)'),
    ),
    Rule(
        "an open stream has a principal and ends with the server, or with its credentials",
        ("bindings/stream_registry.py",),
        streams,
        ("bindings/http/watch.py", "response = web.StreamResponse()"),
    ),
    Rule(
        "an operator's action writes its intent, acts in a task of the server's, and writes its outcome",
        ("bindings/admin/actions.py",),
        OnlyIn(
            r"\b(record|settle)_operator_call\b",
            {"bindings/admin/actions.py": "the home", "runtime/observe/audit.py": "what writes an entry"},
        ),
        ("bindings/http/pages.py", "await auditor.record_operator_call(name, who, {}, 'ok')"),
    ),
    Rule(
        "who is local",
        ("core/access/local_callers.py",),
        OnlyIn(
            r"ip_address\(.*(peer|remote)|\.startswith\(\W*(ipv4:127|unix:)|\bis_local_caller\(",
            {
                "core/access/local_callers.py": "the home",
                "bindings/pipeline.py": "passes peer and headers",
                "bindings/cards.py": "the proxies whose headers a card believes",
            },
        ),
        ("bindings/grpc/own.py", 'is_local = context.peer().startswith("ipv4:127.")'),
    ),
    Rule(
        "no more than 64 KiB of a call are held before its caller is known",
        ("bindings/pipeline.py", "bindings/grpc/messages.py"),
        OnlyIn(r"\bunary_(unary|stream)_rpc_method_handler\b|\badd_\w+_to_server\b", {}),
        ("bindings/grpc/own.py", "grpc.unary_unary_rpc_method_handler(serve)"),
    ),
    Rule(
        "an exception of an agent ends its turn, and is read within bounds",
        ("core/exceptions.py",),
        test_foreign_exceptions.violations,
        ("agents/functions/own.py", "try:\n    run()\nexcept Exception as error:\n    text = str(error)"),
    ),
    Rule(
        "an error of a database is retried, unavailable, or a fault",
        ("stores/sqlite/errors.py", "extensions/postgres/errors.py"),
        OnlyIn(
            r"\bsqlite3\.SQLITE_|\basyncpg\.\w+Error\b",
            {
                "stores/sqlite/errors.py": "the table of SQLite",
                "extensions/postgres/errors.py": "the table of PostgreSQL",
                "extensions/postgres/database.py": "the mark of a commit that was done before: an expected result",
            },
        ),
        ("stores/sqlite/hot/writer.py", "if error.sqlite_errorcode == sqlite3.SQLITE_BUSY: retry()"),
    ),
    Rule(
        "a stored task is encoded in one place",
        ("core/task/plan.py",),
        OnlyIn(
            r"\bframes\.\w+\(\d, (frames\.timestamp\()?\w*record\.\w+\)",
            {"core/task/plan.py": "the home, for every reader of a store"},
        ),
        ("stores/sqlite/own.py", "parts = [frames.text(1, record.id), frames.text(2, record.context)]"),
    ),
    Rule(
        "a process that does not run its loop holds no lease",
        ("runtime/lease.py",),
        OnlyIn(
            r"\.renew_session\(|ConnectRequest\(heartbeat=",
            {
                "runtime/sessions.py": "the session of a process, if the loop answers",
                "worker/stream.py": "the lease of a worker, if its loop answers",
                **dict.fromkeys(("stores/", "extensions/", "testing/"), "implement and test renewals"),
            },
        ),
        ("runtime/own.py", "await store.renew_session(session, lease)"),
    ),
    Rule(
        "the time in milliseconds comes from a clock that is passed, or from one function",
        ("ids.py",),
        OnlyIn(r"time_ns\(\) // 1_000_000|time\.time\(\) \* 1_?000", {"ids.py": "the home"}),
        ("runtime/own.py", "now = time.time_ns() // 1_000_000"),
    ),
    Rule(
        "what is due is compared with the time of the store, or with a monotonic clock",
        ("ports/store.py",),
        OnlyIn(
            r"\bnow_ms\b|\btime\.time\b",
            {
                "ids.py": "the home of both clocks",
                "bindings/admin/maintenance.py": "a date in an export",
                "bindings/http/connections.py": "the header Date",
                "client/webhooks.py": "the age of a signature, whose date the sender wrote",
                "runtime/maintenance/pauses.py": "the date of a pause",
                "runtime/maintenance/retention.py": "watches this machine's clock for jumps",
                "runtime/timings.py": "the clock that retention watches",
                "security/": "credentials and keys are valid until a date",
                "stores/sqlite/cold/blobs.py": "compared with times of files, which are this clock's",
                "wiring/": "dates of keys, audits and upstreams",
            },
            (
                "agents/",
                "bindings/",
                "bus/",
                "calling/",
                "client/",
                "core/",
                "ids",
                "ports/",
                "runtime/",
                "security/",
                "stores/",
                "supervision",
                "wire/",
                "wiring/",
                "worker/",
            ),
        ),
        ("runtime/own.py", "due = record.wake_at <= now_ms()"),
    ),
    Rule(
        "media types in headers are compared without parameters and case",
        ("core/media_types.py",),
        OnlyIn(
            r"""(?i)headers\.get\("accept"|headers\.get\("content-type"[^)]*\)\.(?!partition\("/"\))""",
            {"bindings/pages.py": "gives all of it to the library of metrics"},
        ),
        ("bindings/http/own.py", 'wants = "text/html" in request.headers.get("Accept", "")'),
    ),
)


@pytest.fixture(params=RULES, ids=lambda rule: rule.homes[0])
def rule(request: pytest.FixtureRequest) -> Rule:
    found: Rule = request.param
    return found


def test_a_rule_has_no_second_place(rule: Rule) -> None:
    assert rule.check(PACKAGE) == []


def test_a_planted_second_place_is_found(rule: Rule, tmp_path: Path) -> None:
    file, text = rule.planted
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    (found,) = rule.check(tmp_path)
    assert found.startswith(file)


def excused() -> Iterator[str]:
    """The files that a check allows."""
    yield from OTHER_STREAMS
    for each in RULES:
        yield from each.check.allowed if isinstance(each.check, OnlyIn) else ()


def test_homes_and_excused_files_exist(rule: Rule) -> None:
    assert [place for place in (*rule.homes, *excused()) if not (PACKAGE / place).exists()] == []


def test_the_manual_for_contributors_has_the_same_rules() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ((?:`[^`]+`(?:, )?)+) \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M)
    listed = {(name, tuple(re.findall(r"`([^`]+)`", homes))) for name, homes in rows}
    assert {(each.name, each.homes) for each in RULES} <= listed
