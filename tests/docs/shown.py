"""Compares the output of a command with its page. Ids, times, sizes and ports may differ, words may not."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from typing import Final

IDS: Final = {
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "hash": r"[0-9a-f]{64}",
    "hex": r"[0-9a-f]{32}",
    "cursor": r"[0-9a-f]{8}\.[0-9a-f]{8}",
    "epoch": r"(?=[0-9a-f]*\d)[0-9a-f]{8}",
    "key": r"dgm_[a-z2-7]{12}_[a-z2-7]+",
    "key_id": r"(?=[a-z]*[2-7])[a-z2-7]{12}",
    "signing": r"(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{43}",
}
"""Patterns of ids. A shown id stands for the actual one, also in later commands."""

FIGURES: Final = {
    "moment": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?",
    "day": r"\d{4}-\d\d-\d\d",
    "clock": r"\d\d:\d\d:\d\d",
    "time": r"\d[\d,.]*(?: (?:ms|s|min)\b)",
    "size": r"\d[\d,.]*(?: (?:bytes|KiB|MiB|GiB)\b)",
    "process": r"(?<=process )\d+",
}
"""Patterns of values that differ in each run."""

ANY: Final = r"(?:\.\.\.|…)"
FOLDER: Final = r"/tmp/demo\b|/home/you(?:/[\w-]+)?"
"""The working folder as shown on pages."""
TOKEN: Final = re.compile(
    "|".join(
        [r"(?P<part>[\w-]{4,}…)", rf"(?P<any>{ANY})", rf"(?P<folder>{FOLDER})", r"(?P<gap> {2,})"]
        + [rf"(?P<{name}>(?<![\w-]){pattern}(?![\w-]))" for name, pattern in {**IDS, **FIGURES}.items()]
    )
)
AHEAD: Final = re.compile(r"\(\?=[^)]*\)")
"""Lookaheads that distinguish shown ids from words. They do not apply to actual ids."""
NUMBER: Final = re.compile(r"\d[\d,.]*")


def line_of(shown: str, folder: str, *, loosely: bool = False) -> tuple[re.Pattern[str], list[str]]:
    """Returns a pattern for a shown line, and its ids, one per group."""
    texts: list[str] = []
    ids: list[str] = []
    at = 0
    for found in TOKEN.finditer(shown):
        texts.append(_words(shown[at : found.start()], loosely))
        at = found.end()
        kind = found.lastgroup or ""
        if kind in ("any", "part"):
            texts.append(".*?")
        elif kind == "folder":
            texts.append(re.escape(folder))
        elif kind == "gap":
            texts.append(" +")
        elif kind in IDS:
            ids.append(found[0])
            texts.append(f"({AHEAD.sub('', IDS[kind])})")
        elif loosely and kind in ("time", "size"):
            texts.append(r"(?:-|\d[\d,.]* \w+)")
        else:
            texts.append(f"(?:{FIGURES[kind]})")
    texts.append(_words(shown[at:], loosely))
    return re.compile("".join(texts) + r"\s*"), ids


def _words(text: str, loosely: bool) -> str:
    """Returns a pattern for text without tokens. `loosely`: any number and any number of spaces match."""
    if not loosely:
        return re.escape(text)
    words = re.split(r"(\d[\d,.]*|-(?= |$)| )", text)
    patterns = {" ": " +", "-": r"(?:-|\d[\d,.]*)"}
    return "".join(
        patterns.get(one) or (r"(?:-|\d[\d,.]*)" if NUMBER.fullmatch(one) else re.escape(one)) for one in words
    )


def differs(
    shown: Sequence[str],
    out: Sequence[str],
    err: Sequence[str],
    names: MutableMapping[str, str],
    *,
    folder: str = "",
    loosely: bool = False,
) -> str:
    """Returns the first difference; empty if there is none.

    All lines of stdout must be shown, of stderr any; `...` is any part of a line or, alone, any number of lines. Adds
    the actual ids by shown id to `names`.
    """
    lines, texts = _filled(out), _filled(err)
    skipping = False
    for one in _filled(shown):
        if re.fullmatch(ANY, one.strip()):
            skipping = True
            continue
        pattern, ids = line_of(one.rstrip(), folder, loosely=loosely)
        found = _take(pattern, lines, skipping) or _take(pattern, texts, True)
        if found is None:
            return f"shown but not printed: {one}"
        for name, actual in zip(ids, found.groups(), strict=True):
            if re.fullmatch(IDS["hash"], name) and names.get(name, actual) != actual:
                return f"shown with the same hash as before, but printed with another: {one}"
            names[name] = actual
        skipping = False
    return f"printed but not shown: {lines[0]}" if lines and not skipping else ""


def _filled(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line.strip()]


def _take(pattern: re.Pattern[str], lines: list[str], skipping: bool) -> re.Match[str] | None:
    """Removes the matching first line; if `skipping`, also the lines before it. Returns the match, or None."""
    for at, line in enumerate(lines if skipping else lines[:1]):
        if found := pattern.fullmatch(line):
            del lines[: at + 1]
            return found
    return None


def renamed(text: str, names: MutableMapping[str, str]) -> str:
    """Replaces shown ids by the actual ones."""
    if not names:
        return text
    for name, actual in names.items():
        if name.startswith("dgm_"):
            text = text.replace(f"{name[:17]}...", actual)  # a key, abbreviated on the page
    longest = sorted(names, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest)), lambda found: names[found[0]], text)
