"""Exports the google/*.proto files that proto/ imports into third_party/googleapis.

The files and their imports come from the installed googleapis-common-protos wheel, so buf needs no network. `--check`
only compares.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "third_party" / "googleapis"
ALWAYS = ("google/rpc/status.proto", "google/rpc/code.proto", "google/rpc/error_details.proto")
IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"(google/[^"]+)"\s*;', re.M)


def main() -> int:
    dist = importlib.metadata.distribution("googleapis-common-protos")
    shipped = {file.as_posix(): Path(str(file.locate())) for file in dist.files or ()}
    todo = set(ALWAYS)
    for proto in (ROOT / "proto").rglob("*.proto"):
        todo |= set(IMPORT.findall(proto.read_text("utf-8")))
    want: dict[str, bytes] = {}
    while todo:
        name = todo.pop()
        if name in want or name.startswith("google/protobuf/"):  # part of buf
            continue
        want[name] = shipped[name].read_bytes()
        todo |= set(IMPORT.findall(want[name].decode()))
    licence = next(path for name, path in sorted(shipped.items()) if name.endswith("LICENSE"))
    want["LICENSE"] = licence.read_bytes()
    have = {path.relative_to(TARGET).as_posix(): path for path in TARGET.rglob("*") if path.is_file()}
    stale = sorted(set(have) - set(want))
    changed = sorted(name for name, data in want.items() if name not in have or have[name].read_bytes() != data)
    if changed or stale:
        print(f"googleapis-common-protos {dist.version}: {len(want)} files, {len(changed)} changed, {len(stale)} stale")
    if "--check" in sys.argv:
        return 1 if changed or stale else 0
    for name in stale:
        have[name].unlink()
    for name in changed:
        path = TARGET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(want[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
