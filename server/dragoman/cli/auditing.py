"""What the commands on the audit log do."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path

from dragoman.cli.operate import DONE, NOT_DONE, USAGE, Where, operations
from dragoman.core.audit import Broken, Chain, read_line
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops


async def export(where: Where, after: int) -> int:
    """Prints the log."""
    asked = ops.ExportAuditRequest(after=after)
    async with operations(where) as open_operations, aclosing(open_operations.export_audit(asked)) as answers:
        async for answer in answers:
            for line in answer.lines:
                print(line)
    return DONE


def verify(file: Path) -> int:
    """Reads an export, and says what it found; the exit code."""
    if str(file) == "-":
        return _verify(sys.stdin)
    try:
        with file.open(encoding="utf-8") as lines:
            return _verify(lines)
    except (OSError, UnicodeDecodeError) as error:
        print(f"error: {file}: {error}", file=sys.stderr)
        return USAGE


def _verify(lines: Iterable[str]) -> int:
    chain, first = Chain(), 0
    for count, line in enumerate(lines, 1):
        try:
            kept = read_line(line)
            chain.take(kept)
        except Broken as error:
            print(f"error: line {count}: {error}", file=sys.stderr)
            return NOT_DONE
        except ValueError as error:
            print(f"error: line {count}: {error}", file=sys.stderr)
            return USAGE
        first = first or kept.number
    if not first:
        print("error: there are no entries", file=sys.stderr)
        return USAGE
    print(f"entries {first} to {chain.number} are whole; who did it is erased in {chain.erased}")
    print(f"hash of the last: {chain.hash.hex()}")
    return DONE
