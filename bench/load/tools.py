"""External load tools wrk and h2load: their commands, output, and checks of their responses.

Both are faster and better known than our client, but check less. A script checks the responses of wrk. h2load does not
see a gRPC status, so the sizes are compared: an error response has other headers and no data.
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

from tests.load.requests import HEADERS, WireRequest

from bench.load.connections import WrongResponse
from bench.load.jobs import Job, LoadResult
from bench.resources import cpu
from bench.responses import TEXT

MIN_SECONDS: Final = 1
"""Minimum seconds; wrk accepts only integers."""

SIZE_TOLERANCE: Final = 4.0
"""Bytes by which the average response may differ: timestamps vary in length in protobuf."""

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
class H2loadReport:
    """Summary printed by h2load. `heads` and `data` are bytes."""

    seconds: float
    succeeded: int
    failed: int
    heads: int
    data: int


def find(binding: str) -> str | None:
    """Returns the path of the tool for a binding; None if it is not installed."""
    return shutil.which("h2load" if binding == "grpc" else "wrk")


def run(tool: str, job: Job, request: WireRequest, expected: bytes | None, own_result: LoadResult) -> LoadResult:
    """Runs a job with a tool. `expected`: the only correct response, if there is one. Raises WrongResponse."""
    with tempfile.TemporaryDirectory() as folder:
        run_tool = _h2load if job.binding == "grpc" else _wrk
        server, load, began = cpu(job.pid), _children(), time.perf_counter()
        count, seconds, p50, p99 = run_tool(tool, job, request, expected, own_result, Path(folder))
        server, load, wall = cpu(job.pid) - server, _children() - load, time.perf_counter() - began
    # The tool's CPU time includes its start-up; it is reduced by the share of the measured time.
    share = seconds / wall
    return LoadResult(
        kind=job.kind, count=count, seconds=seconds, p50=p50, p99=p99, server_cpu=server, load_cpu=load * share,
        tool=Path(tool).name, size=own_result.size,
    )  # fmt: skip


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _output_of(command: list[str], seconds: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 20 + 60, check=False)
    if done.returncode:
        raise WrongResponse(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _wrk(
    tool: str, job: Job, request: WireRequest, expected: bytes | None, own_result: LoadResult, folder: Path
) -> tuple[int, float, float, float]:
    del own_result
    script = folder / "script.lua"
    script.write_text(wrk_script(request, expected), "utf-8")
    seconds = max(MIN_SECONDS, round(job.seconds))
    command = [tool, "-t", "1", "-c", str(job.callers), "-d", f"{seconds}s", "--timeout", "30s", "-s", str(script)]
    output = _output_of([*command, f"http://{job.target}{request.path}"], seconds)
    summary = output.rstrip().rpartition("\n")[2]
    if not summary.startswith("{"):  # wrk does not report a broken script as an error
        raise WrongResponse(f"wrk did not print the script's summary:\n{output}")
    result = json.loads(summary)
    if result["wrong"] or not result["count"]:
        raise WrongResponse(f"wrk: {result['wrong']} wrong responses of {result['count']}")
    return result["count"], result["us"] / 1e6, result["p50"], result["p99"]


def wrk_script(request: WireRequest, expected: bytes | None) -> str:
    """Returns a script that sends `request` and checks each response: a completed task, or the expected length."""
    headers = HEADERS | ({"Content-Type": "application/json"} if request.method == "POST" else {})
    check = f"#body ~= {len(expected)}" if expected is not None else " or ".join(
        f"not body:find({_lua(text)}, 1, true)" for text in ("TASK_STATE_COMPLETED", TEXT)
    )  # fmt: skip
    return _WRK.format(
        method=request.method, body=request.body.decode(), check=check,
        headers="\n".join(f"wrk.headers[ {_lua(name)} ] = {_lua(value)}" for name, value in headers.items()),
    )  # fmt: skip


def _lua(text: str) -> str:
    return f"[====[{text}]====]"


def _h2load(
    tool: str, job: Job, request: WireRequest, expected: bytes | None, own_result: LoadResult, folder: Path
) -> tuple[int, float, float, float]:
    del expected
    message, log = folder / "message", folder / "log"
    message.write_bytes(struct.pack(">BI", 0, len(request.body)) + request.body)
    calls = max(job.callers * 2, math.ceil(own_result.count / own_result.seconds * job.seconds))
    headers = {"content-type": "application/grpc", "te": "trailers"}
    headers |= {name.lower(): value for name, value in HEADERS.items()}
    command = [tool, "-t", "1", "-c", str(job.callers), "-m", "1", "-n", str(calls), "--header-table-size=0"]
    command += ["-d", str(message), f"--log-file={log}"]
    command += [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
    response = read_h2load(_output_of([*command, f"http://{job.target}{request.path}"], job.seconds))
    check_h2load(response, calls, job.callers, own_result)
    durations = sorted(int(line.rsplit("\t", 1)[1]) / 1000 for line in log.read_text().splitlines())
    return (
        calls,
        response.seconds,
        durations[len(durations) // 2],
        durations[min(int(len(durations) * 0.99), len(durations) - 1)],
    )


def read_h2load(text: str) -> H2loadReport:
    """Parses the output of h2load. Raises WrongResponse for unknown output."""
    matches = {name: pattern.search(text) for name, pattern in _H2LOAD.items()}
    finished, succeeded, traffic = matches["finished"], matches["succeeded"], matches["traffic"]
    if finished is None or succeeded is None or traffic is None:
        raise WrongResponse(f"unknown output of h2load:\n{text}")
    expected, *failed = map(int, succeeded.groups())
    return H2loadReport(
        float(finished[1]) * _SECONDS[finished[2]], expected, sum(failed), int(traffic[1]), int(traffic[2])
    )


def check_h2load(response: H2loadReport, calls: int, connections: int, own_result: LoadResult) -> None:
    """Compares the sizes of all responses with those of checked responses. Raises WrongResponse."""
    if response.succeeded != calls or response.failed:
        raise WrongResponse(f"h2load: {response.succeeded} responses to {calls} requests, {response.failed} failed")
    # A server acknowledges the header table of size 0 by one byte per connection.
    if not own_result.head_size * calls <= response.heads <= own_result.head_size * calls + connections:
        raise WrongResponse(
            f"h2load: {response.heads / calls:.2f} bytes of headers instead of {own_result.head_size}: some are errors"
        )
    size = response.data / calls - 5
    if abs(size - own_result.size) > SIZE_TOLERANCE:
        raise WrongResponse(f"h2load: responses of {size:.1f} bytes instead of {own_result.size:.1f}: some are errors")
