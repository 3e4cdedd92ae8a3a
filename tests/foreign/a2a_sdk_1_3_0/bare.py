"""a2a-sdk 1.3.0 on a server without capabilities: unsupported calls get the right error.

The SDK checks the card before a call, so its clients get a card with all capabilities.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from a2a.client import A2ACardResolver
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from check import URL, Caller, callers, request, webhook
from checks import Checks, arguments, finish, raises

bare = Checks("a2a-sdk")
lists = Checks("a2a-sdk")
v1_only = Checks("a2a-sdk")


@bare.of("refusals")
async def the_card_declares_nothing(caller: Caller) -> None:
    capabilities = (await caller.resolver.get_agent_card()).capabilities
    assert not capabilities.streaming
    assert not capabilities.push_notifications
    assert not capabilities.extended_agent_card


@bare.of("refusals")
async def what_needs_no_capability_works(caller: Caller) -> None:
    assert (await caller.send("hello")).task.status.state == pb.TaskState.Value("TASK_STATE_COMPLETED")


@bare.of("refusals")
async def streams_are_an_unsupported_operation(caller: Caller) -> None:
    task = (await caller.send("hello")).task.id
    await raises(errors.UnsupportedOperationError, caller.stream("hello"))
    await raises(errors.UnsupportedOperationError, caller.follow(task))


@bare.of("refusals")
async def webhooks_are_not_supported(caller: Caller) -> None:
    client, task, off = caller.blocking, (await caller.send("hello")).task.id, errors.PushNotificationNotSupportedError
    await raises(off, client.create_task_push_notification_config(webhook(task, URL)))
    one = pb.GetTaskPushNotificationConfigRequest(task_id=task, id="c")
    await raises(off, client.get_task_push_notification_config(one))
    send_request = request("hello")
    send_request.configuration.task_push_notification_config.CopyFrom(webhook("", URL))
    await raises(off, caller.ask(send_request))


@lists.of("refusals")
async def nor_are_they_listed_or_deleted(caller: Caller) -> None:
    client, task, off = caller.blocking, (await caller.send("hello")).task.id, errors.PushNotificationNotSupportedError
    some = pb.ListTaskPushNotificationConfigsRequest(task_id=task)
    await raises(off, client.list_task_push_notification_configs(some))
    delete_request = pb.DeleteTaskPushNotificationConfigRequest(task_id=task, id="c")
    await raises(off, client.delete_task_push_notification_config(delete_request))


@v1_only.of("refusals")
async def an_extended_card_is_an_unsupported_operation(caller: Caller) -> None:
    card_call = caller.blocking.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
    await raises(errors.UnsupportedOperationError, card_call)


@v1_only.of("refusals")
async def an_extension_that_is_required_has_to_be_named(caller: Caller) -> None:
    send_request = request("hello")
    send_request.tenant = "strict"
    await raises(errors.ExtensionSupportRequiredError, caller.ask(send_request))


async def main() -> bool:
    where, good = arguments(), True
    async with httpx.AsyncClient(timeout=60) as web:
        resolver = A2ACardResolver(web, where.http)
        card = await resolver.get_agent_card()
        promised = pb.AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True)
        card.capabilities.CopyFrom(promised)
        for title, transport, caller in callers(web, resolver, card):
            own = [v1_only] if title == "1.0" else []
            if (title, transport) != ("0.3 compat", "HTTP+JSON"):
                own.append(lists)
            for some in (bare, *own):
                good &= await some.run(f"{title} over {transport}", caller)
    return good


if __name__ == "__main__":
    finish(asyncio.run(main()))
