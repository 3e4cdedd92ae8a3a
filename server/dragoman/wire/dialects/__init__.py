"""The supported dialects of A2A."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Dialect(Enum):
    """A generation of the protocol, as one family of clients uses it."""

    V1 = "1.0"
    """`lf.a2a.v1`: gRPC, and REST without a version in the path."""
    V03 = "0.3"
    """`a2a.v1`: gRPC, and REST under `/v1`; JSON-RPC with `kind` on its objects."""
    GOOGLE = "google"
    """`a2a.v1` under a resource path (Discovery Engine): AIP-193 errors, streams as JSON arrays."""
    V01 = "0.1"
    """JSON-RPC `tasks/send`: the client chooses task ids."""
    FASTA2A = "fasta2a"
    """fasta2a 2.x: the JSON-RPC methods of 0.3 with the objects of 1.0."""
    RUST = "a2a-rust"
    """a2a-rust 0.3: 1.0 with parts distinguished by `type`."""


_DRAFT: Final = "+draft-1.1"


def recorded_dialect(dialect: Dialect, *, draft: bool = False) -> str:
    """The dialect as stored with a task. `draft`: its client speaks the draft of 1.1 (draft_v1_1.py)."""
    return dialect.value + (_DRAFT if draft else "")


def parse_recorded(recorded: str) -> Dialect:
    """The dialect of a `recorded_dialect`, without marks. Raises ValueError for an unknown one.

    Stores may have marks of earlier versions, such as `0.3+base64`.
    """
    return Dialect(recorded.partition("+")[0])


def is_draft(recorded: str) -> bool:
    """Whether a `recorded_dialect` is that of a client of the draft of 1.1."""
    return recorded.endswith(_DRAFT)
