from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import names
from dragoman.core.errors import AgentNotFound

SCOPE = "projects/p/locations/l/collections/c/engines/e/assistants/a"


@pytest.mark.parametrize(
    ("tenant", "expected"),
    [
        ("", ("default", "root")),
        ("echo", ("default", "echo")),
        ("/echo/", ("default", "echo")),
        (f"{SCOPE}/agents/echo", (SCOPE, "echo")),
        (f"{SCOPE}/agents/Not-Ours", (SCOPE, "Not-Ours")),
    ],
)
def test_a_tenant_names_a_scope_and_an_agent(tenant: str, expected: tuple[str, str]) -> None:
    assert names.resolve_tenant(tenant, "root") == expected


@pytest.mark.parametrize("tenant", ["Echo", "a b", "1st", "a/b", SCOPE, f"{SCOPE}/agents/", f"{SCOPE}/agents/a/b", "é"])
def test_a_tenant_of_another_form_is_not_an_agent(tenant: str) -> None:
    with pytest.raises(AgentNotFound, match="tenant"):
        names.resolve_tenant(tenant, "root")


@pytest.mark.parametrize("name", ["x" * 63, "é", "a b"])
def test_names_in_a_scope_may_have_printable_characters(name: str) -> None:
    scope = SCOPE.replace("/p/", f"/{name}/")
    assert names.resolve_tenant(f"{scope}/agents/echo", "root") == (scope, "echo")


@pytest.mark.parametrize("name", ["x" * 64, "x" * 4_000_000, "a\nb", "a\0b", "\x1b[2J", "\u202e"])
def test_names_in_a_scope_are_short_and_printable(name: str) -> None:
    for part in ("/p/", "/l/", "/c/", "/e/", "s/a/"):
        tenant = f"{SCOPE}/agents/echo".replace(part, part.replace(part[-2], name), 1)
        with pytest.raises(AgentNotFound, match="each name in it must be 1 to 63 printable characters"):
            names.resolve_tenant(tenant, "root")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("tasks/1", ("", "tasks/1")),
        ("1", ("", "1")),
        (f"{SCOPE}/agents/echo/tasks/1", (f"{SCOPE}/agents/echo", "tasks/1")),
        (f"{SCOPE}/agents/echo", ("", f"{SCOPE}/agents/echo")),
        ("projects/p/tasks/1", ("", "projects/p/tasks/1")),
    ],
)
def test_a_resource_name_is_split_into_tenant_and_rest(name: str, parts: tuple[str, str]) -> None:
    assert names.split_resource_name(name) == parts


@pytest.mark.parametrize("agent", ["a", "echo", "csv-profile", "a" + "1" * 62])
def test_valid_agent_ids_pass(agent: str) -> None:
    names.check_agent_id(agent)


@pytest.mark.parametrize("agent", ["", "Echo", "1a", "-a", "a_b", "a" * 64, "é"])
def test_an_agent_id_of_another_form_is_rejected(agent: str) -> None:
    with pytest.raises(ValueError, match="lower-case letter"):
        names.check_agent_id(agent)


@pytest.mark.parametrize("agent", sorted(names.RESERVED_AGENT_IDS))
def test_an_agent_may_not_take_the_name_of_a_route(agent: str) -> None:
    with pytest.raises(ValueError, match="taken by a route"):
        names.check_agent_id(agent)


@given(st.integers(0, 2**48 * 1_000_000 - 1), st.binary(min_size=8, max_size=16))
def test_a_key_is_a_uuid_of_version_7_and_its_id_maps_back(now: int, random_bytes: bytes) -> None:
    key = names.make_task_key(now, random_bytes)
    assert uuid.UUID(bytes=key).version == 7
    assert str(uuid.UUID(bytes=key)) == names.task_id_of(key)
    assert names.task_key_of(names.task_id_of(key)) == key


@given(st.integers(0, 2**48 * 1_000_000 - 1000), st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_later_keys_sort_after_earlier_ones(now: int, first: bytes, second: bytes) -> None:
    assert names.make_task_key(now, first) < names.make_task_key(now + 250, second)


@given(st.text(max_size=40))
def test_any_other_text_is_not_a_key(text: str) -> None:
    key = names.task_key_of(text)
    assert key is None or names.task_id_of(key) == text
