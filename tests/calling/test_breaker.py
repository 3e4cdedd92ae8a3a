"""The circuit breaker of one remote agent."""

from __future__ import annotations

from dragoman.calling.breaker import CircuitBreaker


def test_the_breaker_opens_after_failures_some_time_apart() -> None:
    now = 0.0
    breaker = CircuitBreaker(lambda: now, max_failures=3, min_interval=1.0)
    assert [breaker.record_failure("x") for _ in range(5)] == [False] * 5  # at the same moment
    now = 1.0
    assert not breaker.record_failure("x")
    now = 2.0
    assert breaker.record_failure("y")
    assert (breaker.is_open, breaker.last_error) == (True, "y")
    now = 5.0
    assert (breaker.seconds_open, breaker.seconds_since_error) == (3.0, 3.0)
    breaker.half_open()
    assert (breaker.is_open, breaker.is_half_open, breaker.seconds_open) == (False, True, 0.0)
    now = 6.0
    assert breaker.record_failure("z")
    assert (breaker.seconds_open, breaker.seconds_since_error) == (4.0, 0.001)  # since it first opened
    now = 7.5
    breaker.record_failure("while it is open")
    assert breaker.seconds_since_error == 0.001
    breaker.half_open()
    assert breaker.record_success()
    assert not breaker.record_success()
    assert (breaker.is_half_open, breaker.seconds_open, breaker.last_error) == (False, 0.0, "")
    assert breaker.seconds_since_error == 0.0


def test_a_success_resets_the_count_of_failures() -> None:
    now = 0.0
    breaker = CircuitBreaker(lambda: now, max_failures=2, min_interval=0.0)
    breaker.record_failure("x")
    breaker.record_success()
    assert not breaker.record_failure("x")
