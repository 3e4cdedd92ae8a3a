"""Tables of the costs of replicas, from rows of a run."""

from __future__ import annotations

from bench.measurements.replicas import FIGURES, IDLE, SHAPES, ResourceUsage, case, lines
from bench.resources import child_processes, sum_field
from bench.rows import Key, Rows
from bench.sections import REPLICAS
from bench.servers.contestants import DRAGOMAN


def rows() -> Rows:
    found = []
    for shape in SHAPES[:2]:
        for kind, value in ((IDLE, 1.0), ("send", 1500.0)):
            key = Key(REPLICAS, case(shape, kind), DRAGOMAN)
            more = {name: value for name in FIGURES if name != "workers" and not (name == "rate" and kind == IDLE)}
            found.append({**key._asdict(), "round": 0, "value": value, "unit": "us", **more})
    return Rows([found])


def test_measured_shapes_are_columns_and_measured_figures_are_lines() -> None:
    table = lines("send", rows().spread)
    assert table[0] == ("one send", "1 server", "2 servers")
    assert table[1] == ("CPU of the servers, µs", "1,500", "1,500")
    assert [line[0] for line in table[1:]] == [title for name, title in FIGURES.items() if name != "workers"]


def test_unmeasured_kinds_have_no_table() -> None:
    assert lines("stream", rows().spread) == []
    assert "rate on one core, per second" not in [line[0] for line in lines(IDLE, rows().spread)]


def test_resource_usage_is_subtracted_by_field() -> None:
    assert ResourceUsage({"wal": 12.0, "nats": 3.0}).minus(ResourceUsage({"wal": 2.0, "nats": 3.0})) == {
        "wal": 10.0,
        "nats": 0.0,
    }


def test_bytes_are_summed_and_missing_processes_have_no_children() -> None:
    text = "cwnd:18 bytes_sent:5137 bytes_acked:5138 bytes_received:108150\n bytes_sent:3 bytes_received:1"
    assert (sum_field(text, "bytes_sent"), sum_field(text, "bytes_received")) == (5140.0, 108151.0)
    assert child_processes(2**22 + 1) == []
