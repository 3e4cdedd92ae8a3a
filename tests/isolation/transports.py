"""All bindings, with the calls of each."""

from __future__ import annotations

from typing import Final

from tests.isolation.calls import over_grpc, over_jsonrpc, over_rest, over_websocket
from tests.isolation.mcp_calls import over_mcp

TRANSPORTS: Final = {
    "gRPC": over_grpc,
    "REST": over_rest,
    "JSON-RPC": over_jsonrpc,
    "WebSocket": over_websocket,
    "MCP": over_mcp,
}
