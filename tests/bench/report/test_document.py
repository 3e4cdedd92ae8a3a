"""The report of a run, its plot, and the document that contains both."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from bench.rows import Row, Rows
from bench.sections import TIMED
from bench.servers.contestants import DRAGOMAN
from tests.bench.report.test_targets import full_run, row

from bench.measurements import steps
from bench.report import document, plot, tables

SVG = "{http://www.w3.org/2000/svg}"


def created() -> Rows:
    rows = [one | {"tool": "wrk", "cpu_us": 100.0, "load": 0.5, "others": 0.0} for one in full_run()]
    return Rows([rows])


def lines(text: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    below = text.split(heading)[1].split("\n\n")[1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in below.splitlines()]


def test_a_section_lists_a_rate_and_a_ratio_for_each_server() -> None:
    table = lines(document.render(created()), "JSON-RPC: blocking send")
    assert table[0] == ["", "1 caller", "16 callers", "64 callers"]
    cells = {line[0]: line[1:] for line in table}
    assert cells["dragoman"] == ["500", "500", "500"]
    for name in ("bare HTTP", "ceiling", "a2a-sdk memory", "a2a-sdk SQLite", "fasta2a"):
        assert cells[name] == ["1,000"] * 3
        assert cells[f"dragoman / {name}"] == ["0.500"] * 3
    assert cells["dragoman: p50 / p99 ms"] == ["2.00 / 5.00"] * 3


def test_servers_that_keep_tasks_on_disk_are_compared_in_one_table() -> None:
    table = lines(document.render(created()), "### Durable sends per second and core, 64 callers")
    assert table[0] == ["", "gRPC", "REST", "JSON-RPC"]
    fast = ["1,000"] * 3
    assert table[2:] == [["dragoman", *["500"] * 3], ["ceiling", *fast], ["a2a-sdk SQLite", *fast]]


def test_streams_with_and_without_a_webhook_are_compared() -> None:
    table = lines(document.render(created()), "with a webhook, 4 at a time over REST")
    assert table[0] == ["ms", "p50", "p99", "p50 / no webhook", "webhook calls"]
    assert table[2] == ["no webhook", "20.0", "", "1.00", "8.00"]
    assert table[3] == ["receiver down", "21.0", "", "1.05", "8.00"]


def test_a_step_is_compared_with_a_commit() -> None:
    table = lines(document.render(created()), "### Durable steps")
    assert table[2:4] == [[steps.COMMIT, "0.400"], [steps.STEP, "0.700"]]
    assert table[-1] == ["one step / one commit", "1.75"]


def test_the_target_table_has_verdicts() -> None:
    table = lines(document.render(created()), "### Targets")
    verdicts = {line[0]: line[-1] for line in table}
    assert verdicts["gRPC blocking send, 64 callers / ceiling"] == "NO"
    assert verdicts["JSON-RPC p99 / p50 at 64 callers"] == "yes"
    assert verdicts["gRPC 100 subscribers, delivered events"] == "NO"
    assert verdicts["memory, waiting task"] == "aim"


def test_the_report_contains_only_measured_sections() -> None:
    only = Rows([[row("grpc-send", "16 callers", DRAGOMAN, 500, p50=1.0, p99=2.0, cpu_us=3.0) | {"tool": "h2load"}]])
    text = document.render(only)
    assert "gRPC: blocking send" in text
    assert "REST" not in text
    assert "### Targets" not in text
    assert document.render(Rows([])).strip() == ""


def test_the_report_names_the_load_tool() -> None:
    text = document.render(created())
    assert "Load: wrk." in text


def test_saturated_load_busy_cores_and_failures_get_remarks() -> None:
    rows: list[Row] = [
        row("rest-send", "64 callers", "bare HTTP", 1, load=0.99, others=0.0, p50=1, p99=1, cpu_us=1) | {"tool": "wrk"},
        row("rest-send", "64 callers", DRAGOMAN, 1, load=0.1, others=0.5, p50=1, p99=1, cpu_us=1) | {"tool": "wrk"},
        {"section": "rest-send", "case": "64 callers", "server": "fasta2a", "round": 2, "error": "3 wrong answers"},
    ]
    remarks = document.remarks(Rows([rows])).splitlines()[2:]
    assert len(remarks) == 3
    assert "bare HTTP: the load used 99% of its core" in remarks[0]
    assert "dragoman: other servers used 50%" in remarks[1]
    assert "fasta2a, round 3: 3 wrong answers" in remarks[2]


def test_the_plot_has_a_panel_for_each_section_and_a_bar_for_each_server() -> None:
    root = ElementTree.fromstring(plot.svg(created()))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    for section in TIMED:
        assert section.title in texts
    assert texts.count(DRAGOMAN) == len(TIMED)
    bars = sum(len(section.servers) for section in TIMED)
    assert len(list(root.iter(f"{SVG}rect"))) == bars + 1  # and the background


def test_bar_lengths_follow_the_rates() -> None:
    rates = {"bare gRPC": 5000.0, DRAGOMAN: 1800.0, "a2a-sdk memory": 400.0, "a2a-sdk SQLite": 55.0}
    rows = Rows([[row("grpc-send", "64 callers", name, rate) for name, rate in rates.items()]])
    root = ElementTree.fromstring(plot.svg(rows))
    widths = [float(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect")][1:]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == len(widths)


def test_no_rows_give_no_plot() -> None:
    assert plot.svg(Rows([])) == ""


def test_the_document_of_this_project_has_the_markers() -> None:
    text = Path(document.DOCUMENT).read_text("utf-8")
    assert tables.replace_generated(text, "new", (document.BEGIN, document.END)).count("new") >= 1


def test_rows_of_other_pages_do_not_write_the_document() -> None:
    assert list(document.write(Rows([[row("sizing", "a case", DRAGOMAN, 1.0)]]))) == []
