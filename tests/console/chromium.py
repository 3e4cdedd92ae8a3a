"""Installs Chromium for the console's tests, or explains how to install it.

python -m tests.console.chromium
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.console.browser import find

COMMANDS = (
    ("apt-get", "-qq", "update"),
    ("apt-get", "-qq", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"),
)


def main() -> int:
    """Installs Debian's package if run as root. The exit code is 0 if Chromium is available."""
    if find():
        return 0
    if named := os.environ.get("CHROMIUM"):
        print(f"CHROMIUM: there is no program {named}", file=sys.stderr)
        return 1
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print(
            "no Chromium here: install the package chromium (Debian: apt-get install chromium), or name one with",
            end=" ",
        )
        print("CHROMIUM=/path/to/chromium", flush=True)
        return 1
    print("installing Debian's chromium", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in COMMANDS:
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return 0 if find() else 1


if __name__ == "__main__":
    sys.exit(main())
