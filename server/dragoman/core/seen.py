"""How much of an artifact somebody has, as a count and a digest and not as the content.

Streams say what is added; a Task read afterwards says everything again. With this a Task adds only what is new, or it
shows that the artifact became another one. Neighbouring plain texts count as one text: servers join the chunks of a
stream when they show the task, and that is no change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(slots=True)
class Content:
    """How much of one artifact was taken: whole units, and how much of a last text that may go on."""

    about: bytes
    """A digest of what it is besides its parts."""
    units: int = 0
    whole: Any = field(default_factory=hashlib.blake2b)
    """Of the units before the open text."""
    letters: int = -1
    """Length of the open text; -1 when the last unit is no text."""
    text: Any = field(default_factory=hashlib.blake2b)
    """Of the open text."""
    grows: bool = False
    """It is one text, told as one that may go on."""

    @classmethod
    def of(cls, artifact: pb.Artifact) -> Self:
        """Nothing yet of this artifact, whose parts do not count."""
        return cls(_about(artifact))

    def add(self, parts: Sequence[pb.Part]) -> None:
        """More parts were taken."""
        for part in parts:
            if is_plain(part):
                self.letters = max(self.letters, 0) + len(part.text)
                self.text.update(_bytes(part.text))
                continue
            self._close()
            self.whole.update(_framed(part.SerializeToString(deterministic=True)))
            self.units += 1

    def _close(self) -> None:
        if self.letters >= 0:
            self.whole.update(_framed(self.text.digest()))
            self.units += 1
            self.letters, self.text = -1, hashlib.blake2b()

    def rest(self, artifact: pb.Artifact) -> list[pb.Part] | None:
        """The parts that come after what was taken; None when the artifact does not begin with that."""
        if _about(artifact) != self.about:
            return None
        units = joined(artifact.parts)
        if len(units) < self.units + (self.letters >= 0):
            return None
        digest = hashlib.blake2b()
        for unit in units[: self.units]:
            if is_plain(unit):
                digest.update(_framed(hashlib.blake2b(_bytes(unit.text)).digest()))
            else:
                digest.update(_framed(unit.SerializeToString(deterministic=True)))
        if digest.digest() != self.whole.digest():
            return None
        after = units[self.units :]
        if self.letters < 0:
            return after
        if not is_plain(after[0]):
            return None
        text = after[0].text
        begun = text[: self.letters]
        if len(begun) < self.letters or hashlib.blake2b(_bytes(begun)).digest() != self.text.digest():
            return None
        left = text[self.letters :]
        return [*([pb.Part(text=left)] if left else []), *after[1:]]


def is_plain(part: pb.Part) -> bool:
    """Whether a part is a text and nothing else."""
    return part.WhichOneof("content") == "text" and not (
        part.media_type or part.filename or (part.HasField("metadata") and part.metadata.fields)
    )


def joined(parts: Sequence[pb.Part]) -> list[pb.Part]:
    """The parts, each run of plain texts as one."""
    units: list[pb.Part] = []
    run: list[str] = []
    for part in parts:
        if is_plain(part):
            run.append(part.text)
            continue
        if run:
            units.append(pb.Part(text="".join(run)))
            run = []
        units.append(part)
    if run:
        units.append(pb.Part(text="".join(run)))
    return units


def _about(artifact: pb.Artifact) -> bytes:
    rest = pb.Artifact(
        name=artifact.name, description=artifact.description, extensions=artifact.extensions
    ).SerializeToString()
    rest += artifact.metadata.SerializeToString(deterministic=True)
    return hashlib.blake2b(rest).digest()


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
