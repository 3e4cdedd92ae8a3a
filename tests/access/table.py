"""What every door answers to whom, and the page of the manual that says so (docs/reference/access.md).

A door of the protocol answers by its operation, an operator's verb by its service; every other one has its line here.
Who adds a door that is none of these is told by the test.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.access.endpoints import Endpoint

from dragoman.bindings import method_table
from dragoman.bindings.admin.handlers import OPS_SERVICE as OPS
from dragoman.bindings.grpc.worker_service import WORKER_SERVICE as WORKERS

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "access.md"

REFUSED: Final = "refused"
FORBIDDEN: Final = "forbidden"
ABSENT: Final = "not there"
SERVED: Final = "served"

Answers = tuple[str, str, str, str]
"""To who shows nothing, to another principal, to the owner of the task, to an operator."""

NAMES_A_TASK: Final[Answers] = (REFUSED, ABSENT, SERVED, ABSENT)
OWN: Final[Answers] = (REFUSED, SERVED, SERVED, SERVED)
OPEN: Final[Answers] = (SERVED, SERVED, SERVED, SERVED)
OPERATORS: Final[Answers] = (REFUSED, FORBIDDEN, FORBIDDEN, SERVED)
WORKERS_ONLY: Final[Answers] = (REFUSED, FORBIDDEN, FORBIDDEN, FORBIDDEN)
SIGNED: Final[Answers] = (FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN)

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
    (method_table.GET_PUSH_CONFIG, NAMES_A_TASK),
    (method_table.LIST_PUSH_CONFIGS, NAMES_A_TASK),
    (method_table.DELETE_PUSH_CONFIG, NAMES_A_TASK),
)

PAGES: Final = (
    "GET /",
    "GET /.well-known/agent-card.json",
    "GET /.well-known/agent.json",
    "GET /{agent}/.well-known/agent-card.json",
    "GET /{agent}/.well-known/agent.json",
    "GET /agents",
    "GET /openapi.json",
    "GET /openapi/{file=**}",
    "GET /docs",
)
"""What `--private-pages` closes."""

_LINES: Final[dict[str, Answers]] = {
    **dict.fromkeys(PAGES, OPEN),
    "GET /docs/{file}": OPEN,
    "GET /.well-known/jwks.json": OPEN,
    "GET /metrics": OPERATORS,
    "GET /console": OPEN,
    "GET /console/{file=**}": OPEN,
    "GET /healthz": OPEN,
    "GET /health": OPEN,
    "GET /readyz": OPEN,
    "GET /ready": OPEN,
    "GET /ws": OWN,
    "GET /{tenant}/ws": OWN,
    "GET /tenants/{tenant}/ws": OWN,
    "GET /blobs/{hash}": SIGNED,
    "/grpc.health.v1.Health/Check": OPEN,
    "/grpc.health.v1.Health/Watch": OPEN,
    "/grpc.health.v1.Health/List": OPEN,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": OPEN,
}


def expected(endpoint: Endpoint, *, private: bool = False) -> Answers:
    """Raises KeyError for a door that nobody has thought of. `private`: under --private-pages."""
    if endpoint.op is not None:
        return next(answers for op, answers in _OPS if op is endpoint.op)
    if private and endpoint.name in PAGES:
        return OWN
    if endpoint.name.startswith(f"/{OPS.full_name}/") or " /operations/" in endpoint.name:
        return OPERATORS
    if endpoint.name.startswith(f"/{WORKERS.full_name}/"):
        return WORKERS_ONLY
    return _LINES[endpoint.name]


_HEAD: Final = """\
# Who may ask what

Made by `make access` from the server's own tables, and asked of a running server by `tests/access`: every path,
every method of JSON-RPC and every RPC, by four callers. A door without an answer here fails the test.

| caller | is |
|---|---|
| anonymous | who shows nothing, on a server with `--api-keys`, `--issuers` or `--token` and no `--public-agents` |
| stranger | another principal, which may call the agent |
| owner | the principal that made the task |
| operator | a principal with the grant `operator`, which made no task |

| answer | over HTTP | over gRPC | in JSON-RPC |
|---|---|---|---|
| refused | 401 with `WWW-Authenticate` | UNAUTHENTICATED | the same 401 |
| forbidden | 403 | PERMISSION_DENIED | the same 403 |
| not there | 404, to the byte what a task gets that never was | NOT_FOUND | error -32001 |
| served | what was asked for | the same | the same |

- An operator is nobody's owner: its grant opens the verbs of `dragoman.ops.v1`, and no task over A2A.
- **served** to a stranger means: about its own tasks. It sends, and lists what it has sent.
- Whose credentials have grants that do not reach the agent, or its scope, is forbidden wherever a stranger is served.
- With `--public-agents` those agents answer the anonymous as one principal, whose tasks all of them share.
- With `--isolation scope` everybody in the scope is the owner; with `context`, whoever takes part in the conversation.
- Where nobody is asked who they are, everybody is owner and operator; with `--insecure`, workers and those verbs of
  operators that touch the store are for this machine only.
- RESOURCE is `projects/*/locations/*/collections/*/engines/*/assistants/*/agents/*`.
- `HEAD` is answered wherever `GET` is, but for streams. Other paths are not there, for anybody.
"""

_RESOURCE: Final = "projects/*/locations/*/collections/*/engines/*/assistants/*/agents/*"

_PRIVATE: Final = """\

## With `--private-pages`

These ask who calls, as `/tasks` does. Health, reflection, the files of `/docs` and `/.well-known/jwks.json` stay open.
An agent that a caller may not call is to it, on every road, as one that is not there: not found for who has
credentials, refused for who has none.

"""

_AFTER: Final = {
    "HTTP": "\nBlobs are for whoever has their link, which is signed and expires; the doors were asked without one.\n",
    "JSON-RPC": "\nBy POST at `/`, `/AGENT`, `/tenants/AGENT` and resource names, and in the frames of a WebSocket.\n",
    "gRPC": "\n`Connect` is for workers: principals with the grant `worker`, or `worker:ID`.\n",
}


def page(endpoints: Iterable[Endpoint]) -> str:
    """The text of docs/reference/access.md."""
    endpoints = list(endpoints)
    texts = [_HEAD]
    for kind in ("HTTP", "JSON-RPC", "gRPC"):
        texts.append(f"\n## {kind}\n\n| door | anonymous | stranger | owner | operator |\n|---|---|---|---|---|\n")
        shown = [
            (endpoint.name.replace(_RESOURCE, "RESOURCE"), endpoint) for endpoint in endpoints if endpoint.kind == kind
        ]
        texts += [f"| `{name}` | {' | '.join(expected(endpoint))} |\n" for name, endpoint in shown]
        texts.append(_AFTER[kind])
    texts.append(_PRIVATE)
    texts += [f"- `{name}`\n" for name in PAGES]
    return "".join(texts)
