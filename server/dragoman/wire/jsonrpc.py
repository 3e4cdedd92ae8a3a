"""JSON-RPC 2.0 envelopes of requests and responses, the same in all versions of A2A (1.0 §9).

A response repeats the request's id with its type, because clients compare it. A request without an id, or with null, is
answered too: some clients send null and wait for the response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from dragoman.core.errors import InvalidParams, InvalidRequest

JSONRPC_VERSION: Final = "2.0"


@dataclass(slots=True)
class JsonRpcRequest:
    """One request, not changed but not frozen. `params` is None if absent."""

    id: str | int | None
    method: str
    params: object


def request_id(body: object) -> str | int | None:
    """The id of a request that may be invalid otherwise; None for a missing or invalid id."""
    id = body.get("id") if isinstance(body, dict) else None
    return id if isinstance(id, str | int) and not isinstance(id, bool) else None


def partial_request(body: object) -> JsonRpcRequest:
    """The valid members of a request that may be invalid, for logs and error responses."""
    members = body if isinstance(body, dict) else {}
    method, params = members.get("method"), members.get("params")
    return JsonRpcRequest(
        request_id(body), method if isinstance(method, str) else "", params if isinstance(params, dict) else None
    )


def parse_request(body: object) -> JsonRpcRequest:
    """Parses a request from JSON. Raises InvalidRequest or InvalidParams, naming the member and the rule."""
    if isinstance(body, list):
        raise InvalidRequest("Request payload validation error: a batch is not supported; send one call at a time")
    if not isinstance(body, dict):
        raise InvalidRequest("Request payload validation error: the request must be a JSON object")
    if body.get("jsonrpc") != JSONRPC_VERSION:
        raise InvalidRequest(f'Request payload validation error: jsonrpc: must be "{JSONRPC_VERSION}"')
    if body.get("id") is not None and request_id(body) is None:
        raise InvalidRequest("Request payload validation error: id: must be a string, an integer or null")
    method = body.get("method")
    if not isinstance(method, str) or not method:
        raise InvalidRequest("Request payload validation error: method: must be a string that is not empty")
    params = body.get("params")
    if params is not None and not isinstance(params, dict):
        raise InvalidParams.field("params", "must be a JSON object")
    return JsonRpcRequest(request_id(body), method, params)


def result_prefix(id: str | int | None) -> bytes:
    """The bytes of a response before its result; `}` follows the result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":' % orjson.dumps(id)


def encode_result(id: str | int | None, result: bytes) -> bytes:
    """Encodes a response. `result` is JSON, `null` if it is empty."""
    return b"%b%b}" % (result_prefix(id), result)


def encode_error(id: str | int | None, error: dict[str, Any]) -> bytes:
    """Encodes the response to a failed request. `error` is the object of `wire.errors.jsonrpc_error`."""
    return orjson.dumps({"jsonrpc": JSONRPC_VERSION, "id": id, "error": error})
