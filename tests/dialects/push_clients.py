"""A receiver of push notifications on this machine, and how each dialect speaks of one: by hand, as in speakers.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc
from aiohttp import web
from tests.dialects.dialect_clients import (
    AGENT,
    CallRejected,
    Fasta2a,
    JsonRpc,
    Rest,
    Rust,
    ServerConnections,
    V01JsonRpc,
    V03Grpc,
    V03JsonRpc,
    V03Rest,
    V1Grpc,
    V1JsonRpc,
    WebSocket,
)

from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class ReceivedRequest(NamedTuple):
    """One letter."""

    headers: dict[str, str]
    body: Any


@dataclass
class Receiver:
    """What came to one address."""

    url: str
    got: list[ReceivedRequest] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, true: Callable[[Any], bool]) -> None:
        """Waits for a letter with such a body."""
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: any(true(webhook.body) for webhook in self.got))


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that takes everything."""

    async def take(request: web.BaseRequest) -> web.Response:
        async with found.news:
            found.got.append(ReceivedRequest(dict(request.headers), await request.json()))
            found.news.notify_all()
        return web.Response()

    runner = web.ServerRunner(web.Server(take))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found = Receiver(f"http://127.0.0.1:{runner.addresses[0][1]}/hook")
        yield found
    finally:
        await runner.cleanup()


class PushConfigView(NamedTuple):
    """A configuration as any dialect shows it; 0.1 has no id for it."""

    task: str
    id: str
    url: str
    scheme: str


class PushClient:
    """The five things that one dialect, over one binding, does with a webhook. Subclasses say names and shapes."""

    whole = False
    """It is told the Task at changes of state."""
    named = True
    """Configurations have ids, can be listed, and deleted."""
    token = "X-A2A-Notification-Token"

    def config(self, url: str, id: str = "", *, secret: str = "") -> dict[str, Any]:
        """A configuration in the shape of 1.0."""
        values: dict[str, Any] = {"url": url, **({"id": id} if id else {})}
        if secret:
            values |= {"token": secret, "authentication": {"scheme": "Bearer", "credentials": secret}}
        return values

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str: ...  # type: ignore[empty-body]
    async def create(  # type: ignore[empty-body]
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView: ...
    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView: ...  # type: ignore[empty-body]
    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]: ...  # type: ignore[empty-body]
    async def delete(self, connections: ServerConnections, task: str, id: str) -> None: ...


# JSON-RPC ----------------------------------------------------------------------------------------------------------


class FlatRpc(PushClient):
    """1.0 and its relatives: flat configurations."""

    speaker: JsonRpc = V1JsonRpc()
    names: tuple[str, str, str, str] = (
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
    )

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        params = self.speaker.params(text, "", wait=True)
        params["configuration"]["taskPushNotificationConfig"] = self.config(url, secret=secret)
        return self.speaker.sent(await self.speaker.call(connections, self.speaker.names[0], params)).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        params = {"taskId": task, **self.config(url, id, secret=secret)}
        return self.shown(await self.speaker.call(connections, self.names[0], params))

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        return self.shown(await self.speaker.call(connections, self.names[1], {"taskId": task, "id": id}))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        return [
            self.shown(one)
            for one in (await self.speaker.call(connections, self.names[2], {"taskId": task}))["configs"]
        ]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        assert await self.speaker.call(connections, self.names[3], {"taskId": task, "id": id}) in (None, {})

    def shown(self, value: dict[str, Any]) -> PushConfigView:
        assert not {"token", "pushNotificationConfig"} & set(value)
        authentication = value.get("authentication", {})
        assert not authentication.get("credentials")
        return PushConfigView(value["taskId"], value["id"], value["url"], authentication.get("scheme", ""))


class OverWebSocket(FlatRpc):
    speaker = WebSocket()


class Fasta2aHooks(FlatRpc):
    """fasta2a 2: 1.0's shapes under two families of names."""

    speaker = Fasta2a()
    names = (
        *("tasks/pushNotification/set", "tasks/pushNotification/get"),
        *("tasks/pushNotificationConfig/list", "tasks/pushNotificationConfig/delete"),
    )


class RustHooks(FlatRpc):
    speaker = Rust()
    token = "a2a-notification-token"


class WrappedRpc(PushClient):
    """0.3: the configuration in a wrapper, the task as `taskId` or `id`."""

    speaker: JsonRpc = V03JsonRpc()
    names = tuple(f"tasks/pushNotificationConfig/{verb}" for verb in ("set", "get", "list", "delete"))
    whole = True

    def config(self, url: str, id: str = "", *, secret: str = "") -> dict[str, Any]:
        values = super().config(url, id, secret=secret)
        if secret:
            values["authentication"] = {"schemes": ["Bearer", "Basic"], "credentials": secret}
        return values

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        params = self.speaker.params(text, "", wait=True)
        params["configuration"]["pushNotificationConfig"] = self.config(url, secret=secret)
        return self.speaker.sent(await self.speaker.call(connections, self.speaker.names[0], params)).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        params = {"taskId": task, "pushNotificationConfig": self.config(url, id, secret=secret)}
        return self.shown(await self.speaker.call(connections, self.names[0], params))

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        params = {"id": task, **({"pushNotificationConfigId": id} if id else {})}
        return self.shown(await self.speaker.call(connections, self.names[1], params))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        return [self.shown(one) for one in await self.speaker.call(connections, self.names[2], {"id": task})]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        params = {"id": task, "pushNotificationConfigId": id}
        assert await self.speaker.call(connections, self.names[3], params) is None

    def shown(self, value: dict[str, Any]) -> PushConfigView:
        inner = value["pushNotificationConfig"]
        assert "token" not in inner
        authentication = inner.get("authentication", {})
        assert "credentials" not in authentication
        return PushConfigView(
            value["taskId"], inner["id"], inner["url"], next(iter(authentication.get("schemes", ())), "")
        )


