"""Operators' calls in the audit log: whatever moment a caller goes, and whatever fails, no change lacks an entry."""

from __future__ import annotations

import ast
import asyncio
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from google.protobuf.message import Message
from tests.bindings.admin.operation_table import CHANGES, OLGA, READS, STREAMS, open_table, work
from tests.bindings.admin.operators import ALICE, VERA, running_server
from tests.bindings.admin.operators import OLGA as OLGA_HEADERS
from tests.bindings.admin.store_dump import changed_tables, dump_store

import dragoman
from dragoman import Turn, agent
from dragoman.bindings.admin.actions import AdminOperation, OperatorActions
from dragoman.bindings.admin.table import OPS_SERVICE
from dragoman.core.audit import AuditEntry, AuditRecord, parse_audit_line
from dragoman.core.errors import A2AError, TaskNotFound, Unavailable
from dragoman.runtime.observe.audit import Auditor
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import AppTimings, open_app
from dragoman.wiring.offline_admin import open_operations
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as ops_rpc
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as upstreams

pytestmark = pytest.mark.long

PACKAGE = Path(dragoman.__file__).parent


@types.coroutine
def cancel_at(step: int, work: Coroutine[Any, Any, Any]) -> Generator[Any, None, bool]:
    """Runs work, and cancels it when it has waited for `step` times and waits again. Returns whether it did."""
    error: BaseException | None = None
    for waits in count():
        try:
            future = work.send(None) if error is None else work.throw(error)
        except StopIteration:
            return waits > step
        except asyncio.CancelledError:
            return True
        error = None
        if waits == step:
            error = asyncio.CancelledError()
            if future is not None:
                future.cancel()
            continue
        try:
            yield future
        except Exception as raised:  # of the future
            error = raised
    raise AssertionError


def calls(entries: Sequence[AuditEntry], name: str) -> list[str]:
    """The outcomes in the entries of an operation."""
    return [entry.outcome for entry in entries if entry.action == f"operator.{name}"]


def test_the_tables_of_this_test_have_every_operation() -> None:
    names = {method.name for method in OPS_SERVICE.methods}
    assert {*READS, *STREAMS, *CHANGES} == names
    assert {method.name for method in OPS_SERVICE.methods if method.server_streaming} == set(STREAMS)


async def test_a_caller_who_goes_at_any_moment_leaves_no_change_without_its_entries(tmp_path: Path) -> None:
    async with open_table(tmp_path) as on:
        assert {name for name, row in on.table.rows.items() if not row.read_only} == set(CHANGES)
        for name, new_request in {**READS, **STREAMS, **CHANGES}.items():
            for step in count():
                request = await new_request(on)
                known, before = len(await on.entries()), await dump_store(on.url)
                canceled = await cancel_at(step, on.call(name, request))
                await on.actions.close(60)
                entries = (await on.entries())[known:]
                changed = changed_tables(before, await dump_store(on.url))
                assert bool(changed) == (name in CHANGES), (name, step, changed)
                assert calls(entries, name) in _possible_outcomes(on.table.rows[name], canceled), (name, step)
                if not canceled:
                    break
            assert step or not on.table.rows[name].audited, name  # it waited, so that it was canceled


def _possible_outcomes(row: AdminOperation, canceled: bool) -> Sequence[Sequence[str]]:
    """The outcomes in the entries of a call: a change is always complete, others may end at any moment."""
    if not row.read_only:
        return [["begun", "done"]]
    if not row.audited:
        return [[]]
    if row.name in STREAMS:
        complete = ["begun", "canceled" if row.name == "WatchTasks" else "done"]
        return [[], ["begun", "canceled"], complete] if canceled else [complete]
    return [[], ["ok"]] if canceled else [["ok"]]


class _FullDisk:
    """An audit log that takes no entry."""

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        raise Unavailable("the disk is full")

    async def read(self, after: int, limit: int = 256) -> list[AuditRecord]:
        return []

    async def truncate(self, before: int, limit: int = 1024) -> int:
        return 0


