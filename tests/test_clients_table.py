"""docs/reference/clients.md has the results that the foreign clients printed."""

import pytest
from tests.foreign import table
from tests.foreign.table import Record


def rows(*records: Record, mcp: bool = False) -> list[list[str]]:
    """The rows of the table of A2A clients, or of that of MCP clients."""
    document = table.markdown(records).split(table.MCP_HEAD)[mcp]
    lines = [line for line in document.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_an_operation_works_if_every_check_of_it_passed() -> None:
    client = "a client 1.0", "GRPC"
    (row,) = rows(Record(*client, "send", True), Record(*client, "get", True), Record(*client, "send", False))
    assert row[:2] == list(client)
    values = dict(zip(table.OPERATIONS, row[2:], strict=True))
    assert values.pop("send") == "FAILED"
    assert values.pop("get") == "yes"
    assert set(values.values()) == {"—"}


def test_rows_are_client_and_transport_in_the_order_in_which_they_ran() -> None:
    ran = [("b", "GRPC"), ("b", "JSONRPC"), ("a", "GRPC")]
    assert [row[:2] for row in rows(*(Record(*one, "send", True) for one in ran))] == [list(one) for one in ran]


def test_clients_of_mcp_have_a_table_of_their_own() -> None:
    records = [Record("a", "GRPC", "list", True), Record("b", "MCP 2026-07-28", "list", True)]
    assert [row[:2] for row in rows(*records)] == [["a", "GRPC"]]
    (row,) = rows(*records, mcp=True)
    assert row[:3] == ["b", "2026-07-28", "yes"]
    assert set(row[3:]) == {"—"}


def test_lines_about_operations_are_recognized() -> None:
    assert table.read("op\ta client 1.0\tGRPC\tsend\tok") == Record("a client 1.0", "GRPC", "send", True)
    assert table.read("op\ta client 1.0\tGRPC\tsend\tfailed") == Record("a client 1.0", "GRPC", "send", False)
    assert table.read("ok  GRPC: it sends") is None


@pytest.mark.parametrize(
    "line",
    [
        "op\ta\tGRPC\tsends\tok",
        "op\ta\tGRPC\tsend\tyes",
        "op\ta\tGRPC\tsend",
        "op\ta\tMCP 2026-07-28\tsend\tok",
        "op\ta\tGRPC\tcall\tok",
    ],
)
def test_a_misspelled_line_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        table.read(line)
