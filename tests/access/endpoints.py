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

from dragoman.bindings import method_table
from dragoman.bindings.http.rest import RestRoute
from dragoman.bindings.method_table import A2AOperation, JsonRpcRow, RpcRow
from dragoman.wire.http import httprule
from dragoman.wire.http.routes import Routes

_RULES: Final = {
    (descriptor.full_name, method.name, rule.http_method, str(rule.template)): rule
    for descriptor, _ in method_table.rpc_services()
    for method, rule in httprule.rules(descriptor)
}


@dataclass(frozen=True)
class Endpoint:
    """One way in. `op` is the operation of A2A behind it, None for what is no part of the protocol."""

    kind: str
    """HTTP, JSON-RPC or gRPC."""
    name: str
    what: Any = None
    """The row of the method table, and for HTTP the rule with it."""
    op: A2AOperation | None = None


class RecordedEndpoints:
    """What a server was given while it was opened."""

    def __init__(self) -> None:
        self.paths: dict[tuple[str, str], list[Any]] = {}
        self.rpcs: dict[str, Any] = {}

    def endpoints(self) -> list[Endpoint]:
        """All of them, in the order in which they were given."""
        return [*self._http(), *_json_rpc(), *self._grpc()]

    def _http(self) -> Iterator[Endpoint]:
        yield Endpoint("HTTP", "GET /")
        for (method, path), targets in self.paths.items():
            if method == "HEAD" and ("GET", path) in self.paths:
                continue
            rows = [target.row for target in targets if isinstance(target, RestRoute)]
            for row in rows:
                text = f" ({row.dialect.value})" if len(rows) > 1 else ""
                yield Endpoint(
                    "HTTP", f"{method} {path}{text}", (row, _RULES[row.service, row.name, method, path]), row.op
                )
            if not rows:
                yield Endpoint("HTTP", f"{method} {path}")

    def _grpc(self) -> Iterator[Endpoint]:
        rows = {f"/{row.service}/{row.name}": row for row in method_table.RPC_ROWS}
        for name in self.rpcs:
            row = rows.get(name)
            yield Endpoint("gRPC", name, row, row.op if row else None)


def _json_rpc() -> Iterator[Endpoint]:
    for row in method_table.JSONRPC_ROWS:
        yield Endpoint("JSON-RPC", f"{row.name} ({row.dialect.value})", row, row.op)


@contextmanager
def recorded() -> Iterator[RecordedEndpoints]:
    """Notes what a server is given that is opened meanwhile."""
    found = RecordedEndpoints()
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


def row_of(endpoint: Endpoint) -> RpcRow | JsonRpcRow:
    """The row that a door of the protocol is of."""
    row = endpoint.what[0] if endpoint.kind == "HTTP" else endpoint.what
    assert isinstance(row, RpcRow | JsonRpcRow)
    return row
