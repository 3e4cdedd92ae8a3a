"""a2a-sdk 0.3.26: every operation of its client over gRPC, HTTP+JSON and JSON-RPC; no extended card."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    AgentCard,
    DataPart,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
    TransportProtocol,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import Checks, arguments, finish, raises, wait_until_received
from descriptors import check_recorded
from hook import Hook, hook

check = Checks("a2a-sdk")
proto_only = Checks("a2a-sdk")
jsonrpc_only = Checks("a2a-sdk")

BASE64_FILES = "urn:dragoman:base64-files:v1"
"""Says that files are base64 text over gRPC and HTTP+JSON: this SDK sends and wants nothing else."""

REFUSED = (grpc.aio.AioRpcError, A2AClientHTTPError, A2AClientJSONRPCError)
"""Errors that this SDK raises for a server's error. Over gRPC and HTTP+JSON it evaluates only the status."""


class Caller:
    """The SDK's client, streaming, blocking and polling, on one transport."""

    def __init__(
        self,
        streaming: Client,
        blocking: Client,
        polling: Client,
        pushed: Callable[[PushNotificationConfig], Client],
        jsonrpc: Client,
    ) -> None:
        """`pushed` creates a client that sends a webhook with each message, the only way in this SDK.

        `jsonrpc`: reads tasks in the one form that files have over JSON-RPC.
        """
        self.jsonrpc = jsonrpc
        self.pushed = pushed
        self.streaming = streaming
        self.blocking = blocking
        self.polling = polling

    async def stream(self, text: str, **fields: Any) -> list[Any]:
        return [event async for event in self.streaming.send_message(message(text, **fields))]

    async def send(self, text: str = "hello", **fields: Any) -> Any:
        return await self.ask(message(text, **fields))

    async def ask(self, user_message: Message, webhook: PushNotificationConfig | None = None) -> Any:
        sending = (self.pushed(webhook) if webhook else self.blocking).send_message(user_message)
        answer = [event async for event in sending][-1]
        return answer if isinstance(answer, Message) else answer[0]

    async def start(self, text: str) -> Task:
        return [event async for event in self.polling.send_message(message(text))][-1][0]

    async def get(self, task: str, **fields: Any) -> Task:
        return await self.blocking.get_task(TaskQueryParams(id=task, **fields))

    async def cancel(self, task: str) -> Task:
        return await self.blocking.cancel_task(TaskIdParams(id=task))

    async def follow(self, task: str, begun: asyncio.Event | None = None) -> list[Any]:
        """Returns all events; `begun` is set with the first."""
        events: list[Any] = []
        async for event in self.streaming.resubscribe(TaskIdParams(id=task)):
            events.append(event)
            if begun is not None:
                begun.set()
        return events


def message(text: str, *parts: Part, **fields: Any) -> Message:
    content = list(parts) or [Part(root=TextPart(text=text))]
    return Message(message_id="m-1", role=Role.user, parts=content, **fields)


def texts(task: Task) -> str:
    return "".join(part.root.text for artifact in task.artifacts or [] for part in artifact.parts)


@check.of("send")
async def a_blocking_send_gives_the_finished_task(caller: Caller) -> None:
    task = await caller.send("echo hello")
    assert task.status.state == TaskState.completed
    assert texts(task) == "hello"
    assert [part.root.text for part in task.history[0].parts] == ["echo hello"]


@check.of("non-blocking send", "get")
async def a_send_that_polls_gives_a_task_at_once(caller: Caller) -> None:
    task = await caller.start("sleep 0.5")
    assert task.status.state in (TaskState.submitted, TaskState.working)
    while (await caller.get(task.id)).status.state != TaskState.completed:
        await asyncio.sleep(0.02)


@check.of("stream")
async def a_stream_shows_every_chunk_in_order(caller: Caller) -> None:
    events = await caller.stream("stream 5 5")
    chunks = [update for _, update in events if isinstance(update, TaskArtifactUpdateEvent)]
    assert [chunk.artifact.parts[0].root.text for chunk in chunks] == [f"chunk-{number} " for number in range(1, 6)]
    task, last = events[-1]
    assert last.status.state == TaskState.completed
    assert last.final
    assert texts(await caller.get(task.id)) == "chunk-1 chunk-2 chunk-3 chunk-4 chunk-5 "


@check.of("follow-up")
async def a_follow_up_needs_only_the_task_every_time(caller: Caller) -> None:
    task = await caller.send("ask")
    assert task.status.state == TaskState.input_required
    answered = await caller.send("blue", task_id=task.id)
    assert (answered.id, answered.context_id) == (task.id, task.context_id)
    assert texts(answered) == "you said: blue"


@check.of("stream")
async def a_streamed_question_is_the_final_event(caller: Caller) -> None:
    _, last = (await caller.stream("ask"))[-1]
    assert last.status.state == TaskState.input_required
    assert last.final


