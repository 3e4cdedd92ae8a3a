"""Operations on push configurations (A2A 1.0 §3.1.7 to §3.1.10).

Responses show the URL and the authentication scheme, never the credentials: no version asks for them, no published
client reads them, and a leaked listing must not allow anyone to impersonate this server. The same holds for the token,
except for methods of older versions whose types have it: they show it to the principal that set it.
"""

from __future__ import annotations

import base64
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dragoman.core.errors import InvalidParams, PushConfigNotFound, PushNotificationNotSupported, TaskNotFound
from dragoman.core.push import configuration
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import PushRecord
from dragoman.core.task.log import TOO_MANY_CONFIGS, AppendRejected, TaskRecord
from dragoman.ids import IDS
from dragoman.ports import Bus, OutboundForbidden, Store, TaskSignal
from dragoman.runtime.access import Call, OnAction
from dragoman.runtime.push.delivery import PushOptions
from dragoman.runtime.read import find_task
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CONFIG_PAGE_SIZE: Final = 50  # configurations per page, by default
MAX_CONFIG_PAGE_SIZE: Final = 100


@dataclass(eq=False, repr=False)
class PushConfigOperations:
    """Push configurations of one store. Without `options` every call raises PushNotificationNotSupported."""

    store: Store
    bus: Bus
    options: PushOptions | None  # None on a server without push notifications
    on_action: OnAction | None = None
    new_id: Callable[[], str] = IDS.uuid

    def check_enabled(self) -> PushOptions:
        """Raises PushNotificationNotSupported on a server without push notifications."""
        if self.options is None:
            raise PushNotificationNotSupported
        return self.options

    async def create(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        """A serialized TaskPushNotificationConfig as stored, replacing the one with its id (1.0 §3.1.7).

        Without an id it is a new one, and gets a fresh id. Raises PushNotificationNotSupported, as the other operations
        do, on a server without push notifications; InvalidParams, naming the field, for invalid values.
        """
        return await self._put(call, await self._find_task(call, request.task_id), request, self.new_id())

    async def set(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        """As `create`, but without an id it gets the task's, and so replaces an earlier one without an id: the
        operation of versions before 1.0."""
        record = await self._find_task(call, request.task_id)
        return await self._put(call, record, request, record.id)

    async def get(self, call: Call, request: pb.GetTaskPushNotificationConfigRequest) -> bytes:
        """A serialized TaskPushNotificationConfig, by its id or core.push.configuration.OLDEST_CONFIG_ID (1.0 §3.1.8).

        Raises PushConfigNotFound.
        """
        record = await self._find_task(call, request.task_id, config_id=request.id)
        for push in await self.store.pushes.list_configs(record.ref):
            if request.id in (configuration.OLDEST_CONFIG_ID, push.config.id):
                return self._shown(call, push).SerializeToString()
        raise PushConfigNotFound

    async def list(self, call: Call, request: pb.ListTaskPushNotificationConfigsRequest) -> bytes:
        """A serialized ListTaskPushNotificationConfigsResponse: one page, oldest first (1.0 §3.1.9)."""
        record, size = await self._find_task(call, request.task_id), request.page_size
        if not 0 <= size <= MAX_CONFIG_PAGE_SIZE:
            raise InvalidParams.field("pageSize", f"must be 1 to {MAX_CONFIG_PAGE_SIZE}, or 0 for {CONFIG_PAGE_SIZE}")
        pushes = await self.store.pushes.list_configs(record.ref)
        if request.page_token:
            after = _read_token(request.page_token)
            pushes = [push for push in pushes if (push.created, push.config.id) > after]
        page = pushes[: size or CONFIG_PAGE_SIZE]
        response = pb.ListTaskPushNotificationConfigsResponse(configs=[self._shown(call, push) for push in page])
        if len(page) < len(pushes):
            token = f"{page[-1].created} {page[-1].config.id}"
            response.next_page_token = base64.urlsafe_b64encode(token.encode()).decode()
        return response.SerializeToString()

    async def delete(self, call: Call, request: pb.DeleteTaskPushNotificationConfigRequest) -> bytes:
        """Empty bytes, also when there was nothing to delete (1.0 §3.1.10)."""
        record = await self._find_task(call, request.task_id, config_id=request.id)
        await self.store.pushes.remove(record.ref, request.id)
        self.bus.publish_signal(record.ref, TaskSignal.PUSH_CONFIGS)
        if self.on_action is not None:
            self.on_action("push.deleted", call, request.task_id)
        return b""

    async def _find_task(self, call: Call, task_id: str, *, config_id: str | None = None) -> TaskRecord:
        """The task of a request. `config_id`: of a request that must name a configuration."""
        self.check_enabled()
        if config_id == "":
            raise InvalidParams.field("id", "is required")
        return await find_task(self.store, call.caller, task_id, "taskId")

    async def _put(
        self, call: Call, record: TaskRecord, requested: pb.TaskPushNotificationConfig, default_id: str
    ) -> bytes:
        config = self.checked_config(requested, default_id, call, inline=False)
        try:
            stored = await self.store.pushes.put(record.ref, config)
        except AppendRejected as rejected:
            raise too_many_configs(rejected) or TaskNotFound from rejected
        self.bus.publish_signal(record.ref, TaskSignal.PUSH_CONFIGS)
        if self.on_action is not None:
            self.on_action("push.created", call, requested.task_id)
        return self._shown(call, stored).SerializeToString()

    def checked_config(
        self, requested: pb.TaskPushNotificationConfig, default_id: str, call: Call, *, inline: bool
    ) -> PushConfig:
        """The configuration of a request, or `inline` that of a send, with encrypted secrets. Raises as `create`."""
        options = self.check_enabled()
        prefix = options.encoder.field_prefix(call.dialect, inline=inline)
        if requested.id:
            configuration.check_push_config_id(requested.id, prefix)
        config = PushConfig(
            id=requested.id or default_id,
            url=requested.url,
            token=requested.token,
            scheme=requested.authentication.scheme,
            credentials=requested.authentication.credentials,
            dialect=call.dialect,
        )
        configuration.check_push_config(config, prefix, described=call.describes_schemes)
        try:
            options.outbound.check_url(config.url)
        except OutboundForbidden as error:
            raise InvalidParams.field(f"{prefix}url", str(error)) from error
        return options.encoder.encrypt_secrets(config)

    def _shown(self, call: Call, push: PushRecord) -> pb.TaskPushNotificationConfig:
        """A configuration as shown to its owner."""
        config = push.config
        shown = pb.TaskPushNotificationConfig(id=config.id, task_id=push.task_id, url=config.url)
        if config.scheme:
            name, _ = configuration.scheme_description(config.scheme)
            shown.authentication.scheme = config.scheme if call.shows_tokens else name
        # The owner of shared tasks is not a principal, and who set a token is not stored.
        is_setter = push.task.owner.principal == call.caller.identity.principal
        if call.shows_tokens and is_setter and config.token:
            shown.token = self.check_enabled().encoder.reveal_token(config)
        return shown


def too_many_configs(rejected: AppendRejected) -> InvalidParams | None:
    """The error for a task with too many configurations; None for other rejections."""
    if rejected.reason != TOO_MANY_CONFIGS:
        return None
    limit = f"a task can have at most {configuration.MAX_PUSH_CONFIGS} push configurations"
    return InvalidParams.field("id", f"{limit}; delete one, or replace one by its id")


def _read_token(token: str) -> tuple[int, str]:
    try:
        created, _, id = base64.b64decode(token, altchars=b"-_", validate=True).decode().partition(" ")
        return int(created), id
    except (Base64Error, ValueError):
        raise InvalidParams.field(
            "pageToken", "was not issued by this server; leave it out for the first page"
        ) from None
