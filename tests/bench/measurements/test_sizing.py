"""What the measurement reads from a server and from the system."""

from __future__ import annotations

from bench.measurements.sizing import STAMP, busy_seconds, metric


def test_a_metric_is_the_sum_of_its_series() -> None:
    text = '# TYPE commits counter\ncommits_count 3\ncommits_counted 9\ncommits_count{store="a"} 4\n'
    assert metric(text, "commits_count") == 7
    assert metric(text, "others") == 0


def test_the_time_of_a_chunk_is_found_in_its_event() -> None:
    found = STAMP.search(b"\x0a\x22stamp-00000000000000001234 ")
    assert found is not None
    assert int(found[1]) == 1234


def test_the_busy_time_of_a_core_does_not_fall() -> None:
    before = busy_seconds(0)
    assert busy_seconds(0) >= before >= 0
    assert busy_seconds(10_000) == 0
