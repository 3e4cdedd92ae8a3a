"""The expected result of every endpoint for every caller, and the page docs/reference/access.md.

Endpoints of A2A are expected by operation, operator calls by service; every other endpoint has a line here. A new
endpoint that is in none of these tables fails the test.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.access.endpoints import Endpoint

from dragoman.bindings import method_table
from dragoman.bindings.admin.table import OPS_SERVICE as OPS
from dragoman.bindings.grpc.worker_service import WORKER_SERVICE as WORKERS
from dragoman.bindings.http.server import RESOURCE_BASES

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "access.md"

REJECTED: Final = "unauthenticated"
FORBIDDEN: Final = "forbidden"
ABSENT: Final = "not found"
SERVED: Final = "served"

Results = tuple[str, str, str, str, str]
"""For a caller without credentials, another principal, the owner of the task, a viewer, and an operator."""

NAMES_A_TASK: Final[Results] = (REJECTED, ABSENT, SERVED, ABSENT, ABSENT)
OWN: Final[Results] = (REJECTED, SERVED, SERVED, SERVED, SERVED)
OPEN: Final[Results] = (SERVED, SERVED, SERVED, SERVED, SERVED)
VIEWERS: Final[Results] = (REJECTED, FORBIDDEN, FORBIDDEN, SERVED, SERVED)
OPERATORS: Final[Results] = (REJECTED, FORBIDDEN, FORBIDDEN, FORBIDDEN, SERVED)
WORKERS_ONLY: Final[Results] = (REJECTED, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN)
SIGNED: Final[Results] = (FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN)

_OPS: Final = (
    (method_table.SEND_MESSAGE, OWN),
    (method_table.STREAM_MESSAGE, OWN),
    (method_table.LIST_TASKS, OWN),
    (method_table.EXTENDED_CARD, OWN),
    (method_table.PUBLIC_CARD, OPEN),
    (method_table.GET_TASK, NAMES_A_TASK),
    (method_table.CANCEL_TASK, NAMES_A_TASK),
    (method_table.SUBSCRIBE_TASK, NAMES_A_TASK),
    (method_table.CREATE_PUSH_CONFIG, NAMES_A_TASK),
    (method_table.SET_PUSH_CONFIG, NAMES_A_TASK),
    (method_table.GET_PUSH_CONFIG, NAMES_A_TASK),
    (method_table.LIST_PUSH_CONFIGS, NAMES_A_TASK),
    (method_table.DELETE_PUSH_CONFIG, NAMES_A_TASK),
)

PAGES: Final = (
    "GET /",
    "GET /.well-known/agent-card.json",
    "GET /.well-known/agent.json",
    "GET /.well-known/ai-catalog.json",
    "GET /{agent}/.well-known/agent-card.json",
    "GET /{agent}/.well-known/agent.json",
    *(f"GET {base}/.well-known/{file}" for base in RESOURCE_BASES for file in ("agent-card.json", "agent.json")),
    "GET /agents",
    "GET /openapi.json",
    "GET /openapi/{file=**}",
    "GET /docs",
)
"""The pages that need credentials with `--private-pages`."""

OWN_OPERATIONS: Final = (
    "GET /operations/tasks",
    "GET /operations/tasks:watch",
    "GET /operations/usage",
    f"/{OPS.full_name}/ListTasks",
    f"/{OPS.full_name}/WatchTasks",
    f"/{OPS.full_name}/ListUsage",
)
"""Operations on the caller's own tasks and usage, which need no grant."""

VIEWER_OPERATIONS: Final = frozenset(
    f"/{OPS.full_name}/{name}"
    for name in (
        "ListAgents",
        "GetOverview",
        "Explain",
        "ListEvents",
        "ListSteps",
        "ListPushConfigs",
        "ListWorkers",
        "ListUpstreams",
    )
) | {
    "GET /operations/agents",
    "GET /operations/overview",
    "GET /operations/tasks/{task_id}:explain",
    "GET /operations/tasks/{task_id}/events",
    "GET /operations/tasks/{task_id}/steps",
    "GET /operations/pushes",
    "GET /operations/tasks/{task_id}/pushes",
    "GET /operations/workers",
}
"""Operations that only read."""

_LINES: Final[dict[str, Results]] = {
    **dict.fromkeys(PAGES, OPEN),
    "GET /docs/{file}": OPEN,
    "GET /.well-known/jwks.json": OPEN,
    **dict.fromkeys(
        (
            "GET /.well-known/oauth-protected-resource",
            *(f"GET /.well-known/oauth-protected-resource{base}/mcp" for base in ("", "/{tenant}", *RESOURCE_BASES)),
        ),
        OPEN,
    ),
    "GET /metrics": OPERATORS,
    "GET /console": OPEN,
    "GET /console/{file=**}": OPEN,
    "GET /console/sign-in": OPEN,
    "POST /console/token": OPEN,
    "GET /console/caller": OWN,
    "GET /healthz": OPEN,
    "GET /health": OPEN,
    "GET /readyz": OPEN,
    "GET /ready": OPEN,
    "GET /ws": OWN,
    "GET /{tenant}/ws": OWN,
    "GET /tenants/{tenant}/ws": OWN,
    **{
        f"{method} {base}/mcp": OWN if method == "POST" else OPEN
        for method in ("POST", "GET", "DELETE")
        for base in ("", "/{tenant}", *RESOURCE_BASES)
    },
    "GET /blobs/{name}": SIGNED,
    "/grpc.health.v1.Health/Check": OPEN,
    "/grpc.health.v1.Health/Watch": OPEN,
    "/grpc.health.v1.Health/List": OPEN,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": OPEN,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": OPEN,
}


