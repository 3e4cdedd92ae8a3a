"""GetTask and ListTasks: filters, pages, and the dialect of a task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.runtime.harness import open_harness, request

from dragoman import Turn
from dragoman.core.errors import InvalidParams, TaskNotFound
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def echo(turn: Turn) -> str:
    return turn.text


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"page_size": 0}, "pageSize"),
        ({"page_size": 101}, "pageSize"),
        ({"page_token": "garbage"}, "pageToken"),
        ({"history_length": -1}, "historyLength"),
        ({"status": 99}, "status"),
    ],
)
async def test_an_invalid_filter_is_rejected_by_name(tmp_path: Path, filters: dict[str, int | str], field: str) -> None:
    async with open_harness(tmp_path, echo) as here:
        with pytest.raises(InvalidParams, match=field):
            await here.list(**filters)


async def test_pages_follow_one_another_and_belong_to_their_filters(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        task_ids = [(await here.send(str(number))).id for number in range(5)]
        first = await here.list(page_size=2)
        second = await here.list(page_size=2, page_token=first.next_page_token)
        third = await here.list(page_size=2, page_token=second.next_page_token)
        assert [task.id for page in (first, second, third) for task in page.tasks] == task_ids[::-1]
        assert (first.total_size, first.page_size, third.next_page_token) == (5, 2, "")
        with pytest.raises(InvalidParams, match="other filters"):
            await here.list(page_size=2, page_token=first.next_page_token, status=pb.TASK_STATE_FAILED)


async def test_a_time_filter_includes_its_own_instant(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        task = await here.send()
        assert (await here.list(status_timestamp_after=task.status.timestamp.ToDatetime())).total_size == 1


async def test_a_task_is_read_by_its_id_alone(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        with pytest.raises(InvalidParams, match="id"):
            await here.get("")
        with pytest.raises(TaskNotFound):
            await here.get("none")


async def test_the_dialect_of_a_task_is_read_once_unless_a_client_chose_the_id(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        call = replace(here.call, dialect="0.1", names_tasks=True)
        for task_id, reads in (("", 1), ("mine", 2)):
            sent = await here.runtime.operations.send.send_message(call, request(task_id=task_id))
            task = pb.SendMessageResponse.FromString(sent).task
            with patch.object(here.store, "find", wraps=here.store.find) as find:
                for _ in range(2):
                    assert await here.runtime.operations.read.dialect_of(call.caller, task.id) == "0.1"
            assert find.call_count == reads
        assert await here.runtime.operations.read.dialect_of(call.caller, "none") == ""
