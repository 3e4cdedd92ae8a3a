"""Infrastructure: settings that leave a process nothing to do are rejected at startup."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.settings.settings import SettingsError, load_settings
from dragoman.wiring.infra import check_role

pytestmark = pytest.mark.usefixtures("no_settings")

SHARED = {"store": "postgresql://db.example/tasks"}


@pytest.mark.parametrize(
    "response",
    [{}, {"role": "all"}, {"role": "server", **SHARED}, {"role": "worker", **SHARED}, {"workers_only": True}],
)
def test_valid_roles_are_accepted(response: dict[str, Any]) -> None:
    check_role(load_settings(response))


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ({"role": "server"}, "--role server: an SQLite store has one process, so no other could run its turns"),
        ({"role": "worker"}, "--role worker: an SQLite store has one process, so no other could accept its requests"),
        ({"role": "worker", "workers_only": True, **SHARED}, "--workers-only: a process with --role worker runs"),
    ],
)
def test_a_role_without_work_is_rejected(response: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        check_role(load_settings(response))


def test_a_worker_process_may_serve_health_on_a_public_address() -> None:
    assert str(load_settings({"role": "worker", "http": "0.0.0.0:8081", **SHARED}).listen.http) == "0.0.0.0:8081"
    with pytest.raises(SettingsError, match="can be reached from other machines"):
        load_settings({"role": "server", "http": "0.0.0.0:8081", **SHARED})
