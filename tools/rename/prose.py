"""Old paths, dotted modules and names in backticks, in comments, docstrings and pages."""

from __future__ import annotations

import collections
import io
import re
import subprocess
import tokenize
from collections.abc import Callable
from pathlib import Path

from rename import tables

ENDINGS = (
    ".py",
    ".md",
    ".toml",
    ".yml",
    ".yaml",
    ".proto",
    ".sh",
    ".ts",
    ".tsx",
    ".mjs",
    "Makefile",
    ".ci/run",
    ".txt",
    ".json",
)
LEFT_ALONE = ("gen/", "uv.lock", "tools/rename/", "CHANGELOG.md", "console/package-lock.json", "tests/proto/reference/")


def rewrite(root: Path, given: tables.Tables, bound: dict[str, set[str]]) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    paths = _paths(given)
    names = _names(given, bound)
    modules = given.dotted
    for place in tracked:
        if not place.endswith(ENDINGS) or place.startswith(LEFT_ALONE) or not (root / place).is_file():
            continue
        path = root / place
        text = path.read_text(encoding="utf-8")
        new = (
            _tokens(text, lambda t: _prose(t, paths, modules, names))
            if place.endswith(".py")
            else _prose(text, paths, modules, names)
        )
        if new != text:
            path.write_text(new, encoding="utf-8")


def _prose(text: str, paths: dict[str, str], modules: dict[str, str], names: dict[str, str]) -> str:
    new = re.sub(r"(?<![\w./-])(?:server/dragoman/)?([\w-]+/)*[\w-]+\.py\b", lambda m: _path(m[0], paths), text)
    new = re.sub(r"(?<![\w./])dragoman(\.[A-Za-z_0-9]+)+\b(?!/)", lambda m: _module(m[0], modules), new)
    return re.sub(r"`([A-Za-z_][\w.]*)(\(\))?`", lambda m: f"`{_name(m[1], names)}{m[2] or ''}`", new)


def _tokens(text: str, change: Callable[[str], str]) -> str:
    """The text with its comments and strings changed, and its code left alone."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    parts, at = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            start, end = starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]
            parts += [text[at:start], change(text[start:end])]
            at = end
    return "".join([*parts, text[at:]])


def _paths(given: tables.Tables) -> dict[str, str]:
    found = {}
    for old, new in given.modules.items():
        if old == new or (old.endswith("__init__.py") and old == new):
            continue
        found[tables.located(old)] = tables.located(new)
        if not old.startswith(("tests/", "tools/", "bench/")) and "/" in old:
            found[old] = new
    return found


def _path(text: str, paths: dict[str, str]) -> str:
    return paths.get(text, text)


def _module(text: str, modules: dict[str, str]) -> str:
    parts = text.split(".")
    for size in range(len(parts), 1, -1):
        old = ".".join(parts[:size])
        if old in modules and (size == len(parts) or parts[size][:1].isupper()):
            return ".".join([modules[old], *parts[size:]])
    return text


def _names(given: tables.Tables, bound: dict[str, set[str]]) -> dict[str, str]:
    """Old name -> new one, where only one thing has that name; members as `Class.member`."""
    homes: dict[str, set[str]] = collections.defaultdict(set)
    for module, names in bound.items():
        if module.split(".")[0] == "dragoman":
            for name in names:
                homes[name].add(module)
    new_names: dict[str, set[str]] = collections.defaultdict(set)
    for full, new in given.symbols.items():
        new_names[full.rpartition(".")[2]].add(new)
    found = {old: next(iter(news)) for old, news in new_names.items() if len(news) == 1 and len(homes[old]) == 1}
    for (owner, member), new in given.members.items():
        name = owner.rpartition(".")[2]
        found[f"{name}.{member}"] = f"{found.get(name, name)}.{new}"
    return {old: new for old, new in found.items() if len(old) > 3}


def _name(text: str, names: dict[str, str]) -> str:
    if text in names:
        return names[text]
    first, dot, rest = text.partition(".")
    if dot and first in names and first[:1].isupper():
        return f"{names[first]}.{rest}"
    return text
