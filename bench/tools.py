"""wrk and h2load as load, where they are installed: what they are told, and what is read in what they say.

Both are faster and better known than a client of ours, and both look at less. wrk's answers are read by a script.
h2load does not see a gRPC status, so it is held to sizes: an answer that is an error has other headers, and no data.
"""

from __future__ import annotations

import json
import math
import re
import resource
import shutil
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.answers import TEXT
from bench.asking import HEADERS, Wire
from bench.job import Job, Measured
from bench.lines import Wrong
from bench.spent import cpu

SHORTEST: Final = 1
"""Seconds; wrk counts in whole ones."""

SLACK: Final = 4.0
"""Bytes by which the average answer may differ: times of day are not all equally long in protobuf."""

_WRK = """
wrk.method = "{method}"
wrk.body = [====[{body}]====]
{headers}
local threads = {{}}
wrong = 0
function setup(thread) table.insert(threads, thread) end
function response(status, headers, body)
  if status ~= 200 or {check} then wrong = wrong + 1 end
end
function done(summary, latency, requests)
  local sum, errors = 0, summary.errors
  for _, thread in ipairs(threads) do sum = sum + thread:get("wrong") end
  io.write(string.format(
    '\\n{{"count": %d, "us": %d, "p50": %f, "p99": %f, "bytes": %d, "wrong": %d}}\\n', summary.requests,
    summary.duration, latency:percentile(50) / 1000, latency:percentile(99) / 1000, summary.bytes,
    sum + errors.connect + errors.read + errors.write + errors.timeout
  ))
end
"""

_H2LOAD: Final = {
    "finished": re.compile(r"finished in ([\d.]+)(us|ms|s|m)"),
    "succeeded": re.compile(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout"),
    "traffic": re.compile(r"\((\d+)\) headers .*?\((\d+)\) data"),
}
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What h2load says in the end. `heads` and `data` are bytes."""

    seconds: float
    succeeded: int
    failed: int
    heads: int
    data: int


def find(binding: str) -> str | None:
    """The program for a binding; None when it is not installed."""
    return shutil.which("h2load" if binding == "grpc" else "wrk")


def run(tool: str, job: Job, wire: Wire, right: bytes | None, own: Measured) -> Measured:
    """The load of the job by that program. `right` is the only right answer, if there is only one. Raises Wrong."""
    with tempfile.TemporaryDirectory() as folder:
        run_tool = _h2load if job.binding == "grpc" else _wrk
        server, load, began = cpu(job.pid), _children(), time.perf_counter()
        count, seconds, p50, p99 = run_tool(tool, job, wire, right, own, Path(folder))
        server, load, wall = cpu(job.pid) - server, _children() - load, time.perf_counter() - began
    # What the program does besides is part of its CPU time and of the server's, so it is shared out by time.
    share = seconds / wall
    return Measured(
        kind=job.kind, count=count, seconds=seconds, p50=p50, p99=p99, server_cpu=server, load_cpu=load * share,
        tool=Path(tool).name, size=own.size,
    )  # fmt: skip


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _say(command: list[str], seconds: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 20 + 60, check=False)
    if done.returncode:
        raise Wrong(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _wrk(
    tool: str, job: Job, wire: Wire, right: bytes | None, own: Measured, folder: Path
) -> tuple[int, float, float, float]:
    del own
    script = folder / "script.lua"
    script.write_text(wrk_script(wire, right), "utf-8")
    seconds = max(SHORTEST, round(job.seconds))
    command = [tool, "-t", "1", "-c", str(job.callers), "-d", f"{seconds}s", "--timeout", "30s", "-s", str(script)]
    output = _say([*command, f"http://{job.target}{wire.path}"], seconds)
    summary = output.rstrip().rpartition("\n")[2]
    if not summary.startswith("{"):  # the script is broken, which wrk does not take for an error
        raise Wrong(f"wrk said nothing that the script would have said:\n{output}")
    value = json.loads(summary)
    if value["wrong"] or not value["count"]:
        raise Wrong(f"wrk: {value['wrong']} wrong answers of {value['count']}")
    return value["count"], value["us"] / 1e6, value["p50"], value["p99"]


def wrk_script(wire: Wire, right: bytes | None) -> str:
    """A script that asks for `wire` and looks at each answer: a finished task, or exactly as long as `right`."""
    headers = HEADERS | ({"Content-Type": "application/json"} if wire.method == "POST" else {})
    check = f"#body ~= {len(right)}" if right is not None else " or ".join(
        f"not body:find({_lua(text)}, 1, true)" for text in ("TASK_STATE_COMPLETED", TEXT)
    )  # fmt: skip
    return _WRK.format(
        method=wire.method, body=wire.body.decode(), check=check,
        headers="\n".join(f"wrk.headers[ {_lua(name)} ] = {_lua(value)}" for name, value in headers.items()),
    )  # fmt: skip


def _lua(text: str) -> str:
    return f"[====[{text}]====]"


def _h2load(
    tool: str, job: Job, wire: Wire, right: bytes | None, own: Measured, folder: Path
) -> tuple[int, float, float, float]:
    del right
    message, log = folder / "message", folder / "log"
    message.write_bytes(struct.pack(">BI", 0, len(wire.body)) + wire.body)
    asks = max(job.callers * 2, math.ceil(own.count / own.seconds * job.seconds))
    headers = {"content-type": "application/grpc", "te": "trailers"}
    headers |= {name.lower(): value for name, value in HEADERS.items()}
    command = [tool, "-t", "1", "-c", str(job.callers), "-m", "1", "-n", str(asks), "--header-table-size=0"]
    command += ["-d", str(message), f"--log-file={log}"]
    command += [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
    response = read_h2load(_say([*command, f"http://{job.target}{wire.path}"], job.seconds))
    check_h2load(response, asks, job.callers, own)
    took = sorted(int(line.rsplit("\t", 1)[1]) / 1000 for line in log.read_text().splitlines())
    return asks, response.seconds, took[len(took) // 2], took[min(int(len(took) * 0.99), len(took) - 1)]


def read_h2load(text: str) -> LoadReport:
    """Raises Wrong when it says something else than usual."""
    found = {name: pattern.search(text) for name, pattern in _H2LOAD.items()}
    finished, succeeded, traffic = found["finished"], found["succeeded"], found["traffic"]
    if finished is None or succeeded is None or traffic is None:
        raise Wrong(f"h2load said what nobody can read:\n{text}")
    right, *failed = map(int, succeeded.groups())
    return LoadReport(float(finished[1]) * _SECONDS[finished[2]], right, sum(failed), int(traffic[1]), int(traffic[2]))


def check_h2load(response: LoadReport, asks: int, connections: int, own: Measured) -> None:
    """Holds the sizes of all answers to those of answers that were looked at. Raises Wrong."""
    if response.succeeded != asks or response.failed:
        raise Wrong(f"h2load: {response.succeeded} answers to {asks} requests, {response.failed} failed")
    # A server that is told to keep no table says so once on each connection, in a byte.
    if not own.heads * asks <= response.heads <= own.heads * asks + connections:
        raise Wrong(f"h2load: {response.heads / asks:.2f} bytes of headers instead of {own.heads}: some are errors")
    size = response.data / asks - 5
    if abs(size - own.size) > SLACK:
        raise Wrong(f"h2load: answers of {size:.1f} bytes instead of {own.size:.1f}: some are errors")
