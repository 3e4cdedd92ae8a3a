"""The audit log: who did what, entry after entry, each bound to the one before it.

An entry's hash is over the hash of the entry before it and everything that the entry says, its particulars (who, and
whose) only by way of a seal: the SHA-256 of them and a salt. So what was changed, left out or put in between shows, and
particulars can be taken away for good, as an erasure demands, with the chain still whole.

    seal = SHA-256(salt + who)
    hash = SHA-256(former hash + line)

`who` is JSON with sorted keys and no blanks, ASCII; `line` is the same of number, at, action, outcome, about and seal
(hex).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Level = Literal["off", "security", "all"]
"""What is told. `security`: who was refused, operators' verbs, erasures. `all`: also what callers did to tasks."""

GENESIS: Final = bytes(32)
"""The hash before the first entry."""

SALT: Final = 16
"""Bytes of a salt."""

LONGEST: Final = 512
"""Characters of one text in an entry."""


@dataclass(frozen=True, slots=True)
class Entry:
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
class Kept:
    """An entry in its place. `who` and `salt` are None once they were taken away."""

    number: int
    """From 1, without gaps."""
    entry: Entry
    salt: bytes | None
    seal: bytes
    hash: bytes

    @property
    def erased(self) -> bool:
        """Whether its particulars are gone."""
        return self.salt is None


class Broken(ValueError):
    """The chain does not hold; the text names the first entry that does not."""


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def text_of(said: Mapping[str, Any]) -> str:
    """JSON in its one form."""
    return _ENCODER.encode(said)


def principal_of(entry: Entry) -> str:
    """By whom an entry is found when its principal is erased. What no principal's name holds is left out: databases do
    not take a NUL or half of a surrogate pair."""
    return entry.who.get("principal", "").replace("\0", "").encode(errors="replace").decode()


def keep(former: bytes, number: int, entry: Entry, salt: bytes) -> Kept:
    """An entry as it follows another."""
    seal = hashlib.sha256(salt + text_of(entry.who).encode()).digest()
    return Kept(number, entry, salt, seal, _hash(former, number, entry, seal))


def chained(former: bytes, number: int, entries: Iterable[Entry], salts: Iterable[bytes]) -> list[Kept]:
    """Entries as they follow the one of this number and hash."""
    kept: list[Kept] = []
    for entry, salt in zip(entries, salts, strict=True):
        number += 1
        kept.append(keep(former, number, entry, salt))
        former = kept[-1].hash
    return kept


def _hash(former: bytes, number: int, entry: Entry, seal: bytes) -> bytes:
    said = {
        "number": number,
        "at": entry.at,
        "action": entry.action,
        "outcome": entry.outcome,
        "about": dict(entry.about),
        "seal": seal.hex(),
    }
    return hashlib.sha256(former + text_of(said).encode()).digest()


class Chain:
    """Looks whether entries follow each other. `number` is that of the last one looked at, 0 before the first.

    The first entry looked at is taken as it is unless it is number 1: what was before it is gone by policy, or was
    looked at another time.
    """

    def __init__(self) -> None:
        self.number = 0
        self.hash = GENESIS
        self.erased = 0

    def take(self, kept: Kept) -> None:
        """Raises Broken."""
        first = self.number == 0
        if not first and kept.number != self.number + 1:
            raise Broken(f"entry {kept.number} follows entry {self.number}: entries are missing, or out of order")
        if kept.salt is not None:
            if hashlib.sha256(kept.salt + text_of(kept.entry.who).encode()).digest() != kept.seal:
                raise Broken(f"entry {kept.number}: who did it is not what was sealed")
        else:
            self.erased += 1
        known = not first or kept.number == 1
        if known and _hash(self.hash, kept.number, kept.entry, kept.seal) != kept.hash:
            raise Broken(f"entry {kept.number}: is not what was written, or does not follow the one before it")
        self.number, self.hash = kept.number, kept.hash


# Lines of an export ----------------------------------------------------------------------------------------------


def line(kept: Kept) -> str:
    """An entry as one line of JSON."""
    entry = kept.entry
    return text_of(
        {
            "number": kept.number,
            "at": entry.at,
            "action": entry.action,
            "outcome": entry.outcome,
            "about": dict(entry.about),
            "who": None if kept.erased else dict(entry.who),
            "salt": None if kept.salt is None else kept.salt.hex(),
            "seal": kept.seal.hex(),
            "hash": kept.hash.hex(),
        }
    )


def read_line(text: str) -> Kept:
    """The entry in a line. Raises ValueError for what is none."""
    try:
        said = json.loads(text)
        who, salt = said["who"], said["salt"]
        if (who is None) != (salt is None):
            raise ValueError("who and salt belong together")
        entry = Entry(int(said["at"]), str(said["action"]), str(said["outcome"]), dict(said["about"]), dict(who or {}))
        return Kept(
            int(said["number"]),
            entry,
            None if salt is None else bytes.fromhex(salt),
            bytes.fromhex(said["seal"]),
            bytes.fromhex(said["hash"]),
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"is no entry of an audit log: {error}") from error
