"""The description of an agent, card overrides, and the server's A2A extensions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
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
    input: object = field(default=None, compare=False, repr=False)
    output: object = field(default=None, compare=False, repr=False)
    annotations: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """For `@agent` only: types or JSON Schemas, and hints about the skill. An AgentSpec has them in its extensions
    (skill_schemas.py), and None here."""


def card_skills(skills: Iterable[Any]) -> list[dict[str, Any]]:
    """The fields of skills, of specs or of cards, that both have under the same names."""
    shared = ("id", "name", "description", "tags", "examples", "input_modes", "output_modes")
    return [{field: getattr(skill, field) for field in shared} for skill in skills]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The provider of an agent (A2A 1.0 §4.4.2)."""

    organization: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """An extension an agent supports (A2A 1.0 §4.6). `params` is JSON."""

    uri: str
    description: str = ""
    required: bool = False  # calls that do not activate it are rejected
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One agent: the arguments of `@agent`, from which all forms of its card are built.

    `id` is its address, `name` is for people.
    """

    id: str
    name: str
    description: str
    version: str = "1.0.0"
    skills: tuple[Skill, ...] = ()
    input_modes: tuple[str, ...] = DEFAULT_MODES
    output_modes: tuple[str, ...] = DEFAULT_MODES
    checks_own_modes: bool = False
    """Whether the agent itself rejects unsupported media types, so that the server does not check them."""
    validates_input: frozenset[str] = frozenset()
    """Skills, "" for the agent itself, whose input the agent validates by a declared type: nobody checks it before."""
    provider: Provider | None = None
    icon_url: str = ""
    documentation_url: str = ""
    extensions: tuple[Extension, ...] = ()
    security_schemes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """OpenAPI security schemes by name (0.3 §5.5.3)."""
    security: tuple[Mapping[str, Sequence[str]], ...] = ()
    """Alternative security requirements, each with its schemes and their scopes."""
    credentials: str = ""
    """`authentication.credentials` of 0.1 cards: what private cards tell their readers. Never checked."""
    interface_descriptions: Mapping[str, str] = field(default_factory=dict)
    """`description` of interfaces on 0.3 cards, which fasta2a has, by transport."""
    extended_skills: tuple[Skill, ...] = ()  # skills that only authenticated callers see (1.0 §3.1.11)
    default: bool = False  # whether it is the root agent, which serves requests that name no agent
    streaming: bool = True
    """Whether it supports streams and subscriptions; otherwise they are rejected and the card says so."""
    direct: bool = False  # whether it may reply with a Message instead of a task
    cancelable: bool = True
    crash_retries: int = 0
    """Further attempts of a turn after the process that ran it died; 0 ends the task as FAILED."""
    max_attempts: int = 1  # how often a turn is run that fails
    idle_limit: float = 0.0  # seconds without an event after which a turn is stopped; 0 for none
    time_limit: float = 0.0  # maximum seconds of a turn; 0 for none
    while_working: Literal["queue", "refuse"] = "queue"  # the handling of a message for a running task
    retention: Mapping[int, int] = field(default_factory=dict)
    """Milliseconds for which its tasks are kept, by state (core.task.maintenance)."""


CardOverride = Mapping[str, Any]  # values for fields of AgentSpec, by name
_TEXT_FIELDS: Final = ("name", "description", "version", "documentation_url", "icon_url", "credentials")
_SKILL_FIELDS: Final = ("skills", "extended_skills")
_OVERRIDE_FIELDS: Final = (*_TEXT_FIELDS, "provider", *_SKILL_FIELDS, "interface_descriptions")
_OPTIONAL_FIELDS: Final = ("documentation_url", "icon_url", "credentials")
_TRANSPORTS: Final = ("JSONRPC", "HTTP+JSON", "GRPC")


def parse_card_overrides(tables: Mapping[str, Any]) -> dict[str, CardOverride]:
    """Parses the card overrides by agent. Raises ValueError, naming agent and field."""
    overrides = {}
    for agent, table in tables.items():
        if not AGENT_ID.fullmatch(agent):
            raise ValueError(f'"{agent}" is not an agent id')
        try:
            overrides[agent] = _parse_override(table)
        except ValueError as error:
            raise ValueError(f"{agent}.{error}" if isinstance(table, Mapping) else f"{agent}: {error}") from error
    return overrides


def _parse_override(table: Any) -> CardOverride:
    if not isinstance(table, Mapping):
        raise ValueError(f"must be a table of {', '.join(_OVERRIDE_FIELDS)}")
    override: dict[str, Any] = {}
    for name, value in table.items():
        if name in _TEXT_FIELDS:
            override[name] = _parse_text(name, value, empty=name in _OPTIONAL_FIELDS)
        elif name == "provider":
            override[name] = _parse_object(name, Provider, value)
        elif name in _SKILL_FIELDS:
            if not isinstance(value, list):
                raise ValueError(f"{name}: must be a list of tables")
            override[name] = tuple(_parse_object(f"{name}[{number}]", Skill, item) for number, item in enumerate(value))
            if len({skill.id for skill in override[name]}) < len(override[name]):
                raise ValueError(f"{name}: two skills have the same id")
        elif name == "interface_descriptions":
            table = _check_table(name, value, _TRANSPORTS)
            override[name] = {transport: _parse_text(f"{name}.{transport}", text) for transport, text in table.items()}
        else:
            raise ValueError(f"{name}: is not one of {', '.join(_OVERRIDE_FIELDS)}")
    return override


def _parse_object(path: str, kind: type[Any], value: Any) -> Any:
    known = {field.name: field for field in fields(kind) if field.compare}  # without those that are for @agent only
    table = _check_table(path, value, known)
    if missing := [name for name, field in known.items() if field.default is MISSING and name not in table]:
        raise ValueError(f"{path}.{missing[0]}: is required")
    return kind(**{name: _parse_value(f"{path}.{name}", known[name].default, item) for name, item in table.items()})


def _check_table(path: str, table: Any, known: Collection[str]) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise ValueError(f"{path}: must be a table of {', '.join(known)}")
    if unknown := [name for name in table if name not in known]:
        raise ValueError(f"{path}.{unknown[0]}: is not one of {', '.join(known)}")
    return table


def _parse_value(path: str, default: Any, value: Any) -> Any:
    if not isinstance(default, tuple):
        return _parse_text(path, value)
    if not isinstance(value, list):
        raise ValueError(f"{path}: must be a list of strings")
    return tuple(_parse_text(path, item) for item in value)


def _parse_text(path: str, value: Any, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value.strip() or empty):
        raise ValueError(f"{path}: must be a string{'' if empty else ', and not empty'}")
    return value


RESUME_EXTENSION: Final = Extension(
    uri="urn:dragoman:resume:v1",
    description="Events carry cursors; a subscription after a cursor continues there, without a Task first.",
)
IDEMPOTENCY_EXTENSION: Final = Extension(
    uri="urn:dragoman:idempotency:v1",
    description="A send with the key of an earlier one is answered as that one was, and runs nothing.",
)
BASE64_FILES_EXTENSION: Final = Extension(
    uri="urn:dragoman:base64-files:v1",
    description="Files of 0.3 over gRPC and REST are base64 text in the bytes field, as several SDKs of 0.3 have them.",
)
SERVER_EXTENSIONS: Final = (RESUME_EXTENSION, IDEMPOTENCY_EXTENSION, BASE64_FILES_EXTENSION)

_METADATA_FIELDS: Final = {1: 6, 3: 4, 4: 6}  # the number of the field `metadata`, by member of StreamResponse


def with_cursor(event: Event) -> Event:
    """The event with its cursor in its metadata, encoded once and shared.

    Nothing is parsed: the metadata are appended, because concatenated serialized messages merge (Protocol Buffers
    encoding, "Last One Wins").
    """
    with_metadata = event.encodings.get(with_cursor)
    if with_metadata is None:
        member = event.data[0] >> 3
        data = event.data
        if member in _METADATA_FIELDS and event.cursor:
            data += resume_metadata(member, {"cursor": event.cursor, "sequence": event.sequence})
        with_metadata = event.encodings[with_cursor] = Event(
            event.sequence, data, event.state, event.ends, event.cursor
        )
    assert isinstance(with_metadata, Event)
    return with_metadata


def resume_metadata(member: int, values: Mapping[str, str | float | bool]) -> bytes:
    """A serialized StreamResponse with only RESUME metadata in one member, to be appended to another."""
    task = pb.Task()
    task.metadata.update({RESUME_EXTENSION.uri: dict(values)})
    return frames.frame(member, frames.frame(_METADATA_FIELDS[member], task.metadata.SerializeToString()))
