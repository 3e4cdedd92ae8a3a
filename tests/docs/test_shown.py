"""Comparison of shown and actual output."""

from __future__ import annotations

import pytest
from tests.docs.shown import differs, renamed

from tools.pages import commands

TASK = "01a1fb2a-bd29-7b48-8221-ff7b0dc19d30"
OTHER = "01a20035-b4d9-7b6f-985b-b9a5df347dac"


@pytest.mark.parametrize(
    ("shown", "out"),
    [
        (["hello"], ["hello"]),
        ([f"task  {TASK}"], [f"task     {OTHER}"]),
        (["ended 2026-11-20 22:54:05 after 56.4 s, 2,696 bytes"], ["ended 2027-01-02 03:04:05 after 7 s, 12 bytes"]),
        (["chunk 0", "...", "chunk 9"], ["chunk 0", "chunk 1", "chunk 9"]),
        (["chunk 0", "..."], ["chunk 0"]),
        (['{"id":"…","a":1}'], ['{"id":"x","a":1}']),
        (["", "a", ""], ["a"]),
        (["-> DONE "], ["-> DONE "]),
        (["/tmp/demo/x.db is there"], ["/var/tmp/1/x.db is there"]),
    ],
)
def test_changing_values_may_differ(shown: list[str], out: list[str]) -> None:
    assert not differs(shown, out, [], {}, folder="/var/tmp/1")


@pytest.mark.parametrize(
    ("shown", "out", "why"),
    [
        (["hello"], ["hullo"], "shown but not printed: hello"),
        (["hello"], [], "shown but not printed: hello"),
        (["hello"], ["hello", "more"], "printed but not shown: more"),
        ([], ["more"], "printed but not shown: more"),
        ([f"task {TASK}"], ["task x"], f"shown but not printed: task {TASK}"),
        (["2 events"], ["3 events"], "shown but not printed: 2 events"),
        (["a", "...", "c"], ["b", "a", "c"], "shown but not printed: a"),
        (["a..."], ["ba"], "shown but not printed: a..."),
    ],
)
def test_words_and_counts_may_not_differ(shown: list[str], out: list[str], why: str) -> None:
    assert differs(shown, out, [], {}) == why


def test_a_part_of_stderr_may_be_shown_in_order() -> None:
    assert not differs(["x", "DONE"], ["x"], ["BEGUN", "DONE"], {})
    assert not differs(["x"], ["x"], ["BEGUN"], {})
    assert differs(["DONE", "BEGUN"], [], ["BEGUN", "DONE"], {}) == "shown but not printed: BEGUN"


def test_a_shown_id_stands_for_the_actual_one() -> None:
    names: dict[str, str] = {}
    assert not differs([TASK], [OTHER], [], names)
    assert renamed(f"dragoman get {TASK}", names) == f"dragoman get {OTHER}"


def test_momentary_figures_may_differ() -> None:
    assert differs(["turns  3 of 1000"], ["turns 14 of 1000"], [], {})
    assert not differs(["turns  3 of 1000  0.1/s  -"], ["turns 14 of 1000 10.5/s 3"], [], {}, loosely=True)
    assert differs(["turns  3 of 1000"], ["tasks 14 of 1000"], [], {}, loosely=True)


def test_an_incomplete_command_continues_on_the_next_line() -> None:
    session = "$ a \\\n    b 'c\nd'\nsaid\n$ for x in 1 2; do\n    echo $x\n  done\n1\n2\n$ e\n"
    assert list(commands(session)) == [
        ("a \\\n    b 'c\nd'", ["said"]),
        ("for x in 1 2; do\n    echo $x\n  done", ["1", "2"]),
        ("e", []),
    ]


def test_output_without_a_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="without a command"):
        list(commands("hello\n$ echo hello\n"))
