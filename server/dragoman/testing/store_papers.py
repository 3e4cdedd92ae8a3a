"""The store's contract: small texts that a server notes of itself.

A third-party store subclasses `StorePapers` in its own tests, as it does `StoreWrites` and the others.
"""

from __future__ import annotations

import asyncio

from dragoman.ports import Store


class StorePapers:
    """Give a `store` fixture."""

    async def test_a_text_is_there_once_it_was_written(self, store: Store) -> None:
        assert await store.papers.read("keys") == ""
        assert await store.papers.write("keys", "one", former="")
        assert await store.papers.read("keys") == "one"
        assert await store.papers.read("other") == ""

    async def test_a_text_takes_the_place_of_the_one_that_was_read_and_of_no_other(self, store: Store) -> None:
        assert not await store.papers.write("keys", "two", former="one")
        assert await store.papers.write("keys", "one", former="")
        assert not await store.papers.write("keys", "two", former="")
        assert not await store.papers.write("keys", "two", former="other")
        assert await store.papers.write("keys", "two", former="one")
        assert await store.papers.read("keys") == "two"

    async def test_of_those_who_write_at_once_one_does(self, store: Store) -> None:
        wrote = await asyncio.gather(*(store.papers.write("keys", str(n), former="") for n in range(5)))
        assert sorted(wrote) == [False, False, False, False, True]
        assert await store.papers.read("keys") == str(wrote.index(True))

    async def test_what_the_store_knows_of_itself_is_no_text_of_anybodys(self, store: Store) -> None:
        assert await store.papers.read("secret") == ""
        assert await store.papers.read("epoch") == ""
