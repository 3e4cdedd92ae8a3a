"""JSON-RPC without a transport: which row a call means, and what answers it. HTTP and WebSocket both stand on it.

The method's name says the dialect, but for a few names that several dialects share. There the message's own shape
decides. A call that holds no message is of the dialect that its address belongs to, else of the version that it names,
else of the dialect in which its task was made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from dragoman.bindings import callers, extensions, methods, versions
from dragoman.bindings.access import Access
from dragoman.bindings.cards import Cards
from dragoman.bindings.methods import SEND, STREAM, CallRow
from dragoman.bindings.origins import Origin
from dragoman.core.access.identity import Caller, Identity
from dragoman.core.cards.agent_spec import IDEMPOTENCY_EXTENSION, RESUME_EXTENSION, SERVER_EXTENSIONS
from dragoman.core.errors import A2AError, MethodNotFound
from dragoman.core.task.log import Event
from dragoman.core.task.projection import cached_encoding
from dragoman.runtime.feeds import EventStream
from dragoman.runtime.operations.call import Call
from dragoman.runtime.operations.service import TaskService
from dragoman.wire import errors, jsonrpc
from dragoman.wire.dialects import Dialect, json_mixed, parts

_log: Final = logging.getLogger("dragoman.bindings.jsonrpc")

_BY_VERSION: Final = {"0.3": Dialect.V03, "0.2": Dialect.V03, "0.1": Dialect.V01}


@dataclass(slots=True, kw_only=True)
class Peer:
    """Who calls, and by which road: what the transport knows of a call."""

    tenant: str
    """The tenant that the address names; it goes before the one in the params."""
    identity: Identity
    versions: Sequence[str] = ()
    """Every `A2A-Version` given."""
    extensions: Sequence[str] = ()
    after: str = ""
    """The cursor that the transport carries."""
    key: str = ""
    """The idempotency key that the transport carries."""
    origin: Callable[[], Origin | None] = lambda: None
    """The address by which it reached us; few calls are about that."""
    lead: Dialect | None = None
    """The dialect that the address belongs to, if only one uses such addresses."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What answers a call: one result as JSON, or events and what makes results of each."""

    row: CallRow
    result: bytes = b"null"
    events: EventStream | None = None
    results: Callable[[Event], Iterable[bytes]] | None = None


