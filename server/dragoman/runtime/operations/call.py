"""One request, as the operations see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from dragoman.core.access.identity import Caller
from dragoman.core.limits import message_limits
from dragoman.core.names import ByAgent

BlockingDefault = Literal["wait", "return"]
BLOCKING_DEFAULTS: Final[tuple[BlockingDefault, ...]] = get_args(BlockingDefault)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a request: decoded bytes, and seconds of a blocking send."""

    message_bytes: int = message_limits.MAX_MESSAGE_BYTES
    blocking_wait: float = 300.0
    blocking_default: ByAgent[BlockingDefault] = ByAgent("wait")  # noqa: RUF009
    """What a send does whose caller leaves it open (`Call.leaves_blocking_open`)."""
    message_id_is_key: bool = False
    """Whether the message's id is the idempotency key of a send that has no other."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the caller, and what its transport and dialect imply."""

    caller: Caller
    timeout: float | None = None
    """Seconds a blocking send may wait; None: the server's limit."""
    leaves_blocking_open: bool = False
    """Whether the send does not say whether it waits, in a dialect whose specification does not say it either."""
    shows_finished: bool = False
    """Whether subscribing to a finished task gives the Task and closes, instead of UnsupportedOperation."""
    cursor: str = ""
    """Resume position: the stream continues after it, without a Task first."""
    idempotency_key: str = ""
    """A send with the key of an earlier send returns the result of that send."""
    stops_with_turn: bool = False
    """Whether a subscription ends with the turn, and not only with the task."""
    dialect: str = ""
    """The dialect recorded for tasks created by this call, and used for their webhooks."""
    extensions: tuple[str, ...] = ()
    """The URIs of the extensions that the caller activates."""
    names_tasks: bool = False
    """Whether the caller chooses task ids: a message for an unknown task creates it (A2A 0.1)."""


OnAction = Callable[[str, Call, str], None]
"""Called for each change that a caller made: the action (`task.created`), the call, and the task's id."""

NO_STREAMS: Final = "this agent does not stream, as its card says"
"""The error text for a stream of an agent that is not `streaming`."""
