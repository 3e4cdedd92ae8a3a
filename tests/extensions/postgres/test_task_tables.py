"""Tables beside a task, written by several processes: keys, context state, usage, owners."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.extensions.postgres.two_stores import Stores, all_of, reasons
from tests.postgres import execute

from dragoman.core.limits.quotas import Usage, UsageReport
from dragoman.core.names import Owner
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import (
    CHANGED,
    Append,
    Appended,
    ContextState,
    DuplicateKey,
    Exists,
    IdempotencyKey,
)
from dragoman.testing.contracts.store_usage import usage_of
from dragoman.testing.fixtures import (
    AGENT,
    SESSION,
    by_runner,
    created,
    new_ref,
    running,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


async def test_usage_of_delegated_tasks_is_exact_across_processes(stores: Stores) -> None:
    tops = [await running(stores[0]) for _ in range(3)]

    async def under(above: Appended) -> Appended:
        change = created(new_ref(), claim=SESSION)
        assert change.create is not None
        return await stores[0].append(replace(change, create=replace(change.create, parent=above.record.ref.key)))

    middles = [await under(top) for top in tops]
    below = [await under(middle) for middle in middles for _ in range(4)]
    changes = [
        replace(by_runner(one), usage_report=UsageReport(1, 2))
        for turn in range(8)
        for one in ([*tops, *middles, *below] if turn % 2 else [*reversed(below), *reversed(middles), *reversed(tops)])
    ]
    assert set(reasons(await all_of(stores, changes))) == {""}
    assert set(
        reasons(await all_of(stores, [replace(by_runner(top), usage_report=UsageReport()) for top in tops]))
    ) == {""}
    for top, middle in zip(tops, middles, strict=True):
        assert await usage_of(stores[0], top.record.ref) == Usage(48, 96, 40, 80)
        assert await usage_of(stores[1], middle.record.ref) == Usage(40, 80, 32, 64)
        found = await stores[1].read(top.record.ref)
        assert found is not None
        shown = pb.Task.FromString(found.task).metadata.fields["usage"].struct_value.fields
        assert shown["tokens"].number_value == 48


async def test_one_of_many_concurrent_sends_with_one_key_is_written(stores: Stores) -> None:
    changes = [replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, "k", b"same")) for _ in range(40)]
    results = await all_of(stores, changes)
    (written,) = [result for result in results if isinstance(result, Appended)]
    others = [result for result in results if isinstance(result, DuplicateKey)]
    assert len(others) == 39
    assert {other.key_record.task for other in others} == {written.record.ref}


async def test_keys_in_any_order_never_deadlock(stores: Stores, postgres_url: str) -> None:
    for _ in range(5):
        keys = [f"{_}-{number}" for number in range(100)]
        changes = [replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, key, b"d")) for key in keys]
        again = [
            replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, key, b"d")) for key in reversed(keys)
        ]
        results = await all_of(stores, [one for pair in zip(changes, again, strict=True) for one in pair])
        assert reasons(results).count("repeated") == 100
    name = postgres_url.rpartition("/")[2]
    (row,) = await execute(postgres_url, "SELECT deadlocks FROM pg_stat_database WHERE datname = $1", name)
    assert row[0] == 0


async def test_the_state_of_a_conversation_is_written_once_for_each_version(stores: Stores) -> None:
    ref = (await stores[0].append(created(new_ref()))).record.ref
    changes = [Append(task=ref, guard=Exists(), context_state=ContextState(b"%d" % n, 1)) for n in range(10)]
    assert sorted(reasons(await all_of(stores, changes))) == ["", *[CHANGED] * 9]


async def test_two_processes_create_one_row_for_a_new_owner(stores: Stores) -> None:
    owners = [Owner("default", f"caller {number}") for number in range(50)]
    backwards = [created(new_ref(owner)) for owner in reversed(owners)]
    forwards = [created(new_ref(owner)) for owner in owners]
    results = await all_of(stores, [one for pair in zip(forwards, backwards, strict=True) for one in pair])
    assert set(reasons(results)) == {""}
    for owner in owners:
        assert (await stores[0].page(TaskQuery(owner, AGENT))).total == 2