@check.of("follow-up")
async def a_task_that_asks_for_authentication_goes_on_the_same_way(caller: Caller) -> None:
    task = await caller.send("auth")
    assert task.status.state == TaskState.auth_required
    assert texts(await caller.send("done", task_id=task.id)) == "you said: done"


@check.of("send")
async def failing_and_rejecting_are_states_not_errors(caller: Caller) -> None:
    assert (await caller.send("fail")).status.state == TaskState.failed
    assert (await caller.send("reject")).status.state == TaskState.rejected


@check.of("send")
async def a_direct_reply_is_a_message(caller: Caller) -> None:
    answer = await caller.send("reply hi")
    assert isinstance(answer, Message)
    assert answer.parts[0].root.text == "hi"


@check
async def data_goes_there_and_back(caller: Caller) -> None:
    given = {"numbers": [1, 2.5], "nested": {"yes": True, "nothing": None}}
    task = await caller.ask(message("", Part(root=DataPart(data=given))))
    assert task.artifacts[0].parts[0].root.data == given
    assert (await caller.send("data")).artifacts[0].parts[0].root.data


@check
async def a_small_text_file_comes_back_with_its_name(caller: Caller) -> None:
    file = (await caller.send("file")).artifacts[0].parts[0].root.file
    assert file.mime_type == "text/plain"
    assert file.name == "hello.txt"


@check.of("send", "stream", "get")
async def binary_files_go_there_and_back(caller: Caller) -> None:
    contents = [bytes(range(256)), b"plain text"]
    files = [
        FileWithBytes(bytes=b64encode(content).decode(), mime_type="application/octet-stream") for content in contents
    ]
    sent = message("", *(Part(root=FilePart(file=file)) for file in files))

    def read(parts: list[Part]) -> list[bytes]:
        return [b64decode(part.root.file.bytes, validate=True) for part in parts]

    task = await caller.ask(sent)
    for shown in (task, await caller.get(task.id)):
        assert read(shown.artifacts[0].parts) == contents
        assert read(shown.history[0].parts) == contents
    stored = await caller.jsonrpc.get_task(TaskQueryParams(id=task.id))
    assert read(stored.history[0].parts) == contents, "the agent got something else"
    events = [update async for _, update in caller.streaming.send_message(sent)]
    [change] = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert read(change.artifact.parts) == contents


@check.of("get")
async def history_is_cut_to_the_requested_length(caller: Caller) -> None:
    task = await caller.send("ask")
    await caller.send("blue", task_id=task.id)
    assert len((await caller.get(task.id, history_length=1)).history) == 1
    assert len((await caller.get(task.id)).history) == 3


@check.of("cancel", "subscribe")
async def a_task_is_canceled_and_its_followers_hear_of_it(caller: Caller) -> None:
    task = await caller.start("sleep 30")
    begun = asyncio.Event()
    following = asyncio.create_task(caller.follow(task.id, begun))
    await wait_until_received(following, begun)
    assert (await caller.cancel(task.id)).status.state == TaskState.canceled
    _, last = (await following)[-1]
    assert last.status.state == TaskState.canceled
    await raises(REFUSED, caller.cancel(task.id))  # type: ignore[arg-type]


@check.of("subscribe")
async def a_resubscription_shows_the_rest(caller: Caller) -> None:
    task = await caller.start("stream 20 40")
    events = await caller.follow(task.id)
    final, _ = events[-1]
    assert texts(final) == "".join(f"chunk-{number} " for number in range(1, 21))


@proto_only.of("subscribe")
async def a_finished_task_is_shown_once_to_a_subscriber(caller: Caller) -> None:
    task = await caller.send("hello")
    events = await caller.follow(task.id)
    assert [found.status.state for found, _ in events] == [TaskState.completed]


@check.of("errors")
async def what_is_wrong_is_refused(caller: Caller) -> None:
    done = await caller.send("hello")
    for call in (
        caller.get("no-such-task"),
        caller.cancel("no-such-task"),
        caller.send("hello", task_id="no-such-task"),
        caller.send("more", task_id=done.id),
    ):
        await raises(REFUSED, call)  # type: ignore[arg-type]


@check.of("card")
async def the_card_is_read_through_the_transport(caller: Caller) -> None:
    assert (await caller.blocking.get_card()).name == "Playground"


@check.of("push configs")
async def a_webhook_is_kept_and_replaced(caller: Caller) -> None:
    task = (await caller.send("ask")).id
    for url in ("https://one.example/hook", "https://two.example/hook"):
        for shown in (
            await caller.blocking.set_task_callback(webhook(task, url)),
            await caller.blocking.get_task_callback(config_params(task, "c")),
        ):
            config = shown.push_notification_config
            assert (shown.task_id, config.id, config.url) == (task, "c", url)
            assert config.authentication.schemes == ["Bearer"]
            assert not config.token, "nobody gets secrets back"
            assert not config.authentication.credentials


@check.of("push configs")
async def who_names_no_webhook_is_given_the_one_there_is(caller: Caller) -> None:
    task = (await caller.send("ask")).id
    await caller.blocking.set_task_callback(webhook(task, "https://one.example/hook"))
    shown = await caller.blocking.get_task_callback(GetTaskPushNotificationConfigParams(id=task))
    assert shown.push_notification_config.url == "https://one.example/hook"


