"""An operation of operators, and its calls in the audit log: intent, action, outcome.

Every operation passes `OperatorActions`, whatever its transport. A call that changes something
writes its intent durably, acts in a task of the server's that its caller cannot cancel, and writes its outcome; without
its intent it does nothing. A call that reads has one entry, which is durable before the response leaves. A stream has
an entry when it begins and one when it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeVar

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dragoman.core.access.identity import Identity
from dragoman.core.errors import A2AError, Unavailable
from dragoman.ids import IDS
from dragoman.runtime.observe.audit import Auditor, CallOutcome
from dragoman.supervision import log_fault
from dragoman_pb import _pool
from dragoman_pb.dragoman.ops import v1 as ops

MAX_CONCURRENT_CHANGES: Final = 256  # that run at a time; other callers wait: changes go on without their callers

_log: Final = logging.getLogger("dragoman.bindings.admin.actions")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """The operator of one call, or the caller of an operation that needs no grant."""

    identity: Identity
    peer: str = ""
    is_viewer: bool = True
    is_operator: bool = False  # whether it may see why tasks failed
    is_local: bool = False  # it calls from this machine, not through a proxy

    @property
    def audit_fields(self) -> dict[str, str]:
        return self.identity.log_details | ({"peer": self.peer} if self.peer else {})


@dataclass(frozen=True, slots=True)
class AdminOperation:
    """One operation: its handler, who may call it, and what its calls leave in the audit log."""

    name: str  # the method of `dragoman.ops.v1.OpsService`
    handler: Callable[[OperatorCall, Any], Any]
    """Takes the caller and the request. Returns an awaitable response; a streaming one an async generator."""
    grant: Literal["operator", "viewer", "auditor", "none"] = "operator"
    """The grant that allows it, besides that of operators; with `none`, callers see what is their own."""
    limited_grants: bool = False  # operators and viewers of some scopes or agents may call it, on tasks within these
    spans_grants: bool = False  # it covers all scopes and agents in the grants of its caller; others must name one
    open_remotely: bool = False
    """A server without authentication offers it over gRPC to other machines, too: of tasks, their own."""
    read_only: bool = False  # it changes nothing, so a unary call ends with its caller; all others are changes
    audited: bool = True  # false if it shows no content to dashboards


class OperatorActions:
    """Runs operators' calls and records them in the audit log of one store."""

    def __init__(
        self,
        auditor: Auditor | None,
        *,
        new_id: Callable[[], str] = IDS.uuid,
        max_changes: int = MAX_CONCURRENT_CHANGES,
    ) -> None:
        """`new_id` returns the id that links the entries of one call."""
        self._auditor = auditor
        self._new_id = new_id
        self._running: set[asyncio.Task[Any]] = set()
        self._slots = asyncio.Semaphore(max_changes)

    async def run(self, operation: AdminOperation, operator: OperatorCall, request: Any) -> Message:
        """Calls a unary operation. Raises its errors, and Unavailable if the audit log cannot be written.

        A change goes on when its caller has gone.
        """
        name = operation.name
        act = partial(operation.handler, operator, request)
        if operation.read_only or getattr(request, "dry_run", False):
            response: Message = await act()
            if self._auditor is not None and _is_recorded(operation, operator, request):
                who = operator.audit_fields | _request_fields(request)
                await self._auditor.record_operator_call(name, who, {}, "ok")
            return response
        await self._slots.acquire()
        changing = self._start(self._change(self._record_of(operation, operator, request), act), name)
        changing.add_done_callback(lambda _: self._slots.release())
        try:
            return await _result_of(changing)
        except asyncio.CancelledError:
            changing.add_done_callback(partial(_log_failure, name))
            raise

    async def stream(
        self, operation: AdminOperation, operator: OperatorCall, request: Any
    ) -> AsyncGenerator[Message, None]:
        """Calls a streaming operation, which ends with its reader. Raises as `run`."""
        name, responses = operation.name, operation.handler(operator, request)
        record = self._record_of(operation, operator, request)
        if record is None:
            async with aclosing(responses):
                async for response in responses:
                    yield response
            return
        beginning = self._start(record.begin(), name)
        outcome: CallOutcome = "canceled"
        about, sent = {}, 0
        try:
            await _result_of(beginning)
            async with aclosing(responses):
                async for response in responses:
                    sent += 1
                    yield response
            outcome = "done"
        except Exception as error:
            outcome, about = "failed", {"error": type(error).__name__}
            raise
        finally:
            about["responses"] = str(sent)
            ending = self._start(_end_after(beginning, record, outcome, about), name)
            if outcome != "canceled":  # a reader who has gone waits for nothing
                await asyncio.wait((ending,))

    async def close(self, grace: float) -> None:
        """Waits for the running calls for `grace` seconds. Cancels the rest, which is then their outcome."""
        while self._running:
            _, late = await asyncio.wait(self._running, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _record_of(self, operation: AdminOperation, operator: OperatorCall, request: Message) -> _CallRecord | None:
        """The record of a call; None if it is not audited."""
        if self._auditor is None or not _is_recorded(operation, operator, request):
            return None
        fields = operator.audit_fields, _request_fields(request)
        return _CallRecord(self._auditor, operation.name, *fields, self._new_id())

    def _start(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Runs work that no caller cancels."""
        task = asyncio.create_task(work, name=f"operator's call {name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _change(self, record: _CallRecord | None, act: Callable[[], Awaitable[Message]]) -> Message:
        if record is None:
            return await act()
        await record.begin()
        try:
            response = await act()
        except asyncio.CancelledError:  # the server stops
            await record.end("canceled", {})
            raise
        except Exception as error:
            await record.end("failed", {"error": type(error).__name__})
            raise
        await record.end("done", *_described(response))
        return response


@dataclass(frozen=True, slots=True)
class _CallRecord:
    """The two entries of a call, linked by its id."""

    auditor: Auditor
    name: str
    operator: dict[str, str]
    request: dict[str, str]
    id: str

    async def begin(self) -> None:
        """Records the intent, durably. Raises Unavailable."""
        try:
            await self.auditor.record_operator_call(self.name, self.operator | self.request, {"call": self.id}, "begun")
        except Unavailable as error:
            if self.name != "Backup":
                text = f"the audit log cannot be written, so {self.name} did nothing: {error.message}"
                raise Unavailable(text) from error
            # A store that takes no writes, because its file is gone: a backup is what saves its tasks.
            _log.warning("the audit log has no entry of this backup: the store takes no writes", extra=self.operator)

    async def end(self, outcome: CallOutcome, about: dict[str, str], who: dict[str, str] | None = None) -> None:
        """Records the outcome. Raises nothing: the call has done what it did, and the intent is on disk."""
        fields = {"call": self.id, **about}
        await self.auditor.record_operator_call(self.name, self.operator | (who or {}), fields, outcome)


async def _result_of(task: asyncio.Task[Result]) -> Result:
    """Waits for a task without canceling it. Raises its errors."""
    await asyncio.wait((task,))
    if task.cancelled():
        raise Unavailable("the server is stopping")
    return task.result()


async def _end_after(
    beginning: asyncio.Task[None], record: _CallRecord, outcome: CallOutcome, about: dict[str, str]
) -> None:
    """Records the outcome of a call after its intent; without an intent nothing has happened."""
    await asyncio.wait((beginning,))
    if not beginning.cancelled() and beginning.exception() is None:
        await record.end(outcome, about)


def _log_failure(name: str, changing: asyncio.Task[Any]) -> None:
    if not changing.cancelled() and (error := changing.exception()) and not isinstance(error, A2AError):
        log_fault(_log, f"{name} failed, and its caller has gone", error)


# What entries contain -------------------------------------------------------------------------------------------------


def _is_recorded(operation: AdminOperation, operator: OperatorCall, request: Message) -> bool:
    """False for a list of the caller's own tasks or figures, and for sums that name no principal: dashboards poll
    these, and they reveal nothing about a person."""
    if not operation.audited:
        return False
    listed = request.filter if isinstance(request, ops.WatchTasksRequest) else request
    if isinstance(listed, ops.ListTasksRequest):
        return operator.is_viewer and not listed.own
    if isinstance(request, ops.ListUsageRequest):
        names = request.principal or ops.USAGE_GROUP_PRINCIPAL in request.group_by
        return operator.is_viewer and bool(names)
    return True


def _request_fields(request: Message) -> dict[str, str]:
    """The request without fields that the proto marks as secret."""
    message = type(request)()
    message.CopyFrom(request)
    for field, _ in request.ListFields():
        if field.GetOptions().debug_redact:
            message.ClearField(field.name)
    fields: dict[str, Any] = MessageToDict(message, descriptor_pool=_pool.POOL)
    return dict(_flatten("request", fields))


def _flatten(name: str, node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for key, child in node.items():
            yield from _flatten(f"{name}.{key}", child)
    elif isinstance(node, list):
        yield name, ", ".join(map(str, node))
    else:
        yield name, str(node)


def _described(response: Message) -> tuple[dict[str, str], dict[str, str]]:
    """The results of a change: counts, receipts, and ids of new objects."""
    counts: dict[str, int] = {}
    match response:
        case ops.PurgeResponse():
            receipt = response.receipt
            kept = {"receipt": str(receipt.number), "digest": receipt.digest} if receipt.number else {}
            return {**kept, "tasks": str(receipt.tasks)}, {}
        case ops.CreateKeyResponse():
            return {}, {"created": response.key.id}
        case ops.RerunTaskResponse():
            return {}, {"created": response.task.task.id}
        case ops.CancelTasksResponse() | ops.RerunTasksResponse() | ops.EraseTasksResponse():
            counts = {name: getattr(response, name) for name in ("matched", "changed", "skipped")}
            counts["failed"] = len(response.failures)
        case ops.ForgetAgentResponse() | ops.RemoveUpstreamResponse():
            counts = {"tasks": response.ended_tasks}
        case ops.RedeliverResponse():
            counts = {"pushes": len(response.configs)}
    return {name: str(count) for name, count in counts.items()}, {}
