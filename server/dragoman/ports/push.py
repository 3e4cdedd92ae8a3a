"""The ports of push notifications: store, webhook encoding and signing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import DEFAULT_LONGEST_DELAY_MS, DeliveryAttempt, DeliveryReport, PushRecord
from dragoman.core.task.log import Event, TaskRef

PushConfigKey = tuple[TaskRef, str]  # a task and the id of one of its configurations


class PushStore(Protocol):
    """The push configurations of a store's tasks and their delivery state, deleted with the task.

    Times are milliseconds by the store's clock. The append of an event itself makes its configurations due; wake-ups
    over the bus only make delivery faster.
    """

    async def put(self, task: TaskRef, config: PushConfig) -> PushRecord:
        """Stores a configuration (core.push.delivery.replace_record). A new one gets only later events.

        Raises core.task.log.AppendRejected: ABSENT without a task, TOO_MANY_CONFIGS.
        """

    async def list_configs(self, task: TaskRef) -> list[PushRecord]:
        """All configurations of a task, oldest first."""

    async def remove(self, task: TaskRef, id: str) -> bool:
        """Deletes a configuration and its attempts. False when there was none."""

    async def due(
        self,
        *,
        per_share: int,
        max_hosts: int,
        after_host: str = "",
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> tuple[list[PushRecord], str]:
        """Due (core.push.delivery.is_due) configurations without a live claim, and the host to continue after.

        At most `per_share` of each share of a host (core.push.delivery.Share), longest due first, and `max_hosts`
        hosts, starting after `after_host`. The returned host is empty when no host follows. Tasks that are not shown to
        clients yet are left out. `expired` as in `Store.orphaned_tasks`, `longest_delay` in milliseconds.
        """

    async def claim(
        self,
        session: int,
        keys: Sequence[PushConfigKey],
        *,
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> list[PushRecord]:
        """Claims those that are still due and not claimed by another live session (`expired` as in `due`).

        Those that the session holds are claimed again, with a new token: an earlier response may be lost.
        """

    async def apply_reports(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        """Writes reports (core.push.delivery.apply_report) in one commit; None where the claim no longer holds."""

    async def attempts(self, task: TaskRef, id: str) -> list[DeliveryAttempt]:
        """The last attempts of a configuration, newest first."""

    async def restart(self, task: TaskRef, ids: Collection[str], after: int | None = None) -> list[PushRecord]:
        """Restarts these configurations (core.push.delivery.restart_record); empty `ids`: all of the task."""

    async def unfinished(self, limit: int) -> list[PushRecord]:
        """Configurations with events that were not accepted; those that fail or wait longest first."""


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """The headers and body of a webhook call."""

    headers: Mapping[str, str]
    body: bytes


class WebhookEncoder(Protocol):
    """Encodes webhook calls in the dialect in which the configuration was created."""

    def sends_task(self, dialect: str) -> bool:
        """Whether the dialect sends the Task at each state change; otherwise it sends every event."""

    def field_prefix(self, dialect: str, *, inline: bool) -> str:
        """The prefix of a configuration's fields in error messages for the dialect. `inline`: those in a send."""

    def encrypt_secrets(self, config: PushConfig) -> PushConfig:
        """The stored form of a configuration, with encrypted secrets."""

    def reveal_token(self, config: PushConfig) -> str:
        """The token of a stored configuration; empty if its key is gone."""

    async def encode(self, record: PushRecord, event: Event) -> WebhookRequest:
        """The signed call for an event. If `sends_task`, the caller passes the Task in place of the event.

        Raises ValueError for events that the dialect cannot express, and for secrets that cannot be decrypted.
        """


class WebhookRequestSigner(Protocol):
    """Signs webhook calls with the server's current signing key (ports.security.SigningKeys)."""

    async def sign(self, audience: str, task: str, config: str, event: str, body: bytes) -> str:
        """A JWT: this server now sends this body, for an event (its cursor), to the URL `audience`."""
