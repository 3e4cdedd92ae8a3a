"""Which task a task works for: an agent that sends to another one while it works says in whose turn it does.

It is said in the metadata of the request, which every dialect and binding carries. Whoever made the one task has to
have made the other; what else stands there means nothing, and is no error: a server tells nobody of tasks that are not
his, and a send never fails because of what is said of it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final, NamedTuple

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

URI: Final = "urn:dragoman:delegation:v1"
"""The key in the metadata: `{"agent": "desk", "task": "01a1fb2a-..."}`."""

CURRENT: Final[ContextVar[Callable[[], Mapping[str, Mapping[str, str]]] | None]] = ContextVar(
    "dragoman-delegation", default=None
)
"""Gives the metadata of whatever is sent from here; None where no agent is at work."""


class Parent(NamedTuple):
    """The task that another one works for, as its caller knows it."""

    agent: str
    task: str


def stamp(request: pb.SendMessageRequest) -> None:
    """Says in a request in whose turn it is made, if in any."""
    current = CURRENT.get()
    if current is not None and URI not in request.metadata.fields:
        request.metadata.update({name: dict(value) for name, value in current().items()})


def parent_of(request: pb.SendMessageRequest) -> Parent | None:
    """What a request says of that; None for nothing, and for what has another form."""
    if not request.HasField("metadata"):
        return None
    fields = request.metadata.fields
    if URI not in fields:
        return None
    said = fields[URI].struct_value.fields
    agent, task = (said[name].string_value if name in said else "" for name in ("agent", "task"))
    return Parent(agent, task) if agent and task else None
