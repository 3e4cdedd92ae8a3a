"""A local webhook receiver, and the push configuration calls of every dialect, written by hand."""

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
    """One webhook request."""

    headers: dict[str, str]
    body: Any


@dataclass
class Receiver:
    """The requests to one webhook URL."""

    url: str
    requests: list[ReceivedRequest] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_for(self, matches: Callable[[Any], bool]) -> None:
        """Waits for a request whose body matches."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: any(matches(request.body) for request in self.requests))


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """Runs a receiver that accepts every request."""

    async def receive(request: web.BaseRequest) -> web.Response:
        async with running.changed:
            running.requests.append(ReceivedRequest(dict(request.headers), await request.json()))
            running.changed.notify_all()
        return web.Response()

    runner = web.ServerRunner(web.Server(receive))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        running = Receiver(f"http://127.0.0.1:{runner.addresses[0][1]}/hook")
        yield running
    finally:
        await runner.cleanup()


class PushConfigView(NamedTuple):
    """A push configuration of any dialect; in 0.1 without an id."""

    task: str
    id: str
    url: str
    scheme: str


class PushClient:
    """The push configuration calls of one dialect over one binding. Subclasses define names and shapes."""

    gets_tasks = False
    """Webhook requests have the Task, at changes of its state."""
    has_ids = True
    """Configurations have ids, and can be listed and deleted."""
    replaces_unnamed = True
    """A configuration without an id replaces an earlier one without an id."""
    token = "X-A2A-Notification-Token"

    def config(self, url: str, id: str = "", *, secret: str = "") -> dict[str, Any]:
        """Returns a configuration in the shape of 1.0."""
        config: dict[str, Any] = {"url": url, **({"id": id} if id else {})}
        if secret:
            config |= {"token": secret, "authentication": {"scheme": "Bearer", "credentials": secret}}
        return config

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str: ...  # type: ignore[empty-body]
    async def create(  # type: ignore[empty-body]
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView: ...
    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView: ...  # type: ignore[empty-body]
    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]: ...  # type: ignore[empty-body]
    async def delete(self, connections: ServerConnections, task: str, id: str) -> None: ...


# JSON-RPC ----------------------------------------------------------------------------------------------------------


class V1JsonRpcPushClient(PushClient):
    """1.0 and dialects derived from it: flat configurations."""

    replaces_unnamed = False

    client: JsonRpc = V1JsonRpc()
    names: tuple[str, str, str, str] = (
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
    )

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        params = self.client.params(text, "", wait=True)
        params["configuration"]["taskPushNotificationConfig"] = self.config(url, secret=secret)
        return self.client.sent(await self.client.call(connections, self.client.names[0], params)).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        params = {"taskId": task, **self.config(url, id, secret=secret)}
        return self.view(await self.client.call(connections, self.names[0], params))

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        return self.view(await self.client.call(connections, self.names[1], {"taskId": task, "id": id}))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        return [
            self.view(config)
            for config in (await self.client.call(connections, self.names[2], {"taskId": task}))["configs"]
        ]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        assert await self.client.call(connections, self.names[3], {"taskId": task, "id": id}) in (None, {})

    def view(self, result: dict[str, Any]) -> PushConfigView:
        assert not {"token", "pushNotificationConfig"} & set(result)
        authentication = result.get("authentication", {})
        assert not authentication.get("credentials")
        return PushConfigView(result["taskId"], result["id"], result["url"], authentication.get("scheme", ""))


class WebSocketPushClient(V1JsonRpcPushClient):
    client = WebSocket()


class Fasta2aPushClient(V1JsonRpcPushClient):
    """fasta2a 2: 1.0's shapes with the method names of 0.1 and 0.3."""

    client = Fasta2a()
    replaces_unnamed = True
    names = (
        *("tasks/pushNotification/set", "tasks/pushNotification/get"),
        *("tasks/pushNotificationConfig/list", "tasks/pushNotificationConfig/delete"),
    )


class RustPushClient(V1JsonRpcPushClient):
    client = Rust()
    token = "a2a-notification-token"


class V03JsonRpcPushClient(PushClient):
    """0.3: the configuration in a wrapper, the task as `taskId` or `id`."""

    client: JsonRpc = V03JsonRpc()
    names = tuple(f"tasks/pushNotificationConfig/{verb}" for verb in ("set", "get", "list", "delete"))
    shows_token = False
    gets_tasks = True

    def config(self, url: str, id: str = "", *, secret: str = "") -> dict[str, Any]:
        config = super().config(url, id, secret=secret)
        if secret:
            config["authentication"] = {"schemes": ["Bearer", "Basic"], "credentials": secret}
        return config

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        params = self.client.params(text, "", wait=True)
        params["configuration"]["pushNotificationConfig"] = self.config(url, secret=secret)
        return self.client.sent(await self.client.call(connections, self.client.names[0], params)).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        params = {"taskId": task, "pushNotificationConfig": self.config(url, id, secret=secret)}
        return self.view(await self.client.call(connections, self.names[0], params))

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        params = {"id": task, **({"pushNotificationConfigId": id} if id else {})}
        return self.view(await self.client.call(connections, self.names[1], params))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        return [self.view(config) for config in await self.client.call(connections, self.names[2], {"id": task})]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        params = {"id": task, "pushNotificationConfigId": id}
        assert await self.client.call(connections, self.names[3], params) is None

    def view(self, result: dict[str, Any]) -> PushConfigView:
        inner = result["pushNotificationConfig"]
        assert self.shows_token or "token" not in inner
        authentication = inner.get("authentication", {})
        assert "credentials" not in authentication
        return PushConfigView(
            result["taskId"], inner["id"], inner["url"], next(iter(authentication.get("schemes", ())), "")
        )


