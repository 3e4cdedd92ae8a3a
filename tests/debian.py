"""Debian's packages, unpacked for tests.

Nothing is installed and no package's script runs: archives are fetched as `apt-get` would and unpacked in `.foreign/`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from tools.environments import CACHE, NotCreated


def unpacked(*packages: str) -> Path:
    """A folder with Debian's packages and their missing dependencies. Raises NotCreated."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NotCreated(f"{' and '.join(packages)} cannot be fetched: apt-get is missing")
    release = Path("/etc/os-release").read_bytes()
    root = CACHE / f"debian-{packages[0]}-{hashlib.sha256(' '.join(packages).encode() + release).hexdigest()[:12]}"
    if (root / ".made").exists():
        return root
    archives = root / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    _run(
        "apt-get", "-qq", "-y", "--no-install-recommends", "--download-only",
        "-o", f"Dir::Cache::archives={archives}/", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=",
        "install", *packages,
    )  # fmt: skip
    for archive in sorted(archives.glob("*.deb")):
        _run("dpkg-deb", "-x", str(archive), str(root))
    shutil.rmtree(archives)
    (root / ".made").touch()
    return root


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise NotCreated(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