@check.of("push configs", "errors")
async def a_webhook_that_cannot_be_is_refused(caller: Caller) -> None:
    task = (await caller.send("ask")).id
    for call in (
        caller.blocking.set_task_callback(webhook("no-such-task", "https://one.example/hook")),
        caller.blocking.set_task_callback(webhook(task, "http://169.254.169.254/latest")),
        caller.blocking.get_task_callback(config_params(task, "no-such-config")),
    ):
        await raises(REFUSED, call)  # type: ignore[arg-type]


@check.of("push")
async def a_receiver_gets_the_task_as_its_state_changes(caller: Caller) -> None:
    with hook() as there:
        task = await caller.ask(message("echo hello"), config(there))
        deliveries = await there.until(lambda body: body["status"]["state"] == "completed")
        received = [Task.model_validate(body) for _, body in deliveries]
        assert {one.id for one in received} == {task.id}
        assert (received[0].status.state, texts(received[-1])) == (TaskState.submitted, "hello")
        for headers, _ in deliveries:
            assert headers["x-a2a-notification-token"] == "t0ken"
            assert headers["authorization"] == "Bearer s3cret"


@check.of("push")
async def a_receiver_gets_what_comes_after_it_was_registered(caller: Caller) -> None:
    with hook() as there:
        task = await caller.send("ask")
        await caller.blocking.set_task_callback(
            TaskPushNotificationConfig(task_id=task.id, push_notification_config=config(there))
        )
        await caller.send("blue", task_id=task.id)
        deliveries = await there.until(lambda body: body["status"]["state"] == "completed")
        assert [body["status"]["state"] for _, body in deliveries] == ["working", "completed"]


def config(there: Hook) -> PushNotificationConfig:
    return webhook("", there.url).push_notification_config


def webhook(task: str, url: str) -> TaskPushNotificationConfig:
    authentication = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="s3cret")
    inner = PushNotificationConfig(id="c", url=url, token="t0ken", authentication=authentication)
    return TaskPushNotificationConfig(task_id=task, push_notification_config=inner)


def config_params(task: str, name: str) -> GetTaskPushNotificationConfigParams:
    return GetTaskPushNotificationConfigParams(id=task, push_notification_config_id=name)


@jsonrpc_only.of("errors")
async def errors_have_their_codes(caller: Caller) -> None:
    done = await caller.send("hello")
    for code, call in (
        (-32001, caller.get("no-such-task")),
        (-32001, caller.cancel("no-such-task")),
        (-32001, caller.send("hello", task_id="no-such-task")),
        (-32002, caller.cancel(done.id)),
        (-32602, caller.send("more", task_id=done.id)),
    ):
        await raises(A2AClientJSONRPCError, call, f"code={code}")


@jsonrpc_only.of("subscribe")
async def a_finished_task_has_no_stream_to_go_on_with(caller: Caller) -> None:
    task = await caller.send("hello")
    await raises(A2AClientJSONRPCError, caller.follow(task.id), "code=-32004")


@jsonrpc_only.of("errors")
async def a_stream_that_cannot_begin_says_why(caller: Caller) -> None:
    await raises(A2AClientJSONRPCError, caller.follow("no-such-task"), "code=-32001")
    await raises(A2AClientJSONRPCError, caller.stream("hello", task_id="no-such-task"), "code=-32001")


protos = Checks()


@protos
def our_protos_equal_its_descriptors() -> None:
    check_recorded()


def callers(web: httpx.AsyncClient, card: AgentCard) -> Iterator[tuple[TransportProtocol, Caller]]:
    """Yields a caller for each transport."""

    def client(transport: TransportProtocol, streaming: bool, polling: bool, *pushed: PushNotificationConfig) -> Client:
        config = ClientConfig(
            streaming=streaming,
            polling=polling,
            httpx_client=web,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_transports=[transport],
            use_client_preference=True,
            push_notification_configs=list(pushed),
            extensions=[BASE64_FILES],
        )
        return ClientFactory(config).create(card)

    for transport in (TransportProtocol.grpc, TransportProtocol.http_json, TransportProtocol.jsonrpc):
        clients = [client(transport, *how) for how in ((True, False), (False, False), (False, True))]
        jsonrpc = client(TransportProtocol.jsonrpc, False, False)
        yield transport, Caller(*clients, partial(client, transport, False, False), jsonrpc)


async def main() -> bool:
    where = arguments()
    good = await protos.run("descriptors")
    async with httpx.AsyncClient(timeout=60) as web:
        card = await A2ACardResolver(web, where.http).get_agent_card()
        for transport, caller in callers(web, card):
            own = jsonrpc_only if transport == TransportProtocol.jsonrpc else proto_only
            for some in (check, own):
                good &= await some.run(transport.value, caller)
    return good


if __name__ == "__main__":
    finish(asyncio.run(main()))
