"""Isolation: the complete API, replayed as another principal (G7).

Every request of the method table is made twice over every binding: with the names of a victim's tasks, conversations,
cursors, pages, keys and files, and with phantom names of the same form. Apart from the names, both responses must be
identical to the byte; none may contain the victim's data; and the store must not change.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from tests.callers import named
from tests.dialects.dialect_clients import AGENT as RESOURCE
from tests.isolation.calls import TENANTS, path_of, rust_path
from tests.isolation.mcp_calls import MCP_CASES, NAMELESS, expanded
from tests.isolation.names import Names, phantom, settled, words
from tests.isolation.request_fields import CONSTANT, LEFT_OUT, NAMES, fields, requests, undecided
from tests.isolation.transports import TRANSPORTS
from tests.isolation.victim import SECRET, STATES, VICTIM, Victim, kept, serving, settle

from dragoman.bindings import method_table
from dragoman.bindings.http import rest
from dragoman.bindings.method_table import CANCEL_TASK, GET_TASK, JSONRPC_ROWS, RPC_ROWS, A2AOperation
from dragoman.extensions.mcp.endpoint.decoder import KNOWN_METHODS
from dragoman.extensions.mcp.endpoint.tool_call import ResumePoint
from dragoman.extensions.mcp.wire.tools import TASK_TOOLS
from dragoman.wire.http import httprule
from dragoman.wiring.app import App

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("time_to_think", "time_to_stop"), pytest.mark.timeout(600)]

CALL_TIMEOUT = 60.0
"""Seconds after which a response counts as a stream of the victim's task: no valid response takes that long."""


async def replay(
    app: App,
    victim: Victim,
    transport: str,
    who: dict[str, str],
    tenants: tuple[str, ...] = TENANTS,
    only: frozenset[A2AOperation] | None = None,
    of_each: int = len(STATES),
) -> tuple[list[str], set[int]]:
    """Replays all calls. Returns descriptions of differing or revealing responses, and the ids of the tested rows.

    Each call is made for tasks in `of_each` states; with fewer than all, the states take turns.
    """
    target = str(app.grpc) if transport == "gRPC" else f"http://{app.http}"
    everything = victim.everything()
    pairs = {
        place: itertools.cycle([(one, phantom(one, "playground")) for one in names])
        for place, names in victim.names.items()
    }
    failures, row_ids, states = [], set(), itertools.cycle(STATES)
    async with TRANSPORTS[transport](target, who, tenants) as asks:
        for ask in sorted(asks, key=lambda ask: ask.order):
            if only is not None and getattr(ask.row, "op", None) not in only:
                continue
            row_ids.add(id(ask.row))
            tenant = ask.tenant if ask.tenant in TENANTS else RESOURCE
            # A call that creates a task does not depend on the state of another one.
            for state in itertools.islice(states, 1 if ask.order else of_each):
                real, unreal = next(pairs[tenant, state])
                try:
                    async with asyncio.timeout(CALL_TIMEOUT):
                        real_response, phantom_response = await ask.send(real), await ask.send(unreal)
                except TimeoutError:
                    failures.append(f"{ask.label}, {state}: no response in time")
                    continue
                real_response = settled(real.cleaned(real_response))
                phantom_response = settled(unreal.cleaned(phantom_response))
                if real_response != phantom_response:
                    failures.append(f"{ask.label}, {state}:\n  {real_response[:600]}\n  {phantom_response[:600]}")
                failures += [f"{ask.label}, {state}: reveals {word}" for word in _revealed(real_response, everything)]
    return failures, row_ids


def _revealed(response: str, everything: list[Names]) -> list[str]:
    known = {word for names in everything for word in words(names)}
    return [word for word in (SECRET, *known) if word in response]


OTHER_CALLERS = {
    "another": named("mallory"),
    "anonymous": named(""),
    "without grants": named(VICTIM, "agent:another"),
}


