"""One parser under libFuzzer: `python -m tests.fuzz.guided NAME OPTIONS... FOLDER`.

A process of its own, because atheris ends its process when the time is over. Only `dragoman` is instrumented, so the
corpus grows with the coverage of our parsers, not with that of libraries.
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
        # Imported here, because modules loaded earlier are not instrumented.
        parsers = importlib.import_module("tests.fuzz.parsers").PARSERS
    atheris.Setup([sys.argv[0], *options], parsers[name].read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
