"""Contract of the small tables: API keys, key-value pairs, workers, upstreams, and the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.audit import AuditChainVerifier, AuditEntry, AuditRecord
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import AddedUpstream, RegisteredAgent, Store

API_KEY = ApiKey(
    id="aaaaaaaaaaaa",
    name="nightly report",
    principal="alice@example.com",
    grants=frozenset(("operator", "agent:echo", "scope:projects/p/any thing")),
    digest=b"1" * 32,
    created=1_000,
    expires=9_000,
)


class StoreApiKeys:
    """Provide a `store` fixture."""

    async def test_an_api_key_is_read_as_it_was_written(self, store: Store) -> None:
        await store.api_keys.add(API_KEY)
        assert await store.api_keys.find(API_KEY.id) == API_KEY
        assert await store.api_keys.find("bbbbbbbbbbbb") is None

    async def test_ids_of_api_keys_are_unique(self, store: Store) -> None:
        await store.api_keys.add(API_KEY)
        with pytest.raises(ValueError, match=API_KEY.id):
            await store.api_keys.add(replace(API_KEY, name="other"))
        assert await store.api_keys.list() == [API_KEY]

    async def test_api_keys_are_listed_newest_first(self, store: Store) -> None:
        keys = [replace(API_KEY, id=f"{digit * 12}", created=at) for digit, at in (("b", 2), ("c", 3), ("a", 1))]
        await asyncio.gather(*map(store.api_keys.add, keys))
        assert [key.id[0] for key in await store.api_keys.list()] == ["c", "b", "a"]

    async def test_a_rotation_keeps_only_the_previous_secret(self, store: Store) -> None:
        await store.api_keys.add(API_KEY)
        await store.api_keys.rotate(API_KEY.id, b"2" * 32, now=2_000, until=3_000)
        last = await store.api_keys.rotate(API_KEY.id, b"3" * 32, now=2_500, until=3_500)
        assert last == replace(API_KEY, digest=b"3" * 32, former=b"2" * 32, former_until=3_500, rotated=2_500)
        assert await store.api_keys.find(API_KEY.id) == last

    async def test_a_rotation_can_set_a_new_expiry(self, store: Store) -> None:
        await store.api_keys.add(API_KEY)
        for expires in (20_000, 0):
            rotated = await store.api_keys.rotate(API_KEY.id, b"2" * 32, now=2_000, until=2_000, expires=expires)
            assert rotated is not None
            assert rotated.expires == expires

    async def test_revoking_twice_keeps_the_first_revocation(self, store: Store) -> None:
        await store.api_keys.add(API_KEY)
        revoked = await store.api_keys.revoke(API_KEY.id, now=5_000)
        assert revoked == replace(API_KEY, revoked=5_000)
        assert await store.api_keys.revoke(API_KEY.id, now=6_000) == revoked
        assert await store.api_keys.rotate(API_KEY.id, b"2" * 32, now=6_000, until=6_000) is None
        assert await store.api_keys.find(API_KEY.id) == revoked

    async def test_a_missing_key_is_neither_rotated_nor_revoked(self, store: Store) -> None:
        assert await store.api_keys.rotate(API_KEY.id, b"2" * 32, now=1, until=1) is None
        assert await store.api_keys.revoke(API_KEY.id, now=1) is None
        assert await store.api_keys.list() == []

    async def test_the_last_use_never_decreases(self, store: Store) -> None:
        await store.api_keys.add(API_KEY)
        for now in (4_000, 3_000):
            await store.api_keys.touch(API_KEY.id, now=now)
        assert await store.api_keys.find(API_KEY.id) == replace(API_KEY, used=4_000)
        await store.api_keys.touch("bbbbbbbbbbbb", now=1)
        assert await store.api_keys.list() == [replace(API_KEY, used=4_000)]

    async def test_erasing_a_principal_deletes_its_revoked_keys(self, store: Store) -> None:
        others = replace(API_KEY, id="cccccccccccc", principal="bob")
        for key in (API_KEY, replace(API_KEY, id="bbbbbbbbbbbb"), others):
            await store.api_keys.add(key)
        for id in ("bbbbbbbbbbbb", others.id):
            await store.api_keys.revoke(id, now=5_000)
        for narrowing in ({"older_than": 1}, {"scope": "default"}):  # keys belong to no scope
            await store.erasures.erase(TaskSelection(principal=API_KEY.principal, **narrowing))
            assert len(await store.api_keys.list()) == 3
        await store.erasures.erase(TaskSelection(principal=API_KEY.principal))
        assert {key.id for key in await store.api_keys.list()} == {API_KEY.id, others.id}


class StoreKeyValues:
    """Provide a `store` fixture."""

    async def test_a_written_text_can_be_read(self, store: Store) -> None:
        assert await store.key_values.get("keys") == ""
        assert await store.key_values.compare_and_set("keys", "one", expected="")
        assert await store.key_values.get("keys") == "one"
        assert await store.key_values.get("other") == ""

    async def test_a_text_replaces_only_the_text_that_was_read(self, store: Store) -> None:
        assert not await store.key_values.compare_and_set("keys", "two", expected="one")
        assert await store.key_values.compare_and_set("keys", "one", expected="")
        assert not await store.key_values.compare_and_set("keys", "two", expected="")
        assert not await store.key_values.compare_and_set("keys", "two", expected="other")
        assert await store.key_values.compare_and_set("keys", "two", expected="one")
        assert await store.key_values.get("keys") == "two"

    async def test_of_concurrent_writers_one_succeeds(self, store: Store) -> None:
        wrote = await asyncio.gather(*(store.key_values.compare_and_set("keys", str(n), expected="") for n in range(5)))
        assert sorted(wrote) == [False, False, False, False, True]
        assert await store.key_values.get("keys") == str(wrote.index(True))

    async def test_internal_keys_of_the_store_are_not_readable(self, store: Store) -> None:
        assert await store.key_values.get("secret") == ""
        assert await store.key_values.get("epoch") == ""


WORKER_AGENT = RegisteredAgent("desk", "workers@example.com", b"\x0a\x04desk", registered_at=1_000, last_seen=1_000)


class StoreWorkers:
    """Provide a `store` fixture."""

    async def test_an_agent_is_read_as_it_was_registered(self, store: Store) -> None:
        assert await store.worker_registry.register(WORKER_AGENT) == WORKER_AGENT
        assert await store.worker_registry.list() == [WORKER_AGENT]

    async def test_a_later_registration_replaces_the_agents_card(self, store: Store) -> None:
        await store.worker_registry.register(WORKER_AGENT)
        later = replace(WORKER_AGENT, registration=b"\x0a\x05other", registered_at=2_000, last_seen=2_000)
        assert await store.worker_registry.register(later) == replace(later, registered_at=1_000)
        assert await store.worker_registry.list() == [replace(later, registered_at=1_000)]

    async def test_a_registration_by_another_principal_is_ignored(self, store: Store) -> None:
        await store.worker_registry.register(WORKER_AGENT)
        assert (
            await store.worker_registry.register(
                replace(WORKER_AGENT, principal="mallory", registration=b"", last_seen=2_000)
            )
            == WORKER_AGENT
        )
        assert await store.worker_registry.list() == [WORKER_AGENT]

    async def test_of_concurrent_registrations_one_succeeds(self, store: Store) -> None:
        theirs = [replace(WORKER_AGENT, principal=f"p{number}") for number in range(5)]
        kept = await asyncio.gather(*map(store.worker_registry.register, theirs))
        assert len({one.principal for one in kept}) == 1

    async def test_agents_are_listed_by_id(self, store: Store) -> None:
        for agent in ("b", "c", "a"):
            await store.worker_registry.register(replace(WORKER_AGENT, agent=agent))
        assert [one.agent for one in await store.worker_registry.list()] == ["a", "b", "c"]

    async def test_the_id_of_a_removed_agent_is_free(self, store: Store) -> None:
        await store.worker_registry.register(WORKER_AGENT)
        assert await store.worker_registry.unregister("desk")
        assert not await store.worker_registry.unregister("desk")
        assert await store.worker_registry.list() == []
        assert (await store.worker_registry.register(replace(WORKER_AGENT, principal="other"))).principal == "other"


UPSTREAM_AGENT = AddedUpstream("desk", b'{"url": "https://desk.example"}', added_at=1_000)


class StoreUpstreams:
    """Provide a `store` fixture."""

    async def test_an_upstream_is_read_as_it_was_added(self, store: Store) -> None:
        assert await store.upstreams.add(UPSTREAM_AGENT)
        assert await store.upstreams.list() == [UPSTREAM_AGENT]

    async def test_an_upstream_with_a_used_id_is_rejected(self, store: Store) -> None:
        await store.upstreams.add(UPSTREAM_AGENT)
        assert not await store.upstreams.add(replace(UPSTREAM_AGENT, spec=b"{}", added_at=2_000))
        assert await store.upstreams.list() == [UPSTREAM_AGENT]

    async def test_of_concurrent_additions_one_succeeds(self, store: Store) -> None:
        theirs = [replace(UPSTREAM_AGENT, added_at=number) for number in range(5)]
        assert sum(await asyncio.gather(*map(store.upstreams.add, theirs))) == 1

    async def test_upstreams_are_listed_oldest_first(self, store: Store) -> None:
        for since, agent in enumerate(("b", "c", "a")):
            await store.upstreams.add(replace(UPSTREAM_AGENT, agent=agent, added_at=since))
        assert [one.agent for one in await store.upstreams.list()] == ["b", "c", "a"]

    async def test_the_id_of_a_removed_upstream_is_free(self, store: Store) -> None:
        await store.upstreams.add(UPSTREAM_AGENT)
        assert await store.upstreams.remove("desk")
        assert not await store.upstreams.remove("desk")
        assert await store.upstreams.list() == []
        assert await store.upstreams.add(UPSTREAM_AGENT)


def audit_entry(at: int, principal: str = "alice", **about: str) -> AuditEntry:
    return AuditEntry(at, "task.created", "ok", {"agent": "echo", **about}, {"principal": principal, "task": f"t{at}"})


def checked_chain(entries: Iterable[AuditRecord]) -> AuditChainVerifier:
    """Verifies the hash chain; raises the error of `core.audit` for a broken one."""
    chain = AuditChainVerifier()
    for one in entries:
        chain.verify(one)
    return chain


class StoreAudit:
    """Provide a `store` fixture."""

    async def test_entries_are_read_as_written_and_chained_by_hash(self, store: Store) -> None:
        odd = AuditEntry(2, "operator.Purge", "ok", {"selection": 'é "\n\x00'}, {"principal": "ż\ud800", "peer": ""})
        await store.audit.append([audit_entry(1), odd])
        await store.audit.append([audit_entry(3)])
        found = await store.audit.read(0)
        assert [one.entry for one in found] == [audit_entry(1), odd, audit_entry(3)]
        assert [one.number for one in found] == [1, 2, 3]
        assert checked_chain(found).number == 3
        assert len({one.salt for one in found}) == 3

    async def test_an_export_continues_at_its_position(self, store: Store) -> None:
        await store.audit.append([audit_entry(at) for at in range(1, 8)])
        assert [one.number for one in await store.audit.read(2, 3)] == [3, 4, 5]
        assert await store.audit.read(7) == []

    async def test_concurrent_entries_form_one_chain(self, store: Store) -> None:
        await asyncio.gather(*(store.audit.append([audit_entry(at), audit_entry(at)]) for at in range(1, 21)))
        assert checked_chain(await store.audit.read(0)).number == 40

    async def test_the_log_is_truncated_at_its_start_and_never_empty(self, store: Store) -> None:
        await store.audit.append([audit_entry(at) for at in (10, 20, 30, 25, 40)])
        assert await store.audit.truncate(5) == 0
        assert await store.audit.truncate(26) == 2
        found = await store.audit.read(0)
        assert [one.number for one in found] == [3, 4, 5]  # 4 is older, but follows a newer entry
        assert await store.audit.truncate(1000, limit=1) == 1
        assert await store.audit.truncate(1000) == 1
        assert await store.audit.truncate(1000) == 0
        await store.audit.append([audit_entry(50)])
        found = await store.audit.read(0)
        assert [one.number for one in found] == [5, 6]
        checked_chain(found)

    async def test_an_empty_log_can_be_truncated(self, store: Store) -> None:
        assert await store.audit.truncate(1000) == 0
        assert await store.audit.read(0) == []

    async def test_erasing_a_principal_keeps_the_actions_and_the_chain(self, store: Store) -> None:
        await store.audit.append([audit_entry(1), audit_entry(2, "bob"), audit_entry(3)])
        await store.erasures.erase(TaskSelection(principal="alice"))
        found = await store.audit.read(0)
        assert [one.erased for one in found] == [True, False, True]
        assert [dict(one.entry.who) for one in found] == [{}, {"principal": "bob", "task": "t2"}, {}]
        assert [one.entry.about for one in found] == [{"agent": "echo"}] * 3
        assert checked_chain(found).erased == 2

    @pytest.mark.parametrize("narrowing", [{"scope": "default"}, {"agent": "echo"}, {"older_than": 1}])
    async def test_a_partly_erased_principal_is_still_named(self, store: Store, narrowing: dict[str, Any]) -> None:
        await store.audit.append([audit_entry(1)])
        await store.erasures.erase(TaskSelection(principal="alice", **narrowing))
        assert not (await store.audit.read(0))[0].erased

    async def test_what_an_operator_did_survives_the_erasure_of_its_principal(self, store: Store) -> None:
        call = AuditEntry(1, "operator.CreateKey", "begun", {"call": "1"}, {"principal": "alice", "peer": "127.0.0.1"})
        await store.audit.append([call, audit_entry(2)])
        await store.erasures.erase(TaskSelection(principal="alice"))
        found = await store.audit.read(0)
        assert [one.erased for one in found] == [False, True]
        assert found[0].entry == call
        assert checked_chain(found).erased == 1
