"""The way out of this process, to webhooks, authorities and agents upstream, as the settings bound it."""

from __future__ import annotations

from dragoman.core import targets
from dragoman.core.addresses import Reach
from dragoman.security.outbound import PER_HOST, Guard
from dragoman.settings import Settings, SettingsError


def guard(settings: Settings, *, per_host: int = PER_HOST) -> Guard:
    """The one way out of this process. Raises SettingsError."""
    rules = targets.Rules(
        Reach(settings.outbound_allow, loopback=settings.is_loopback),
        https_only=settings.outbound_https_only,
        ports=settings.outbound_ports,
    )
    try:
        return Guard(rules, ca=settings.outbound_ca, per_host=per_host)
    except OSError as error:
        raise SettingsError(f"--outbound-ca: {settings.outbound_ca} holds no certificates in PEM: {error}") from error
