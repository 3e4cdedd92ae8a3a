"""A run through a road that breaks again and again: against our server nothing is lost and nothing comes twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman import Turn, agent
from dragoman.app import open_app
from dragoman.client import Artifact, Finished, Text, connect, patience
from dragoman.flaky import FlakyProxy, How, Span
from dragoman.settings import Address, Settings

CHUNKS = 300


@agent(description="Counts")
async def counter(turn: Turn) -> AsyncIterator[str]:
    for n in range(CHUNKS):
        if n % 20 == 0:
            await turn.flush()
        yield f"{n} "


@pytest.mark.parametrize(("binding", "how"), [("jsonrpc", "close"), ("rest", "reset"), ("grpc", "reset")])
async def test_a_road_that_breaks_again_and_again_loses_nothing(
    tmp_path: Path, binding: str, how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/tasks.db")
    async with open_app(settings, [counter]) as app:
        to = app.grpc if binding == "grpc" else app.http
        scheme = "grpc" if binding == "grpc" else "http"
        async with (
            FlakyProxy(str(to), every=3, after=Span(size=8000), how=how) as proxy,
            connect(f"{scheme}://{proxy.address}", binding=binding) as client,
        ):
            heard = [event async for event in client.run("go")]
    told = [event.text for event in heard if isinstance(event, Text)]
    assert told == [f"{n} " for n in range(CHUNKS)]
    assert len([event for event in heard if isinstance(event, Artifact)]) == 1
    last = heard[-1]
    assert isinstance(last, Finished)
    assert last.result.text == "".join(told)
    assert proxy.dropped.total() > 3
