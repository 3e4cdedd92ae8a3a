"""Every door of a server, as its own tables have it: what was added to the trie of paths, and what gRPC was given.

Nothing is listed here by hand but what no table holds: the page at `/`, and JSON-RPC, whose doors are its methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from grpc.aio._server import Server as _Server  # what grpc.aio.server() makes; grpc.aio.Server is its description

from dragoman.bindings import methods
from dragoman.bindings.methods import CallRow, Op, Row
from dragoman.bindings.rest import Route
from dragoman.wire.http import httprule
from dragoman.wire.http.routes import Routes

_RULES: Final = {
    (descriptor.full_name, method.name, rule.http_method, str(rule.template)): rule
    for descriptor, _ in methods.services()
    for method, rule in httprule.rules(descriptor)
}


@dataclass(frozen=True)
class Door:
    """One way in. `op` is the operation of A2A behind it, None for what is no part of the protocol."""

    kind: str
    """HTTP, JSON-RPC or gRPC."""
    name: str
    what: Any = None
    """The row of the method table, and for HTTP the rule with it."""
    op: Op | None = None


class Found:
    """What a server was given while it was opened."""

    def __init__(self) -> None:
        self.paths: dict[tuple[str, str], list[Any]] = {}
        self.rpcs: dict[str, Any] = {}

    def doors(self) -> list[Door]:
        """All of them, in the order in which they were given."""
        return [*self._http(), *_json_rpc(), *self._grpc()]

    def _http(self) -> Iterator[Door]:
        yield Door("HTTP", "GET /")
        for (method, path), targets in self.paths.items():
            if method == "HEAD" and ("GET", path) in self.paths:
                continue
            rows = [target.row for target in targets if isinstance(target, Route)]
            for row in rows:
                said = f" ({row.dialect.value})" if len(rows) > 1 else ""
                yield Door("HTTP", f"{method} {path}{said}", (row, _RULES[row.service, row.name, method, path]), row.op)
            if not rows:
                yield Door("HTTP", f"{method} {path}")

    def _grpc(self) -> Iterator[Door]:
        rows = {f"/{row.service}/{row.name}": row for row in methods.ROWS}
        for name in self.rpcs:
            row = rows.get(name)
            yield Door("gRPC", name, row, row.op if row else None)


def _json_rpc() -> Iterator[Door]:
    for row in methods.CALLS:
        yield Door("JSON-RPC", f"{row.name} ({row.dialect.value})", row, row.op)


@contextmanager
def recorded() -> Iterator[Found]:
    """Notes what a server is given that is opened meanwhile."""
    found = Found()
    add, generic = Routes.add, _Server.add_generic_rpc_handlers
    registered = _Server.add_registered_method_handlers

    def note_path(self: Any, method: str, template: Any, target: Any) -> None:
        found.paths.setdefault((method, str(template)), []).append(target)
        add(self, method, template, target)

    def note_generic(self: Any, handlers: Any) -> None:
        handlers = tuple(handlers)
        for handler in handlers:
            found.rpcs |= vars(handler)["_method_handlers"]
        generic(self, handlers)

    def note_registered(self: Any, service: str, handlers: Any) -> None:
        found.rpcs |= {f"/{service}/{name}": handler for name, handler in handlers.items()}
        registered(self, service, handlers)

    with (
        patch.object(Routes, "add", note_path),
        patch.object(_Server, "add_generic_rpc_handlers", note_generic),
        patch.object(_Server, "add_registered_method_handlers", note_registered),
    ):
        yield found


def row_of(door: Door) -> Row | CallRow:
    """The row that a door of the protocol is of."""
    row = door.what[0] if door.kind == "HTTP" else door.what
    assert isinstance(row, Row | CallRow)
    return row
