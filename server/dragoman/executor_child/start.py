"""Where a guest process begins: loads the folder of this file as a package under a name that nobody else uses.

Not as `dragoman.executor_child`: an environment may have a Dragoman of another version, or none. The folder itself
must not
be searched for imports either, because the executor's own modules may have the names of ours.
"""

import importlib.util
import os
import sys
from types import ModuleType


def load() -> ModuleType:
    """The package's `serving` module."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]
    file = os.path.join(here, "__init__.py")
    spec = importlib.util.spec_from_file_location("_dragoman_executor", file, submodule_search_locations=[here])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["_dragoman_executor"] = package
    spec.loader.exec_module(package)
    return importlib.import_module("_dragoman_executor.main")


if __name__ == "__main__":
    if sys.version_info < (3, 10):
        sys.exit(f"executors need Python 3.10 or newer; {sys.executable} is {sys.version.split()[0]}")
    sys.exit(load().main(sys.argv[1]))
