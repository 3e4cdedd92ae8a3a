"""What an agent says of itself: the arguments of `@agent`, from which every shape of card is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Final, Literal

from dragoman.core.names import AGENT_ID
from dragoman.core.task import frames
from dragoman.core.task.log import Event
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DEFAULT_MODES: Final = ("text/plain", "application/json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One thing an agent can do (A2A 1.0 §4.4.5). Empty modes mean the agent's own."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Who stands behind an agent (A2A 1.0 §4.4.2)."""

    organization: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """An extension an agent supports (A2A 1.0 §4.6). `params` is JSON."""

    uri: str
    description: str = ""
    required: bool = False
    """Calls that do not activate it are refused."""
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One agent as the server knows it. `id` is its address, `name` is for people."""

    id: str
    name: str
    description: str
    version: str = "1.0.0"
    skills: tuple[Skill, ...] = ()
    input_modes: tuple[str, ...] = DEFAULT_MODES
    output_modes: tuple[str, ...] = DEFAULT_MODES
    checks_own_modes: bool = False
    """It is asked whatever a message holds, and refuses itself what it does not take."""
    provider: Provider | None = None
    icon_url: str = ""
    documentation_url: str = ""
    extensions: tuple[Extension, ...] = ()
    security_schemes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How callers show who they are: OpenAPI security schemes by name (0.3 §5.5.3)."""
    security: tuple[Mapping[str, Sequence[str]], ...] = ()
    """Which of them are needed: any one of these, each the schemes it takes and their scopes."""
    state_transition_history: bool = False
    """For cards of 0.3 and before: the history shows what became of a task."""
    extended_skills: tuple[Skill, ...] = ()
    """Skills that only callers who have shown who they are get to see (1.0 §3.1.11)."""
    default: bool = False
    """The root agent: the one meant when a request names none."""
    streaming: bool = True
    """Its streams and subscriptions are offered; otherwise the card says that they are not, and they are refused."""
    direct: bool = False
    """May answer with a Message instead of a task."""
    cancelable: bool = True
    retries: int = 0
    """How often a turn is begun again after the process that ran it died; 0 ends the task as FAILED instead."""
    idle_limit: float = 0.0
    """Seconds without an event after which a turn is ended; 0 for none."""
    time_limit: float = 0.0
    """Seconds after which a turn is ended in any case; 0 for none."""
    while_working: Literal["queue", "refuse"] = "queue"
    """What happens to a message for a task that is running."""
    retention: Mapping[int, int] = field(default_factory=dict)
    """Milliseconds that its tasks are kept, by state, where it says so itself (core.retention)."""


CardOverride = Mapping[str, Any]
"""Fields of AgentSpec, with their values."""

_TEXT_FIELDS: Final = ("name", "description", "version", "documentation_url", "icon_url")
_SKILL_FIELDS: Final = ("skills", "extended_skills")
_OVERRIDE_FIELDS: Final = (*_TEXT_FIELDS, "provider", *_SKILL_FIELDS)
_OPTIONAL_FIELDS: Final = ("documentation_url", "icon_url")


def parse_card_overrides(tables: Mapping[str, Any]) -> dict[str, CardOverride]:
    """What is said of each agent. Raises ValueError, naming agent and field."""
    found = {}
    for agent, table in tables.items():
        if not AGENT_ID.fullmatch(agent):
            raise ValueError(f'"{agent}" is no agent id')
        try:
            found[agent] = _parse_override(table)
        except ValueError as error:
            raise ValueError(f"{agent}.{error}" if isinstance(table, Mapping) else f"{agent}: {error}") from error
    return found


def apply_card_override(spec: AgentSpec, override: CardOverride | None) -> AgentSpec:
    """An agent as the operator shows it."""
    return replace(spec, **override) if override else spec


def _parse_override(table: Any) -> CardOverride:
    if not isinstance(table, Mapping):
        raise ValueError(f"must be a table of {', '.join(_OVERRIDE_FIELDS)}")
    said: dict[str, Any] = {}
    for name, value in table.items():
        if name in _TEXT_FIELDS:
            said[name] = _parse_text(name, value, empty=name in _OPTIONAL_FIELDS)
        elif name == "provider":
            said[name] = _parse_object(name, Provider, value)
        elif name in _SKILL_FIELDS:
            if not isinstance(value, list):
                raise ValueError(f"{name}: must be a list of tables")
            said[name] = tuple(_parse_object(f"{name}[{number}]", Skill, one) for number, one in enumerate(value))
            if len({skill.id for skill in said[name]}) < len(said[name]):
                raise ValueError(f"{name}: two of them have the same id")
        else:
            raise ValueError(f"{name}: is none of {', '.join(_OVERRIDE_FIELDS)}")
    return said


def _parse_object(path: str, kind: type[Any], table: Any) -> Any:
    known = {field.name: field for field in fields(kind)}
    if not isinstance(table, Mapping):
        raise ValueError(f"{path}: must be a table of {', '.join(known)}")
    if unknown := [name for name in table if name not in known]:
        raise ValueError(f"{path}.{unknown[0]}: is none of {', '.join(known)}")
    if missing := [name for name, field in known.items() if field.default is MISSING and name not in table]:
        raise ValueError(f"{path}.{missing[0]}: is required")
    return kind(**{name: _parse_value(f"{path}.{name}", known[name].default, value) for name, value in table.items()})


def _parse_value(path: str, default: Any, value: Any) -> Any:
    if not isinstance(default, tuple):
        return _parse_text(path, value)
    if not isinstance(value, list):
        raise ValueError(f"{path}: must be a list of texts")
    return tuple(_parse_text(path, one) for one in value)


def _parse_text(path: str, value: Any, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value.strip() or empty):
        raise ValueError(f"{path}: must be a text{'' if empty else ', and not empty'}")
    return value


RESUME_EXTENSION: Final = Extension(
    uri="urn:dragoman:resume:v1",
    description="Events carry cursors; a subscription after a cursor continues there, without a Task first.",
)
IDEMPOTENCY_EXTENSION: Final = Extension(
    uri="urn:dragoman:idempotency:v1",
    description="A send with the key of an earlier one is answered as that one was, and runs nothing.",
)
SERVER_EXTENSIONS: Final = (RESUME_EXTENSION, IDEMPOTENCY_EXTENSION)

_METADATA_FIELDS: Final = {1: 6, 3: 4, 4: 6}
"""The field `metadata` of each member of StreamResponse that has one."""


def with_cursor(event: Event) -> Event:
    """The event with its cursor in its metadata, made once and shared.

    Nothing is parsed: a serialized message followed by another of its kind is both merged (Protocol Buffers encoding,
    "Last One Wins"), so the metadata are put behind.
    """
    made = event.encodings.get(with_cursor)
    if made is None:
        member = event.data[0] >> 3
        data = event.data
        if member in _METADATA_FIELDS and event.cursor:
            data += resume_metadata(member, {"cursor": event.cursor, "sequence": event.sequence})
        made = event.encodings[with_cursor] = Event(event.sequence, data, event.state, event.ends, event.cursor)
    assert isinstance(made, Event)
    return made


def resume_metadata(member: int, values: Mapping[str, str | float | bool]) -> bytes:
    """A serialized StreamResponse with nothing but metadata of RESUME in one member, to be put behind another."""
    holder = pb.Task()
    holder.metadata.update({RESUME_EXTENSION.uri: dict(values)})
    return frames.frame(member, frames.frame(_METADATA_FIELDS[member], holder.metadata.SerializeToString()))
