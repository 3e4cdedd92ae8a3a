"""What is told of servers on one PostgreSQL and one NATS, from rows that a run might have left."""

from __future__ import annotations

from bench.replicas import FIGURES, IDLE, SHAPES, Spent, case, lines
from bench.rows import Key, Rows
from bench.sections import REPLICAS
from bench.servers import OURS
from bench.sockets import _sum
from bench.spent import children


def rows() -> Rows:
    found = []
    for shape in SHAPES[:2]:
        for kind, value in ((IDLE, 1.0), ("send", 1500.0)):
            key = Key(REPLICAS, case(shape, kind), OURS)
            more = {name: value for name in FIGURES if name != "workers" and not (name == "rate" and kind == IDLE)}
            found.append({**key._asdict(), "round": 0, "value": value, "unit": "us", **more})
    return Rows([found])


def test_each_shape_that_was_measured_has_a_column_and_each_figure_that_was_found_a_line() -> None:
    table = lines("send", rows().spread)
    assert table[0] == ("one send", "1 server", "2 servers")
    assert table[1] == ("CPU of the servers, µs", "1,500", "1,500")
    assert [line[0] for line in table[1:]] == [title for name, title in FIGURES.items() if name != "workers"]


def test_what_nobody_measured_has_no_table() -> None:
    assert lines("stream", rows().spread) == []
    assert "a second, on this one core" not in [line[0] for line in lines(IDLE, rows().spread)]


def test_what_was_spent_is_the_difference() -> None:
    assert Spent({"wal": 12.0, "nats": 3.0}).less(Spent({"wal": 2.0, "nats": 3.0})) == {"wal": 10.0, "nats": 0.0}


def test_bytes_are_those_of_all_connections_and_processes_have_their_children() -> None:
    text = "cwnd:18 bytes_sent:5137 bytes_acked:5138 bytes_received:108150\n bytes_sent:3 bytes_received:1"
    assert (_sum(text, "bytes_sent"), _sum(text, "bytes_received")) == (5140.0, 108151.0)
    assert children(2**22 + 1) == []