class Calls:
    """Every JSON-RPC method of one server."""

    def __init__(self, service: TaskService, cards: Cards) -> None:
        self._service = service
        self._cards = cards
        self._rows = methods.calls()

    def ask(self, peer: Peer) -> None:
        """Counts a call, before anything of it is read. Raises RateLimited when they come too often."""
        self._service.admission.check_rate(peer.identity)

    def connect(self, peer: Peer) -> AbstractContextManager[None]:
        """Counts a connection for as long as it is open. Raises RateLimited."""
        return self._service.admission.hold_stream(peer.identity)

    async def answer(self, request: jsonrpc.JsonRpcRequest, peer: Peer, access: Access) -> Answer:
        """Answers one call. Raises A2AError; `dialect` says in which words."""
        named = versions.check(peer.versions)
        rows = self._rows.get(request.method)
        if rows is None:
            raise MethodNotFound(f'Method not found: "{request.method[:100]}"')
        row = await self._choose(rows, request, peer, named)
        access.dialect, access.known = row.dialect.value, True
        if row.op.push:
            self._service.check_push()
        params = {} if request.params is None else request.params
        asked = row.read(params)
        caller = callers.caller(self._service, peer.tenant or getattr(asked, "tenant", ""), peer.identity)
        access.about(caller, asked)
        if row.op.extended_card:
            card = self._cards.extended(caller.agent, peer.origin(), peer.identity, row.dialect)
            return Answer(row, card)
        assert row.op.call is not None
        operation = row.op.call(self._service)
        said = _said(params)
        call = Call(
            caller,
            cursor=str(said.get(RESUME_EXTENSION.uri, {}).get("after", "")) or peer.after,
            idempotency_key=str(said.get(IDEMPOTENCY_EXTENSION.uri, {}).get("key", "")) or peer.key,
            stops_with_turn=row.turn,
            dialect=row.dialect.value,
            names_tasks=row.names_tasks,
            extensions=tuple(peer.extensions),
        )
        if not row.op.streaming:
            answer = await operation(call, asked)
            return Answer(
                row,
                cached_encoding(answer, row.write, lambda: orjson.dumps(row.write(row.op.answer.FromString(answer)))),
            )
        write, turn, show = row.results(), row.turn, extensions.shown(call.extensions)
        events = operation(call, asked)
        return Answer(row, events=events, results=lambda event: write(show(event), turn and event.ends))

    def dialect(self, method: str, params: object = None) -> Dialect:
        """In which words to tell the caller of a method that something failed before its row was found."""
        rows = self._rows.get(method)
        if rows is None:
            return Dialect.V03 if "/" in method else Dialect.V1
        return _by_shape(rows, params) or next(iter(rows))

    def errors_in_stream(self, method: str) -> bool:
        """Whether readers of this method look for errors in the stream and nowhere else."""
        rows = self._rows.get(method)
        return rows is not None and next(iter(rows.values())).errors_in_stream

    async def _choose(
        self, rows: dict[Dialect, CallRow], request: jsonrpc.JsonRpcRequest, peer: Peer, named: str
    ) -> CallRow:
        rows = _of_its_shape(rows, request.params)
        first = next(iter(rows.values()))
        if len(rows) == 1:
            return first
        shape = _by_shape(rows, request.params)
        if shape is not None:
            return rows[shape]
        if peer.lead is not None and peer.lead in rows:
            return rows[peer.lead]
        # Exactly "1.0": a2a-rust, whose calls look the same, names the patch.
        said = Dialect.V1 if named == "1.0" else _BY_VERSION.get(versions.minor(named))
        if said is not None and said in rows:
            return rows[said]
        made = await self._made_in(request.params, peer)
        if made:
            return methods.SHARED.get((request.method, made)) or rows.get(made, first)
        # A method of 0.x under a version 1: only a2a-rust has both.
        return rows[Dialect.RUST] if Dialect.RUST in rows and named.startswith("1") else first

    async def _made_in(self, params: object, peer: Peer) -> Dialect | None:
        if not isinstance(params, dict):
            return None
        task_id = params.get("taskId") or params.get("id")
        tenant = peer.tenant or params.get("tenant") or ""
        if not isinstance(task_id, str) or not isinstance(tenant, str):
            return None
        try:
            caller: Caller = self._service.authorize(tenant, peer.identity)
        except A2AError:
            return None  # told where the call is answered
        made = await self._service.dialect_of(caller, task_id)
        return Dialect(made) if made else None


def _said(params: object) -> dict[str, dict[str, Any]]:
    """What a call says to our extensions in its own metadata: a frame of a WebSocket has no headers."""
    metadata = params.get("metadata") if isinstance(params, dict) else None
    if not isinstance(metadata, dict):
        return {}
    return {
        extension.uri: given
        for extension in SERVER_EXTENSIONS
        if isinstance(given := metadata.get(extension.uri), dict)
    }


def _by_shape(rows: dict[Dialect, CallRow], params: object) -> Dialect | None:
    """The dialect of a call that holds a message, by how its parts are told apart; None when it holds none."""
    if next(iter(rows.values())).op not in (SEND, STREAM) or not isinstance(params, dict):
        return None
    message = params.get("message")
    if not isinstance(message, dict):
        return None
    given = message.get("parts")
    part: Any = next(iter(given), None) if isinstance(given, list) else None
    if Dialect.RUST in rows and json_mixed.is_rust(params):
        return Dialect.RUST
    if Dialect.FASTA2A in rows and "kind" not in message and not parts.is_tagged(part):
        return Dialect.FASTA2A
    return next(iter(rows))


def _of_its_shape(rows: dict[Dialect, CallRow], params: object) -> dict[Dialect, CallRow]:
    """Of the rows of a method on push configurations those whose shape the call has: with the wrapper of 0.x, whose
    task is `id`, or flat as 1.0, whose task is `taskId`."""
    if not next(iter(rows.values())).op.push or not isinstance(params, dict):
        return rows
    flat = "taskId" in params and "pushNotificationConfig" not in params
    return {dialect: row for dialect, row in rows.items() if (dialect in _FLAT) == flat} or rows


_FLAT: Final = (Dialect.V1, Dialect.FASTA2A, Dialect.RUST)


def failure(error: BaseException, id: str | int | None, dialect: Dialect, access: Access) -> bytes:
    """The answer to a call that failed; what is no A2AError is logged and told to nobody."""
    if not isinstance(error, A2AError):
        _log.error("%s failed", access.method, exc_info=error)
    told = errors.jsonrpc_error(error, dialect)
    access.done(told["code"])
    return jsonrpc.encode_error(id, told)
