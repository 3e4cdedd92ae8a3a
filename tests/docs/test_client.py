"""docs/how-to/client.md names the complete client API."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Final

import pytest

from dragoman import client
from dragoman.client import events, sync, webhooks
from dragoman.client.connection import StartOptions

PAGE: Final = (Path(__file__).parents[2] / "docs" / "how-to" / "client.md").read_text()
IN_WORDS: Final = {"Event", "Connection", "ClientError"}


def public(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


@pytest.mark.parametrize("name", sorted(set(client.__all__) - IN_WORDS))
def test_each_name_of_the_package_is_on_the_page(name: str) -> None:
    assert f"`{name}" in PAGE or f"{name}(" in PAGE


@pytest.mark.parametrize("name", [*public(client.Result), *public(client.Connection)])
def test_attributes_of_results_and_connections_are_on_the_page(name: str) -> None:
    values = {"card": "card", "card_of": "card", "raise_for_state": "TaskFailed", "url": "URL", "cursor": "cursor"}
    assert values.get(name, f"`{name}") in PAGE


@pytest.mark.parametrize("kind", [client.Status, client.Artifact, client.Text, client.Question, client.Finished])
def test_attributes_of_events_are_on_the_page(kind: type) -> None:
    own = [name for name in getattr(kind, "__annotations__", {}) if name not in ("message", "reply")]
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{kind.__name__}("))
    assert all(name in line for name in own)


@pytest.mark.parametrize(
    "argument", [*inspect.signature(client.Connection.run).parameters, *StartOptions.__annotations__]
)
def test_each_argument_of_a_run_is_on_the_page(argument: str) -> None:
    assert argument in ("self", "text", "options") or f"`{argument}=" in PAGE


@pytest.mark.parametrize("argument", inspect.signature(client.connect).parameters)
def test_each_argument_of_connect_is_on_the_page(argument: str) -> None:
    assert argument in ("url", "trace") or f"`{argument}" in PAGE


def test_the_synchronous_api_has_the_same_names() -> None:
    mine, theirs = public(client.Connection), public(sync.SyncConnection)
    assert set(mine) - {"url"} == set(theirs)
    assert inspect.signature(client.connect).parameters.keys() == inspect.signature(sync.connect).parameters.keys()
    for name in ("ask", "start", "follow", "wait", "get", "cancel", "list"):
        pair = (getattr(client.Connection, name), getattr(sync.SyncConnection, name))
        assert inspect.signature(pair[0]).parameters.keys() == inspect.signature(pair[1]).parameters.keys()
    assert events.TaskFailed is client.TaskFailed
    assert webhooks.Receiver.verify.__doc__