@pytest.mark.parametrize(
    ("who", "transport"),
    [
        *(("another", transport) for transport in TRANSPORTS),
        # Rejected in one place for all operations: three transports are enough.
        *((who, transport) for who in ("anonymous", "without grants") for transport in ("gRPC", "REST", "MCP")),
    ],
)
async def test_another_principal_cannot_read_change_or_detect_tasks(tmp_path: Path, transport: str, who: str) -> None:
    async with serving(tmp_path, "owner") as (app, store):
        victim = await settle(app, store)
        before = kept(Path(app.settings.store.name))
        # Callers that are rejected before the task lookup are rejected in every state.
        of_each = len(STATES) if who == "another" else 1
        failures, row_ids = await replay(app, victim, transport, OTHER_CALLERS[who], of_each=of_each)
        assert not failures, "\n".join(failures[:5]) + f"\n{len(failures)} in all"
        assert kept(Path(app.settings.store.name)) == before
        assert app.running == len(victim.names["", "running"]) + len(victim.names[RESOURCE, "running"])
        rows = {"gRPC": RPC_ROWS, "REST": RPC_ROWS, "MCP": MCP_CASES}.get(transport, JSONRPC_ROWS)
        assert row_ids >= {id(row) for row in rows}


@pytest.mark.parametrize("transport", ["gRPC", "JSON-RPC"])
@pytest.mark.parametrize("policy", ["owner", "scope"])
async def test_own_tasks_are_not_found_in_another_scope(tmp_path: Path, transport: str, policy: str) -> None:
    async with serving(tmp_path, policy) as (app, store):
        victim = await settle(app, store)
        other_scope = RESOURCE.replace("projects/p/", "projects/q/")
        failures, _ = await replay(app, victim, transport, named(VICTIM), (other_scope,))
        assert not failures, "\n".join(failures[:5]) + f"\n{len(failures)} in all"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_replay_detects_accessible_tasks(tmp_path: Path, transport: str) -> None:
    async with serving(tmp_path, "owner") as (app, store):
        victim = await settle(app, store)
        before = kept(Path(app.settings.store.name))
        failures, _ = await replay(app, victim, transport, named(VICTIM), only=frozenset((GET_TASK, CANCEL_TASK)))
        assert len(failures) > (20 if transport == "MCP" else 50)
        assert any(f"reveals {SECRET}" in failure for failure in failures)
        assert kept(Path(app.settings.store.name)) != before


# The table ----------------------------------------------------------------------------------------------------------


def test_every_request_field_has_a_decision() -> None:
    assert undecided() == set()


def test_decisions_name_existing_fields_only() -> None:
    existing = {field.full_name for request in requests() for field in fields(request.DESCRIPTOR)}
    assert existing >= {*NAMES, *CONSTANT}
    assert not LEFT_OUT & {*NAMES, *CONSTANT}


def test_every_rule_has_a_path_also_in_the_spelling_of_a2a_rust() -> None:
    for descriptor, rows in method_table.rpc_services():
        for method, rule in httprule.rules(descriptor):
            path = path_of(rule)
            assert path.count("{task}") == ("tasks" in path and "/tasks/" in path), path
            if rows[method.name].dialect.value == "1.0":
                assert rest.canonical_path(rule.http_method, rust_path(path))[1] == path


def test_every_method_and_tool_of_mcp_is_called_or_names_nothing() -> None:
    called = {case.label.partition(" ")[0] for case in MCP_CASES}
    assert called >= (KNOWN_METHODS - NAMELESS) | TASK_TOOLS.keys()
    assert not called & NAMELESS


def test_names_in_ids_of_mcp_are_shown() -> None:
    text = f"id: {ResumePoint('echo', 'task-1', 'cursor-1', 1, None, '')}\n"
    assert expanded(text) == 'id: r1.["echo","task-1","cursor-1",1,null,""]\n'


def test_phantom_names_have_the_form_of_real_ones() -> None:
    names = Names(
        task="01a1fb2a-bd29-7b48-8221-ff7b0dc19d30",
        context="5515f0fb-2b99-4b70-94db-0c046e219aea",
        cursor="0a1b2c3d.00ff00ff.1",
        token="A" * 38,
        key="key-1",
        config="config-1",
        blob="0" * 64,
    )
    other = phantom(names, "playground")
    assert names.cleaned(" ".join(vars(names).values())) == other.cleaned(" ".join(vars(other).values()))
    assert settled(f"{names.task} {names.context} {names.task}") == "<id 0> <id 1> <id 0>"
