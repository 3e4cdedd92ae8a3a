"""`make docs-test ARGS="docs/how-to/push.md ..."`: runs pages and prints the differences and a table of blocks."""

from __future__ import annotations

import collections
import sys
import tempfile
from pathlib import Path

from tests.docs.blocks import InvalidBlock, every
from tests.docs.page import is_session, missing, run

from tools.pages import ROOT, pages

KINDS = ("run", "compared", "file", "executed", "parsed", "picture", "not run")


def table() -> str:
    """Returns a table: the number of blocks of each kind, by page."""
    counted: dict[Path, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for place in every():
        try:
            counted[place.page][place.kind] += 1
        except InvalidBlock as error:
            print(f"{place}: {error}")
    rows = [(page.relative_to(ROOT).as_posix(), count) for page, count in counted.items()]
    rows.append(("all", sum(counted.values(), collections.Counter())))
    lines = [f"{'blocks':<48}" + "".join(f"{kind:>10}" for kind in KINDS)]
    lines += [f"{name:<48}" + "".join(f"{count[kind] or '':>10}" for kind in KINDS) for name, count in rows]
    return "\n".join(lines)


def main() -> int:
    """Returns 1 if the output of a page differs."""
    differences = 0
    wanted = {(ROOT / name).resolve() for name in sys.argv[1:]}
    for page in pages():
        if (wanted and page not in wanted) or not is_session(page):
            continue
        name = page.relative_to(ROOT)
        if absent := missing(page):
            print(f"{name}: not run; missing programs: {', '.join(sorted(absent))}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            texts = list(run(page, Path(folder) / "demo"))
        print("\n".join([f"{name}: {'as shown' if not texts else ''}", *texts]), flush=True)
        differences += len(texts)
    print(f"\n{table()}")
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
