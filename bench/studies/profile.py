"""CPU profile of one send or GetTask in our server under load: `python -m bench.studies.profile`.

The first pass measures the CPU time of each thread per response. The second pass samples stacks with py-spy, whose
shares divide that time. A sample counts for the part of its innermost frame. Native code (uvloop, gRPC's core, SQLite,
system calls) counts for the Python frame that called it; the event loop and gRPC have none: "no Python frame".
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

from bench.load.jobs import Job, LoadFailed, LoadProcess
from bench.report.tables import table
from bench.servers.contestants import ALL_BINDINGS, BENCH_FOLDER, CONTESTANTS, DRAGOMAN, RunningServer, start_server

RATE: Final = 200
"""Samples per second. At higher rates py-spy falls behind on the core that it shares with the load."""

TOP: Final = 25
KINDS: Final = ("send", "get")
NO_FRAME: Final = "no Python frame"
_LOOPS: Final = ("Runner.run (asyncio/runners.py", "Thread.run (threading.py", "_worker (concurrent/futures/thread.py")
"""Innermost frames of waiting threads: the event loop, and idle pools."""

Name = TypeVar("Name")

_THREAD: Final = re.compile(r"^thread \((\d+)\): (.*)$")
_FRAME: Final = re.compile(r"^(?P<name>.*) \((?P<file>[^()]*?):(?P<line>\d+)\)$")


class Frame(NamedTuple):
    """A function in a file."""

    name: str
    file: str

    @property
    def text(self) -> str:
        return f"{self.name} ({self.file})"

    @property
    def part(self) -> str:
        """Our package, or the library."""
        path = self.file.split("site-packages/")[-1]
        first, *rest = Path(path).parts or ("?",)
        if first == "dragoman":
            return f"dragoman/{rest[0].removesuffix('.py')}" if rest else first
        if first in ("bench", "dragoman_pb", "grpc", "aiohttp", "asyncio", "google", "uvloop", "orjson"):
            return first
        return "the standard library and others"


@dataclass(frozen=True, slots=True)
class StackSample:
    """One stack, innermost frame last, with its number of samples."""

    tid: int
    thread: str
    frames: tuple[Frame, ...]
    count: int
    waits: bool
    """Whether the thread was waiting: the event loop, or an idle pool."""

    @property
    def part(self) -> str:
        return NO_FRAME if self.waits or not self.frames else self.frames[-1].part


def stack_samples(raw: str) -> Iterator[StackSample]:
    """Parses py-spy's raw format. Unknown lines are skipped."""
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        found = _THREAD.match(thread)
        if found is not None and count.isdecimal():
            read = tuple(Frame(frame["name"], frame["file"]) for text in frames if (frame := _FRAME.match(text)))
            waits = not frames or frames[-1].startswith(_LOOPS)
            yield StackSample(int(found[1]), found[2], read, int(count), waits)


class CpuCosts(NamedTuple):
    """CPU microseconds per response: by thread, by thread and part, by function without and with callees."""

    threads: dict[str, float]
    parts: dict[tuple[str, str], float]
    functions: dict[str, float]
    cumulative: dict[str, float]


def attribute_cpu(thread_seconds: dict[str, float], samples: list[StackSample], responses: int) -> CpuCosts:
    """Divides the CPU seconds of each thread (keyed by number and name) among its samples."""
    names = {sample.tid: sample.thread for sample in samples}
    seen: Counter[int] = Counter()
    for sample in samples:
        seen[sample.tid] += sample.count
    threads: defaultdict[str, float] = defaultdict(float)
    seconds_of: dict[int, float] = {}
    for thread, seconds in thread_seconds.items():
        number, _, comm = thread.partition(" ")
        seconds_of[int(number)] = seconds
        threads[names.get(int(number), f"{comm}, native")] += seconds / responses * 1e6
    parts: defaultdict[tuple[str, str], float] = defaultdict(float)
    functions: defaultdict[str, float] = defaultdict(float)
    cumulative: defaultdict[str, float] = defaultdict(float)
    for sample in samples:
        us = seconds_of.get(sample.tid, 0.0) / responses * 1e6 * sample.count / seen[sample.tid]
        parts[sample.thread, sample.part] += us
        if sample.frames and not sample.waits:
            functions[sample.frames[-1].text] += us
            for text in {frame.text for frame in sample.frames if frame.part.startswith("dragoman/")}:
                cumulative[text] += us
    return CpuCosts(dict(threads), dict(parts), dict(functions), dict(cumulative))


