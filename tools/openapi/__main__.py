"""Writes and checks gen/openapi, without the plugin and without network.

python -m tools.openapi write FOLDER    completes the plugin's files of a folder, and adds OpenAPI 3.1
python -m tools.openapi check           compares gen/openapi with its sources
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.openapi.committed import stale, write


def main(words: Sequence[str]) -> int:
    match words:
        case ["write", folder]:
            write(Path(folder))
            return 0
        case ["check"]:
            for name in (differing := stale()):
                print(f"gen/openapi/{name} is out of date; run make openapi", file=sys.stderr)
            return 1 if differing else 0
    print("usage: python -m tools.openapi write FOLDER | check", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
