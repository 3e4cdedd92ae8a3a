"""Requests to change many tasks, over HTTP: which filters are taken, and what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.operations.operators import OLGA, running_server
from tests.runtime.operations.test_bulk_tasks import work


@pytest.mark.parametrize(
    ("action", "body", "text"),
    [
        ("cancel", {}, "filter: is required; select the tasks by at least one of taskId, scope"),
        ("rerun", {"filter": {"limit": 10, "order": "TASK_ORDER_CREATED"}}, "filter: is required"),
        ("erase", {"filter": {}}, "filter: is required"),
        ("erase", {"filter": {"agent": "work", "own": True}}, "filter.own: is not possible"),
        ("erase", {"filter": {"agent": "work", "pageToken": "x"}}, "filter.pageToken: is not possible"),
        ("cancel", {"filter": {"state": "TASK_STATE_FAILED"}}, "filter.states: TASK_STATE_FAILED is not possible"),
        ("rerun", {"filter": {"states": ["TASK_STATE_WORKING"]}}, "filter.states: TASK_STATE_WORKING is not"),
        ("rerun", {"filter": {"states": [99]}}, "filter.states[0]: must be one of"),
        ("rerun", {"filter": {"text": "x"}, "limit": 101}, "limit: must be 1 to 100, or 0 for 50"),
        ("rerun", {"filter": {"text": "x"}, "requestId": "x" * 129}, "requestId: must have at most 128"),
        ("rerun", {"filter": {"text": "x"}, "pageToken": "abc"}, "pageToken: is not a token"),
    ],
)
async def test_invalid_requests_name_the_field(tmp_path: Path, action: str, body: dict[str, Any], text: str) -> None:
    async with (
        running_server(f"sqlite:///{tmp_path}/t.db", [work]) as server,
        server.http.post(f"/operations/tasks:{action}", json=body, headers=OLGA) as response,
    ):
        assert response.status == 400
        assert text in (await response.json())["error"]["message"]


async def test_a_page_continues_only_the_search_of_its_token(tmp_path: Path) -> None:
    async with running_server(f"sqlite:///{tmp_path}/t.db", [work]) as server:
        for _ in range(3):
            await server.send("ask")
        path, body = "/operations/tasks:cancel", {"filter": {"agent": "work"}, "limit": 2}
        async with server.http.post(path, json=body | {"dryRun": True}, headers=OLGA) as response:
            assert await response.json() == {"matched": "3"}
        async with server.http.post(path, json=body, headers=OLGA) as response:
            first = await response.json()
        assert (first["matched"], first["changed"]) == ("2", "2")
        following = body | {"pageToken": first["nextPageToken"]}
        other = following | {"filter": {"agent": "firm"}}
        async with server.http.post(path, json=other, headers=OLGA) as response:
            assert "belongs to a query with other filters" in (await response.json())["error"]["message"]
        async with server.http.post(path, json=following, headers=OLGA) as response:
            assert await response.json() == {"matched": "1", "changed": "1"}
