"""Settings of executors: the group, parsing, validation, agent ids."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dragoman.core.names import check_agent_id
from dragoman.ports.extension import Option

EXECUTOR_FORMAT: Final = "[ID=]MODULE:NAME or [ID=]FILE.py:NAME"

DEFAULT_EXECUTOR_TURNS: Final = 100
"""Default number of concurrent turns of an executor."""

PRIVATE_ENV_PREFIX: Final = "DRAGOMAN_"
"""Environment variables with this prefix are never passed on: they hold store URLs and passwords."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?|\*")

_EXECUTOR_SUFFIXES: Final = ("agent-executor", "agent-worker", "executor", "worker")


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """One executor: the id of its agent, and the class to load."""

    id: str
    target: str
    """MODULE:NAME, or FILE.py:NAME."""

    @property
    def module(self) -> str:
        """The module or file in `target`."""
        return self.target.rpartition(":")[0]

    def __str__(self) -> str:
        return f"{self.id} ({self.target})"

    @classmethod
    def parse(cls, text: str) -> ExecutorSpec:
        """Parses `[ID=]MODULE:NAME`. Raises ValueError."""
        id, given, target = text.strip().rpartition("=")
        module, colon, name = target.rpartition(":")
        if not colon or not module or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f'"{text}" is not {EXECUTOR_FORMAT}')
        id = id if given else executor_id(module, name)
        try:
            check_agent_id(id)
        except ValueError as error:
            rule = str(error).removesuffix("; set id=").removesuffix("; set id= to choose another")
            raise ValueError(f'"{text}": {rule}; choose one with {EXECUTOR_FORMAT}') from error
        return cls(id, target)


def is_object_name(app: str) -> bool:
    """Whether APP names an object of a module, `MODULE:NAME` or `FILE.py:NAME`, rather than a module."""
    module, colon, name = app.rpartition(":")
    return bool(colon and module) and all(part.isidentifier() for part in name.split("."))


def parse_executors(value: Any) -> tuple[ExecutorSpec, ...]:
    """Parses the executors of a server: a list of strings, or one string with commas. Raises ValueError."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str | ExecutorSpec) for item in items):
        raise ValueError(f"must be a list of {EXECUTOR_FORMAT}")
    parts = [part for item in items for part in (item.split(",") if isinstance(item, str) else (item,))]
    executors = [part if isinstance(part, ExecutorSpec) else ExecutorSpec.parse(part) for part in parts if part != ""]
    ids = [executor.id for executor in executors]
    if duplicates := sorted({id for id in ids if ids.count(id) > 1}):
        raise ValueError(f'"{duplicates[0]}" is the id of two executors; choose another with {EXECUTOR_FORMAT}')
    return tuple(executors)


def parse_variables(value: Any) -> tuple[str, ...]:
    """Parses names of environment variables, which may end with `*`: a list, or one string with commas.

    Raises ValueError.
    """
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of names of environment variables")
    names = tuple(name.strip() for item in items for name in item.split(",") if name.strip())
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f'"{name}" is not the name of an environment variable, such as OPENAI_API_KEY or AWS_*')
        if name.upper().startswith(PRIVATE_ENV_PREFIX):
            raise ValueError(f'"{name}" is never passed on: it may have secrets of the server')
    return names


def executor_id(module: str, name: str) -> str:
    """The default agent id of an executor: `HelloWorldAgentExecutor` becomes `hello-world`; a bare `Executor` takes the
    name of its module."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_.]+", "-", name).lower().strip("-")
    for suffix in _EXECUTOR_SUFFIXES:
        if words == suffix:
            stem = re.split(r"[/\\]", module.removesuffix(".py"))[-1].rpartition(".")[2]
            return stem.lower().replace("_", "-").strip("-")
        if words.endswith(f"-{suffix}"):
            return words.removesuffix(f"-{suffix}")
    return words


class FrameworkSettings(BaseModel):
    """The executors of a server or worker, and their limits."""

    model_config = ConfigDict(frozen=True)

    executors: Annotated[
        tuple[ExecutorSpec, ...],
        BeforeValidator(parse_executors),
        Option(
            "executor",
            "[ID=]MODULE:NAME",
            "An a2a-sdk AgentExecutor, a fasta2a Worker or an agent of a framework, run in its own process; may be "
            "repeated.",
            list[str],
            in_worker=True,
        ),
    ] = ()
    """Executors and agents of frameworks, each run in a child process."""
    python: Annotated[
        str,
        Option(
            "executor_python", "PATH", "Python interpreter of the executors' environment. [this one]", in_worker=True
        ),
    ] = ""
    """Python interpreter of the executors' environment; empty: the one of this process."""
    env: Annotated[
        tuple[str, ...],
        BeforeValidator(parse_variables),
        Option(
            "executor_env",
            "NAME,...",
            "Environment variables that executors get, such as OPENAI_API_KEY or AWS_*; may be repeated.",
            list[str],
            in_worker=True,
        ),
    ] = ()
    """Names of environment variables, or patterns, besides those that every program needs."""
    turns: Annotated[int, Option("executor_turns", "N", "Concurrent turns per executor. [100]")] = Field(
        default=DEFAULT_EXECUTOR_TURNS, ge=1, le=10_000
    )
    """Concurrent turns of each executor; more wait."""
    retries: Annotated[
        int,
        Option(
            "executor_retries",
            "N",
            "Attempts to repeat a turn after the executor's process died. [0]",
            in_worker=True,
        ),
    ] = Field(default=0, ge=0, le=100)
    """Retries of a turn whose executor process died; 0: the task ends as FAILED."""

    def started(self, app: str) -> tuple[ExecutorSpec, ...]:
        """The executors, after APP if that names an object. Raises ValueError for an APP without a valid id."""
        return (ExecutorSpec.parse(app), *self.executors) if is_object_name(app) else self.executors

    @property
    def interpreter(self) -> str:
        """The Python interpreter that runs the executors."""
        return self.python or sys.executable
