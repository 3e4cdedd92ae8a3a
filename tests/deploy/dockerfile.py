"""Reads a Dockerfile: its stages, and what its instructions say about the container."""

from __future__ import annotations

import json
import shlex
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

BASE_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of the image `python`."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its upper-case name, and the rest of its lines as one."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: its base image, its name (or empty), and its instructions."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]


@dataclass(slots=True)
class Config:
    """What a container of an image is started with."""

    env: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    user: str = "0:0"
    workdir: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    health_check: list[str] = field(default_factory=list)

    def apply(self, instruction: Instruction) -> bool:
        """Applies an instruction that changes no file. Returns whether it was one."""
        text = instruction.text
        match instruction.name:
            case "ENV":
                for pair in shlex.split(text):
                    name, _, value = pair.partition("=")
                    self.env[name] = string.Template(value).substitute(self.env)
            case "USER":
                self.user = text
            case "WORKDIR":
                self.workdir = text
            case "ENTRYPOINT":
                self.entrypoint = json.loads(text)
            case "CMD":
                self.cmd = json.loads(text)
            case "HEALTHCHECK":
                self.health_check = json.loads(text.partition("CMD ")[2])
            case "LABEL" | "EXPOSE":
                pass
            case _:
                return False
        return True


def parse_stages(text: str) -> list[Stage]:
    """The stages of a Dockerfile. Raises ValueError for instructions before the first one."""
    stages: list[tuple[str, str, list[Instruction]]] = []
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            base, _, name = instruction.text.partition(" AS ")
            stages.append((base, name, []))
        elif not stages:
            raise ValueError(f"{instruction.name} stands before the first FROM")
        else:
            stages[-1][2].append(instruction)
    return [Stage(base, name, tuple(instructions)) for base, name, instructions in stages]


def _instructions(text: str) -> Iterator[Instruction]:
    parts: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):  # also between continued lines
            continue
        parts.append(line.rstrip().removesuffix("\\").strip())
        if not line.rstrip().endswith("\\"):
            name, _, rest = " ".join(parts).partition(" ")
            yield Instruction(name.upper(), rest)
            parts = []


def in_context(path: str, ignore_file: str) -> bool:
    """Whether a file of the build context passes a .dockerignore of the forms `*`, `!PATH` and `**/NAME`.

    Raises ValueError for other forms.
    """
    passes = True
    for line in filter(None, map(str.strip, ignore_file.splitlines())):
        if line.startswith("#"):
            continue
        if line == "*":
            passes = False
        elif line.startswith("!"):
            passes = passes or path == line[1:] or path.startswith(f"{line[1:]}/")
        elif line.startswith("**/") and not set(line[3:]) & set("*?["):
            passes = passes and line[3:] not in path.split("/")
        else:
            raise ValueError(f".dockerignore: {line}: this form is not known here")
    return passes


def environment_words(env: Mapping[str, str]) -> list[str]:
    """NAME=VALUE words for `env`."""
    return [f"{name}={value}" for name, value in env.items()]
