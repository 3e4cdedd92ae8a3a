"""Migrations: numbered files that are never edited, and what a newer schema means for this release."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files


class SchemaTooNew(Exception):
    """The store was written by a newer Dragoman, and this release cannot use its schema."""


def migration_scripts(package: str) -> Iterator[tuple[int, str]]:
    """The number and the SQL of each migration in the folder `migrations` of a package, in no order."""
    for file in (files(package) / "migrations").iterdir():
        if file.name.endswith(".sql"):
            yield int(file.name.split("_", 1)[0]), file.read_text("utf-8")
