"""JSON-RPC 2.0: the envelope around every call, the same in all versions of A2A (1.0 §9).

A request's id is given back as it came, with its type: clients compare it. A request without an id, or with null,
is answered all the same, because clients exist that send null and wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from dragoman.core.errors import InvalidParams, InvalidRequest

JSONRPC_VERSION: Final = "2.0"


@dataclass(frozen=True, slots=True)
class JsonRpcRequest:
    """One call. `params` is None when there are none."""

    id: str | int | None
    method: str
    params: object


def request_id(value: object) -> str | int | None:
    """The id with which to answer a request, whatever else is wrong with it; None when it has none of use."""
    given = value.get("id") if isinstance(value, dict) else None
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None


def partial_request(value: object) -> JsonRpcRequest:
    """What can be told of a request before it is known to be one; nothing where it has nothing of use."""
    given = value if isinstance(value, dict) else {}
    method, params = given.get("method"), given.get("params")
    return JsonRpcRequest(
        request_id(value), method if isinstance(method, str) else "", params if isinstance(params, dict) else None
    )


def parse_request(value: object) -> JsonRpcRequest:
    """The call in a parsed JSON value. Raises InvalidRequest, or InvalidParams, that names the member and the rule."""
    if isinstance(value, list):
        raise InvalidRequest("Request payload validation error: a batch is not supported; send one call at a time")
    if not isinstance(value, dict):
        raise InvalidRequest("Request payload validation error: the request must be a JSON object")
    if value.get("jsonrpc") != JSONRPC_VERSION:
        raise InvalidRequest(f'Request payload validation error: jsonrpc: must be "{JSONRPC_VERSION}"')
    given = value.get("id")
    if given is not None and request_id(value) is None:
        raise InvalidRequest("Request payload validation error: id: must be a string, an integer or null")
    method = value.get("method")
    if not isinstance(method, str) or not method:
        raise InvalidRequest("Request payload validation error: method: must be a string that is not empty")
    params = value.get("params")
    if params is not None and not isinstance(params, dict):
        raise InvalidParams.field("params", "must be a JSON object")
    return JsonRpcRequest(request_id(value), method, params)


def result_prefix(id: str | int | None) -> bytes:
    """The bytes before the result of an answer; `}` comes after it."""
    return b'{"jsonrpc":"2.0","id":%b,"result":' % orjson.dumps(id)


def encode_result(id: str | int | None, value: bytes) -> bytes:
    """The answer to a call: `value` is JSON already, `null` when there is nothing to say."""
    return b"%b%b}" % (result_prefix(id), value)


def encode_error(id: str | int | None, error: dict[str, Any]) -> bytes:
    """The answer to a call that failed, with the `error` object of `wire.errors.jsonrpc`."""
    return orjson.dumps({"jsonrpc": JSONRPC_VERSION, "id": id, "error": error})


def encode_request(id: str | int | None, method: str, params: object) -> bytes:
    """A request, as our own client sends it."""
    return orjson.dumps({"jsonrpc": JSONRPC_VERSION, "id": id, "method": method, "params": params})
