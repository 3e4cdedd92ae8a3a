"""Is what a command said what the page shows? Ids, times, sizes and ports may differ; words may not."""

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
"""What names something: shown once and used again, it stands for what was said in its place."""

FIGURES: Final = {
    "moment": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?",
    "day": r"\d{4}-\d\d-\d\d",
    "clock": r"\d\d:\d\d:\d\d",
    "time": r"\d[\d,.]*(?: (?:ms|s|min)\b)",
    "size": r"\d[\d,.]*(?: (?:bytes|KiB|MiB|GiB)\b)",
    "process": r"(?<=process )\d+",
}
"""What is different each time."""

ANY: Final = r"(?:\.\.\.|…)"
FOLDER: Final = r"/tmp/demo\b|/home/you(?:/[\w-]+)?"
"""How pages write the folder in which one works."""
TOKEN: Final = re.compile(
    "|".join(
        [r"(?P<part>[\w-]{4,}…)", rf"(?P<any>{ANY})", rf"(?P<folder>{FOLDER})", r"(?P<gap> {2,})"]
        + [rf"(?P<{name}>(?<![\w-]){pattern}(?![\w-]))" for name, pattern in {**IDS, **FIGURES}.items()]
    )
)
AHEAD: Final = re.compile(r"\(\?=[^)]*\)")
"""What tells an id from a word where it is shown; what is said in its place may look like one."""
NUMBER: Final = re.compile(r"\d[\d,.]*")


def line_of(shown: str, folder: str, *, loosely: bool = False) -> tuple[re.Pattern[str], list[str]]:
    """A pattern for the line that a page shows, and the ids in it, one for each group."""
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
    """A pattern for text without tokens; `loosely`, any number stands for a number and any gap for a blank."""
    if not loosely:
        return re.escape(text)
    words = re.split(r"(\d[\d,.]*|-(?= |$)| )", text)
    values = {" ": " +", "-": r"(?:-|\d[\d,.]*)"}
    return "".join(
        values.get(one) or (r"(?:-|\d[\d,.]*)" if NUMBER.fullmatch(one) else re.escape(one)) for one in words
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
    """What is not as the page shows it; empty if all is.

    Every line on stdout has to be shown, of those on stderr some; `...` is any part of a line or, by itself, any
    number of lines. What ids that are shown stand for is put into `names`.
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
            return f"shown and not said: {one}"
        for name, response in zip(ids, found.groups(), strict=True):
            if re.fullmatch(IDS["hash"], name) and names.get(name, response) != response:
                return f"shown as before, and said otherwise: {one}"
            names[name] = response
        skipping = False
    return f"said and not shown: {lines[0]}" if lines and not skipping else ""


def _filled(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line.strip()]


def _take(pattern: re.Pattern[str], lines: list[str], skipping: bool) -> re.Match[str] | None:
    """Takes the line that matches off the front, with those before it if they may be skipped."""
    for at, line in enumerate(lines if skipping else lines[:1]):
        if found := pattern.fullmatch(line):
            del lines[: at + 1]
            return found
    return None


def renamed(text: str, names: MutableMapping[str, str]) -> str:
    """The text with what was said in the place of the ids that are shown."""
    if not names:
        return text
    for name, response_text in names.items():
        if name.startswith("dgm_"):
            text = text.replace(f"{name[:17]}...", response_text)  # a key, too long to be shown again
    longest = sorted(names, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest)), lambda found: names[found[0]], text)
