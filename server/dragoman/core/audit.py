"""The audit log: who did what, entry after entry, each bound to the one before it.

An entry's hash is over the hash of the entry before it and everything that the entry says, its particulars (who, and
whose) only by way of a seal: the SHA-256 of them and a salt. So what was changed, left out or put in between shows, and
particulars can be taken away for good, as an erasure demands, with the chain still whole.

    seal = SHA-256(salt + who)
    hash = SHA-256(former hash + line)

`who` is JSON with sorted keys and no blanks, ASCII; `format_audit_line` is the same of number, at, action, outcome,
about and seal
(hex).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

AuditLevel = Literal["off", "security", "all"]
"""What is told. `security`: who was refused, operators' verbs, erasures. `all`: also what callers did to tasks."""

GENESIS_HASH: Final = bytes(32)
"""The hash before the first entry."""

SALT_BYTES: Final = 16
"""Bytes of a salt."""

MAX_AUDIT_TEXT_LENGTH: Final = 512
"""Characters of one text in an entry."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What happened."""

    at: int
    """Milliseconds since the epoch."""
    action: str
    """Such as `task.created`, `operator.Purge`, `access.denied`."""
    outcome: str = "ok"
    about: Mapping[str, str] = field(default_factory=dict)
    """What stays as long as the entry does."""
    who: Mapping[str, str] = field(default_factory=dict)
    """Particulars: the principal, its key, its address, the task; gone when the principal is erased."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An entry in its place. `who` and `salt` are None once they were taken away."""

    number: int
    """From 1, without gaps."""
    entry: AuditEntry
    salt: bytes | None
    seal: bytes
    hash: bytes

    @property
    def erased(self) -> bool:
        """Whether its particulars are gone."""
        return self.salt is None


class AuditChainBroken(ValueError):
    """The chain does not hold; the text names the first entry that does not."""


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical_json(value: Mapping[str, Any]) -> str:
    """JSON in its one form."""
    return _ENCODER.encode(value)


def audited_principal(entry: AuditEntry) -> str:
    """By whom an entry is found when its principal is erased. What no principal's name holds is left out: databases do
    not take a NUL or half of a surrogate pair."""
    return entry.who.get("principal", "").replace("\0", "").encode(errors="replace").decode()


def chain_entry(previous_hash: bytes, number: int, entry: AuditEntry, salt: bytes) -> AuditRecord:
    """An entry as it follows another."""
    seal = hashlib.sha256(salt + canonical_json(entry.who).encode()).digest()
    return AuditRecord(number, entry, salt, seal, _hash(previous_hash, number, entry, seal))


def chain_entries(
    previous_hash: bytes, number: int, entries: Iterable[AuditEntry], salts: Iterable[bytes]
) -> list[AuditRecord]:
    """Entries as they follow the one of this number and hash."""
    kept: list[AuditRecord] = []
    for entry, salt in zip(entries, salts, strict=True):
        number += 1
        kept.append(chain_entry(previous_hash, number, entry, salt))
        previous_hash = kept[-1].hash
    return kept


def _hash(previous_hash: bytes, number: int, entry: AuditEntry, seal: bytes) -> bytes:
    said = {
        "number": number,
        "at": entry.at,
        "action": entry.action,
        "outcome": entry.outcome,
        "about": dict(entry.about),
        "seal": seal.hex(),
    }
    return hashlib.sha256(previous_hash + canonical_json(said).encode()).digest()


class AuditChainVerifier:
    """Looks whether entries follow each other. `number` is that of the last one looked at, 0 before the first.

    The first entry looked at is taken as it is unless it is number 1: what was before it is gone by policy, or was
    looked at another time.
    """

    def __init__(self) -> None:
        self.number = 0
        self.hash = GENESIS_HASH
        self.erased = 0

    def verify(self, record: AuditRecord) -> None:
        """Raises Broken."""
        first = self.number == 0
        if not first and record.number != self.number + 1:
            raise AuditChainBroken(
                f"entry {record.number} follows entry {self.number}: entries are missing, or out of order"
            )
        if record.salt is not None:
            if hashlib.sha256(record.salt + canonical_json(record.entry.who).encode()).digest() != record.seal:
                raise AuditChainBroken(f"entry {record.number}: who did it is not what was sealed")
        else:
            self.erased += 1
        known = not first or record.number == 1
        if known and _hash(self.hash, record.number, record.entry, record.seal) != record.hash:
            raise AuditChainBroken(
                f"entry {record.number}: is not what was written, or does not follow the one before it"
            )
        self.number, self.hash = record.number, record.hash


# Lines of an export ----------------------------------------------------------------------------------------------


def format_audit_line(record: AuditRecord) -> str:
    """An entry as one line of JSON."""
    entry = record.entry
    return canonical_json(
        {
            "number": record.number,
            "at": entry.at,
            "action": entry.action,
            "outcome": entry.outcome,
            "about": dict(entry.about),
            "who": None if record.erased else dict(entry.who),
            "salt": None if record.salt is None else record.salt.hex(),
            "seal": record.seal.hex(),
            "hash": record.hash.hex(),
        }
    )


def parse_audit_line(text: str) -> AuditRecord:
    """The entry in a line. Raises ValueError for what is none."""
    try:
        said = json.loads(text)
        who, salt = said["who"], said["salt"]
        if (who is None) != (salt is None):
            raise ValueError("who and salt belong together")
        entry = AuditEntry(
            int(said["at"]), str(said["action"]), str(said["outcome"]), dict(said["about"]), dict(who or {})
        )
        return AuditRecord(
            int(said["number"]),
            entry,
            None if salt is None else bytes.fromhex(salt),
            bytes.fromhex(said["seal"]),
            bytes.fromhex(said["hash"]),
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"is no entry of an audit log: {error}") from error
