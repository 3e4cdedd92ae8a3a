"""Operations on push configurations: validation, limits, pages, isolation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.harness import open_harness, request
from tests.runtime.push.push_harness import (
    HOOK,
    OTHER,
    asker,
    echo,
    open_push_harness,
)

from dragoman.core.errors import InvalidParams, PushNotificationNotSupported, TaskEnded, TaskNotFound
from dragoman.core.push.configuration import MAX_PUSH_CONFIGS, OLDEST_CONFIG_ID
from dragoman.runtime import Call
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

# Validation --------------------------------------------------------------------------------------------------------


async def test_an_invalid_configuration_is_rejected_and_so_is_its_send(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, echo) as here:
        for config, field in (
            ({"url": ""}, "url"),
            ({"url": "https://forbidden.example"}, "url"),
            ({"token": "a\r\nb"}, "token"),
            ({"id": "a/b"}, "id"),
        ):
            with pytest.raises(InvalidParams) as refused:
                await here.send(**config)
            assert refused.value.violations[0].field == f"configuration.taskPushNotificationConfig.{field}"
            with pytest.raises(InvalidParams) as refused:
                await here.send(dialect="0.1", **config)
            assert refused.value.violations[0].field == f"pushNotification.{field}"
        assert (await here.harness.list()).total_size == 0
        task = await here.harness.send()
        with pytest.raises(InvalidParams, match=r"^pushNotificationConfig\.url: the URL is not one"):
            await here.create(task.id, dialect="0.3", url="https://forbidden.example")
        with pytest.raises(InvalidParams, match=r"^taskId: is required"):
            await here.create("")
        with pytest.raises(TaskNotFound):
            await here.create("no such task")


async def test_the_configurations_of_a_task_are_limited(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        task = await here.harness.send()
        for number in range(MAX_PUSH_CONFIGS):
            await here.create(task.id, id=f"{number}")
        with pytest.raises(InvalidParams, match=f"^id: a task can have at most {MAX_PUSH_CONFIGS} push configurations"):
            await here.create(task.id, id="one more")
        push_request = request("more", task_id=task.id)
        push_request.configuration.task_push_notification_config.url = HOOK
        with pytest.raises(InvalidParams, match=f"{MAX_PUSH_CONFIGS} push configurations"):
            await here.harness.runtime.operations.send.send_message(here.call(), push_request)
        assert (await here.harness.get(task.id)).status.state == pb.TASK_STATE_INPUT_REQUIRED


async def test_a_created_configuration_without_an_id_gets_a_fresh_one(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        task = await here.send()  # its configuration has the id of the task
        first, second = [(await here.create(task.id, url=url)).id for url in (HOOK, OTHER)]
        assert len({task.id, first, second}) == 3
        urls = {push.config.id: push.config.url for push in await here.pushes(task.id)}
        assert urls == {task.id: HOOK, first: HOOK, second: OTHER}
        assert (await here.create(task.id, dialect="0.3", url=OTHER)).id == task.id
        urls = {push.config.id: push.config.url for push in await here.pushes(task.id)}
        assert urls == {task.id: OTHER, first: HOOK, second: OTHER}


async def test_configurations_are_listed_in_pages_without_secrets(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        task = await here.harness.send()
        created = [
            await here.create(
                task.id,
                id=f"c{number}",
                token="secret",
                authentication=pb.AuthenticationInfo(scheme="Bearer", credentials="secret"),
            )
            for number in range(5)
        ]
        assert all("secret" not in str(one) for one in created)
        seen: list[pb.TaskPushNotificationConfig] = []
        push_request = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id, page_size=2)
        while True:
            page = pb.ListTaskPushNotificationConfigsResponse.FromString(
                await here.harness.runtime.operations.push_configs.list(here.call(), push_request)
            )
            assert len(page.configs) <= 2
            seen += page.configs
            if not page.next_page_token:
                break
            push_request.page_token = page.next_page_token
        assert seen == created
        assert seen[0].authentication.scheme == "Bearer"
        for wrong in ({"page_size": 101}, {"page_size": -1}, {"page_token": "x"}):
            bad = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id, **wrong)
            with pytest.raises(InvalidParams, match=r"^page(Size|Token): "):
                await here.harness.runtime.operations.push_configs.list(here.call(), bad)


async def test_a_configuration_is_read_by_its_id_or_as_the_oldest(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        task = await here.harness.send()
        operations = here.harness.runtime.operations
        with pytest.raises(TaskNotFound, match="no such push"):
            await operations.push_configs.get(
                here.call(), pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id=OLDEST_CONFIG_ID)
            )
        await here.create(task.id, id="b")
        here.clock.now += 1
        await here.create(task.id, id="a", url=OTHER)
        for id, url in ((OLDEST_CONFIG_ID, HOOK), ("a", OTHER), ("b", HOOK)):
            push_request = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id=id)
            found = pb.TaskPushNotificationConfig.FromString(
                await operations.push_configs.get(here.call(), push_request)
            )
            assert found.url == url
        with pytest.raises(TaskNotFound, match="no such push"):
            await operations.push_configs.get(
                here.call(), pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="c")
            )
        for call in (
            operations.push_configs.get(here.call(), pb.GetTaskPushNotificationConfigRequest(task_id=task.id)),
            operations.push_configs.delete(here.call(), pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id)),
        ):
            with pytest.raises(InvalidParams, match=r"^id: is required"):
                await call


async def test_another_principal_can_neither_see_nor_change_configurations(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        task = await here.send()
        caller = here.call().caller
        stranger = Call(replace(caller, owner=caller.owner._replace(principal="eve")))
        operations = here.harness.runtime.operations
        for call in (
            operations.push_configs.create(stranger, pb.TaskPushNotificationConfig(task_id=task.id, url=OTHER)),
            operations.push_configs.get(
                stranger, pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id=OLDEST_CONFIG_ID)
            ),
            operations.push_configs.list(stranger, pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)),
            operations.push_configs.delete(
                stranger, pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=task.id)
            ),
        ):
            with pytest.raises(TaskNotFound):
                await call
        assert len(await here.pushes(task.id)) == 1


async def test_a_token_is_shown_to_the_principal_that_set_it_only(tmp_path: Path) -> None:
    """`token: NotRequired[str]` of PushNotificationConfig, in the types of fasta2a before 1.0."""
    async with open_push_harness(tmp_path, asker) as here:
        operations = here.harness.runtime.operations.push_configs

        async def shown(call: Call) -> str:
            wanted = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id=OLDEST_CONFIG_ID)
            return pb.TaskPushNotificationConfig.FromString(await operations.get(call, wanted)).token

        task = await here.send(dialect="0.1", token="t0ken")
        here_too = replace(here.call("0.1"), shows_tokens=True)
        assert (await shown(here_too), await shown(here.call("0.1"))) == ("t0ken", "")
        caller = here_too.caller
        colleague = replace(here_too, caller=replace(caller, identity=replace(caller.identity, principal="bob")))
        assert await shown(colleague) == ""


async def test_a_rejected_message_adds_no_configuration(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, echo) as here:
        task = await here.harness.send()
        push_request = request("late", task_id=task.id)
        push_request.configuration.task_push_notification_config.url = HOOK
        with pytest.raises(TaskEnded):
            await here.harness.runtime.operations.send.send_message(here.call(), push_request)
        assert await here.pushes(task.id) == []


async def test_a_server_without_push_notifications_rejects_every_call(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as without_push:
        operations, task = without_push.runtime.operations, await without_push.send()
        assert operations.push_configs.options is None
        push_request = request()
        push_request.configuration.task_push_notification_config.url = "nonsense"
        for call in (
            operations.push_configs.create(without_push.call, pb.TaskPushNotificationConfig(task_id=task.id)),
            operations.push_configs.get(without_push.call, pb.GetTaskPushNotificationConfigRequest()),
            operations.push_configs.list(without_push.call, pb.ListTaskPushNotificationConfigsRequest(task_id="none")),
            operations.push_configs.delete(
                without_push.call, pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id)
            ),
            operations.send.send_message(without_push.call, push_request),
        ):
            with pytest.raises(PushNotificationNotSupported):
                await call
        assert (await without_push.list()).total_size == 1