def measure(kind: str, binding: str, callers: int, seconds: float) -> tuple[CpuCosts, float, Counter[str]]:
    """Runs both passes. Returns costs per response, responses per second, and samples by thread. Raises LoadFailed."""
    with start_server(CONTESTANTS[DRAGOMAN]) as server, LoadProcess() as load_process:
        job = Job(
            kind=kind, binding=binding, implementation=DRAGOMAN, pid=server.pid, target=server.target(binding),
            callers=callers, seconds=seconds, tools=False,
        )  # fmt: skip
        load_process.run(replace(job, seconds=seconds / 3))  # warm-up: a new server behaves differently
        alone = load_process.run(job)
        samples = list(stack_samples(_sample_stacks(server, load_process, job)))
    seen: Counter[str] = Counter()
    for sample in samples:
        seen[sample.thread] += sample.count
    return attribute_cpu(alone["threads"], samples, alone["count"]), alone["count"] / alone["seconds"], seen


def _sample_stacks(server: RunningServer, load_process: LoadProcess, job: Job) -> str:
    program = shutil.which("py-spy")
    if program is None:
        raise LoadFailed("py-spy is not installed; run `make env`")
    with tempfile.TemporaryDirectory(dir=BENCH_FOLDER) as folder:
        raw = Path(folder, "raw")
        command = [program, "record", "--pid", str(server.pid), "--rate", str(RATE), "--format", "raw", "--threads"]
        command += ["--nonblocking", "--duration", str(round(job.seconds)), "--output", str(raw)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as spy:
            load_process.run(job)
            text, _ = spy.communicate()
        if spy.returncode:
            raise LoadFailed(f"py-spy: {text.strip()} (it needs permission to inspect processes: root, or ptrace)")
        return raw.read_text("utf-8")


def report(costs: CpuCosts, rate: float, seen: Counter[str]) -> str:
    """Formats the tables."""
    total = sum(costs.threads.values())
    threads = [(name, f"{us:.1f}", f"{us / total:.0%}", str(seen[name] or "")) for name, us in _largest(costs.threads)]
    parts = [(thread, part, f"{us:.1f}") for (thread, part), us in _largest(costs.parts)]
    functions = [(name, f"{us:.1f}") for name, us in _largest(costs.functions)[:TOP]]
    cumulative = [(name, f"{us:.1f}") for name, us in _largest(costs.cumulative)[:TOP]]
    return "\n\n".join(
        [
            f"{rate:,.0f} per second, {total:.0f} µs of CPU each",
            table([("thread", "µs each", "share", "samples"), *threads]),
            table([("thread", "part", "µs each"), *parts]),
            table([("function, without callees", "µs each"), *functions]),
            table([("function of Dragoman, with callees", "µs each"), *cumulative]),
        ]
    )


def _largest(costs: dict[Name, float]) -> list[tuple[Name, float]]:
    return sorted(((name, us) for name, us in costs.items() if us >= 0.1), key=lambda one: -one[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.studies.profile", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kind", choices=KINDS, default="send")
    parser.add_argument("--binding", choices=ALL_BINDINGS, default="grpc")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    namespace = parser.parse_args()
    print(report(*measure(namespace.kind, namespace.binding, namespace.callers, namespace.seconds)))


if __name__ == "__main__":
    main()
