"""What counts as said, and what does not."""

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
def test_what_differs_each_time_may_differ(shown: list[str], out: list[str]) -> None:
    assert not differs(shown, out, [], {}, folder="/var/tmp/1")


@pytest.mark.parametrize(
    ("shown", "out", "why"),
    [
        (["hello"], ["hullo"], "shown and not said: hello"),
        (["hello"], [], "shown and not said: hello"),
        (["hello"], ["hello", "more"], "said and not shown: more"),
        ([], ["more"], "said and not shown: more"),
        ([f"task {TASK}"], ["task x"], f"shown and not said: task {TASK}"),
        (["2 events"], ["3 events"], "shown and not said: 2 events"),
        (["a", "...", "c"], ["b", "a", "c"], "shown and not said: a"),
        (["a..."], ["ba"], "shown and not said: a..."),
    ],
)
def test_words_and_counts_may_not(shown: list[str], out: list[str], why: str) -> None:
    assert differs(shown, out, [], {}) == why


def test_of_what_is_on_stderr_some_may_be_shown_and_that_in_order() -> None:
    assert not differs(["x", "DONE"], ["x"], ["BEGUN", "DONE"], {})
    assert not differs(["x"], ["x"], ["BEGUN"], {})
    assert differs(["DONE", "BEGUN"], [], ["BEGUN", "DONE"], {}) == "shown and not said: BEGUN"


def test_an_id_that_is_shown_stands_for_the_one_that_was_said() -> None:
    names: dict[str, str] = {}
    assert not differs([TASK], [OTHER], [], names)
    assert renamed(f"dragoman get {TASK}", names) == f"dragoman get {OTHER}"


def test_figures_of_the_moment_may_be_any() -> None:
    assert differs(["turns  3 of 1000"], ["turns 14 of 1000"], [], {})
    assert not differs(["turns  3 of 1000  0.1/s  -"], ["turns 14 of 1000 10.5/s 3"], [], {}, loosely=True)
    assert differs(["turns  3 of 1000"], ["tasks 14 of 1000"], [], {}, loosely=True)


def test_a_command_goes_on_as_long_as_a_shell_would_ask() -> None:
    session = "$ a \\\n    b 'c\nd'\nsaid\n$ for x in 1 2; do\n    echo $x\n  done\n1\n2\n$ e\n"
    assert list(commands(session)) == [
        ("a \\\n    b 'c\nd'", ["said"]),
        ("for x in 1 2; do\n    echo $x\n  done", ["1", "2"]),
        ("e", []),
    ]


def test_what_no_command_says_is_an_error() -> None:
    with pytest.raises(ValueError, match="no command"):
        list(commands("hello\n$ echo hello\n"))
