"""Calls whose task is created between the choice of their dialect and their answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.dialects.dialect_clients import ServerConnections, open_connections, sse

from dragoman.core.names import Owner
from dragoman.playground import playground
from dragoman.settings.settings import Settings
from dragoman.stores.sqlite import open_store
from dragoman.wiring.app import open_app

pytestmark = pytest.mark.long

SEND = {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "ask"}]}}


class LateStore:
    """A store that once does not find the tasks in `late`, as if they were created after this."""

    def __init__(self) -> None:
        self._store = open_store(Path("late.db"))
        self.late: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def find(self, owner: Owner, agent: str, task: str) -> Any:
        if task in self.late:
            self.late.remove(task)
            return None
        return await self._store.find(owner, agent, task)


def call(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def result(connections: ServerConnections, method: str) -> dict[str, Any]:
    """The result, or the first of a stream."""
    async with connections.http.post("/", json=call(method, {"id": "mine"})) as response:
        body = await response.json() if response.content_type == "application/json" else await anext(sse(response))
        return body["result"]  # type: ignore[no-any-return]  # JSON


@pytest.mark.parametrize("method", ["tasks/get", "tasks/resubscribe"])
async def test_the_answer_is_in_the_dialect_of_the_new_task(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"{__name__}:LateStore"}
    async with (
        open_app(Settings.model_validate(values), [playground]) as app,
        open_connections(str(app.http), str(app.grpc)) as connections,
    ):
        async with connections.http.post("/", json=call("tasks/send", SEND)) as response:
            assert (await response.json())["result"]["id"] == "mine"
        known = await result(connections, method)
        app.runtime.store.late.add("mine")  # type: ignore[attr-defined]  # the store of this test
        assert await result(connections, method) == known
        assert app.runtime.store.late == set()  # type: ignore[attr-defined]  # the store of this test
        assert "'type': 'text'" in str(known)
