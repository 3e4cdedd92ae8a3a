"""The way out of this process, to webhooks, authorities and agents upstream, as the settings bound it."""

from __future__ import annotations

from dragoman.core.net import targets
from dragoman.core.net.addresses import AddressPolicy
from dragoman.security.outbound import MAX_CONNECTIONS_PER_HOST, OutboundClient
from dragoman.settings import Settings, SettingsError


def guard(settings: Settings, *, per_host: int = MAX_CONNECTIONS_PER_HOST) -> OutboundClient:
    """The one way out of this process. Raises SettingsError."""
    rules = targets.OutboundPolicy(
        AddressPolicy(settings.outbound_allow, loopback=settings.is_loopback),
        https_only=settings.outbound_https_only,
        ports=settings.outbound_ports,
    )
    try:
        return OutboundClient(rules, ca=settings.outbound_ca, per_host=per_host)
    except OSError as error:
        raise SettingsError(f"--outbound-ca: {settings.outbound_ca} holds no certificates in PEM: {error}") from error
