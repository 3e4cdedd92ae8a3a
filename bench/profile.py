"""`python -m bench.profile`: where the microseconds of one send or GetTask go, in our server under load.

Two passes. The first measures alone: CPU time of each thread, over the answers that it gave. The second lets py-spy
look at the stacks, whose shares then divide those microseconds. A look belongs to the part of the innermost frame; what
has no frame of Python (uvloop, gRPC's C core, SQLite, system calls) belongs to the frame that called it, which for the
loop and for gRPC is nobody: "no Python frame".
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from bench.job import Job
from bench.loader import Loader, LoadFailed
from bench.report import table
from bench.servers import CONTESTANTS, EVERY, KEPT, OURS, Running, started

RATE: Final = 200
"""Looks a second. More and py-spy falls behind on the core that it shares with the load."""

TOP: Final = 25
KINDS: Final = ("send", "get")
NO_FRAME: Final = "no Python frame"
_LOOPS: Final = ("Runner.run (asyncio/runners.py", "Thread.run (threading.py", "_worker (concurrent/futures/thread.py")
"""Innermost frames of threads that are in no code of anybody's: the loop, and pools."""

Name = TypeVar("Name")

_THREAD: Final = re.compile(r"^thread \((\d+)\): (.*)$")
_FRAME: Final = re.compile(r"^(?P<name>.*) \((?P<file>[^()]*?):(?P<line>\d+)\)$")


class Frame(NamedTuple):
    """A function of a file."""

    name: str
    file: str

    @property
    def text(self) -> str:
        return f"{self.name} ({self.file})"

    @property
    def part(self) -> str:
        """The room of ours, or the library."""
        path = self.file.split("site-packages/")[-1]
        first, *rest = Path(path).parts or ("?",)
        if first == "dragoman":
            return f"dragoman/{rest[0].removesuffix('.py')}" if rest else first
        if first in ("bench", "dragoman_pb", "grpc", "aiohttp", "asyncio", "google", "uvloop", "orjson"):
            return first
        return "the standard library and others"


@dataclass(frozen=True, slots=True)
class Look:
    """One stack, innermost frame last, and how often it was seen."""

    tid: int
    thread: str
    frames: tuple[Frame, ...]
    count: int
    waits: bool
    """Nobody's code was running: the loop, or an idle pool."""

    @property
    def part(self) -> str:
        return NO_FRAME if self.waits or not self.frames else self.frames[-1].part


def looks(raw: str) -> Iterator[Look]:
    """Reads py-spy's raw form. Lines it cannot read are left out."""
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        found = _THREAD.match(thread)
        if found is not None and count.isdecimal():
            read = tuple(Frame(frame["name"], frame["file"]) for text in frames if (frame := _FRAME.match(text)))
            waits = not frames or frames[-1].startswith(_LOOPS)
            yield Look(int(found[1]), found[2], read, int(count), waits)


class Costs(NamedTuple):
    """Microseconds of CPU an answer: by thread, by thread and part, by function alone and with what it calls."""

    threads: dict[str, float]
    parts: dict[tuple[str, str], float]
    functions: dict[str, float]
    whole: dict[str, float]


def shared_out(spent: dict[str, float], found: list[Look], answers: int) -> Costs:
    """Divides each thread's seconds (by its number and name) among its looks."""
    names = {look.tid: look.thread for look in found}
    seen: Counter[int] = Counter()
    for look in found:
        seen[look.tid] += look.count
    threads: defaultdict[str, float] = defaultdict(float)
    seconds_of: dict[int, float] = {}
    for thread, seconds in spent.items():
        number, _, comm = thread.partition(" ")
        seconds_of[int(number)] = seconds
        threads[names.get(int(number), f"{comm}, native")] += seconds / answers * 1e6
    parts: defaultdict[tuple[str, str], float] = defaultdict(float)
    functions: defaultdict[str, float] = defaultdict(float)
    whole: defaultdict[str, float] = defaultdict(float)
    for look in found:
        us = seconds_of.get(look.tid, 0.0) / answers * 1e6 * look.count / seen[look.tid]
        parts[look.thread, look.part] += us
        if look.frames and not look.waits:
            functions[look.frames[-1].text] += us
            for text in {frame.text for frame in look.frames if frame.part.startswith("dragoman/")}:
                whole[text] += us
    return Costs(dict(threads), dict(parts), dict(functions), dict(whole))


def measure(kind: str, binding: str, callers: int, seconds: float) -> tuple[Costs, float, Counter[str]]:
    """Both passes: what an answer costs, answers a second, and looks by thread. Raises LoadFailed."""
    with started(CONTESTANTS[OURS]) as server, Loader() as loader:
        job = Job(
            kind=kind, binding=binding, whose=OURS, pid=server.pid, target=server.target(binding), callers=callers,
            seconds=seconds, tools=False,
        )  # fmt: skip
        loader.ask(replace(job, seconds=seconds / 3))  # a server that has just begun is another one
        alone = loader.ask(job)
        found = list(looks(_looked_at(server, loader, job)))
    seen: Counter[str] = Counter()
    for look in found:
        seen[look.thread] += look.count
    return shared_out(alone["threads"], found, alone["count"]), alone["count"] / alone["seconds"], seen


def _looked_at(server: Running, loader: Loader, job: Job) -> str:
    program = shutil.which("py-spy")
    if program is None:
        raise LoadFailed("py-spy is not installed; `make env` does it")
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        raw = Path(folder, "raw")
        command = [program, "record", "--pid", str(server.pid), "--rate", str(RATE), "--format", "raw", "--threads"]
        command += ["--nonblocking", "--duration", str(round(job.seconds)), "--output", str(raw)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as spy:
            loader.ask(job)
            text, _ = spy.communicate()
        if spy.returncode:
            raise LoadFailed(f"py-spy: {text.strip()} (it has to be allowed to look at processes: root, or ptrace)")
        return raw.read_text("utf-8")


def report(costs: Costs, rate: float, seen: Counter[str]) -> str:
    """The tables."""
    total = sum(costs.threads.values())
    threads = [(name, f"{us:.1f}", f"{us / total:.0%}", str(seen[name] or "")) for name, us in _largest(costs.threads)]
    parts = [(thread, part, f"{us:.1f}") for (thread, part), us in _largest(costs.parts)]
    functions = [(name, f"{us:.1f}") for name, us in _largest(costs.functions)[:TOP]]
    whole = [(name, f"{us:.1f}") for name, us in _largest(costs.whole)[:TOP]]
    return "\n\n".join(
        [
            f"{rate:,.0f} a second, {total:.0f} µs of CPU each",
            table([("thread", "µs each", "share", "looks"), *threads]),
            table([("thread", "part", "µs each"), *parts]),
            table([("function, without what it calls", "µs each"), *functions]),
            table([("function of ours, with what it calls", "µs each"), *whole]),
        ]
    )


def _largest(costs: dict[Name, float]) -> list[tuple[Name, float]]:
    return sorted(((name, us) for name, us in costs.items() if us >= 0.1), key=lambda one: -one[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kind", choices=KINDS, default="send")
    parser.add_argument("--binding", choices=EVERY, default="grpc")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    namespace = parser.parse_args()
    print(report(*measure(namespace.kind, namespace.binding, namespace.callers, namespace.seconds)))


if __name__ == "__main__":
    main()
