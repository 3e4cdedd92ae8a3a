"""Compares our transcoder with grpc-gateway and Envoy's, and writes docs/reference/gateways.md.

Settings: GATEWAY_CASES, the requests for each rule (2000); GATEWAY_SEED (1). Only a whole run writes the page. Without
the Go toolchain nothing is compared, unless GATEWAY=required.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Final

from tests.transcoders import build, gateways, outcomes, page, services
from tests.transcoders.cases import Case, cases
from tests.transcoders.gateways import Answers
from tests.transcoders.reasons import FILE, Reasons

from tools.environments import NotCreated

WHOLE: Final = 2000
_CHUNK: Final = 4000
_EXAMPLES: Final = 3


def main() -> int:
    count, seed = int(os.environ.get("GATEWAY_CASES", WHOLE)), os.environ.get("GATEWAY_SEED", "1")
    began = time.monotonic()
    try:
        built = build.build()
        with tempfile.TemporaryDirectory() as folder, gateways.running(built, Path(folder) / "log") as running:
            found = services.load(built / "image.binpb")
            reasons, totals = compare(found, running, count, seed)
    except NotCreated as error:
        print(f"gateway: not compared: {error}", file=sys.stderr)
        return 1 if os.environ.get("GATEWAY") == "required" else 0
    for name, examples in reasons.unexplained.items():
        print(f"gateway: FAILED {name}", *examples, sep="\n  ")
    stale = reasons.stale() if count >= WHOLE else []
    for text in stale:
        print(f"gateway: FAILED no difference any more for the reason in {FILE.name}: {text}")
    if reasons.unexplained or stale:
        return 1
    if count >= WHOLE:
        page.write(found, reasons, totals, count, seed)
    differing = sum(count for reason in reasons for count in reason.found.values())
    print(
        f"gateway: {totals['cases']} requests for {totals['rules']} rules to {len(gateways.GATEWAYS)} gateways,"
        f" {differing} of the answers differ, each with a reason, in {time.monotonic() - began:.1f}s"
    )
    return 0


def compare(
    found: list[services.Service], running: gateways.Running, count: int, seed: str
) -> tuple[Reasons, Counter[str]]:
    """Sends `count` cases for each rule. Returns the reasons with their counts, and the totals of the run."""
    reasons, totals = Reasons(FILE.read_text("utf-8")), Counter[str]()
    totals["rules"] = sum(len(service.rules) for service in found)
    every = chain.from_iterable(cases(service, count, seed) for service in found)
    with ThreadPoolExecutor(1) as sender:  # a chunk is on its way while the one before is judged

        def sent() -> tuple[list[Case], Future[list[Answers]]]:
            chunk = list(islice(every, _CHUNK))
            return chunk, sender.submit(running.send, chunk)

        chunk, answers = sent()
        while chunk:
            following = sent()
            for case, answer in zip(chunk, answers.result(), strict=True):
                totals["cases"] += 1
                totals[found[case.service].name] += 1
                judge(found[case.service], case, answer, reasons, totals)
            chunk, answers = following
    return reasons, totals


def judge(service: services.Service, case: Case, answers: Answers, reasons: Reasons, totals: Counter[str]) -> None:
    """Compares the outcomes of one case."""
    here = outcomes.ours(service, case)
    for gateway, line in zip(gateways.GATEWAYS, answers, strict=True):
        there = outcomes.theirs(service, case, line)
        difference = outcomes.difference(service, case, here, there)
        if difference is None:
            totals[f"{service.name} {gateway}"] += 1
        elif not reasons.count(gateway, difference):
            examples = reasons.unexplained[f"{gateway}: {difference.subject}: {difference.here} / {difference.there}"]
            if len(examples) < _EXAMPLES:
                examples += _example(service, case, here, there)


def _example(service: services.Service, case: Case, here: outcomes.Outcome, there: outcomes.Outcome) -> Iterator[str]:
    query = f"?{case.query}" if case.query else ""
    yield f"{case.method} {case.path}{query} {case.body!r} ({case.rule})"
    yield f"  here:  {outcomes.shown(service, here)}"
    yield f"  there: {outcomes.shown(service, there)}"


if __name__ == "__main__":
    sys.exit(main())
