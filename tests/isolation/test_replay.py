"""Not yours is not there: the whole API, replayed by strangers (G7).

Every request that the method table knows is made twice over every binding: with the names of a victim's tasks,
conversations, cursors, pages, keys and files, and with names of the same form that never were. The two answers have to
be the same to the byte, the names apart; none holds a word of the victim's; and the store has to be as it was.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from tests.callers import named
from tests.dialects.dialect_clients import AGENT as RESOURCE
from tests.isolation.calls import TENANTS, TRANSPORTS, path_of, rust_path
from tests.isolation.names import Names, phantom, settled, words
from tests.isolation.request_fields import CONSTANT, LEFT_OUT, NAMES, fields, requests, undecided
from tests.isolation.victim import SECRET, STATES, VICTIM, Victim, kept, serving, settle

from dragoman.bindings import method_table
from dragoman.bindings.http import rest
from dragoman.bindings.method_table import CANCEL_TASK, GET_TASK, JSONRPC_ROWS, RPC_ROWS, A2AOperation
from dragoman.core.names import Owner
from dragoman.wire.http import httprule
from dragoman.wiring.app import App

pytestmark = [pytest.mark.usefixtures("time_to_think", "time_to_stop"), pytest.mark.timeout(600)]

CALL_TIMEOUT = 60.0
"""Seconds after which an answer is taken for a stream of somebody else's task: none of these waits for anything."""

JOINS = frozenset({"lf.a2a.v1.Message.context_id", "a2a.v1.Message.context_id"})
"""Under the policy `context` these are no names but invitations."""


async def replay(
    app: App,
    victim: Victim,
    transport: str,
    who: dict[str, str],
    without: frozenset[str],
    tenants: tuple[str, ...] = TENANTS,
    only: frozenset[A2AOperation] | None = None,
    of_each: int = len(STATES),
) -> tuple[list[str], set[int]]:
    """Where the answers to real and invented names differ, or tell something; and the rows that were asked.

    Each question is asked of tasks in so many states, all of them unless it is said; in turn, if not of all.
    """
    target = str(app.grpc) if transport == "gRPC" else f"http://{app.http}"
    everything = victim.everything()
    pairs = {
        place: itertools.cycle([(one, phantom(one, "playground")) for one in names])
        for place, names in victim.names.items()
    }
    texts, numbers, states = [], set(), itertools.cycle(STATES)
    async with TRANSPORTS[transport](target, who, without, tenants) as asks:
        for ask in sorted(asks, key=lambda ask: ask.order):
            if only is not None and getattr(ask.row, "op", None) not in only:
                continue
            numbers.add(id(ask.row))
            tenant = ask.tenant if ask.tenant in TENANTS else RESOURCE
            # What begins a task of one's own does not come to speak of the state of another's.
            for state in itertools.islice(states, 1 if ask.order else of_each):
                real, never = next(pairs[tenant, state])
                try:
                    async with asyncio.timeout(CALL_TIMEOUT):
                        yours, nobodys = await ask.send(real), await ask.send(never)
                except TimeoutError:
                    texts.append(f"{ask.label}, {state}: no answer in time")
                    continue
                yours, nobodys = (settled(one.cleaned(text)) for one, text in ((real, yours), (never, nobodys)))
                if yours != nobodys:
                    texts.append(f"{ask.label}, {state}:\n  {yours[:600]}\n  {nobodys[:600]}")
                texts += [f"{ask.label}, {state}: tells {word}" for word in _unasked(yours, everything)]
    return texts, numbers


def _unasked(answer: str, everything: list[Names]) -> list[str]:
    known = {word for names in everything for word in words(names)}
    return [word for word in (SECRET, *known) if word in answer]


STRANGERS = {
    "another": named("mallory"),
    "nobody": named(""),
    "without grants": named(VICTIM, "agent:another"),
}


@pytest.mark.parametrize(
    ("who", "transport"),
    [
        *(("another", transport) for transport in TRANSPORTS),
        # The same to every operation, told apart in one place: two transports are enough.
        *((who, transport) for who in ("nobody", "without grants") for transport in ("gRPC", "REST")),
    ],
)
async def test_another_principal_cannot_read_change_or_detect_tasks(tmp_path: Path, transport: str, who: str) -> None:
    async with serving(tmp_path, "owner") as (app, store):
        victim = await settle(app, store)
        before = kept(Path(app.store))
        # Who is turned away before a task is looked for is turned away from each alike.
        of_each = len(STATES) if who == "another" else 1
        texts, numbers = await replay(app, victim, transport, STRANGERS[who], frozenset(), of_each=of_each)
        assert not texts, "\n".join(texts[:5]) + f"\n{len(texts)} in all"
        assert kept(Path(app.store)) == before
        assert app.running == len(victim.names["", "running"]) + len(victim.names[RESOURCE, "running"])
        assert numbers >= {id(row) for row in (RPC_ROWS if transport in ("gRPC", "REST") else JSONRPC_ROWS)}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_principal_outside_a_conversation_cannot_reach_it(tmp_path: Path, transport: str) -> None:
    async with serving(tmp_path, "context") as (app, store):
        victim = await settle(app, store)
        before = kept(Path(app.store))
        texts, _ = await replay(app, victim, transport, named("mallory"), JOINS)
        assert not texts, "\n".join(texts[:5]) + f"\n{len(texts)} in all"
        assert kept(Path(app.store)) == before
        assert (
            await store.context_owner(Owner("default", "mallory"), victim.names["", "finished"][0].context) is not None
        )


@pytest.mark.parametrize("transport", ["gRPC", "JSON-RPC"])
@pytest.mark.parametrize("policy", ["owner", "scope"])
async def test_own_tasks_are_not_found_in_another_scope(tmp_path: Path, transport: str, policy: str) -> None:
    async with serving(tmp_path, policy) as (app, store):
        victim = await settle(app, store)
        elsewhere = RESOURCE.replace("projects/p/", "projects/q/")
        texts, _ = await replay(app, victim, transport, named(VICTIM), frozenset(), (elsewhere,))
        assert not texts, "\n".join(texts[:5]) + f"\n{len(texts)} in all"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_replay_detects_a_server_without_isolation(tmp_path: Path, transport: str) -> None:
    async with serving(tmp_path, "owner") as (app, store):
        victim = await settle(app, store)
        before = kept(Path(app.store))
        texts, _ = await replay(
            app, victim, transport, named(VICTIM), frozenset(), only=frozenset((GET_TASK, CANCEL_TASK))
        )
        assert len(texts) > 50
        assert any(f"tells {SECRET}" in one for one in texts)
        assert kept(Path(app.store)) != before


# The table ----------------------------------------------------------------------------------------------------------


def test_every_request_field_has_a_decision() -> None:
    assert undecided() == set()


def test_decisions_name_existing_fields_only() -> None:
    there = {field.full_name for request in requests() for field in fields(request.DESCRIPTOR)}
    assert there >= {*NAMES, *CONSTANT}
    assert not LEFT_OUT & {*NAMES, *CONSTANT}


def test_every_rule_has_a_path_also_in_the_spelling_of_a2a_rust() -> None:
    for descriptor, rows in method_table.rpc_services():
        for method, rule in httprule.rules(descriptor):
            path = path_of(rule)
            assert path.count("{task}") == ("tasks" in path and "/tasks/" in path), path
            if rows[method.name].dialect.value == "1.0":
                assert rest.canonical_path(rule.http_method, rust_path(path))[1] == path


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
