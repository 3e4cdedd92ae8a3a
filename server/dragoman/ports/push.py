"""What push notifications need: a place for configurations and cursors, and someone who writes the letters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import DeliveryAttempt, DeliveryReport, PushRecord
from dragoman.core.task.log import Event, TaskRef

PushConfigKey = tuple[TaskRef, str]
"""A task and the id of one of its configurations."""


class PushStore(Protocol):
    """The configurations of a store's tasks, and how far each is. Times are the store's own.

    They go with their task. An append marks what it has to tell (`due`), so nothing depends on a hint.
    """

    async def put(self, task: TaskRef, config: PushConfig) -> PushRecord:
        """Keeps a configuration of a task that is there. A new one begins after the task's last event.

        One that replaces another of its id goes on where that was; after an end (410) it begins anew. Whoever delivers
        for the old one is refused. Raises core.log.Refused: ABSENT without a task, CROWDED with too many of them.
        """
        ...

    async def list_configs(self, task: TaskRef) -> list[PushRecord]:
        """Every configuration of a task, the oldest first."""
        ...

    async def remove(self, task: TaskRef, id: str) -> bool:
        """Forgets a configuration and its tries. False when there was none."""
        ...

    async def due(self, *, per_host: int, max_hosts: int, after_host: str = "") -> tuple[list[PushRecord], str]:
        """What is to be delivered now and nobody who is alive delivers: at most `each` for one host, the longest due
        first, for so many hosts, beginning with the first one past `after`. Gives also where to go on;
        empty at the
        end. Tasks that nobody may see yet are left out."""
        ...

    async def claim(self, session: int, keys: Sequence[PushConfigKey]) -> list[PushRecord]:
        """Takes those of these that are still due and that nobody else who is alive delivers: what a session holds
        itself it is given again, in case nobody answered it before."""
        ...

    async def apply_reports(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        """Writes what came of tries (core.push.settle), all in one commit; None where the claim no longer holds."""
        ...

    async def attempts(self, task: TaskRef, id: str) -> list[DeliveryAttempt]:
        """The last tries of a configuration, the newest first."""
        ...

    async def restart(self, task: TaskRef, ids: Collection[str], after: int | None = None) -> list[PushRecord]:
        """Begins again with these configurations (core.push.revived); none named: with all of the task."""
        ...

    async def unfinished(self, limit: int) -> list[PushRecord]:
        """Configurations that have something to deliver, or that were given up: those first that fail the longest."""
        ...


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """What is posted."""

    headers: Mapping[str, str]
    body: bytes


class WebhookEncoder(Protocol):
    """Writes what receivers are told, in the words of the dialect in which they were registered."""

    def sends_task(self, dialect: str) -> bool:
        """Whether such a receiver is told the Task whenever its state changes; otherwise every event as it is."""
        ...

    def field_prefix(self, dialect: str, *, inline: bool) -> str:
        """What stands before the fields of a configuration in a request of that dialect, the dot included; `inline`:
        in a send that brings it along."""
        ...

    def encrypt_secrets(self, config: PushConfig) -> PushConfig:
        """A configuration as it is kept: without secrets that everybody could read who reads the store."""
        ...

    async def encode(self, record: PushRecord, event: Event) -> WebhookRequest:
        """The signed letter for an event; where `whole` holds, the event is a Task. Raises ValueError for what the
        dialect cannot say, and where a secret of the receiver's cannot be opened."""
        ...


class WebhookRequestSigner(Protocol):
    """Signs letters with the key of the server that signs at the time (ports/security.py)."""

    async def sign(self, audience: str, task: str, config: str, event: str, body: bytes) -> str:
        """A JWT that says that this server sends this body, of this event (its cursor) of this task, for this
        configuration, to this URL, now."""
        ...