class Fasta2a06PushClient(V03JsonRpcPushClient):
    """fasta2a 0.6: 0.3 with 0.1's names for two methods, and the task as `id` in the wrapper."""

    names = ("tasks/pushNotification/set", "tasks/pushNotification/get", *V03JsonRpcPushClient.names[2:])
    shows_token = True

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        params = {"id": task, "pushNotificationConfig": self.config(url, id, secret=secret)}
        return self.view(await self.client.call(connections, self.names[0], params))

    def view(self, result: dict[str, Any]) -> PushConfigView:
        if "id" in result:  # absent in responses to 0.3's own methods
            assert result["id"] == result["taskId"]
        return super().view(result)


class V01PushClient(V03JsonRpcPushClient):
    """0.1: one configuration for each task, without an id."""

    client = V01JsonRpc()
    names = ("tasks/pushNotification/set", "tasks/pushNotification/get", "", "")
    shows_token = True
    has_ids = False

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        params = self.client.params(text, "", wait=True)
        params["pushNotification"] = self.config(url, secret=secret)
        return self.client.sent(await self.client.call(connections, "tasks/send", params)).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        params = {"id": task, "pushNotificationConfig": self.config(url, secret=secret)}
        return self.view(await self.client.call(connections, self.names[0], params))

    def view(self, result: dict[str, Any]) -> PushConfigView:
        assert set(result) == {"id", "pushNotificationConfig"}
        assert "id" not in result["pushNotificationConfig"]
        result = {"taskId": result["id"], "pushNotificationConfig": {"id": "", **result["pushNotificationConfig"]}}
        return super().view(result)


# REST --------------------------------------------------------------------------------------------------------------


class RestPushClient(V1JsonRpcPushClient):
    """1.0 over REST."""

    rest: Rest = Rest()
    collection = "pushNotificationConfigs"

    def path(self, task: str, id: str = "") -> str:
        return f"/tasks/{task}/{self.collection}" + (f"/{id}" if id else "")

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        body = self.rest.body(text, "", wait=True)
        body["configuration"]["taskPushNotificationConfig"] = self.config(url, secret=secret)
        return self.rest.task((await self.rest.call(connections, "POST", "/message:send", body))["task"]).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        return self.view(
            await self.rest.call(connections, "POST", self.path(task), self.config(url, id, secret=secret))
        )

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        return self.view(await self.rest.call(connections, "GET", self.path(task, id)))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        return [self.view(config) for config in (await self.rest.call(connections, "GET", self.path(task)))["configs"]]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        assert await self.rest.call(connections, "DELETE", self.path(task, id)) == {}


class V03RestPushClient(RestPushClient):
    """0.3 over REST: resource names, and the body shapes of several clients."""

    rest = V03Rest()
    gets_tasks = True
    replaces_unnamed = True

    def __init__(self, body: str = "config", base: str = "") -> None:
        self._body = body
        if base:
            self.rest = V03Rest()
            self.rest.base = base

    def config(self, url: str, id: str = "", *, secret: str = "") -> dict[str, Any]:
        config = PushClient.config(self, url, id, secret=secret)
        if secret:
            config["authentication"] = {"schemes": ["Bearer"], "credentials": secret}
        return config

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        body = self.rest.body(text, "", wait=True)
        body["configuration"]["pushNotification"] = self.config(url, secret=secret)
        return self.rest.task((await self.rest.call(connections, "POST", "/message:send", body))["task"]).id

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        config, path = self.config(url, id, secret=secret), self.path(task)
        name = f"tasks/{task}/pushNotificationConfigs/{id or 'None'}"
        wrapped = {"name": name, "pushNotificationConfig": config}
        match self._body:
            case "request":
                body = {"parent": f"tasks/{task}", "config": wrapped, **({"configId": id} if id else {})}
            case "query":
                config.pop("id", None)
                body, path = {"pushNotificationConfig": config}, f"{path}?configId={id}" if id else path
            case "bare":
                body = config
            case _:
                body = wrapped
        return self.view(await self.rest.call(connections, "POST", path, body))

    def view(self, result: dict[str, Any]) -> PushConfigView:
        collection, task, _, id = result["name"].split("/")
        inner = result["pushNotificationConfig"]
        assert (collection, inner["id"]) == ("tasks", id)
        assert "token" not in inner
        authentication = inner.get("authentication", {})
        assert "credentials" not in authentication
        return PushConfigView(task, id, inner["url"], next(iter(authentication.get("schemes", ())), ""))


