"""The operations on push configurations, the same for every binding (A2A 1.0 §3.1.7 to §3.1.10).

What an answer shows is where and under which scheme, never the token or the credentials: no version asks for them back,
no published client reads them, and whoever gets hold of a listing must not be able to speak as this server.
"""

from __future__ import annotations

import base64
from binascii import Error as NoBase64
from typing import Final

from dragoman.core import webhook
from dragoman.core.errors import InvalidParams, PushNotificationNotSupported, TaskNotFound
from dragoman.core.log import CROWDED, Head, Refused, TaskRef
from dragoman.core.push import Push
from dragoman.core.webhook import PushConfig
from dragoman.ports import Bus, Forbidden, Letters, Outbound, Signal, Store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PAGE: Final = 50
LONGEST_PAGE: Final = 100
"""Configurations of a page, when nobody says how many, and at most."""


class Webhooks:
    """Push configurations of one store. Without `outbound` there are none, and every call says so."""

    def __init__(self, store: Store, bus: Bus, outbound: Outbound | None, letters: Letters | None) -> None:
        self._store = store
        self._bus = bus
        self._outbound = outbound
        self._letters = letters

    @property
    def on(self) -> bool:
        """Whether this server pushes."""
        return self._outbound is not None and self._letters is not None

    def check_on(self) -> None:
        """Raises PushNotificationNotSupported on a server that does not push."""
        if not self.on:
            raise PushNotificationNotSupported

    def inlined(self, given: pb.TaskPushNotificationConfig, task_id: str, dialect: str) -> PushConfig:
        """The configuration that a send brings along for its task. Raises as `create` does."""
        return self._config(given, task_id, dialect, inline=True)

    async def create(self, head: Head, given: pb.TaskPushNotificationConfig, dialect: str) -> bytes:
        """A serialized TaskPushNotificationConfig, kept under its id, or in the place of the one that has it.

        Without an id it gets the task's own, so a client that names none replaces its one configuration. Raises
        InvalidParams, naming the field, for what could not be used.
        """
        config = self._config(given, head.id, dialect, inline=False)
        try:
            kept = await self._store.pushes.put(head.ref, config)
        except Refused as refused:
            raise refusal(refused) or TaskNotFound from refused
        self._changed(head.ref)
        return _shown(kept).SerializeToString()

    async def get(self, head: Head, id: str) -> bytes:
        """A serialized TaskPushNotificationConfig, by its id or core.webhook.FIRST. Raises TaskNotFound."""
        for push in await self._store.pushes.of(head.ref):
            if id in (webhook.FIRST, push.config.id):
                return _shown(push).SerializeToString()
        raise TaskNotFound("the task has no such push notification configuration")

    async def list(self, head: Head, size: int, token: str) -> bytes:
        """A serialized ListTaskPushNotificationConfigsResponse: one page, the oldest configuration first."""
        if not 0 <= size <= LONGEST_PAGE:
            raise InvalidParams.field("pageSize", f"must be 1 to {LONGEST_PAGE}, or 0 for {PAGE}")
        found = await self._store.pushes.of(head.ref)
        if token:
            after = _read_token(token)
            found = [push for push in found if (push.created, push.config.id) > after]
        page = found[: size or PAGE]
        told = pb.ListTaskPushNotificationConfigsResponse(configs=map(_shown, page))
        if len(page) < len(found):
            told.next_page_token = _write_token(page[-1])
        return told.SerializeToString()

    async def delete(self, head: Head, id: str) -> bytes:
        """Nothing, serialized, whether or not there was one: what is gone stays gone."""
        await self._store.pushes.remove(head.ref, id)
        self._changed(head.ref)
        return b""

    def _changed(self, ref: TaskRef) -> None:
        self._bus.signal(ref, Signal.PUSHES)

    def _config(self, given: pb.TaskPushNotificationConfig, task_id: str, dialect: str, *, inline: bool) -> PushConfig:
        self.check_on()
        assert self._outbound is not None
        assert self._letters is not None
        at = self._letters.place(dialect, inline=inline)
        if given.id:
            webhook.check_id(given.id, at)
        config = PushConfig(
            id=given.id or task_id,
            url=given.url,
            token=given.token,
            scheme=given.authentication.scheme,
            credentials=given.authentication.credentials,
            dialect=dialect,
        )
        webhook.check(config, at)
        try:
            self._outbound.check(config.url)
        except Forbidden as error:
            raise InvalidParams.field(f"{at}url", str(error)) from error
        return self._letters.sealed(config)


def refusal(refused: Refused) -> InvalidParams | None:
    """What a caller is told of a task that has too many configurations; None for other refusals."""
    if refused.reason != CROWDED:
        return None
    return InvalidParams.field(
        "id", f"a task has {webhook.MOST} push configurations at most; delete one, or replace one by its id"
    )


def _shown(push: Push) -> pb.TaskPushNotificationConfig:
    """A configuration as its owner is shown it."""
    config = push.config
    shown = pb.TaskPushNotificationConfig(id=config.id, task_id=push.task_id, url=config.url)
    if config.scheme:
        shown.authentication.scheme = config.scheme
    return shown


def _write_token(push: Push) -> str:
    return base64.urlsafe_b64encode(f"{push.created} {push.config.id}".encode()).decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        created, _, id = base64.b64decode(token, altchars=b"-_", validate=True).decode().partition(" ")
        return int(created), id
    except (NoBase64, ValueError):
        raise InvalidParams.field("pageToken", "is none that this server gave") from None
