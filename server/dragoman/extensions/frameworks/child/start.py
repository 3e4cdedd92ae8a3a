"""Entry point of the executor process: loads this folder as a package with a unique name.

The name is not the folder's own in `dragoman`, because the environment may have another Dragoman or none. The folder
itself leaves the import path, because the executor's own modules may have the same names as ours.
"""

import importlib.util
import os
import sys
from types import ModuleType


def load() -> ModuleType:
    """Imports and returns the package's `main` module."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    file = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("_dragoman_executor", file, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["_dragoman_executor"] = package
    spec.loader.exec_module(package)
    return importlib.import_module("_dragoman_executor.main")


if __name__ == "__main__":
    if sys.version_info < (3, 10):
        sys.exit(f"executors need Python 3.10 or newer; {sys.executable} is Python {sys.version.split()[0]}")
    sys.exit(load().main(sys.argv[1], debug="--debug" in sys.argv[2:]))
