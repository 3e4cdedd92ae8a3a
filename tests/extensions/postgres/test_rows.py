"""Rows as arrays of columns, and texts that PostgreSQL cannot store as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dragoman.core.names import Owner
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import IdempotencyKey, NewTask
from dragoman.extensions.postgres.store import PostgresStore
from dragoman.testing.fixtures import (
    AGENT,
    artifact,
    by_runner,
    chunk,
    created,
    new_ref,
)

pytestmark = pytest.mark.long


async def test_texts_with_nul_characters_are_stored(store: PostgresStore) -> None:
    """PostgreSQL allows no U+0000 in a text; callers may put it into an id."""
    for text in ("a\0b", "a\1b", "\0", "\1\1", "a\0\1\2b"):
        owner = Owner(f"scope {text}", f"principal {text}")
        ref = new_ref(owner)
        new = NewTask(AGENT, text, f"context {text}", alias=True)
        key = IdempotencyKey(AGENT, f"key {text}", b"d")
        appended = await store.append(replace(created(ref, claim=7), create=new, idempotency_key=key))
        await store.append(by_runner(appended, artifact(f"artifact {text}", "x"), chunk(f"artifact {text}", "y")))
        found = await store.find(owner, AGENT, text)
        assert found is not None
        assert (found.ref, found.id, found.context, found.principal) == (ref, text, new.context, owner.principal)
        snapshot = await store.read(ref)
        assert snapshot is not None
        assert f"artifact {text}".encode() in snapshot.task
        page = await store.page(TaskQuery(owner, AGENT, context=new.context))
        assert (page.total, len(page.tasks)) == (1, 1)
        assert [head.ref for head in await store.locate(text)] == [ref]
