"""One request as the operations see it, and what a caller may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.core import limits
from dragoman.core.identity import Caller


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller may ask for: decoded bytes of a request, seconds of a blocking send."""

    message_bytes: int = limits.MESSAGE_BYTES
    blocking_wait: float = 300.0
    message_id_is_key: bool = False
    """A message's id is the idempotency key of its send, when it has no other."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who asks which agent, and what the asker's transport and dialect imply."""

    caller: Caller
    timeout: float | None = None
    """Seconds a blocking send may wait; None for the server's limit."""
    shows_finished: bool = False
    """Subscribing to a finished task gives the Task and closes, instead of UnsupportedOperation."""
    after: str = ""
    """A cursor: the subscription, or a stream that is asked for again, goes on after it, without a Task first."""
    key: str = ""
    """An idempotency key: a send with the key of an earlier one is answered as that one was."""
    stops_with_turn: bool = False
    """A subscription ends when the turn does, and not only with the task."""
    dialect: str = ""
    """What a task that begins here is said to be made in, and in whose words a webhook is told."""
    extensions: tuple[str, ...] = ()
    """The URIs of extensions that the caller activates."""
    names_tasks: bool = False
    """The caller chooses the ids of its tasks: a message for one that is not there creates it (A2A 0.1)."""
