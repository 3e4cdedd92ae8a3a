"""Names on the wire and what they mean: scope, agent, principal, task.

A2A's `tenant` is an opaque string (1.0 §4.6). Ours names an agent, and may name the room it stands in:

| tenant                                                     | scope                      | agent          |
|------------------------------------------------------------|----------------------------|----------------|
| empty                                                      | `default`                  | the root agent |
| `ID`                                                       | `default`                  | ID             |
| `projects/…/locations/…/collections/…/engines/…/assistants/…/agents/ID` | all before `/agents/` | ID        |

A task's key is ours: 16 bytes that sort by time (RFC 9562 §5.7). The id that clients see is its UUID text.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dragoman.core.errors import AgentNotFound

DEFAULT_SCOPE: Final = "default"
ANONYMOUS_PRINCIPAL: Final = "anonymous"

AGENT_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
RESOURCE_NAME: Final = re.compile(
    r"(?P<scope>projects/[^/]+/locations/[^/]+/collections/[^/]+/engines/[^/]+/assistants/[^/]+)"
    r"/agents/(?P<agent>[^/]+)"
)
RESERVED_AGENT_IDS: Final = frozenset(
    (
        *("a2a", "agents", "blobs", "card", "console", "docs", "health", "healthz", "message", "metrics", "openapi"),
        *("operations", "projects", "ready", "readyz", "tasks", "tenants", "v1", "ws"),
    )
)
"""First path segments that are routes of ours or of the protocol: an agent of that name could not be reached."""


class Owner(NamedTuple):
    """Whose a task is. Everything stored is keyed by it."""

    scope: str
    principal: str


def resolve_tenant(tenant: str, root: str) -> tuple[str, str]:
    """The (scope, agent) that a tenant string names; `root` is the agent meant by the empty one.

    Raises AgentNotFound for a string of another form.
    """
    if not tenant:
        return DEFAULT_SCOPE, root
    tenant = tenant.strip("/")
    if resource := RESOURCE_NAME.fullmatch(tenant):
        return resource["scope"], resource["agent"]
    if AGENT_ID.fullmatch(tenant):
        return DEFAULT_SCOPE, tenant
    raise AgentNotFound(f'tenant: "{tenant[:200]}" names no agent; use an agent id or projects/…/agents/ID')


def split_resource_name(name: str) -> tuple[str, str]:
    """A resource name as tenant and rest: `projects/…/agents/a/tasks/1` is (`projects/…/agents/a`, `tasks/1`)."""
    found = RESOURCE_NAME.match(name)
    if found and name[found.end() : found.end() + 1] == "/":
        return found[0], name[found.end() + 1 :]
    return "", name


def check_agent_id(agent: str) -> None:
    """Raises ValueError, naming the rule, when an agent could not be addressed under this id."""
    if not AGENT_ID.fullmatch(agent):
        raise ValueError(
            f'agent id "{agent}": must be a lower-case letter, then at most 62 letters, digits or "-"; set id='
        )
    if agent in RESERVED_AGENT_IDS:
        raise ValueError(f'agent id "{agent}" is taken by a route of the server; set id= to choose another')


def make_task_key(now_ns: int, entropy: bytes) -> bytes:
    """A task key, laid out as UUID version 7: the time in nanoseconds since the epoch as 48 bits of milliseconds and 12
    of their fraction (RFC 9562 §6.2, method 3), then 62 of the first 8 bytes of `entropy`."""
    milliseconds, rest = divmod(now_ns, 1_000_000)
    body = bytearray(milliseconds.to_bytes(6, "big") + ((rest << 12) // 1_000_000 | 0x7000).to_bytes(2, "big"))
    body += entropy[:8]
    body[8] = 0x80 | body[8] & 0x3F
    return bytes(body)


def task_id_of(key: bytes) -> str:
    """The task id that clients see for a key."""
    text = key.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def task_key_of(task_id: str) -> bytes | None:
    """The key behind a task id, or None when no key has that id."""
    return bytes.fromhex(task_id.replace("-", "")) if _TASK_ID.fullmatch(task_id) else None


_TASK_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
