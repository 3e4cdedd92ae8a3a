"""Groups of settings: values that a group derives from its own, and rules inside of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.core.task.maintenance import StorageOptions
from dragoman.settings.settings import Settings, SettingsError, load_settings, own_groups


def test_each_group_says_what_it_is() -> None:
    assert all(group.__doc__ for group in own_groups().values())


def test_store_paths_can_be_relative_or_absolute(tmp_path: Path) -> None:
    assert load_settings({"store": "sqlite:///tasks.db"}).store.path == tmp_path / "tasks.db"
    assert load_settings({"store": "sqlite:////var/lib/tasks.db"}).store.path == Path("/var/lib/tasks.db")


@pytest.mark.parametrize(
    ("url", "kind", "shared"),
    [("memory:", "memory", False), ("sqlite:///a.db", "sqlite", False), ("company.stores:open", "own", True)],
)
def test_the_url_of_a_store_tells_its_kind(url: str, kind: str, shared: bool) -> None:
    store = Settings(store=url).store
    assert (store.kind, store.is_shared) == (kind, shared)


def test_stores_of_every_kind_get_the_same_options() -> None:
    settings = Settings(compact_after_rows=1, truncate_log_after=2, inline_bytes="1KiB")
    assert settings.store.options == StorageOptions(1, 2, 1024)


def test_default_ages_are_those_in_the_manual() -> None:
    settings = load_settings({})
    assert settings.push.retry_policy.give_up_after == 24 * 3600.0
    assert settings.retention.audit_age == 365 * 24 * 3600 * 1000
    assert load_settings({"retain_audit": "0"}).retention.audit_age == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"app": "a.py", "workers_only": True}, '--workers-only .* APP "a.py" would not be served; pass either'),
        ({"sign_cards": True}, "--sign-cards .* needs --public-url"),
        ({"push_give_up": "0"}, "--push-give-up .* must be more than 0"),
    ],
)
def test_values_of_a_group_that_exclude_each_other_are_rejected(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        load_settings(arguments)


def test_a_copy_has_other_values_by_the_names_of_options() -> None:
    settings = Settings(slots=3)
    copy = settings.replaced(slots=4, push_give_up=7)
    assert (copy.limits.slots, copy.push.give_up, settings.limits.slots) == (4, 7, 3)
