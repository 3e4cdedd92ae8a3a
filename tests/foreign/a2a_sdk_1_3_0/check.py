"""a2a-sdk 1.3.0: every operation of its client over gRPC, HTTP+JSON and JSON-RPC, in 1.0 and its 0.3 compat layer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

import grpc
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.compat.v0_3.types import Task as OldTask
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from checks import Checks, arguments, command, finish, raises, serving, wait_until_received
from descriptors import check_recorded
from google.protobuf.json_format import ParseDict
from hook import hook

check = Checks("a2a-sdk")
v1_only = Checks("a2a-sdk")
compat_only = Checks("a2a-sdk")
lists = Checks("a2a-sdk")

URL = "https://one.example/hook"

STATES = pb.TaskState


class Caller:
    """The SDK's client, streaming and not, on one transport."""

    def __init__(self, resolver: A2ACardResolver, streaming: Client, blocking: Client) -> None:
        self.resolver = resolver
        self.streaming = streaming
        self.blocking = blocking

    async def stream(self, text: str, **message: Any) -> list[pb.StreamResponse]:
        return [event async for event in self.streaming.send_message(request(text, **message))]

    async def send(self, text: str = "hello", **message: Any) -> pb.StreamResponse:
        return await self.ask(request(text, **message))

    async def ask(self, send_request: pb.SendMessageRequest) -> pb.StreamResponse:
        return [event async for event in self.blocking.send_message(send_request)][-1]

    async def start(self, text: str) -> pb.Task:
        send_request = request(text)
        send_request.configuration.return_immediately = True
        return (await self.ask(send_request)).task

    async def get(self, task: str, **fields: Any) -> pb.Task:
        return await self.blocking.get_task(pb.GetTaskRequest(id=task, **fields))

    async def cancel(self, task: str) -> pb.Task:
        return await self.blocking.cancel_task(pb.CancelTaskRequest(id=task))

    async def follow(self, task: str, begun: asyncio.Event | None = None) -> list[pb.StreamResponse]:
        """Returns all events; `begun` is set with the first."""
        events: list[pb.StreamResponse] = []
        async for event in self.streaming.subscribe(pb.SubscribeToTaskRequest(id=task)):
            events.append(event)
            if begun is not None:
                begun.set()
        return events


def request(text: str = "", *parts: pb.Part, **message: Any) -> pb.SendMessageRequest:
    content = list(parts) or [pb.Part(text=text)]
    return pb.SendMessageRequest(message=pb.Message(message_id="m-1", role="ROLE_USER", parts=content, **message))