class Fasta2aOldHooks(WrappedRpc):
    """fasta2a 0.6: 0.3 with 0.1's names for two of them, and the task as `id` around the configuration."""

    names = ("tasks/pushNotification/set", "tasks/pushNotification/get", *WrappedRpc.names[2:])

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        params = {"id": task, "pushNotificationConfig": self.config(url, id, secret=secret)}
        return self.shown(await self.speaker.call(connections, self.names[0], params))

    def shown(self, value: dict[str, Any]) -> PushConfigView:
        if "id" in value:  # not in what 0.3's own names give
            assert value["id"] == value["taskId"]
        return super().shown(value)


class V01Hooks(WrappedRpc):
    """0.1: one configuration for a task, without a name."""

    speaker = V01JsonRpc()
    names = ("tasks/pushNotification/set", "tasks/pushNotification/get", "", "")
    named = False

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        params = self.speaker.params(text, "", wait=True)
        params["pushNotification"] = self.config(url, secret=secret)
        return self.speaker.sent(await self.speaker.call(connections, "tasks/send", params)).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        params = {"id": task, "pushNotificationConfig": self.config(url, secret=secret)}
        return self.shown(await self.speaker.call(connections, self.names[0], params))

    def shown(self, value: dict[str, Any]) -> PushConfigView:
        assert set(value) == {"id", "pushNotificationConfig"}
        assert "id" not in value["pushNotificationConfig"]
        value = {"taskId": value["id"], "pushNotificationConfig": {"id": "", **value["pushNotificationConfig"]}}
        return super().shown(value)


# REST --------------------------------------------------------------------------------------------------------------


class RestHooks(FlatRpc):
    """1.0 over REST."""

    rest: Rest = Rest()
    collection = "pushNotificationConfigs"

    def path(self, task: str, id: str = "") -> str:
        return f"/tasks/{task}/{self.collection}" + (f"/{id}" if id else "")

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        body = self.rest.body(text, "", wait=True)
        body["configuration"]["taskPushNotificationConfig"] = self.config(url, secret=secret)
        return self.rest.task((await self.rest.ask(connections, "POST", "/message:send", body))["task"]).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        return self.shown(
            await self.rest.ask(connections, "POST", self.path(task), self.config(url, id, secret=secret))
        )

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        return self.shown(await self.rest.ask(connections, "GET", self.path(task, id)))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        return [self.shown(one) for one in (await self.rest.ask(connections, "GET", self.path(task)))["configs"]]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        assert await self.rest.ask(connections, "DELETE", self.path(task, id)) == {}


class V03RestHooks(RestHooks):
    """0.3 over REST: resource names, and a body that each client has its own idea of."""

    rest = V03Rest()
    whole = True

    def __init__(self, body: str = "config", base: str = "") -> None:
        self._body = body
        if base:
            self.rest = V03Rest()
            self.rest.base = base

    def config(self, url: str, id: str = "", *, secret: str = "") -> dict[str, Any]:
        values = PushClient.config(self, url, id, secret=secret)
        if secret:
            values["authentication"] = {"schemes": ["Bearer"], "credentials": secret}
        return values

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        body = self.rest.body(text, "", wait=True)
        body["configuration"]["pushNotification"] = self.config(url, secret=secret)
        return self.rest.task((await self.rest.ask(connections, "POST", "/message:send", body))["task"]).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        config, path = self.config(url, id, secret=secret), self.path(task)
        name = f"tasks/{task}/pushNotificationConfigs/{id or 'None'}"
        wrapped = {"name": name, "pushNotificationConfig": config}
        match self._body:
            case "whole":
                body = {"parent": f"tasks/{task}", "config": wrapped, **({"configId": id} if id else {})}
            case "query":
                config.pop("id", None)
                body, path = {"pushNotificationConfig": config}, f"{path}?configId={id}" if id else path
            case "bare":
                body = config
            case _:
                body = wrapped
        return self.shown(await self.rest.ask(connections, "POST", path, body))

    def shown(self, value: dict[str, Any]) -> PushConfigView:
        collection, task, _, id = value["name"].split("/")
        inner = value["pushNotificationConfig"]
        assert (collection, inner["id"]) == ("tasks", id)
        assert "token" not in inner
        authentication = inner.get("authentication", {})
        assert "credentials" not in authentication
        return PushConfigView(task, id, inner["url"], next(iter(authentication.get("schemes", ())), ""))


