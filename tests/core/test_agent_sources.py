"""Parsing of the settings of upstream agents, and their agent ids."""

from __future__ import annotations

import json

import pytest

from dragoman.core.agent_sources import (
    UpstreamSpec,
    parse_upstream,
    parse_upstreams,
    upstream_agent_id,
    upstream_from_table,
    upstream_to_json,
)


def test_a_url_alone_is_an_upstream() -> None:
    assert parse_upstream(" https://x.example/a?id=1 ") == UpstreamSpec(url="https://x.example/a?id=1")
    assert parse_upstream("desk=http://x:80/a=b") == UpstreamSpec(url="http://x:80/a=b", id="desk")


def test_several_upstreams_are_separated_by_commas_or_in_a_list() -> None:
    two = (UpstreamSpec(url="http://a"), UpstreamSpec(url="http://b", id="b"))
    assert parse_upstreams("http://a, b=http://b,") == two
    assert parse_upstreams(["http://a", {"url": "http://b", "id": "b"}]) == two
    assert parse_upstreams(two) == two
    assert parse_upstreams(3) == 3  # the settings reject it later


def test_a_table_sets_credentials_and_limits() -> None:
    table = {"url": "https://x", "token": "secret", "headers": {"X-Key": "k"}, "turns": 3, "time-limit": 1.5}
    upstream = upstream_from_table(table)
    assert dict(upstream.headers) == {"X-Key": "k", "Authorization": "Bearer secret"}
    assert (upstream.turns, upstream.time_limit) == (3, 1.5)
    assert "secret" not in repr(upstream)
    assert upstream.location == "https://x"


def test_the_stored_form_reads_back_unchanged() -> None:
    upstream = upstream_from_table(
        {"url": "https://x/a?b=c", "id": "x", "token": "t", "turns": 3, "time_limit": 2, "v03_files": "base64"}
    )
    assert upstream_from_table(json.loads(upstream_to_json(upstream))) == upstream


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x", "url: must be http"),
        ("http://u:p@x", "without user name and password"),
        ({"url": "http://x", "colour": "red"}, '"colour" is not a key of an upstream; use url, id'),
        ({"url": 3}, "url: must be a string"),
        ({"url": "http://x", "id": "Desk"}, "id: agent id"),
        ({"url": "http://x", "id": "desk", "prefix": "a-"}, "cannot be used with id"),
        ({"url": "http://x", "token": "a", "token_file": "b"}, "set only one of them"),
        ({"url": "http://x", "token": "a\n"}, "headers.Authorization: must be printable ASCII"),
        ({"url": "http://x", "headers": "a"}, "headers: must be a table"),
        ({"url": "http://x", "turns": True}, "turns: must be 1 to"),
        ({"url": "http://x", "time_limit": -1}, "time_limit: must be a number of seconds"),
        ({"url": "http://x", "time_limit": float("nan")}, "time_limit: must be a number of seconds"),
        ({"url": "http://x", "v03_files": "text"}, "v03_files: must be one of bytes, base64"),
        (3, "3 is not an upstream"),
    ],
)
def test_an_invalid_upstream_is_rejected_with_the_rule(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_upstreams([value])


def test_duplicate_upstream_ids_are_rejected() -> None:
    with pytest.raises(ValueError, match='"a" is the id of two'):
        parse_upstreams(["a=http://x", "a=http://y"])


@pytest.mark.parametrize(
    ("upstream", "name", "id"),
    [
        (UpstreamSpec(url="u", id="desk"), "Anything", "desk"),
        (UpstreamSpec(url="u"), "Ärger & Freude Desk!", "rger-freude-desk"),
        (UpstreamSpec(url="u", prefix="far-"), "Desk", "far-desk"),
        (UpstreamSpec(url="u"), "x" * 100, "x" * 63),
    ],
)
def test_the_agent_id_follows_from_the_name(upstream: UpstreamSpec, name: str, id: str) -> None:
    assert upstream_agent_id(upstream, name) == id


@pytest.mark.parametrize("name", ["世界", "42", "v1", ""])
def test_a_name_without_a_valid_id_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="set one with"):
        upstream_agent_id(UpstreamSpec(url="u"), name)