def texts(task: pb.Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


@check.of("send")
async def a_blocking_send_gives_the_finished_task(caller: Caller) -> None:
    task = (await caller.send("echo hello")).task
    assert task.status.state == STATES.Value("TASK_STATE_COMPLETED")
    assert texts(task) == "hello"


@check.of("non-blocking send", "get")
async def a_send_that_does_not_wait_gives_a_task_to_poll(caller: Caller) -> None:
    task = await caller.start("sleep 0.5")
    assert task.status.state in (STATES.Value("TASK_STATE_SUBMITTED"), STATES.Value("TASK_STATE_WORKING"))
    while (await caller.get(task.id)).status.state != STATES.Value("TASK_STATE_COMPLETED"):
        await asyncio.sleep(0.02)


@check.of("stream")
async def a_stream_is_the_task_and_then_its_chunks_in_order(caller: Caller) -> None:
    events = await caller.stream("stream 5 5")
    assert events[0].HasField("task")
    chunks = [event.artifact_update for event in events if event.HasField("artifact_update")]
    assert [chunk.artifact.parts[0].text for chunk in chunks] == [f"chunk-{number} " for number in range(1, 6)]
    assert [chunk.append for chunk in chunks] == [False, True, True, True, True]
    assert events[-1].status_update.status.state == STATES.Value("TASK_STATE_COMPLETED")
    assert texts(await caller.get(events[0].task.id)) == "chunk-1 chunk-2 chunk-3 chunk-4 chunk-5 "


@check.of("follow-up")
async def a_follow_up_needs_only_the_task_every_time(caller: Caller) -> None:
    task = (await caller.send("ask")).task
    assert task.status.state == STATES.Value("TASK_STATE_INPUT_REQUIRED")
    assert task.status.message.parts[0].text
    answered = (await caller.send("blue", task_id=task.id)).task
    assert (answered.id, answered.context_id) == (task.id, task.context_id)
    assert texts(answered) == "you said: blue"


@check.of("follow-up")
async def a_task_that_asks_for_authentication_goes_on_the_same_way(caller: Caller) -> None:
    task = (await caller.send("auth")).task
    assert task.status.state == STATES.Value("TASK_STATE_AUTH_REQUIRED")
    assert texts((await caller.send("done", task_id=task.id)).task) == "you said: done"


@check.of("send")
async def failing_and_rejecting_are_states_not_errors(caller: Caller) -> None:
    assert (await caller.send("fail")).task.status.state == STATES.Value("TASK_STATE_FAILED")
    assert (await caller.send("reject")).task.status.state == STATES.Value("TASK_STATE_REJECTED")


@check.of("send", "stream")
async def a_direct_reply_is_a_message(caller: Caller) -> None:
    assert (await caller.send("reply hi")).message.parts[0].text == "hi"
    events = await caller.stream("reply hi")
    assert [event.WhichOneof("payload") for event in events] == ["message"]


@check.of("errors")
async def a_stream_that_cannot_begin_says_why(caller: Caller) -> None:
    await raises(errors.TaskNotFoundError, caller.stream("hello", task_id="no-such-task"))
    await raises(errors.TaskNotFoundError, caller.follow("no-such-task"))


@v1_only  # the compat layer treats the bytes of 0.3 as base64 text: README.md
async def files_come_back(caller: Caller) -> None:
    part = (await caller.send("file")).task.artifacts[0].parts[0]
    assert part.filename == "hello.txt"
    assert part.media_type == "text/plain"
    assert part.raw.startswith(b"hello")


@check
async def data_comes_back(caller: Caller) -> None:
    data = (await caller.send("data")).task.artifacts[0].parts[0]
    assert data.HasField("data")


@check.of("cancel", "subscribe")
async def a_task_is_canceled_and_its_followers_hear_of_it(caller: Caller) -> None:
    task = await caller.start("sleep 30")
    begun = asyncio.Event()
    following = asyncio.create_task(caller.follow(task.id, begun))
    await wait_until_received(following, begun)
    assert (await caller.cancel(task.id)).status.state == STATES.Value("TASK_STATE_CANCELED")
    events = await following
    assert events[0].HasField("task")
    assert events[-1].status_update.status.state == STATES.Value("TASK_STATE_CANCELED")
    await raises(errors.TaskNotCancelableError, caller.cancel(task.id))


@check.of("card")
async def the_card_declares_what_the_agent_can(caller: Caller) -> None:
    card = await caller.resolver.get_agent_card()
    assert card.name == "Playground"
    assert card.capabilities.streaming
    assert {"echo", "stream"} <= {skill.id for skill in card.skills}


@check.of("errors")
async def an_unknown_task_is_not_found(caller: Caller) -> None:
    await raises(errors.TaskNotFoundError, caller.get("no-such-task"))
    await raises(errors.TaskNotFoundError, caller.cancel("no-such-task"))
    await raises(errors.TaskNotFoundError, caller.send("hello", task_id="no-such-task"))


@check.of("send", "stream", "get")
async def binary_files_go_there_and_back(caller: Caller) -> None:
    part = pb.Part(raw=bytes(range(256)), filename="x.bin", media_type="application/octet-stream")
    task = (await caller.ask(request("", part))).task
    for shown in (task, await caller.get(task.id)):
        assert shown.artifacts[0].parts[0].raw == part.raw
        assert shown.history[0].parts[0].raw == part.raw
    events = [event async for event in caller.streaming.send_message(request("", part))]
    [change] = [event.artifact_update for event in events if event.HasField("artifact_update")]
    assert change.artifact.parts[0].raw == part.raw


@v1_only.of("get")
async def history_is_cut_to_the_requested_length(caller: Caller) -> None:
    task = (await caller.send("ask")).task
    await caller.send("blue", task_id=task.id)
    lengths = [len((await caller.get(task.id, history_length=n)).history) for n in (0, 1, 2)]
    assert lengths == [0, 1, 2]
    assert len((await caller.get(task.id)).history) == 3


@v1_only.of("subscribe")
async def a_subscription_begins_with_the_task(caller: Caller) -> None:
    task = await caller.start("stream 20 40")
    events = await caller.follow(task.id)
    assert events[0].task.id == task.id
    chunks = [event for event in events if event.HasField("artifact_update")]
    seen = texts(events[0].task) + "".join(event.artifact_update.artifact.parts[0].text for event in chunks)
    assert seen == "".join(f"chunk-{number} " for number in range(1, 21))


@v1_only.of("list")
async def pages_of_tasks_follow_their_tokens(caller: Caller) -> None:
    tasks = [(await caller.send("hello", context_id="paged by the sdk")).task.id for _ in range(5)]
    list_request = pb.ListTasksRequest(context_id="paged by the sdk", page_size=2)
    seen: list[str] = []
    while True:
        page = await caller.blocking.list_tasks(list_request)
        assert page.total_size == len(tasks) or page.total_size % len(tasks) == 0
        seen += [task.id for task in page.tasks]
        if not page.next_page_token:
            break
        list_request.page_token = page.next_page_token
    assert set(tasks) <= set(seen)
    failed = await caller.blocking.list_tasks(pb.ListTasksRequest(context_id="paged by the sdk", status=4))
    assert failed.total_size == 0


@v1_only.of("errors")
async def a_finished_task_takes_nothing_more(caller: Caller) -> None:
    task = (await caller.send("hello")).task
    await raises(errors.UnsupportedOperationError, caller.send("more", task_id=task.id))
    await raises(errors.UnsupportedOperationError, caller.follow(task.id))


@v1_only.of("errors")
async def bad_messages_are_distinguished(caller: Caller) -> None:
    empty = request("x")
    del empty.message.parts[:]
    await raises(errors.InvalidParamsError, caller.ask(empty))
    odd = request("", pb.Part(raw=b"x", media_type="application/x-unsupported"))
    await raises(errors.ContentTypeNotSupportedError, caller.ask(odd))


@check.of("push configs")
async def a_webhook_is_kept_and_replaced(caller: Caller) -> None:
    client, task = caller.blocking, (await caller.send("ask")).task.id
    one = pb.GetTaskPushNotificationConfigRequest(task_id=task, id="c")
    for url in ("https://one.example/hook", "https://two.example/hook"):
        config = webhook(task, url)
        for shown in (
            await client.create_task_push_notification_config(config),
            await client.get_task_push_notification_config(one),
        ):
            assert (shown.task_id, shown.id, shown.url) == (task, "c", url)
            assert shown.authentication.scheme == "Bearer"
            assert not shown.token, "nobody gets secrets back"
            assert not shown.authentication.credentials


@lists.of("push configs")
async def webhooks_are_listed_and_deleted(caller: Caller) -> None:
    client, task = caller.blocking, (await caller.send("ask")).task.id
    some = pb.ListTaskPushNotificationConfigsRequest(task_id=task)
    assert not (await client.list_task_push_notification_configs(some)).configs
    for name in ("a", "b"):
        await client.create_task_push_notification_config(webhook(task, "https://one.example/hook", name))
    listed = (await client.list_task_push_notification_configs(some)).configs
    assert sorted(config.id for config in listed) == ["a", "b"]
    delete_request = pb.DeleteTaskPushNotificationConfigRequest(task_id=task, id="a")
    for _ in range(2):
        await client.delete_task_push_notification_config(delete_request)
    assert [config.id for config in (await client.list_task_push_notification_configs(some)).configs] == ["b"]


@check.of("push configs", "errors")
async def a_webhook_that_cannot_be_is_refused(caller: Caller) -> None:
    client, task = caller.blocking, (await caller.send("ask")).task.id
    await raises(errors.TaskNotFoundError, client.create_task_push_notification_config(webhook("no-such-task", URL)))
    missing = pb.GetTaskPushNotificationConfigRequest(task_id=task, id="no-such-config")
    await raises(errors.TaskNotFoundError, client.get_task_push_notification_config(missing))


@v1_only.of("push configs", "errors")
async def a_webhook_in_the_server_s_own_network_is_refused(caller: Caller) -> None:
    task = (await caller.send("ask")).task.id
    inside = webhook(task, "http://169.254.169.254/latest")
    await raises(errors.InvalidParamsError, caller.blocking.create_task_push_notification_config(inside), "url: ")


@v1_only.of("push")
async def a_receiver_gets_every_event_of_the_stream(caller: Caller) -> None:
    with hook() as there:
        send_request = request("stream 3 5")
        send_request.configuration.task_push_notification_config.CopyFrom(webhook("", there.url))
        task = (await caller.ask(send_request)).task
        deliveries = await there.until(lambda body: "COMPLETED" in str(body))
        received = [ParseDict(body, pb.StreamResponse()) for _, body in deliveries]
        assert received[0].task.id == task.id
        chunks = [one.artifact_update.artifact.parts[0].text for one in received if one.HasField("artifact_update")]
        assert chunks == [f"chunk-{number} " for number in range(1, 4)]
        assert received[-1].status_update.status.state == STATES.Value("TASK_STATE_COMPLETED")
        check_headers(deliveries)


@compat_only.of("push")
async def a_receiver_gets_the_task_as_its_state_changes(caller: Caller) -> None:
    with hook() as there:
        send_request = request("echo hello")
        send_request.configuration.task_push_notification_config.CopyFrom(webhook("", there.url))
        task = (await caller.ask(send_request)).task
        deliveries = await there.until(lambda body: body["status"]["state"] == "completed")
        received = [OldTask.model_validate(body) for _, body in deliveries]
        assert {one.id for one in received} == {task.id}
        assert [one.status.state.value for one in received][:: len(received) - 1] == ["submitted", "completed"]
        check_headers(deliveries)


@check.of("push")
async def a_receiver_gets_what_comes_after_it_was_registered(caller: Caller) -> None:
    with hook() as there:
        task = (await caller.send("ask")).task
        await caller.blocking.create_task_push_notification_config(webhook(task.id, there.url))
        await caller.send("blue", task_id=task.id)
        deliveries = await there.until(lambda body: "completed" in str(body).lower())
        assert task.id in str(deliveries[0])
        check_headers(deliveries)


def webhook(task: str, url: str, name: str = "c") -> pb.TaskPushNotificationConfig:
    authentication = pb.AuthenticationInfo(scheme="Bearer", credentials="s3cret")
    return pb.TaskPushNotificationConfig(task_id=task, id=name, url=url, token="t0ken", authentication=authentication)


def check_headers(deliveries: list[Any]) -> None:
    for headers, _ in deliveries:
        assert headers["authorization"] == "Bearer s3cret"
        assert headers["x-a2a-notification-token"] == "t0ken"
        assert headers["content-type"] == "application/json"
    assert len({headers["dragoman-event"] for headers, _ in deliveries}) == len(deliveries)


@v1_only
async def the_extended_card_is_off(caller: Caller) -> None:
    client = caller.blocking
    # The SDK checks the card first and makes no call for undeclared capabilities.
    card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
    assert card.name == "Playground"


secured = Checks()

TOKEN = "only for foreign clients"


class FixedCredentials(CredentialService):
    """Credentials by the names of the schemes on the card."""

    def __init__(self, **credentials: str) -> None:
        self.credentials = credentials

    async def get_credentials(self, security_scheme_name: str, context: object) -> str | None:
        return self.credentials.get(security_scheme_name)


class Stranger:
    """The SDK's client on one transport of a server with authentication."""

    def __init__(self, card: pb.AgentCard, config: ClientConfig, key: str) -> None:
        self.card = card
        self.config = config
        self.key = key

    async def send(self, **credentials: str) -> pb.Task:
        interceptors = [AuthInterceptor(FixedCredentials(**credentials))] if credentials else []
        client = ClientFactory(self.config).create(self.card, interceptors=interceptors)
        return [event async for event in client.send_message(request("echo hello"))][-1].task


@secured
async def without_credentials_it_is_refused(stranger: Stranger) -> None:
    await raises(errors.A2AError, stranger.send())
    await raises(errors.A2AError, stranger.send(bearer="wrong"))


@secured
async def the_bearer_token_of_the_card_lets_it_in(stranger: Stranger) -> None:
    assert texts(await stranger.send(bearer=TOKEN)) == "hello"


@secured
async def an_api_key_goes_where_the_card_says(stranger: Stranger) -> None:
    assert texts(await stranger.send(apiKey=stranger.key)) == "hello"


@secured
async def callers_do_not_see_each_other_s_tasks(stranger: Stranger) -> None:
    task = (await stranger.send(bearer=TOKEN)).id
    config, card = stranger.config, stranger.card
    for credentials, seen in (({"bearer": TOKEN}, True), ({"apiKey": stranger.key}, False)):
        client = ClientFactory(config).create(card, interceptors=[AuthInterceptor(FixedCredentials(**credentials))])
        asking = client.get_task(pb.GetTaskRequest(id=task))
        if seen:
            assert (await asking).id == task
        else:
            await raises(errors.TaskNotFoundError, asking)


async def with_credentials(project: str) -> bool:
    """The SDK with credentials for the security schemes of the card."""
    good = True
    with serving(project, "--token", TOKEN, "--api-keys") as addresses:
        key = command(project, "keys", "create", "sdk", "--server", addresses["grpc"], "--key", TOKEN)
        async with httpx.AsyncClient(timeout=60) as web:
            card = await A2ACardResolver(web, addresses["http"]).get_agent_card()
            for title, shown in (("1.0", card), ("0.3 compat", of_old(card))):
                for transport in ("GRPC", "HTTP+JSON", "JSONRPC"):
                    config = ClientConfig(
                        streaming=False,
                        httpx_client=web,
                        grpc_channel_factory=grpc.aio.insecure_channel,
                        supported_protocol_bindings=[transport],
                    )
                    good &= await secured.run(f"{title} over {transport}", Stranger(shown, config, key))
    return good


def of_old(card: pb.AgentCard) -> pb.AgentCard:
    """The card with the interfaces of 0.3 only."""
    old = pb.AgentCard()
    old.CopyFrom(card)
    del old.supported_interfaces[:]
    old.supported_interfaces.extend(i for i in card.supported_interfaces if i.protocol_version.startswith("0.3"))
    return old


protos = Checks()


@protos
def our_protos_equal_its_descriptors() -> None:
    check_recorded()


def callers(web: httpx.AsyncClient, resolver: A2ACardResolver, card: pb.AgentCard) -> Iterator[tuple[str, str, Caller]]:
    """The generation, the transport, and a caller for it."""
    for title, shown in (("1.0", card), ("0.3 compat", of_old(card))):
        for transport in ("GRPC", "HTTP+JSON", "JSONRPC"):
            clients = [
                ClientFactory(
                    ClientConfig(
                        streaming=streaming,
                        httpx_client=web,
                        grpc_channel_factory=grpc.aio.insecure_channel,
                        supported_protocol_bindings=[transport],
                    )
                ).create(shown)
                for streaming in (True, False)
            ]
            yield title, transport, Caller(resolver, *clients)


async def main() -> bool:
    where = arguments()
    good = await protos.run("descriptors")
    async with httpx.AsyncClient(timeout=60) as web:
        resolver = A2ACardResolver(web, where.http)
        for title, transport, caller in callers(web, resolver, await resolver.get_agent_card()):
            own = [v1_only] if title == "1.0" else [compat_only]
            # Its 0.3 client over HTTP+JSON supports neither.
            if (title, transport) != ("0.3 compat", "HTTP+JSON"):
                own.append(lists)
            for some in (check, *own):
                good &= await some.run(f"{title} over {transport}", caller)
    return good & await with_credentials(where.project)


if __name__ == "__main__":
    finish(asyncio.run(main()))
