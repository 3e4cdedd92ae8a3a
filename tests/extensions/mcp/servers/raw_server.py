"""An MCP server that answers with what is no MCP: `python raw_server.py KIND`, or over HTTP in this process.

Its tool `bad` answers in the way of KIND, and its tool `good` as it should.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

OK: Final = {"content": [{"type": "text", "text": "ok"}]}
TOOL: Final[dict[str, Any]] = {"name": "bad", "inputSchema": {"type": "object"}}
NUMBER: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
BOMB: Final = {"type": "object", "properties": {"n": {"type": "string", "pattern": "^(a|a)+$"}}}

OUTPUTS: Final[dict[str, tuple[Any, Any]]] = {
    "output fits": (NUMBER, {"n": 1}),
    "output differs": (NUMBER, {"n": "one"}),
    "output is missing": (NUMBER, None),
    "output pattern": (BOMB, {"n": "a" * 5000 + "!"}),
    "output fetches": ({"type": "object", "properties": {"n": {"$ref": "file:///etc/passwd"}}}, {"n": 1}),
}
"""The output schema of the tool, and the structured content of its result."""


def listed(kind: str) -> list[Any]:
    """The tools of a server."""
    good = {**TOOL, "name": "good"}
    schema = OUTPUTS.get(kind, (None, None))[0]
    bad = {**TOOL, "outputSchema": schema} if schema else TOOL
    match kind:
        case "tool without a schema":
            bad = {"name": "bad"}
        case "tool of a number":
            return [5, good]
        case "tools without end":
            return [{**TOOL, "name": f"t{n}"} for n in range(3000)]
        case "long description":
            bad = {**TOOL, "description": "x" * 20_000_000}
    return [bad, good]


def answers(kind: str, message: dict[str, Any]) -> list[str]:
    """What the server sends for a message, as texts."""
    if "id" not in message or "method" not in message:
        return []
    head = {"jsonrpc": "2.0", "id": message["id"]}
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        info: dict[str, Any] = {"name": "raw", "version": "1"}
        if kind == "no version":
            del info["version"]
        result: Any = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": listed(kind), **({"nextCursor": "again"} if kind == "pages without end" else {})}
        if kind == "list is a text":
            result = {"tools": "none"}
    elif method == "tools/call" and params["name"] == "bad":
        return bad_answers(kind, head, params)
    elif method == "tools/call":
        result = OK
    else:
        return [json.dumps({**head, "error": {"code": -32601, "message": "no"}})]
    return [json.dumps({**head, "result": result})]


STRANGE_IDS: Final[list[Any]] = [{}, [], None, True, "9" * 5000]


def bad_answers(kind: str, head: dict[str, Any], params: dict[str, Any]) -> list[str]:
    """What the server sends for a call of its tool `bad`."""
    good = {**head, "result": OK}
    answer = json.dumps(good)
    token = params.get("_meta", {}).get("progressToken")
    progress = {"jsonrpc": "2.0", "method": "notifications/progress"}
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}})
    if kind in OUTPUTS:
        content = OUTPUTS[kind][1]
        return [json.dumps({**head, "result": {**OK, **({"structuredContent": content} if content else {})}})]
    return {
        "surrogate": [answer.replace('"ok"', r'"a\ud800"')],
        "truncated": [answer[:50]],
        "pretty": [json.dumps(good, indent=1)],
        "no id": [json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "bad"}})],
        "unknown id": [json.dumps({**good, "id": 4711})],
        "error is a text": [json.dumps({**head, "error": "boom"})],
        "result is null": [json.dumps({**head, "result": None})],
        "result is a list": [json.dumps({**head, "result": [1]})],
        "content is a number": [json.dumps({**head, "result": {"content": 5}})],
        "both": [json.dumps({**good, "error": {"code": 1, "message": "x"}})],
        "deep": [json.dumps(head)[:-1] + ', "result": ' + "[" * 5000 + "]" * 5000 + "}"],
        "too long": [json.dumps({**head, "result": {"content": [{"type": "text", "text": "x" * 2_000_000}]}})],
        "nothing": [],
        "a log first": ["starting the tool", '{"level": "info"}', answer],
        "twice": [answer, answer],
        "strange progress": [*(json.dumps({**progress, "params": one}) for one in _strange_progress(token)), answer],
        "flood": [*[note] * 20_000, answer],
        "requests without end": [*(_request(n, "roots/list") for n in range(2_000)), answer],
        "strange requests": [
            *(_request(id, "roots/list") for id in STRANGE_IDS),
            *map(_withdrawal, STRANGE_IDS),
            answer,
        ],
        "asks and withdraws": [_request("q"), _withdrawal("q")],
        "asks when told": [_request("q")] if params["arguments"].get("ask") else [],
    }[kind]  # fmt: skip


def _request(id: Any, method: str = "elicitation/create") -> str:
    params = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def _withdrawal(id: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})


def _strange_progress(token: Any) -> list[Any]:
    values: list[Any] = ["x", None, {}, 1e308]
    return [
        *({"progressToken": token, "progress": one} for one in values),
        None,
        [],
        {"progressToken": {}, "progress": 1},
    ]


def serve_stdio(kind: str) -> None:
    """Answers the lines of stdin."""
    for line in sys.stdin:
        message = json.loads(line)
        if kind == "ends" and (message.get("params") or {}).get("name") == "bad":
            return
        for text in answers(kind, message):
            sys.stdout.write(text + "\n")
        sys.stdout.flush()


@asynccontextmanager
async def http_raw_server(kind: str, *, as_events: bool = False) -> AsyncIterator[str]:
    """Serves over HTTP on a free port; the URL."""
    from aiohttp import web

    async def post(request: web.Request) -> web.Response:
        texts = answers(kind, await request.json())
        if as_events:
            body = "".join(f"data: {line}\n\n" for text in texts for line in text.splitlines())
            return web.Response(text=body, content_type="text/event-stream")
        return web.Response(
            text=texts[-1] if texts else "", status=200 if texts else 202, content_type="application/json"
        )

    app = web.Application()
    app.router.add_post("/mcp", post)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    serve_stdio(sys.argv[1])
