"""Maps names on the wire to scope, agent, owner and task key.

A2A's `tenant` is an opaque string (1.0 §4.6). Ours names an agent, and optionally its scope: empty is the root agent
and `ID` that agent, in scope `default`; for `projects/…/locations/…/collections/…/engines/…/assistants/…/agents/ID`
the scope is everything before `/agents/`.

A task's key is 16 bytes that sort by time (RFC 9562 §5.7). The id that clients see is its UUID text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, NewType, TypeVar

from dragoman.core.errors import AgentNotFound

DEFAULT_SCOPE: Final = "default"
ANONYMOUS_PRINCIPAL: Final = "anonymous"

AGENT_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
RESOURCE_NAME: Final = re.compile(
    r"(?P<scope>projects/[^/]+/locations/[^/]+/collections/[^/]+/engines/[^/]+/assistants/[^/]+)"
    r"/agents/(?P<agent>[^/]+)"
)
MAX_SCOPE_NAME_LENGTH: Final = 63
"""Characters of each name in a scope: callers choose them, and every list shows them to operators."""
RESERVED_AGENT_IDS: Final = frozenset(
    (
        *("a2a", "agents", "blobs", "card", "console", "docs", "health", "healthz", "mcp", "message", "metrics"),
        *("openapi", "operations", "projects", "ready", "readyz", "tasks", "tenants", "v1", "ws"),
    )
)
"""First path segments of our routes and the protocol's: an agent with such an id could not be reached."""

TaskId = NewType("TaskId", str)
ContextId = NewType("ContextId", str)
MessageId = NewType("MessageId", str)
ArtifactId = NewType("ArtifactId", str)
"""Ids as the protocol has them: strings, which type checkers keep apart."""

T = TypeVar("T", bound=str)


@dataclass(frozen=True, slots=True)
class ByAgent(Generic[T]):
    """One of a few words for all agents, and those of single agents."""

    default: T
    by_agent: Mapping[str, T] = field(default_factory=dict)  # words of single agents, by id

    def of(self, agent: str) -> T:
        return self.by_agent.get(agent, self.default)


def parse_by_agent(setting: str | Mapping[str, object], kind: str, words: Sequence[T]) -> ByAgent[T]:
    """Parses a word for all agents or for some: `owner`, `scope,desk=owner`, or a table by agent with `default`.

    The first of `words` is the default. Raises ValueError with `kind`, what a word is ("an isolation policy").
    """
    table = dict(_items_by_agent(setting)) if isinstance(setting, str) else setting
    parsed: dict[str, T] = {}
    for agent, value in table.items():
        if value not in words:
            raise ValueError(f'{agent}: "{value}" is not {kind}; use {", ".join(words)}')
        parsed[agent] = words[words.index(value)]
    return ByAgent(parsed.pop("default", words[0]), parsed)


def _items_by_agent(text: str) -> Iterator[tuple[str, str]]:
    for item in split_items(text):
        agent, equals, word = item.partition("=")
        yield (agent.strip(), word.strip()) if equals else ("default", agent)


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known name that a misspelled one most likely means; empty if none is near. `cutoff`: from 0 to 1, equal."""
    return next(iter(difflib.get_close_matches(name, sorted(known), 1, cutoff)), "")


def split_items(text: str) -> Iterator[str]:
    return filter(None, map(str.strip, text.split(",")))


def parse_table(text: str, form: str, *, agents_only: bool = False) -> dict[str, Any]:
    """The table that `NAME=VALUE,AGENT.NAME=VALUE` stands for: values by name, and the tables of agents.

    `agents_only`: each item names an agent. Raises ValueError with `form`, that of an item ("STATE=AGE, such as ...").
    """
    table: dict[str, Any] = {}
    for item in split_items(text):
        path, equals, value = item.partition("=")
        agent, _, name = path.strip().rpartition(".")
        inner = table.setdefault(agent, {}) if agent else table
        if not equals or not isinstance(inner, dict) or (agents_only and not agent):
            raise ValueError(f'"{item}" is not {form}')
        inner[name] = value.strip()
    return table


class Owner(NamedTuple):
    """The owner of a task: part of every stored key."""

    scope: str
    principal: str


def resolve_tenant(tenant: str, root: str) -> tuple[str, str]:
    """The (scope, agent) of a tenant string; an empty string means the agent `root`.

    Raises AgentNotFound for any other form.
    """
    if not tenant:
        return DEFAULT_SCOPE, root
    tenant = tenant.strip("/")
    if resource := RESOURCE_NAME.fullmatch(tenant):
        scope = resource["scope"]
        if not scope.isprintable() or max(map(len, scope.split("/"))) > MAX_SCOPE_NAME_LENGTH:
            raise AgentNotFound(f"tenant: each name in it must be 1 to {MAX_SCOPE_NAME_LENGTH} printable characters")
        return scope, resource["agent"]
    if AGENT_ID.fullmatch(tenant):
        return DEFAULT_SCOPE, tenant
    raise AgentNotFound(f'tenant: "{tenant[:200]}" is not an agent; use an agent id or projects/…/agents/ID')


def split_resource_name(name: str) -> tuple[str, str]:
    """Splits a resource name: `projects/…/agents/a/tasks/1` becomes (`projects/…/agents/a`, `tasks/1`)."""
    match = RESOURCE_NAME.match(name)
    if match and name[match.end() : match.end() + 1] == "/":
        return match[0], name[match.end() + 1 :]
    return "", name


def resource_name(scope: str, agent: str) -> str:
    """The resource name of an agent in a scope; empty in the default scope, which has none."""
    return "" if scope == DEFAULT_SCOPE else f"{scope}/agents/{agent}"


def tenant_of(scope: str, agent: str) -> str:
    """The tenant string for an agent in a scope: its id in the default scope, otherwise its resource name."""
    return resource_name(scope, agent) or agent


def check_agent_id(agent: str) -> None:
    """Validates an agent id. Raises ValueError, naming the rule that it breaks."""
    if not AGENT_ID.fullmatch(agent):
        raise ValueError(
            f'agent id "{agent}": must be a lower-case letter, then at most 62 letters, digits or "-"; set id='
        )
    if agent in RESERVED_AGENT_IDS:
        raise ValueError(f'agent id "{agent}" is taken by a route of the server; set id= to choose another')


def make_task_key(now_ns: int, random_bytes: bytes) -> bytes:
    """A task key in the layout of UUID version 7, from nanoseconds since the epoch and at least 8 random bytes.

    48 bits of milliseconds, 12 bits of their fraction (RFC 9562 §6.2, method 3), 62 random bits.
    """
    milliseconds, rest = divmod(now_ns, 1_000_000)
    body = bytearray(milliseconds.to_bytes(6, "big") + ((rest << 12) // 1_000_000 | 0x7000).to_bytes(2, "big"))
    body += random_bytes[:8]
    body[8] = 0x80 | body[8] & 0x3F
    return bytes(body)


def task_id_of(key: bytes) -> str:
    """The task id that clients see for a key."""
    text = key.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def created_of(key: bytes) -> int:
    """When the task with this key was created, in milliseconds since the epoch."""
    return int.from_bytes(key[:6], "big")


def task_key_of(task_id: str) -> bytes | None:
    """The key of a task id; None for an id that is not a key's text."""
    return bytes.fromhex(task_id.replace("-", "")) if _TASK_ID.fullmatch(task_id) else None


_TASK_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
