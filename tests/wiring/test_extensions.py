"""Agents of extensions: opened in order, with what they need to know, and closed; problems become errors of a start."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.extensions.agent_host import agent_host

from dragoman import Turn, agent
from dragoman.ports import Agent, UpstreamStatus
from dragoman.ports.extension import AgentHost, AgentSource, AgentSources, ServerExtension, StartError
from dragoman.settings.sources import SettingsError
from dragoman.wiring.extensions import extension_errors, import_libraries, open_sources


@agent
async def echo(turn: Turn) -> str:
    return turn.text


class Source:
    """One agent, and a record of what happened."""

    def __init__(self, id: str, host: AgentHost) -> None:
        self.agents: Sequence[Agent] = [cast(Agent, agent(id=id)(lambda turn: turn.text))]
        self.host = host
        self.events = ["opened"]

    def start(self) -> None:
        self.events.append("started")

    def status(self) -> Sequence[UpstreamStatus]:
        id = self.agents[0].spec.id
        return [UpstreamStatus(id, f"https://{id}", True, False, 0.0, "", 0.0, (), (), 0, 1)]


Open = Callable[[Any, AgentHost], AbstractAsyncContextManager[AgentSource]]


def extension(name: str, open: Open, **fields: Any) -> ServerExtension:
    sources = AgentSources(
        option=f"--{name}", is_used=bool, open=open, recognizes=lambda app: app == f"{name}.py:thing"
    )
    return ServerExtension(name=name, title=name.title(), agents=sources, **fields)


async def test_sources_are_opened_in_order_and_closed_in_reverse() -> None:
    opened: list[Source] = []
    closed: list[str] = []

    @asynccontextmanager
    async def open(settings: str, host: AgentHost) -> AsyncIterator[AgentSource]:
        opened.append(Source(settings, host))
        yield opened[-1]
        closed.append(settings)

    extensions = [extension("one", open), extension("two", open)]
    async with AsyncExitStack() as stack:
        sources = await open_sources(
            stack, extensions, {"one": "first", "two": "second"}, "two.py:thing", agent_host(reserved_ids=["echo"])
        )
        assert [one.spec.id for one in sources.agents] == ["first", "second"]
        assert [source.host.app for source in opened] == ["", "two.py:thing"]
        assert [source.host.reserved_ids for source in opened] == [["echo"], ["echo", "first"]]
        sources.start()
        assert [source.events for source in opened] == [["opened", "started"]] * 2
        assert [status.url for status in sources.status()] == ["https://first", "https://second"]
        assert closed == []
    assert closed == ["second", "first"]


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (ValueError("--one: is not a color"), SettingsError, "^--one: is not a color$"),
        (StartError("one is away"), StartError, "^one is away$"),
        (
            ImportError("No module named 'colors'"),
            StartError,
            r"^--one: One needs more packages \(No module named 'colors'\): pip install 'dragoman\[one\]( @ file://.*)?'$",
        ),
    ],
)
async def test_problems_of_a_source_stop_the_start(
    error: Exception | None, expected: type[Exception], text: str
) -> None:
    @asynccontextmanager
    async def open(settings: str, host: AgentHost) -> AsyncIterator[AgentSource]:
        if error is not None:
            raise error
        yield Source(settings, host)

    failing = extension("one", open, requirement="dragoman[one]")
    async with AsyncExitStack() as stack:
        with pytest.raises(expected, match=text):
            await open_sources(stack, [failing], {"one": "first"}, "", agent_host(reserved_ids=["echo"]))


def test_an_import_error_of_an_extension_without_libraries_is_a_fault() -> None:
    with (
        pytest.raises(ImportError, match="colors"),
        extension_errors(ServerExtension(name="one", title="One"), "--one"),
    ):
        raise ImportError("No module named 'colors'")


def test_the_option_is_named_that_needs_the_library() -> None:
    needing = ServerExtension(name="one", title="One", requirement="dragoman[one]")
    with pytest.raises(StartError, match=r"^--color: One needs more packages"), extension_errors(needing, "--color"):
        raise ImportError("No module named 'colors'")


def test_libraries_are_imported_before_files_of_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, app = tmp_path / "library", tmp_path / "app"
    for folder in (library, app):
        folder.mkdir()
        (folder / "colors_of_test.py").write_text(f"PLACE = {folder.name!r}")
    monkeypatch.syspath_prepend(str(library))
    names = ("colors_of_test", "absent_colors_of_test")
    import_libraries([ServerExtension(name="one", title="One", libraries=names)])
    monkeypatch.syspath_prepend(str(app))
    assert sys.modules.pop("colors_of_test").PLACE == "library"
