"""The supported dialects of A2A."""

from __future__ import annotations

from enum import StrEnum


class Dialect(StrEnum):
    """A generation of the protocol, as one family of clients uses it."""

    V1 = "1.0"  # `lf.a2a.v1`: gRPC, and REST without a version in the path
    V03 = "0.3"  # `a2a.v1`: gRPC, and REST under `/v1`; JSON-RPC with `kind` on its objects
    GOOGLE = "google"  # `a2a.v1` under a resource path (Discovery Engine): AIP-193 errors, streams as JSON arrays
    V01 = "0.1"  # JSON-RPC `tasks/send`: the client chooses task ids
    FASTA2A = "fasta2a"  # fasta2a 2.x: the JSON-RPC methods of 0.3 with the objects of 1.0
    RUST = "a2a-rust"  # a2a-rust 0.3: 1.0 with parts distinguished by `type`
