"""The hash chain of the audit log: entries, sealing, verification and export.

    seal = SHA-256(salt + who)
    hash = SHA-256(previous hash + line)

Changed, missing or inserted entries break the chain. Personal data (`who`) enters the hash only through the seal, so an
erasure can remove it and the chain stays valid. `who` and the line (number, at, action, outcome, about and the seal in
hex) are canonical JSON: sorted keys, no blanks, ASCII.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

AuditLevel = Literal["off", "security", "all"]
"""The recorded events. `security`: rejected callers, operator calls, erasures. `all`: also callers' task operations."""

GENESIS_HASH: Final = bytes(32)  # the hash before the first entry
SALT_BYTES: Final = 16  # the length of a salt

OPERATOR_ACTION_PREFIX: Final = "operator."
"""The start of the actions of operators; a method of `dragoman.ops.v1` follows."""

MAX_AUDIT_TEXT_LENGTH: Final = 512  # maximum characters of one text in an entry


@dataclass(slots=True)
class AuditEntry:
    """One audited action. Not changed; not frozen, as each send makes one (`core.task.log.Append`)."""

    at: int  # milliseconds since the epoch
    action: str  # for example `task.created`, `operator.Purge`, `access.denied`
    outcome: str = "ok"
    about: Mapping[str, str] = field(default_factory=dict)  # details that stay as long as the entry
    who: Mapping[str, str] = field(default_factory=dict)
    """Personal data: principal, key, address, task. Removed when the principal is erased (`audited_principal`)."""


@dataclass(slots=True)
class AuditRecord:
    """An entry in the chain; not changed. `salt` is None once its personal data was erased."""

    number: int  # from 1, without gaps
    entry: AuditEntry
    salt: bytes | None
    seal: bytes
    hash: bytes

    @property
    def erased(self) -> bool:
        return self.salt is None


class AuditChainBroken(ValueError):
    """The chain is broken. The message names the first invalid entry."""


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical_json(value: Mapping[str, Any]) -> str:
    """JSON in canonical form: sorted keys, no blanks, ASCII, and DEL escaped.

    orjson writes the same bytes where nothing but ASCII has to be escaped, for a fifth of the time: an entry needs it
    four times.
    """
    try:
        encoded = orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an unpaired surrogate, or a number of more than 64 bits
        return _ENCODER.encode(value)
    return encoded.decode() if encoded.isascii() and b"\x7f" not in encoded else _ENCODER.encode(value)


def audited_principal(entry: AuditEntry) -> str:
    """The principal whose erasure removes the personal data of an entry; empty for none.

    Entries of operators' calls stay complete for the retention of the log: they concern people at work, not the
    principals whose data is stored. NULs and unpaired surrogates, which databases reject and no principal's name holds,
    are removed or replaced.
    """
    if entry.action.startswith(OPERATOR_ACTION_PREFIX):
        return ""
    return entry.who.get("principal", "").replace("\0", "").encode(errors="replace").decode()


def chain_entries(
    previous_hash: bytes, number: int, entries: Iterable[AuditEntry], salts: Iterable[bytes]
) -> list[AuditRecord]:
    """Seals entries and links them to the one with this number and hash."""
    kept: list[AuditRecord] = []
    for entry, salt in zip(entries, salts, strict=True):
        number += 1
        seal = hashlib.sha256(salt + canonical_json(entry.who).encode()).digest()
        previous_hash = _hash(previous_hash, number, entry, seal)
        kept.append(AuditRecord(number, entry, salt, seal, previous_hash))
    return kept


def _fields(number: int, entry: AuditEntry, seal: bytes) -> dict[str, Any]:
    """The hashed fields of a record."""
    fields = {"number": number, "at": entry.at, "action": entry.action, "outcome": entry.outcome}
    return {**fields, "about": dict(entry.about), "seal": seal.hex()}


def _hash(previous_hash: bytes, number: int, entry: AuditEntry, seal: bytes) -> bytes:
    return hashlib.sha256(previous_hash + canonical_json(_fields(number, entry, seal)).encode()).digest()


@dataclass(slots=True)
class AuditChainVerifier:
    """Verifies records in order. `number` is the last verified one, 0 before the first.

    The first record is accepted without its predecessor unless it is number 1: earlier records may be truncated by
    policy, or were verified at another time.
    """

    number: int = 0
    hash: bytes = GENESIS_HASH
    erased: int = 0

    def verify(self, record: AuditRecord) -> None:
        """Verifies the next record. Raises AuditChainBroken."""
        first = self.number == 0
        if not first and record.number != self.number + 1:
            raise AuditChainBroken(
                f"entry {record.number} follows entry {self.number}: entries are missing, or out of order"
            )
        if record.salt is not None:
            if hashlib.sha256(record.salt + canonical_json(record.entry.who).encode()).digest() != record.seal:
                raise AuditChainBroken(f"entry {record.number}: its personal data does not match its seal")
        else:
            self.erased += 1
        known = not first or record.number == 1
        if known and _hash(self.hash, record.number, record.entry, record.seal) != record.hash:
            raise AuditChainBroken(f"entry {record.number}: was changed, or does not follow the one before it")
        self.number, self.hash = record.number, record.hash


# Lines of an export ----------------------------------------------------------------------------------------------


def format_audit_line(record: AuditRecord) -> str:
    who = None if record.erased else dict(record.entry.who)
    salt = None if record.salt is None else record.salt.hex()
    fields = _fields(record.number, record.entry, record.seal)
    return canonical_json({**fields, "who": who, "salt": salt, "hash": record.hash.hex()})


def parse_audit_line(text: str) -> AuditRecord:
    """Parses a line of an export. Raises ValueError."""
    try:
        fields = json.loads(text)
        who, salt = fields["who"], fields["salt"]
        if (who is None) != (salt is None):
            raise ValueError("who and salt belong together")
        entry = AuditEntry(
            int(fields["at"]), str(fields["action"]), str(fields["outcome"]), dict(fields["about"]), dict(who or {})
        )
        return AuditRecord(
            int(fields["number"]),
            entry,
            None if salt is None else bytes.fromhex(salt),
            bytes.fromhex(fields["seal"]),
            bytes.fromhex(fields["hash"]),
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"is not an entry of an audit log: {error}") from error
