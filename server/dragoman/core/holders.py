"""Certificates as credentials: which part of one names its holder, and what a holder may do besides calling agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

from dragoman.core.identity import check_grants, check_principal

Part = Literal["cn", "uri", "dns", "email"]
"""The common name of the subject (RFC 5280 §4.1.2.6), or a subject alternative name of this kind (§4.2.1.6)."""

PARTS: Final = cast("tuple[Part, ...]", get_args(Part))

PREFIX: Final = "certificate:"
"""What stands before the number of a certificate where else the id of an API key stands."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What matters of a client's certificate. Times are seconds since the epoch."""

    issuer: str
    serial: int
    begins: float
    ends: float
    names: Mapping[Part, tuple[str, ...]]

    def named(self, part: Part) -> str:
        """Its holder. Raises ValueError, naming the rule, when there is none, or more than one."""
        said = self.names.get(part, ())
        if len(said) != 1:
            raise ValueError(f"it must have one {_WORDS[part]}, and has {len(said) or 'none'}")
        return check_principal(said[0])


@dataclass(frozen=True, slots=True)
class Holders:
    """How certificates become principals, and their grants."""

    part: Part = "cn"
    grants: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By principal; who is not there may call every agent, and nothing else."""


def parse_grants(said: Any) -> dict[str, frozenset[str]]:
    """Grants by principal: a table, or `alice=operator,box1=worker:desk worker:shop`. Raises ValueError."""
    if isinstance(said, str):
        table: dict[str, Any] = {}
        for item in filter(None, map(str.strip, said.split(","))):
            name, equals, granted = item.rpartition("=")
            if not equals:
                raise ValueError(f'"{item}" is not PRINCIPAL=GRANT, such as alice=operator')
            table[name.strip()] = granted.split()
        said = table
    if not isinstance(said, Mapping):
        raise ValueError("must be a table of grants by principal, or PRINCIPAL=GRANT with commas between")
    found = {}
    for principal, granted in said.items():
        words = granted.split() if isinstance(granted, str) else granted
        if not isinstance(words, list | tuple | frozenset) or not all(isinstance(word, str) for word in words):
            raise ValueError(f'"{principal}": must be a grant, or a list of grants')
        found[check_principal(str(principal))] = check_grants(words)
    return found


_WORDS: Final[Mapping[Part, str]] = {
    "cn": "common name in its subject",
    "uri": "URI among its subject alternative names",
    "dns": "DNS name among its subject alternative names",
    "email": "e-mail address among its subject alternative names",
}
