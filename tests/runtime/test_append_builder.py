"""The append of a send: its context, its push configuration, and its idempotency key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.harness import Harness, open_harness, request

from dragoman import Turn
from dragoman.core.errors import InvalidParams, PushNotificationNotSupported
from dragoman.core.task.log import Append, New
from dragoman.runtime import Call, Limits
from dragoman.runtime.send import MAX_IDEMPOTENCY_KEY_LENGTH, AppendBuilder
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def echo(turn: Turn) -> str:
    return turn.text


async def asker(turn: Turn) -> str:
    return turn.ask("and?")


async def build(here: Harness, call: Call, send_request: pb.SendMessageRequest) -> Append:
    operations = here.runtime.operations
    agents, admission = operations.access.agents, operations.admission
    return await AppendBuilder(here.store, agents, operations.push_configs, admission, Limits()).build(
        call, send_request
    )


async def test_a_new_task_gets_ids_and_the_request_stays_as_it_is(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        sent = request("hello")
        change = await build(here, here.call, sent)
        assert sent == request("hello")
        assert isinstance(change.guard, New)
        assert change.create is not None
        assert change.message is not None
        message = pb.Message.FromString(change.message.message)
        assert (message.task_id, message.context_id) == (change.create.id, change.create.context)
        assert change.create.fresh_context


async def test_the_digest_of_an_idempotency_key_excludes_the_message_s_own_id(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        call, first, again = replace(here.call, idempotency_key="k"), request("hello"), request("hello")
        again.message.message_id = "another"
        keys = [(await build(here, call, sent)).idempotency_key for sent in (first, again, request("other"))]
        assert keys[0] == keys[1] != keys[2]
        stored = (await build(here, call, again)).message
        assert stored is not None
        assert pb.Message.FromString(stored.message).message_id == "another"
        with pytest.raises(InvalidParams, match="at most 255 characters, not 256"):
            await build(here, replace(call, idempotency_key="k" * (MAX_IDEMPOTENCY_KEY_LENGTH + 1)), first)


async def test_another_context_for_a_task_is_rejected(tmp_path: Path) -> None:
    async with open_harness(tmp_path, asker) as here:
        task = await here.send()
        with pytest.raises(InvalidParams, match=r"message\.contextId"):
            await here.send("more", task_id=task.id, context_id="another")
        assert (await here.get(task.id)) == task


async def test_a_context_of_the_caller_is_kept(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        assert (await here.send(context_id="mine")).context_id == "mine"


async def test_a_push_configuration_is_rejected_without_push_notifications(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        send_request = request()
        send_request.configuration.task_push_notification_config.url = "http://127.0.0.1/"
        with pytest.raises(PushNotificationNotSupported):
            await here.runtime.operations.send.send_message(here.call, send_request)
        assert (await here.list()).total_size == 0
