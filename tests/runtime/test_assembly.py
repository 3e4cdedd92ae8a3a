"""Which agent is the root, and which agents cannot be served together."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman import Turn, agent
from dragoman.bus.local import LocalBus
from dragoman.runtime import Ports, RuntimeConfig, open_runtime
from dragoman.runtime.assembly import root_of
from dragoman.stores.sqlite import open_store


@agent
async def first(turn: Turn) -> str:
    return turn.text


@agent(default=True)
async def second(turn: Turn) -> str:
    return turn.text


@agent(default=True)
async def third(turn: Turn) -> str:
    return turn.text


def test_the_root_is_the_default_agent_or_the_first() -> None:
    assert root_of([first]) == "first"
    assert root_of([first, second]) == "second"


def test_no_agent_and_two_defaults_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"^no agent to serve$"):
        root_of([])
    with pytest.raises(ValueError, match=r"^only one agent can be the default, not second, third; set default=True on"):
        root_of([first, second, third])


async def test_a_root_that_is_not_served_is_rejected_before_a_session_opens(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    try:
        with pytest.raises(ValueError, match=r'^root agent "other" is not served; use one of first, second$'):
            async with open_runtime(Ports(store, LocalBus(), [first, second]), RuntimeConfig(root="other")):
                pass
        assert await store.sessions() == {}
        async with open_runtime(Ports(store, LocalBus(), []), RuntimeConfig(root="other", allow_no_agents=True)):
            assert len(await store.sessions()) == 1
    finally:
        await store.close()
