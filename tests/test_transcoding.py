"""The transcoder stands for itself: what it is made of knows neither A2A nor any messages of ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.test_layers import PACKAGE
from tests.test_layers import imports as package_imports

import dragoman.transcoding

ALLOWED_ROOMS: Final = {"transcoding", "wire", "core"}


def sources() -> set[Path]:
    """The public module, and every module of ours that it needs, however deep."""
    imports: dict[str, set[str]] = {}
    for use in package_imports(PACKAGE):
        imports.setdefault(use.file, set()).add(use.target)
    left, seen = ["transcoding.py"], set()
    while left:
        file = left.pop()
        seen.add(PACKAGE / file)
        for target in imports.get(file, ()):
            assert not target.startswith("dragoman_pb"), f"{file} imports {target}"
            if not target.startswith("dragoman."):
                continue
            path = target.split(".")[1:]
            # `from dragoman.wire import sse` is told as the package: its names are found below
            named = [f"{'/'.join(path)}.py"] if (PACKAGE / f"{'/'.join(path)}.py").exists() else _inside(file, path)
            left += [name for name in named if PACKAGE / name not in seen]
    return seen


def _inside(file: str, package: list[str]) -> list[str]:
    text = (PACKAGE / file).read_text("utf-8")
    found = re.findall(rf"^from dragoman\.{'.'.join(package)} import (.+)$", text, re.MULTILINE)
    return [f"{'/'.join(package)}/{name.strip()}.py" for line in found for name in line.split(",")]


def test_nothing_that_it_is_made_of_knows_a2a() -> None:
    found = sources()
    names = {path.name for path in found}
    assert names >= {"httprule.py", "transcode.py", "protojson_decoder.py", "wellknown_any.py", "sse.py"}
    for path in found:
        place = path.relative_to(PACKAGE)
        assert place.parts[0].removesuffix(".py") in ALLOWED_ROOMS, place
        if place.parts[0] == "wire":
            assert not re.search(r"a2a|\btask", path.read_text("utf-8"), re.IGNORECASE), f"{place} speaks of A2A"


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in dragoman.transcoding.__all__:
        thing = getattr(dragoman.transcoding, name)
        assert not callable(thing) or thing.__doc__, name
        assert f"`{name}`" in (dragoman.transcoding.__doc__ or ""), name