async def test_nothing_happens_that_cannot_be_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_table(tmp_path, actions=OperatorActions(Auditor(_FullDisk(), lambda: 1))) as on:
        for name, new_request in {**READS, **STREAMS, **CHANGES}.items():
            request = await new_request(on)
            before = await dump_store(on.url)
            if not on.table.rows[name].audited or name == "Backup":
                assert await on.call(name, request), name
            else:
                with pytest.raises(Unavailable, match="the disk is full"):
                    await on.call(name, request)
            assert not changed_tables(before, await dump_store(on.url)), name
    assert "the audit log has no entry of this backup" in caplog.text


class _Log(_FullDisk):
    """An audit log in memory."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        self.entries += entries

    def outcomes(self) -> list[tuple[str, Mapping[str, str]]]:
        return [(entry.outcome, entry.about) for entry in self.entries]


def open_actions(log: _Log) -> OperatorActions:
    ids = count(1)
    return OperatorActions(Auditor(log, lambda: 1), new_id=lambda: f"c{next(ids)}")


def purge(act: Callable[[], Awaitable[Message]]) -> AdminOperation:
    return AdminOperation("Purge", lambda *_: act())


PURGE = ops.PurgeRequest(selection=ops.Selection(principal="bob"))


async def test_the_intent_is_in_the_log_before_the_action_begins() -> None:
    log = _Log()

    async def act() -> Message:
        assert log.outcomes() == [("begun", {"call": "c1"})]
        assert log.entries[0].who == {"principal": "olga", "peer": "192.0.2.1", "request.selection.principal": "bob"}
        return ops.PurgeResponse(receipt=ops.Receipt(number=7, digest="d", tasks=3))

    await open_actions(log).run(purge(act), OLGA, PURGE)
    assert log.outcomes()[1:] == [("done", {"call": "c1", "receipt": "7", "digest": "d", "tasks": "3"})]
    assert log.entries[1].who == {"principal": "olga", "peer": "192.0.2.1"}


@pytest.mark.parametrize("error", [TaskNotFound(), ZeroDivisionError()])
async def test_a_failed_action_is_recorded_with_its_error(error: Exception) -> None:
    log = _Log()

    async def act() -> Message:
        raise error

    with pytest.raises(type(error)):
        await open_actions(log).run(purge(act), OLGA, PURGE)
    assert log.outcomes()[1:] == [("failed", {"call": "c1", "error": type(error).__name__})]


async def test_an_action_that_the_server_cuts_short_is_recorded_as_canceled() -> None:
    log, began = _Log(), asyncio.Event()

    async def act() -> Message:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    actions = open_actions(log)
    call = asyncio.create_task(actions.run(purge(act), OLGA, PURGE))
    await began.wait()
    await actions.close(0)
    with pytest.raises(Unavailable, match="stopping"):
        await call
    assert log.outcomes() == [("begun", {"call": "c1"}), ("canceled", {"call": "c1"})]


async def test_the_failure_of_an_action_whose_caller_has_gone_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    log, began, go_on = _Log(), asyncio.Event(), asyncio.Event()

    async def act() -> Message:
        began.set()
        await go_on.wait()
        raise ZeroDivisionError

    actions = open_actions(log)
    call = asyncio.create_task(actions.run(purge(act), OLGA, PURGE))
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go_on.set()
    await actions.close(60)
    assert [outcome for outcome, _ in log.outcomes()] == ["begun", "failed"]
    assert "Purge failed, and its caller has gone: ZeroDivisionError" in caplog.text


async def test_changes_without_callers_do_not_pile_up() -> None:
    log, begun, go_on = _Log(), asyncio.Semaphore(0), asyncio.Event()

    async def act() -> Message:
        begun.release()
        await go_on.wait()
        return ops.PurgeResponse()

    actions = OperatorActions(Auditor(log, lambda: 1), max_changes=2)
    calls = [asyncio.create_task(actions.run(purge(act), OLGA, PURGE)) for _ in range(5)]
    for _ in range(2):
        await begun.acquire()
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert [outcome for outcome, _ in log.outcomes()] == ["begun"] * 2  # those who went while they waited did nothing
    go_on.set()
    await actions.run(purge(act), OLGA, PURGE)
    assert [outcome for outcome, _ in log.outcomes()].count("done") == 3


async def test_a_server_that_stops_records_the_changes_that_it_cuts_short(tmp_path: Path) -> None:
    reading = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        reading.set()
        return await asyncio.Future()

    pages, anywhere = web.Application(), Address("127.0.0.1", 0)
    pages.router.add_route("*", "/{path:.*}", never)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/t.db")
    async with (
        TestServer(pages) as other,
        open_app(settings, [work], timings=AppTimings(grace=0.0)) as app,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        stub: Any = ops_rpc.OpsServiceStub(channel)
        call = asyncio.ensure_future(stub.AddUpstream(upstreams.AddUpstreamRequest(url=str(other.make_url("/")))))
        await reading.wait()
        call.cancel()
    async with open_operations(settings) as operations:
        lines = [line async for one in operations.export_audit(ops.ExportAuditRequest()) for line in one.lines]
    assert calls([parse_audit_line(line).entry for line in lines], "AddUpstream") == ["begun", "canceled"]


async def test_a_dry_run_has_one_entry() -> None:
    log = _Log()

    async def act() -> Message:
        assert log.entries == []
        return ops.PurgeResponse(dry_run=True)

    await open_actions(log).run(purge(act), OLGA, ops.PurgeRequest(selection=PURGE.selection, dry_run=True))
    assert log.outcomes() == [("ok", {})]


@pytest.mark.parametrize(("error", "outcome"), [(None, "done"), (TaskNotFound(), "failed")])
async def test_a_stream_has_an_entry_for_its_begin_and_its_end(error: A2AError | None, outcome: str) -> None:
    log = _Log()

    async def responses() -> AsyncGenerator[ops.ExportAuditResponse, None]:
        assert log.outcomes() == [("begun", {"call": "c1"})]
        yield ops.ExportAuditResponse()
        yield ops.ExportAuditResponse()
        if error is not None:
            raise error

    stream = open_actions(log).stream(
        AdminOperation("ExportAudit", lambda *_: responses()), OLGA, ops.ExportAuditRequest()
    )
    with pytest.raises(TaskNotFound) if error else nullcontext():
        async for _ in stream:
            pass
    about = {"call": "c1", "responses": "2", **({"error": "TaskNotFound"} if error else {})}
    assert log.outcomes()[1:] == [(outcome, about)]


@pytest.mark.parametrize("transport", ["HTTP", "gRPC"])
async def test_a_caller_who_disconnects_during_a_cancel_leaves_both_entries(tmp_path: Path, transport: str) -> None:
    stopping, go_on = asyncio.Event(), asyncio.Event()

    @agent(id="slow", default=True)
    async def slow(turn: Turn) -> None:
        turn.status("working")
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await go_on.wait()

    async with running_server(f"sqlite:///{tmp_path}/t.db", [slow]) as server:
        task = await server.send("wait")

        async def over_http() -> None:
            async with server.http.post(f"/operations/tasks/{task}:cancel", json={}, headers=OLGA_HEADERS):
                pass

        call = asyncio.create_task(over_http() if transport == "HTTP" else server.cancel(task))
        await stopping.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go_on.set()
        await server.ended(task, ALICE)
        while (outcomes := await _outcomes(server, "CancelTask")) != ["begun", "done"]:
            assert outcomes == ["begun"]
        async with server.http.get("/operations/agents", headers=VERA) as response:
            assert response.status == 200


async def _outcomes(server: Any, name: str) -> list[str]:
    return [one["outcome"] for one in await server.audit() if one["action"] == f"operator.{name}"]


def test_every_operation_of_the_table_and_of_a_store_passes_the_actions() -> None:
    """Classes with operations are used by the table, and by commands on a store, which pass them to the actions."""
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dragoman.bindings.admin.")
        for name in node.names
        if name.name.endswith(("Operations", "TaskLists", "TaskChanges"))
    }
    assert users == {"bindings/admin/table.py", "wiring/offline_admin.py"}
