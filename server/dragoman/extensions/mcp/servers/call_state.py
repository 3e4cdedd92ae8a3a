"""State of a tool's call, stored with the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dragoman.agents.called.agent import state_document, stored_fields


@dataclass(frozen=True, slots=True)
class CallState:
    """The call of one task, as JSON under the key `mcp`."""

    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    handle: str = ""
    """The server's task for this call (SEP-2663); empty without one."""
    request_state: str | None = None
    """The request state that the server wants back with the answers (2026-07-28)."""
    requests: Mapping[str, Any] = field(default_factory=dict)
    """The server's requests for input, by key, in their JSON form: the question that the task waits with is the first
    of those without a response."""
    responses: Mapping[str, Any] = field(default_factory=dict)
    """Responses to some of `requests`, by key."""
    answered: tuple[str, ...] = ()
    """Keys of requests of the server's task that were answered: it may show them once more."""
    open_call: str = ""
    """The id of the call that waits for the answer in the process that made it (2025-11-25); empty without one."""
    unsent: bool = False
    """The turn was returned to the queue before the tool can have been called."""

    @property
    def open_requests(self) -> dict[str, Any]:
        """The requests without a response."""
        return {key: request for key, request in self.requests.items() if key not in self.responses}

    def to_json(self) -> bytes:
        """The JSON that is stored with the task."""
        fields = {name: value for name, value in asdict(self).items() if value or name == "request_state"}
        return state_document("mcp", fields)


_FIELDS_BY_TYPE: Final = (
    (("tool", "handle", "open_call"), str),
    (("arguments", "requests", "responses"), dict),
)


def read_call_state(data: bytes) -> CallState:
    """Parses a stored state. Returns an empty one for no data and for data in another form."""
    fields = stored_fields(data, "mcp")
    known: dict[str, Any] = {
        name: value for names, kind in _FIELDS_BY_TYPE for name in names if isinstance(value := fields.get(name), kind)
    }
    request_state, answered = fields.get("request_state"), fields.get("answered")
    return CallState(
        **known,
        request_state=request_state if isinstance(request_state, str) else None,
        answered=tuple(map(str, answered)) if isinstance(answered, list) else (),
        unsent=fields.get("unsent") is True,
    )
