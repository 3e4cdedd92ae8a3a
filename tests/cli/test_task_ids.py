"""Ids of tasks by their beginning, where the server lists some tasks only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import typer

from dragoman.calling.errors import CallRefused
from dragoman.cli.options import find_task_id
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as ops

OWN, FOREIGN = "01a22512-fe39-70c1-910f-28739f2f153e", "01a22512-fe1d-79bc-9194-fecef133df82"


class Lists:
    """A server whose lists are given: that of the caller, and that of all principals, if the caller sees it."""

    def __init__(self, own: ops.ListTasksResponse, found: ops.ListTasksResponse | None = None) -> None:
        self._own, self._found = own, found

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Lists]:
        yield self

    async def list_tasks(self, request: ops.ListTasksRequest) -> ops.ListTasksResponse:
        answer = self._own if request.own else self._found
        if answer is None:
            raise CallRefused("PERMISSION_DENIED", "for operators")
        return answer


def listed(*ids: str, total: int = 0) -> ops.ListTasksResponse:
    tasks = [ops.ListedTask(task={"id": one}) for one in ids]
    return ops.ListTasksResponse(tasks=tasks, total=total or len(ids))


async def test_an_operators_own_task_is_not_taken_for_that_of_another_with_the_same_beginning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = Lists(listed(OWN), listed(OWN, FOREIGN))
    with pytest.raises(typer.Exit):
        await find_task_id({"target": target}, "01a22512-fe")
    assert f"2 tasks begin with 01a22512-fe: {FOREIGN}, {OWN}; type more of one" in capsys.readouterr().err
    assert await find_task_id({"target": target}, "01a22512-fe3") == OWN


async def test_a_beginning_names_no_task_where_not_all_were_searched(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"target": Lists(listed(OWN, total=1001))}
    with pytest.raises(typer.Exit):
        await find_task_id(values, "01a22512-fe")
    assert "type a complete id" in capsys.readouterr().err
    assert await find_task_id(values, OWN) == OWN
    assert await find_task_id({"target": Lists(listed(OWN))}, "01a22512-fe") == OWN
