"""Where NATS is and who we are there, read from what an operator writes; shown without what is secret."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

FORM = "nats://[USER:PASSWORD@ or TOKEN@]HOST[:PORT], or tls://...; several of one cluster with commas in between"

PORT = 4222


class BadAddress(ValueError):
    """No address of NATS. The text says what is wrong, and holds nothing that is secret."""


@dataclass(frozen=True, slots=True)
class Address:
    """Servers of one NATS cluster, and our credentials there."""

    servers: tuple[str, ...]
    """URLs without credentials."""
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials: Path | None = None
    """A file with a user's JWT and seed, as `nsc` makes it."""
    authority: Path | None = None
    """Certificates (PEM) of which one vouches for the servers, besides those that the system knows."""

    def __str__(self) -> str:
        return ",".join(self.servers)

    @property
    def encrypted(self) -> bool:
        """Whether nothing may be said before the connection is encrypted."""
        return self.servers[0].startswith("tls://")

    @classmethod
    def parse(cls, text: str, credentials: Path | None = None, authority: Path | None = None) -> Self:
        """Reads URLs with commas in between, of one scheme; credentials in the first hold for all.

        Raises BadAddress.
        """
        servers = []
        user: str | None = None
        password: str | None = None
        for number, url in enumerate(text.split(",")):
            try:
                parts = urlsplit(url.strip())
                host, port = parts.hostname, parts.port or PORT
            except ValueError:  # a port that is none, or half an IPv6 address
                raise BadAddress(f"is no address of NATS; use {FORM}") from None
            if parts.scheme not in ("nats", "tls") or not host or parts.path or parts.query or parts.fragment:
                raise BadAddress(f"is no address of NATS; use {FORM}")
            if parts.username is not None:
                if number:
                    raise BadAddress("has credentials after the first server; those of the first one hold for all")
                user = unquote(parts.username)
                password = None if parts.password is None else unquote(parts.password)
            servers.append(f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        if len({server.partition(":")[0] for server in servers}) > 1:
            raise BadAddress("mixes nats:// and tls://; the servers of one cluster have one scheme")
        if user is not None and credentials is not None:
            raise BadAddress("has credentials, and so has --bus-credentials; say one or the other")
        token, user = (user, None) if password is None else (None, user)
        if credentials is not None and not os.access(credentials, os.R_OK):
            raise BadAddress(f"has no credentials: --bus-credentials {credentials} cannot be read")
        found = cls(tuple(servers), user, password, token, credentials, authority)
        try:
            found.context()
        except OSError as error:
            raise BadAddress(f"cannot be checked: --bus-ca {authority} holds no certificates in PEM: {error}") from None
        return found

    def without_secrets(self, text: str) -> str:
        """A text of others, as it may be logged."""
        for secret in (self.password, self.token):
            if secret:
                text = text.replace(secret, "***")
        return text

    def context(self) -> ssl.SSLContext:
        """How servers prove who they are. Raises OSError for certificates that are none."""
        context = ssl.create_default_context()
        if self.authority is not None:
            context.load_verify_locations(self.authority)
        return context
