"""Every endpoint of a server, recorded while it registers its HTTP paths and gRPC handlers.

Three kinds are added by hand: the page at `/`, which has no route, and JSON-RPC and MCP, whose endpoints are methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from grpc.aio._server import Server as _Server  # what grpc.aio.server() returns; grpc.aio.Server is abstract

from dragoman.bindings import method_table
from dragoman.bindings.http.rest import RestRoute
from dragoman.bindings.method_table import A2AOperation, JsonRpcRow, RpcRow
from dragoman.extensions.mcp.endpoint.decoder import KNOWN_METHODS
from dragoman.wire.http import httprule
from dragoman.wire.http.routes import Routes

_RULES: Final = {
    (descriptor.full_name, method.name, rule.http_method, str(rule.template)): rule
    for descriptor, _ in method_table.rpc_services()
    for method, rule in httprule.rules(descriptor)
}


@dataclass(frozen=True)
class Endpoint:
    """One endpoint. `op` is its A2A operation; None if it is not part of the protocol."""

    kind: str
    """HTTP, JSON-RPC, MCP or gRPC."""
    name: str
    route: Any = None
    """The row of the method table; for HTTP a tuple of row and rule."""
    op: A2AOperation | None = None


class RecordedEndpoints:
    """The endpoints that a server registered."""

    def __init__(self) -> None:
        self.paths: dict[tuple[str, str], list[Any]] = {}
        self.rpcs: dict[str, Any] = {}

    def endpoints(self) -> list[Endpoint]:
        """All endpoints in the order of their registration."""
        return [*self._http(), *_json_rpc(), *_mcp(), *self._grpc()]

    def _http(self) -> Iterator[Endpoint]:
        yield Endpoint("HTTP", "GET /")
        for (method, path), targets in self.paths.items():
            if method == "HEAD" and ("GET", path) in self.paths:
                continue
            rows = [target.row for target in targets if isinstance(target, RestRoute)]
            for row in rows:
                suffix = f" ({row.dialect.value})" if len(rows) > 1 else ""
                yield Endpoint(
                    "HTTP", f"{method} {path}{suffix}", (row, _RULES[row.service, row.name, method, path]), row.op
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


def _mcp() -> Iterator[Endpoint]:
    for method in KNOWN_METHODS:
        yield Endpoint("MCP", method)


@contextmanager
def recorded() -> Iterator[RecordedEndpoints]:
    """Records the endpoints of the server that is opened in the block."""
    endpoints = RecordedEndpoints()
    add, generic = Routes.add, _Server.add_generic_rpc_handlers
    registered = _Server.add_registered_method_handlers

    def record_path(self: Any, method: str, template: Any, target: Any) -> None:
        endpoints.paths.setdefault((method, str(template)), []).append(target)
        add(self, method, template, target)

    def record_generic(self: Any, handlers: Any) -> None:
        handlers = tuple(handlers)
        for handler in handlers:
            endpoints.rpcs |= vars(handler)["_method_handlers"]
        generic(self, handlers)

    def record_registered(self: Any, service: str, handlers: Any) -> None:
        endpoints.rpcs |= {f"/{service}/{name}": handler for name, handler in handlers.items()}
        registered(self, service, handlers)

    with (
        patch.object(Routes, "add", record_path),
        patch.object(_Server, "add_generic_rpc_handlers", record_generic),
        patch.object(_Server, "add_registered_method_handlers", record_registered),
    ):
        yield endpoints


def row_of(endpoint: Endpoint) -> RpcRow | JsonRpcRow:
    """Returns the row of an A2A endpoint."""
    row = endpoint.route[0] if endpoint.kind == "HTTP" else endpoint.route
    assert isinstance(row, RpcRow | JsonRpcRow)
    return row
