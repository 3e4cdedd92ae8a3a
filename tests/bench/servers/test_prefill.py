"""Prefilled stores equal stores written by a server."""

from __future__ import annotations

from pathlib import Path

from bench.servers.prefill import OWNER, ROOT, fill

from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.stores.sqlite import open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_a_prefilled_store_has_completed_and_a_tenth_failed_tasks(tmp_path: Path) -> None:
    await fill(tmp_path / "tasks.db", 30)
    store = open_store(tmp_path / "tasks.db")
    try:
        all_tasks = await store.page(TaskQuery(OWNER, ROOT, page_size=100))
        completed = await store.page(TaskQuery(OWNER, ROOT, page_size=10, state=states.COMPLETED))
    finally:
        await store.close()
    assert all_tasks.total == 33
    assert completed.total == 30
    tasks = [pb.Task.FromString(task) for task in all_tasks.tasks]
    stamps = [task.status.timestamp.ToMilliseconds() for task in tasks]
    assert stamps == sorted(stamps, reverse=True)
    assert len(set(stamps)) == 33
    assert {task.status.state for task in tasks} == {pb.TASK_STATE_COMPLETED, pb.TASK_STATE_FAILED}