_MCP_TASK_METHODS: Final = ("tools/call", "tasks/get", "tasks/update", "tasks/cancel")
"""Methods of MCP that the test calls with a task: `tools/call` with the tool `get_task`."""


def expected(endpoint: Endpoint, *, private: bool = False) -> Results:
    """Returns the expected results. Raises KeyError for an unlisted endpoint. `private`: with --private-pages."""
    if endpoint.op is not None:
        return next(results for op, results in _OPS if op is endpoint.op)
    if endpoint.kind == "MCP":
        return NAMES_A_TASK if endpoint.name in _MCP_TASK_METHODS else OWN
    if private and endpoint.name in PAGES:
        return OWN
    if endpoint.name in OWN_OPERATIONS:
        return OWN
    if endpoint.name in VIEWER_OPERATIONS:
        return VIEWERS
    if endpoint.name.startswith(f"/{OPS.full_name}/") or " /operations/" in endpoint.name:
        return OPERATORS
    if endpoint.name.startswith(f"/{WORKERS.full_name}/"):
        return WORKERS_ONLY
    return _LINES[endpoint.name]


_HEAD: Final = """\
# Access to endpoints

`make access` writes this page from the server's own tables. `tests/access` calls every path, JSON-RPC method and RPC
of a running server as each of five callers, and compares the results with this page.

| caller | description |
|---|---|
| anonymous | no credentials, on a server with `--api-keys`, `--issuers` or `--token` and without `--public-agents` |
| stranger | another principal that may call the agent |
| owner | the principal that created the task |
| viewer | a principal with the grant `viewer`, which owns no task |
| operator | a principal with the grant `operator`, which owns no task |

| result | HTTP | gRPC | JSON-RPC |
|---|---|---|---|
| unauthenticated | 401 with `WWW-Authenticate` | UNAUTHENTICATED | the same 401 |
| forbidden | 403 | PERMISSION_DENIED | the same 403 |
| not found | 404, byte-identical to that of a nonexistent task | NOT_FOUND | error -32001 |
| served | the response | the response | the response |

- The operator grant gives access to `dragoman.ops.v1`, but to no tasks over A2A. The viewer grant gives access to what
  only reads. `ListTasks` of `dragoman.ops.v1` shows operators and viewers the tasks of all principals; other callers
  need no grant, and see their own. So it is with `WatchTasks` and `ListUsage`.
- Operators and viewers whose grants name scopes or agents reach the tasks within these, and get **forbidden** for tasks
  of others and for operations on the whole server, such as backups and API keys.
- **served** for a stranger concerns its own tasks: it can send messages and list its tasks.
- Callers whose grants do not include the agent or its scope get **forbidden** where a stranger is served.
- With `--public-agents`, all anonymous callers of those agents are one principal and share its tasks.
- With `--isolation scope`, every principal in the scope is the owner.
- Without authentication every caller is owner and operator. With `--insecure`, workers and operator calls on the store
  are limited to the server's machine, and behind a proxy to nobody; others see the tasks of anonymous callers only.
- RESOURCE is `projects/*/locations/*/collections/*/engines/*/assistants/*/agents/*`.
- `HEAD` is served wherever `GET` is, except for streams. Other paths are not found for all callers.
"""

_RESOURCE: Final = "projects/*/locations/*/collections/*/engines/*/assistants/*/agents/*"

_PRIVATE: Final = """\

## With `--private-pages`

These pages need credentials, as `/tasks` does. Health, reflection, the files of `/docs`, `/.well-known/jwks.json` and
`/.well-known/oauth-protected-resource` stay public. The AI catalog has the public agents for callers without
credentials, if there are any. An agent that a caller may not call looks nonexistent over every transport: callers with
credentials get **not found**, callers without get **unauthenticated**.

"""

_AFTER: Final = {
    "HTTP": "\nBlobs need a signed link, which expires; the test requests them without one.\n",
    "JSON-RPC": "\nBy POST to `/`, `/AGENT`, `/tenants/AGENT` and resource names, and in WebSocket frames.\n",
    "MCP": "\nBy POST to `/mcp`; the test calls the tool `get_task`. Not found is error -32602, or its result.\n",
    "gRPC": "\n`Connect` is for workers: principals with the grant `worker`, or `worker:ID`.\n",
}


def page(endpoints: Iterable[Endpoint]) -> str:
    """Returns the text of docs/reference/access.md."""
    endpoints = list(endpoints)
    texts = [_HEAD]
    for kind in ("HTTP", "JSON-RPC", "MCP", "gRPC"):
        columns = "anonymous | stranger | owner | viewer | operator"
        texts.append(f"\n## {kind}\n\n| endpoint | {columns} |\n|---|---|---|---|---|---|\n")
        rows = [
            (endpoint.name.replace(_RESOURCE, "RESOURCE"), endpoint) for endpoint in endpoints if endpoint.kind == kind
        ]
        texts += [f"| `{name}` | {' | '.join(expected(endpoint))} |\n" for name, endpoint in rows]
        texts.append(_AFTER[kind])
    texts.append(_PRIVATE)
    texts += [f"- `{name.replace(_RESOURCE, 'RESOURCE')}`\n" for name in PAGES]
    return "".join(texts)
