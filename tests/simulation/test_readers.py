"""The checker of slow readers finds each broken rule, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.actions import BEGIN, END, Action
from tests.chaos.history import Closed, Entry, Opened
from tests.chaos_checker.checker import StoredTask
from tests.simulation.operated.reader_judge import judge_readers
from tests.simulation.operated.readers import BULK, TIMEOUTS, SlowRead

from dragoman.core.task import states
from dragoman.runtime.feeds import FEED_WINDOW_BYTES

TASK = StoredTask("T", states.COMPLETED, 27, [], [], f"{BULK} 50 #1", times=(1.0, 3.0))
STALLED = TIMEOUTS.stalled
SLOW = SlowRead(at=30.0, task="T", follower=1, read=2.0, since=0.0, dropped=False, kept=FEED_WINDOW_BYTES)


def _judge(*entries: Entry, actions: tuple[Action, ...] = ()) -> list[str]:
    return judge_readers(entries, actions, {"T": TASK}, is_prompt=True)


def test_a_feed_keeps_no_more_than_its_window() -> None:
    assert _judge(SLOW) == []
    assert _judge(replace(SLOW, kept=FEED_WINDOW_BYTES + 1)) == [
        "task T: 1048577 bytes of events in memory, and 1048576 may be"
    ]


def test_a_client_is_dropped_that_reads_nothing_for_so_long_and_no_other() -> None:
    dropped = replace(SLOW, at=2.0 + STALLED, since=2.0, dropped=True)
    assert _judge(dropped) == []
    assert _judge(replace(dropped, since=9.0)) == ["follower 1: dropped at 22.000 s, and read at 2.000 s"]
    assert _judge(replace(dropped, at=99.0)) == ["follower 1: read nothing after 2.000 s, and was kept until 99.000"]
    assert judge_readers([replace(dropped, at=99.0)], (), {}, is_prompt=False) == []


def test_an_agent_does_not_wait_for_readers() -> None:
    begin = Action(at=1.0, task="T", attempt=1, text=BEGIN, process="server0.1")
    assert _judge(SLOW, actions=(begin, replace(begin, at=2.5, text=END))) == []
    assert _judge(SLOW, actions=(begin, replace(begin, at=9.0, text=END))) == [
        "task T: its agent needs 1.200 s, and took 8.000"
    ]


def test_other_followers_see_the_end_when_it_comes() -> None:
    opened = Opened(at=1.0, follower=2, task="T", binding="")
    assert _judge(SLOW, opened, Closed(at=4.0, follower=2, why="end")) == []
    assert _judge(SLOW, replace(opened, at=7.0), Closed(at=9.0, follower=2, why="end")) == []
    assert _judge(SLOW, opened, Closed(at=9.0, follower=2, why="end")) == [
        "follower 2: saw the end of T 6.000 s after it"
    ]
    assert _judge(replace(SLOW, follower=2), opened, Closed(at=9.0, follower=2, why="end")) == []