# gRPC --------------------------------------------------------------------------------------------------------------


class GrpcHooks(PushClient):
    """1.0 over gRPC."""

    speaker = V1Grpc()

    def message(self, url: str, id: str, secret: str, task: str = "") -> pb.TaskPushNotificationConfig:
        tenant = AGENT if task else ""
        config = pb.TaskPushNotificationConfig(url=url, id=id, token=secret, tenant=tenant, task_id=task)
        if secret:
            config.authentication.scheme, config.authentication.credentials = "Bearer", secret
        return config

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        request = self.speaker.request(text, "", wait=True)
        request.configuration.task_push_notification_config.CopyFrom(self.message(url, "", secret))
        return str((await connections.v1.SendMessage(request)).task.id)

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        request = self.message(url, id, secret, task)
        return self.shown(await call_rpc(connections.v1.CreateTaskPushNotificationConfig(request)))

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        request = pb.GetTaskPushNotificationConfigRequest(tenant=AGENT, task_id=task, id=id)
        return self.shown(await call_rpc(connections.v1.GetTaskPushNotificationConfig(request)))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        request = pb.ListTaskPushNotificationConfigsRequest(tenant=AGENT, task_id=task)
        return [
            self.shown(one) for one in (await call_rpc(connections.v1.ListTaskPushNotificationConfigs(request))).configs
        ]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        request = pb.DeleteTaskPushNotificationConfigRequest(tenant=AGENT, task_id=task, id=id)
        await call_rpc(connections.v1.DeleteTaskPushNotificationConfig(request))

    def shown(self, one: pb.TaskPushNotificationConfig) -> PushConfigView:
        assert not one.token
        assert not one.authentication.credentials
        return PushConfigView(one.task_id, one.id, one.url, one.authentication.scheme)


class V03GrpcHooks(PushClient):
    """0.3 over gRPC."""

    speaker = V03Grpc()
    whole = True

    def message(self, url: str, id: str, secret: str) -> v03_pb.PushNotificationConfig:
        config = v03_pb.PushNotificationConfig(url=url, id=id, token=secret)
        if secret:
            config.authentication.schemes.append("Bearer")
            config.authentication.credentials = secret
        return config

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        request = self.speaker.request(text, "", wait=True)
        request.configuration.push_notification.CopyFrom(self.message(url, "", secret))
        return str((await connections.v03.SendMessage(request)).task.id)

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        config = v03_pb.TaskPushNotificationConfig(
            name=f"tasks/{task}/pushNotificationConfigs/{id or 'None'}",
            push_notification_config=self.message(url, id, secret),
        )
        request = v03_pb.CreateTaskPushNotificationConfigRequest(
            parent=f"tasks/{task}", config_id=id, config=config, tenant=AGENT
        )
        return self.shown(await call_rpc(connections.v03.CreateTaskPushNotificationConfig(request)))

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        name = f"tasks/{task}/pushNotificationConfigs/{id or 'None'}"
        request = v03_pb.GetTaskPushNotificationConfigRequest(name=name, tenant=AGENT)
        return self.shown(await call_rpc(connections.v03.GetTaskPushNotificationConfig(request)))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        request = v03_pb.ListTaskPushNotificationConfigRequest(parent=f"tasks/{task}", tenant=AGENT)
        return [
            self.shown(one) for one in (await call_rpc(connections.v03.ListTaskPushNotificationConfig(request))).configs
        ]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        name = f"tasks/{task}/pushNotificationConfigs/{id}"
        request = v03_pb.DeleteTaskPushNotificationConfigRequest(name=name, tenant=AGENT)
        await call_rpc(connections.v03.DeleteTaskPushNotificationConfig(request))

    def shown(self, one: v03_pb.TaskPushNotificationConfig) -> PushConfigView:
        inner = one.push_notification_config
        assert not inner.token
        assert not inner.authentication.credentials
        _, task, _, id = one.name.split("/")
        return PushConfigView(task, id, inner.url, next(iter(inner.authentication.schemes), ""))


async def call_rpc(call: Any) -> Any:
    """The answer to a gRPC call; what it is refused with as the others say it."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise CallRejected(error.code()) from error


PUSH_CLIENTS: dict[str, PushClient] = {
    "0.1": V01Hooks(),
    "0.3 JSON-RPC": WrappedRpc(),
    "fasta2a 0.6": Fasta2aOldHooks(),
    "0.3 gRPC": V03GrpcHooks(),
    "0.3 REST": V03RestHooks(base="/playground/v1"),
    "0.3 REST, the whole request": V03RestHooks("whole", base="/playground/v1"),
    "0.3 REST, bare": V03RestHooks("bare", base="/playground/v1"),
    "Google REST": V03RestHooks(),
    "Google REST, configId in the query": V03RestHooks("query"),
    "fasta2a 2": Fasta2aHooks(),
    "a2a-rust": RustHooks(),
    "1.0 JSON-RPC": FlatRpc(),
    "1.0 WebSocket": OverWebSocket(),
    "1.0 REST": RestHooks(),
    "1.0 gRPC": GrpcHooks(),
}