# gRPC --------------------------------------------------------------------------------------------------------------


class GrpcPushClient(PushClient):
    """1.0 over gRPC."""

    client = V1Grpc()
    replaces_unnamed = False

    def message(self, url: str, id: str, secret: str, task: str = "") -> pb.TaskPushNotificationConfig:
        tenant = AGENT if task else ""
        config = pb.TaskPushNotificationConfig(url=url, id=id, token=secret, tenant=tenant, task_id=task)
        if secret:
            config.authentication.scheme, config.authentication.credentials = "Bearer", secret
        return config

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        request = self.client.request(text, "", wait=True)
        request.configuration.task_push_notification_config.CopyFrom(self.message(url, "", secret))
        return str((await connections.v1.SendMessage(request)).task.id)

    async def create(
        self, connections: ServerConnections, task: str, url: str, id: str = "", *, secret: str = ""
    ) -> PushConfigView:
        request = self.message(url, id, secret, task)
        return self.view(await call_rpc(connections.v1.CreateTaskPushNotificationConfig(request)))

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        request = pb.GetTaskPushNotificationConfigRequest(tenant=AGENT, task_id=task, id=id)
        return self.view(await call_rpc(connections.v1.GetTaskPushNotificationConfig(request)))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        request = pb.ListTaskPushNotificationConfigsRequest(tenant=AGENT, task_id=task)
        return [
            self.view(config)
            for config in (await call_rpc(connections.v1.ListTaskPushNotificationConfigs(request))).configs
        ]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        request = pb.DeleteTaskPushNotificationConfigRequest(tenant=AGENT, task_id=task, id=id)
        await call_rpc(connections.v1.DeleteTaskPushNotificationConfig(request))

    def view(self, config: pb.TaskPushNotificationConfig) -> PushConfigView:
        assert not config.token
        assert not config.authentication.credentials
        return PushConfigView(config.task_id, config.id, config.url, config.authentication.scheme)


class V03GrpcPushClient(PushClient):
    """0.3 over gRPC."""

    client = V03Grpc()
    gets_tasks = True

    def message(self, url: str, id: str, secret: str) -> v03_pb.PushNotificationConfig:
        config = v03_pb.PushNotificationConfig(url=url, id=id, token=secret)
        if secret:
            config.authentication.schemes.append("Bearer")
            config.authentication.credentials = secret
        return config

    async def send(self, connections: ServerConnections, text: str, url: str, secret: str) -> str:
        request = self.client.request(text, "", wait=True)
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
        return self.view(await call_rpc(connections.v03.CreateTaskPushNotificationConfig(request)))

    async def get(self, connections: ServerConnections, task: str, id: str) -> PushConfigView:
        name = f"tasks/{task}/pushNotificationConfigs/{id or 'None'}"
        request = v03_pb.GetTaskPushNotificationConfigRequest(name=name, tenant=AGENT)
        return self.view(await call_rpc(connections.v03.GetTaskPushNotificationConfig(request)))

    async def list_all(self, connections: ServerConnections, task: str) -> list[PushConfigView]:
        request = v03_pb.ListTaskPushNotificationConfigRequest(parent=f"tasks/{task}", tenant=AGENT)
        return [
            self.view(config)
            for config in (await call_rpc(connections.v03.ListTaskPushNotificationConfig(request))).configs
        ]

    async def delete(self, connections: ServerConnections, task: str, id: str) -> None:
        name = f"tasks/{task}/pushNotificationConfigs/{id}"
        request = v03_pb.DeleteTaskPushNotificationConfigRequest(name=name, tenant=AGENT)
        await call_rpc(connections.v03.DeleteTaskPushNotificationConfig(request))

    def view(self, config: v03_pb.TaskPushNotificationConfig) -> PushConfigView:
        inner = config.push_notification_config
        assert not inner.token
        assert not inner.authentication.credentials
        _, task, _, id = config.name.split("/")
        return PushConfigView(task, id, inner.url, next(iter(inner.authentication.schemes), ""))


async def call_rpc(call: Any) -> Any:
    """Returns the response to a gRPC call. Raises CallRejected, as the other clients do."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise CallRejected(error.code()) from error


PUSH_CLIENTS: dict[str, PushClient] = {
    "0.1": V01PushClient(),
    "0.3 JSON-RPC": V03JsonRpcPushClient(),
    "fasta2a 0.6": Fasta2a06PushClient(),
    "0.3 gRPC": V03GrpcPushClient(),
    "0.3 REST": V03RestPushClient(base="/playground/v1"),
    "0.3 REST, the whole request": V03RestPushClient("request", base="/playground/v1"),
    "0.3 REST, bare": V03RestPushClient("bare", base="/playground/v1"),
    "Google REST": V03RestPushClient(),
    "Google REST, configId in the query": V03RestPushClient("query"),
    "fasta2a 2": Fasta2aPushClient(),
    "a2a-rust": RustPushClient(),
    "1.0 JSON-RPC": V1JsonRpcPushClient(),
    "1.0 WebSocket": WebSocketPushClient(),
    "1.0 REST": RestPushClient(),
    "1.0 gRPC": GrpcPushClient(),
}
