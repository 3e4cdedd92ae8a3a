"""Address of a NATS cluster: servers, credentials and TLS."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote, urlsplit

NATS_URL_FORMAT: Final = (
    "nats://[USER:PASSWORD@ or TOKEN@]HOST[:PORT], or tls://...; several of one cluster with commas in between"
)

NATS_DEFAULT_PORT: Final = 4222


class InvalidNatsAddress(ValueError):
    """The NATS address is invalid. The text explains why and contains no secrets."""


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """Servers of one NATS cluster, and our credentials."""

    servers: tuple[str, ...]
    """URLs without credentials."""
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials: Path | None = None
    """File with a user's JWT and seed, as created by `nsc`."""
    ca_file: Path | None = None
    """CA certificates (PEM) to trust in addition to those of the system."""

    def __str__(self) -> str:
        return ",".join(self.servers)

    @property
    def uses_tls(self) -> bool:
        """Whether TLS is required."""
        return self.servers[0].startswith("tls://")

    @classmethod
    def parse(cls, text: str, credentials: Path | None = None, ca_file: Path | None = None) -> Self:
        """Parses comma-separated URLs of one scheme; credentials in the first apply to all.

        Raises InvalidNatsAddress.
        """
        servers = []
        user: str | None = None
        password: str | None = None
        for number, url in enumerate(text.split(",")):
            try:
                parts = urlsplit(url.strip())
                host, port = parts.hostname, parts.port or NATS_DEFAULT_PORT
            except ValueError:  # an invalid port or IPv6 address
                raise InvalidNatsAddress(f"is not a NATS address; use {NATS_URL_FORMAT}") from None
            if parts.scheme not in ("nats", "tls") or not host or parts.path or parts.query or parts.fragment:
                raise InvalidNatsAddress(f"is not a NATS address; use {NATS_URL_FORMAT}")
            if parts.username is not None:
                if number:
                    raise InvalidNatsAddress(
                        "has credentials after the first server; put them into the first URL, they apply to all servers"
                    )
                user = unquote(parts.username)
                password = None if parts.password is None else unquote(parts.password)
            servers.append(f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        if len({server.partition(":")[0] for server in servers}) > 1:
            raise InvalidNatsAddress("mixes nats:// and tls://; the servers of one cluster have one scheme")
        if user is not None and credentials is not None:
            raise InvalidNatsAddress("has credentials, and so has --bus-credentials; use one or the other")
        token, user = (user, None) if password is None else (None, user)
        if credentials is not None and not os.access(credentials, os.R_OK):
            raise InvalidNatsAddress(f"has unreadable credentials: --bus-credentials {credentials} cannot be read")
        found = cls(tuple(servers), user, password, token, credentials, ca_file)
        try:
            found.ssl_context()
        except OSError as error:
            raise InvalidNatsAddress(
                f"cannot be checked: --bus-ca {ca_file} holds no certificates in PEM: {error}"
            ) from None
        return found

    def redact(self, text: str) -> str:
        """Returns the text with our password and token masked, for the log."""
        for secret in (self.password, self.token):
            if secret:
                text = text.replace(secret, "***")
        return text

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context that verifies the servers. Raises OSError for an unreadable CA file."""
        context = ssl.create_default_context()
        if self.ca_file is not None:
            context.load_verify_locations(self.ca_file)
        return context
