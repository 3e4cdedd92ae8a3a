"""Builds grpc-gateway, generated from our protos, and what stands around it. Cached in `.foreign/`.

Needs the Go toolchain; modules come from its proxy and are pinned by go/go.sum.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.environments import CACHE, ROOT, NotCreated, go_variables

HERE: Final = Path(__file__).parent
_GO: Final = HERE / "go"
_PLUGINS: Final = (
    "google.golang.org/protobuf/cmd/protoc-gen-go",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
    "github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway",
)
_PROTOS: Final = {
    "a2a": ROOT / "proto" / "a2a",
    "lf": ROOT / "proto" / "lf",
    "dragoman": ROOT / "proto" / "dragoman",
    "library": ROOT / "examples" / "transcoder",
    "judge": HERE / "proto" / "judge",
}
"""Folders of one module, by where their protos come from."""


def _sources() -> Iterator[tuple[str, Path]]:
    """Yields the protos that code is generated from, by their path in the module."""
    for name, folder in _PROTOS.items():
        for path in sorted(folder.rglob("*.proto")):
            yield f"{name}/{path.relative_to(folder)}", path


def build() -> Path:
    """Returns the folder with `judge`, the program of go/main.go, and `image.binpb`. Raises NotCreated."""
    if shutil.which("go") is None:
        raise NotCreated("the Go toolchain is not installed")
    digest = hashlib.sha256()
    for path in (*sorted(_GO.iterdir()), Path(__file__), *(path for _, path in _sources())):
        digest.update(path.read_bytes())
    folder = CACHE / f"gateway-{digest.hexdigest()[:12]}"
    done = folder / ".made"
    CACHE.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be building it
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _build(folder)
            done.touch()
    return folder


def _build(folder: Path) -> None:
    protos, program = folder / "protos", folder / "src"
    shutil.copytree(ROOT / "third_party" / "googleapis", protos)
    for name, path in _sources():
        (protos / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, protos / name)
    shutil.copytree(_GO, program)
    (folder / "bin").mkdir()
    _run(["go", "build", "-o", f"{folder / 'bin'}/", *_PLUGINS], program)
    template = {
        "version": "v2",
        "managed": {
            "enabled": True,
            "override": [
                {"file_option": "go_package_prefix", "path": name, "value": "example.com/judge/gen"} for name in _PROTOS
            ],
        },
        "plugins": [
            {"local": str(folder / "bin" / plugin.rpartition("/")[2]), "out": str(program / "gen"), "opt": opt}
            for plugin, opt in zip(_PLUGINS, ["paths=source_relative"] * 3, strict=True)
        ],
    }
    paths = [part for name in _PROTOS for part in ("--path", str(protos / name))]
    _run(["buf", "generate", str(protos), "--template", json.dumps(template), *paths], folder)
    _run(["buf", "build", str(protos), "--as-file-descriptor-set", "-o", str(folder / "image.binpb")], folder)
    _run(["go", "build", "-o", str(folder / "judge"), "."], program)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **go_variables(), "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotCreated(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
