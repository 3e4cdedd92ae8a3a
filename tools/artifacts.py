"""Completes the folder of a release: archives, manifest.json and SHA256SUMS.   python -m tools.artifacts FOLDER

The packages, the bill of materials and the site are in the folder already. Two runs from the same files write the same
bytes: names are sorted, and every file in an archive has the day of the release, one owner and one mode.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.versions import ROOT, ReleaseError, day_of, version_of

SUMS: Final = "SHA256SUMS"
MANIFEST: Final = "manifest.json"
SBOM: Final = "dragoman.cdx.json"
"""The name that `make sbom-check` gives it."""
SITE: Final = "site"
"""The folder that `make site-check` leaves."""


class Artifact(NamedTuple):
    """A file of every release. `{}` in the name is the version."""

    name: str
    kind: str
    what: str


ARTIFACTS: Final = (
    Artifact("dragoman-{}-py3-none-any.whl", "wheel", "the server, with the console, protos and OpenAPI"),
    Artifact("dragoman-{}.tar.gz", "sdist", "the sources of the server's wheel"),
    Artifact("dragoman_client-{}-py3-none-any.whl", "wheel", "the same modules, for callers and workers"),
    Artifact("dragoman_protos-{}-py3-none-any.whl", "wheel", "messages and gRPC stubs, without the server"),
    Artifact("dragoman_protos-{}.tar.gz", "sdist", "the sources of the wheel of dragoman-protos"),
    Artifact("dragoman-{}.cdx.json", "sbom", "CycloneDX 1.6: what an installation with all extras consists of"),
    Artifact("dragoman-{}.openapi.json", "openapi", "OpenAPI 3.1, as a server with credentials serves it"),
    Artifact("dragoman-{}.binpb", "descriptors", "the protos with all imports, for generators of any language"),
    Artifact("dragoman-{}-site.tar.gz", "site", "the documentation; open index.html, or put it on a web server"),
    Artifact("dragoman-{}-console.tar.gz", "console", "the console as in the wheel, built from console/"),
)


def names(version: str) -> list[str]:
    """Returns the file names of a release, without manifest and checksums."""
    return [artifact.name.format(version) for artifact in ARTIFACTS]


def packages(version: str) -> list[str]:
    """Returns the file names for a package index."""
    return [artifact.name.format(version) for artifact in ARTIFACTS if artifact.kind in ("wheel", "sdist")]


def seconds_of(day: str) -> int:
    """Returns the beginning of a day, such as 2026-12-24, in seconds since the epoch (UTC)."""
    return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())


def archive(folder: Path, inside: str, seconds: int) -> bytes:
    """Returns a .tar.gz of a folder's files under the name `inside`, of which every file has the same time."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=seconds) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            data = path.read_bytes()
            entry = tarfile.TarInfo(f"{inside}/{path.relative_to(folder).as_posix()}")
            entry.size, entry.mtime, entry.mode = len(data), seconds, 0o644
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def manifest(version: str, day: str, schemas: Mapping[str, int], files: Mapping[str, bytes]) -> dict[str, Any]:
    """Returns the manifest: every artifact with its kind, size and SHA-256. Raises ReleaseError.

    schemas: the schema number of each kind of store. files: the contents by name.
    """
    expected = set(names(version))
    if missing := sorted(expected - files.keys()):
        raise ReleaseError(f"not in the release: {', '.join(missing)}; run make release again")
    if unknown := sorted(files.keys() - expected):
        raise ReleaseError(f"not a file of a release: {', '.join(unknown)}; remove it, or add it to tools/artifacts.py")
    artifacts = [
        {
            "file": (name := artifact.name.format(version)),
            "kind": artifact.kind,
            "what": artifact.what,
            "bytes": len(files[name]),
            "sha256": hashlib.sha256(files[name]).hexdigest(),
        }
        for artifact in ARTIFACTS
    ]
    return {"name": "dragoman", "version": version, "date": day, "schemas": dict(schemas), "artifacts": artifacts}


def sums(files: Mapping[str, bytes]) -> str:
    """Returns the lines of SHA256SUMS, as `sha256sum -c` reads them."""
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))


def schemas_of(root: Path) -> dict[str, int]:
    """Returns the newest schema number of each kind of store."""
    package = root / "server" / "dragoman"
    return {
        folder.name: max(int(path.name.partition("_")[0]) for path in (package / folder / "migrations").glob("*.sql"))
        for folder in (Path("extensions/postgres"), Path("stores/sqlite"))
    }


def contents(paths: Iterable[Path]) -> dict[str, bytes]:
    """Returns the contents of files by name."""
    return {path.name: path.read_bytes() for path in paths}


def complete(root: Path, folder: Path) -> list[Path]:
    """Adds to a folder what is not in it yet, and returns all its files. Raises ReleaseError."""
    version, day = version_of(root), day_of((root / "CHANGELOG.md").read_text("utf-8"), version_of(root))
    seconds = seconds_of(day)
    for stale in (MANIFEST, SUMS):
        (folder / stale).unlink(missing_ok=True)
    if (folder / SBOM).exists():
        (folder / SBOM).replace(folder / f"dragoman-{version}.cdx.json")
    shutil.copyfile(root / "gen" / "openapi" / "dragoman.openapi.json", folder / f"dragoman-{version}.openapi.json")
    shutil.copyfile(root / "gen" / "dragoman.binpb", folder / f"dragoman-{version}.binpb")
    for name, source in ((SITE, folder / SITE), ("console", root / "server" / "dragoman" / "console")):
        if source.is_dir():
            inside = f"dragoman-{version}-{name}"
            (folder / f"{inside}.tar.gz").write_bytes(archive(source, inside, seconds))
    shutil.rmtree(folder / SITE, ignore_errors=True)
    found = manifest(version, day, schemas_of(root), contents(folder.iterdir()))
    (folder / MANIFEST).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    (folder / SUMS).write_text(sums(contents(folder.iterdir())), "utf-8")
    return sorted(folder.iterdir())


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.artifacts", description="Complete the folder of a release.")
    parser.add_argument("folder", type=Path)
    namespace = parser.parse_args(words)
    try:
        for path in complete(ROOT, namespace.folder):
            print(f"artifacts: {path}")
    except (OSError, ReleaseError) as error:
        print(f"artifacts: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
