"""The table of operators' operations has every method of the service, and narrows requests to grants."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bindings.admin.operation_table import open_table

from dragoman.bindings.admin.actions import OperatorCall
from dragoman.bindings.admin.table import OPS_SERVICE
from dragoman.core.access.identity import Identity
from dragoman.core.errors import InvalidParams, PermissionDenied
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import overview_pb2 as overview_pb

TINA = OperatorCall(Identity("tina", frozenset(("operator", "scope:s", "scope:t"))), "192.0.2.1")


async def test_every_method_of_the_service_has_one_row(tmp_path: Path) -> None:
    async with open_table(tmp_path) as on:
        assert set(on.table.rows) == {method.name for method in OPS_SERVICE.methods}
        assert [name for name, row in on.table.rows.items() if row.name != name] == []


async def test_a_request_is_narrowed_to_the_grants_unless_it_covers_all_of_them(tmp_path: Path) -> None:
    async with open_table(tmp_path) as on:
        purge = ops.PurgeRequest(selection=ops.Selection(principal="bob"), dry_run=True)
        with pytest.raises(InvalidParams, match="your grants name several: s, t"):
            await on.table.run("Purge", TINA, purge)
        purge.selection.scope = "u"
        with pytest.raises(PermissionDenied, match="scope:u"):
            await on.table.run("Purge", TINA, purge)
        purge.selection.scope = "s"
        assert (await on.table.run("Purge", TINA, purge)).receipt.tasks == 0
        assert not (await on.table.run("GetOverview", TINA, overview_pb.GetOverviewRequest())).agents
