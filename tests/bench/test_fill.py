"""Stores that are filled for ListTasks hold what a server would have written."""

from __future__ import annotations

from pathlib import Path

from bench.fill import OWNER, ROOT, fill

from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.stores.sqlite import open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_a_filled_store_has_so_many_completed_tasks_and_a_tenth_as_many_failed_ones(tmp_path: Path) -> None:
    await fill(tmp_path / "tasks.db", 30)
    store = open_store(tmp_path / "tasks.db")
    try:
        everything = await store.page(TaskQuery(OWNER, ROOT, page_size=100))
        completed = await store.page(TaskQuery(OWNER, ROOT, page_size=10, state=states.COMPLETED))
    finally:
        await store.close()
    assert everything.total == 33
    assert completed.total == 30
    tasks = [pb.Task.FromString(task) for task in everything.tasks]
    stamps = [task.status.timestamp.ToMilliseconds() for task in tasks]
    assert stamps == sorted(stamps, reverse=True)
    assert len(set(stamps)) == 33
    assert {task.status.state for task in tasks} == {pb.TASK_STATE_COMPLETED, pb.TASK_STATE_FAILED}
