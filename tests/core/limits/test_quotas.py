"""Quotas: effective limits by caller and agent, and parsing."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.limits.quotas import DEFAULT_LIMITS, Quota, Quotas, parse_agent_limits


def test_the_defaults_apply_to_authenticated_callers() -> None:
    for limit, default in DEFAULT_LIMITS.items():
        assert Quotas().limit_for(limit, authenticated=True) == default
        assert Quotas().limit_for(limit, authenticated=False) == 0
    assert Quotas().quota("echo", authenticated=False) == Quota()


def test_a_public_server_applies_the_defaults_to_anonymous_callers() -> None:
    for limit, default in DEFAULT_LIMITS.items():
        assert Quotas(public=True).limit_for(limit, authenticated=False) == default


def test_configured_limits_apply_to_everyone_and_zero_is_no_limit() -> None:
    quotas = Quotas({"live_tasks": 3, "open_streams": 0})
    for known in (True, False):
        assert quotas.limit_for("live_tasks", authenticated=known) == 3
        assert quotas.limit_for("open_streams", authenticated=known) == 0
    assert quotas.limit_for("queued_bytes", authenticated=True) == DEFAULT_LIMITS["queued_bytes"]


def test_limits_of_an_agent_override_the_general_ones() -> None:
    quotas = Quotas({"starts_per_minute": 60}, {"desk": {"live_tasks": 5, "starts_per_minute": 0}})
    own, general = quotas.quota("desk", authenticated=True), quotas.quota("other", authenticated=True)
    assert (own.live_tasks_per_agent, own.starts_per_minute) == (5, 0)
    assert (general.live_tasks_per_agent, general.starts_per_minute) == (DEFAULT_LIMITS["live_tasks_per_agent"], 60)
    assert own.live_tasks == general.live_tasks == DEFAULT_LIMITS["live_tasks"]


def test_limits_of_agents_are_parsed_from_text_and_tables() -> None:
    table = {"desk": {"live_tasks": 5, "starts_per_minute": 60}, "other": {"live_tasks": 0}}
    assert parse_agent_limits("desk.live-tasks=5, desk.starts_per_minute=60,other.live-tasks=0") == table
    assert parse_agent_limits({"desk": {"live-tasks": 5, "starts-per-minute": 60}, "other": {"live_tasks": 0}}) == table


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("live-tasks=5", "is not AGENT.LIMIT=N"),
        ("desk.live-tasks", "is not AGENT.LIMIT=N"),
        ("desk.tasks=5", "is not a limit of an agent; use live_tasks, starts_per_minute"),
        ("desk.live-tasks=-1", "must be a whole number"),
        ("desk.live-tasks=many", "must be a whole number"),
        ({"desk": {"live-tasks": True}}, "must be a whole number"),
        ({"live-tasks": 5}, "must be the table of an agent"),
    ],
)
def test_an_invalid_limit_is_rejected(wrong: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_agent_limits(wrong)
