"""One parser under libFuzzer, guided by what it reaches: `python -m tests.fuzz.guided NAME OPTIONS... FOLDER`.

Not of the tests' process: atheris ends its own when the time is over. Everything of ours is instrumented, nothing of
others, so that the corpus is about our parsers and not about theirs.
"""

from __future__ import annotations

import importlib
import logging
import sys

import atheris


def main() -> None:
    name, *options = sys.argv[1:]
    logging.disable()
    with atheris.instrument_imports(include=["dragoman"]):
        # Not imported before: what is loaded already would not be instrumented.
        parsers = importlib.import_module("tests.fuzz.parsers").PARSERS
    atheris.Setup([sys.argv[0], *options], parsers[name].read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
