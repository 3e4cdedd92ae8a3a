"""How agents upstream are named: as text, as tables, and what they are called."""

from __future__ import annotations

import json

import pytest

from dragoman.core.upstreams import Upstream, entries, id_for, parse, read, written


def test_a_url_alone_is_one() -> None:
    assert parse(" https://x.example/a?id=1 ") == Upstream(url="https://x.example/a?id=1")
    assert parse("desk=http://x:80/a=b") == Upstream(url="http://x:80/a=b", id="desk")


def test_several_are_written_with_commas_or_as_a_list() -> None:
    two = (Upstream(url="http://a"), Upstream(url="http://b", id="b"))
    assert entries("http://a, b=http://b,") == two
    assert entries(["http://a", {"url": "http://b", "id": "b"}]) == two
    assert entries(two) == two
    assert entries(3) == 3  # somebody else refuses it


def test_a_table_says_who_we_are_and_how_much_there_may_be() -> None:
    table = {"url": "https://x", "token": "secret", "headers": {"X-Key": "k"}, "turns": 3, "time-limit": 1.5}
    made = read(table)
    assert dict(made.headers) == {"X-Key": "k", "Authorization": "Bearer secret"}
    assert (made.turns, made.time_limit) == (3, 1.5)
    assert "secret" not in repr(made)
    assert made.place == "https://x"


def test_what_is_kept_is_what_was_said() -> None:
    made = read({"url": "https://x/a?b=c", "id": "x", "token": "t", "turns": 3, "time_limit": 2})
    assert read(json.loads(written(made))) == made


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("x", "url: must be http"),
        ("http://u:p@x", "without user name and password"),
        ({"url": "http://x", "colour": "red"}, '"colour" is no key of an upstream; there are url, id'),
        ({"url": 3}, "url: must be a text"),
        ({"url": "http://x", "id": "Desk"}, "id: agent id"),
        ({"url": "http://x", "id": "desk", "prefix": "a-"}, "goes without id"),
        ({"url": "http://x", "token": "a", "token_file": "b"}, "say one of them"),
        ({"url": "http://x", "token": "a\n"}, "headers.Authorization: must be printable ASCII"),
        ({"url": "http://x", "headers": "a"}, "headers: must be a table"),
        ({"url": "http://x", "turns": True}, "turns: must be 1 to"),
        ({"url": "http://x", "time_limit": -1}, "time_limit: must be seconds"),
        ({"url": "http://x", "time_limit": float("nan")}, "time_limit: must be seconds"),
        (3, "3 is no upstream"),
    ],
)
def test_what_is_none_is_refused_with_the_rule(said: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        entries([said])


def test_two_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match='"a" is the id of two'):
        entries(["a=http://x", "a=http://y"])


@pytest.mark.parametrize(
    ("upstream", "name", "id"),
    [
        (Upstream(url="u", id="desk"), "Anything", "desk"),
        (Upstream(url="u"), "Ärger & Freude Desk!", "rger-freude-desk"),
        (Upstream(url="u", prefix="far-"), "Desk", "far-desk"),
        (Upstream(url="u"), "x" * 100, "x" * 63),
    ],
)
def test_it_is_called_as_it_is_named(upstream: Upstream, name: str, id: str) -> None:
    assert id_for(upstream, name) == id


@pytest.mark.parametrize("name", ["世界", "42", "v1", ""])
def test_a_name_that_makes_no_id_is_told(name: str) -> None:
    with pytest.raises(ValueError, match="give it one"):
        id_for(Upstream(url="u"), name)
