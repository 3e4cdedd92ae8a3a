"""`make foreign`: real clients against one real server, each in an environment of its own.

With `--replicated`: against three servers on one PostgreSQL, behind a plain TCP round-robin (replicated.py).

Every folder beside this file with a `requirements.txt` (Python) or a `package.json` (Node) is a client. Its
`check.py` or `check.mjs` is given `--http URL --grpc HOST:PORT --project FOLDER`, prints `ok  SENTENCE` or
`FAIL  SENTENCE: why` for each check and the `op` lines of table.py, then `end`, and exits with 0 only if all were
ok. `bare.py` or `bare.mjs`, where there is one, is run likewise against a server that offers no capability at all
(bare_agents.py), and `hosted.py` against one that runs the `executor.py` beside it, in the client's environment.
Environments are kept in `.foreign/` under the hash of what they were made from. Names as arguments run only those
clients.

A run of all clients on one server writes docs/reference/clients.md, unless a client broke off (incomplete rows).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.foreign import table
from tests.foreign.replicated import replicas

from tools.environments import CACHE, ROOT, Environment, NotMade

HERE = Path(__file__).resolve().parent
TABLE = ROOT / "docs" / "reference" / "clients.md"
BARE = (str(HERE / "bare_agents.py"), "--no-push")
"""What makes a server of which no card declares any capability."""
SIGNED = (str(HERE / "signed_agents.py"), "--sign-cards", "--public-url", "https://agents.example")
"""What makes a server that signs its cards."""
START_LIMIT = 180
CLIENT_LIMIT = 600
CHECK = re.compile(r"^(ok|FAIL)\s+(.*)$")
QUIET = re.compile(r"^(op\t.*|end|)$")

Serve = Callable[..., AbstractContextManager[dict[str, str]]]
"""Serves the playground, or what the arguments say; gives the addresses."""


@dataclass(frozen=True)
class Client:
    """One foreign client: its folder, and the files that say what it is made of."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_node(self) -> bool:
        return (self.folder / "package.json").exists()

    @property
    def environment(self) -> Environment:
        names = ("package.json", "package-lock.json") if self.is_node else ("requirements.txt",)
        return Environment(self.name, tuple(path for name in names if (path := self.folder / name).exists()))

    @property
    def scripts(self) -> list[str]:
        """What it runs: `check`, `bare` where it has something to try on a server that offers next to nothing,
        `signed`
        where it checks signatures of cards, and `hosted` where there is an executor for its SDK."""
        ending = "mjs" if self.is_node else "py"
        names = ("check", "bare", "signed", "hosted")
        return [f"{name}.{ending}" for name in names if (self.folder / f"{name}.{ending}").exists()]

    def options(self, script: str) -> list[str]:
        """What the server that a script asks is started with."""
        if script.startswith("bare"):
            return list(BARE)
        if script.startswith("signed"):
            return list(SIGNED)
        if not script.startswith("hosted"):
            return []
        kind = "Worker" if self.name.startswith("fasta2a") else "AgentExecutor"
        target = f"{self.folder / 'executor.py'}:Scripted{kind}"
        return ["--executor", target, "--executor-python", str(self.environment.python)]


@dataclass
class Outcome:
    """What one client said."""

    client: Client
    passed: int
    failed: int
    seconds: float
    output: str
    broke_off: bool = False
    records: list[table.Record] = field(default_factory=list)


def clients(names: list[str]) -> list[Client]:
    """The clients of this folder, all or by name."""
    found = [
        Client(folder)
        for folder in sorted(HERE.iterdir())
        if (folder / "requirements.txt").exists() or (folder / "package.json").exists()
    ]
    unknown = set(names) - {client.name for client in found}
    if unknown:
        sys.exit(f"no client {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in found)}")
    return [client for client in found if not names or client.name in names]


def make(client: Client) -> None:
    """Makes a client's environment unless it is there. Exits with what a failing step said."""
    try:
        client.environment.make()
    except NotMade as failed:
        sys.exit(str(failed))


@contextmanager
def server(*arguments: str) -> Iterator[dict[str, str]]:
    """The playground, or what the arguments say, on free ports, with a store of its own. Gives its addresses."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "dragoman", "serve", *arguments, "--log-format", "json"),
            *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", f"sqlite:///{folder}/tasks.db"),
        ]
        log = Path(folder, "log")
        with log.open("wb") as sink, subprocess.Popen(command, cwd=folder, stdout=sink, stderr=sink) as process:
            try:
                yield addresses(log, process)
            finally:
                process.terminate()


def addresses(log: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Where the server says that it listens."""
    deadline = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text("utf-8").splitlines():
            if '"serving"' in line:
                told = json.loads(line)
                return {"http": told["http"], "grpc": told["grpc"]}
        time.sleep(0.02)
    sys.exit(f"the server did not start:\n{log.read_text('utf-8')}")


def check(client: Client, told: dict[str, str], script: str) -> Outcome:
    """Runs one script of a client against the server."""
    folder = client.environment.folder
    if client.is_node:
        # Where its node_modules are.
        shutil.copy(HERE / "checks.mjs", folder)
        command = ["node", str(shutil.copy(client.folder / script, folder))]
    else:
        command = [str(client.environment.python), str(client.folder / script)]
    command += ["--http", told["http"], "--grpc", told["grpc"], "--project", str(ROOT)]
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=CLIENT_LIMIT, check=False,
            cwd=folder, env=environment,
        )  # fmt: skip
        output, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        until_then = bytes(late.stdout or b"").decode("utf-8", "replace")  # bytes, whatever `text` says
        output, code = f"{until_then}\nFAIL  it ends within {CLIENT_LIMIT} s", 1
    lines = output.splitlines()
    said = [found[1] for line in lines if (found := CHECK.match(line))]
    passed, failed = said.count("ok"), said.count("FAIL")
    broke_off = "end" not in lines
    if not failed and (code or not passed or broke_off):
        failed = 1
        output += f"\nFAIL  it ends well: exit status {code}, {passed} checks"
    records = [record for line in lines if (record := table.read(line))]
    return Outcome(client, passed, failed, time.monotonic() - began, output, broke_off, records)


@contextmanager
def standing(*, replicated: bool) -> Iterator[Serve]:
    """How servers are come by: a new one each time, or replicas that stay until the end of the block."""
    if not replicated:
        yield server
        return
    with ExitStack() as stack:
        there: dict[Sequence[str], dict[str, str]] = {}

        def serve(*arguments: str) -> AbstractContextManager[dict[str, str]]:
            if arguments not in there:
                there[arguments] = stack.enter_context(replicas(*arguments))
            return nullcontext(there[arguments])

        yield serve


def run(client: Client, serve: Serve, *, verbose: bool, replicated: bool) -> Iterator[Outcome]:
    """All scripts of a client, told of as they end. Executors are a matter of one process, and not tried on more."""
    for script in client.scripts:
        if replicated and script.startswith("hosted"):
            continue
        with serve(*client.options(script)) as told:
            outcome = check(client, told, script)
        name = f"{client.name} {script.partition('.')[0].removeprefix('check')}".rstrip()
        line = f"{name:24} {outcome.passed:4} passed {outcome.failed:4} failed {outcome.seconds:7.1f} s"
        print(line, flush=True)
        if outcome.failed or verbose:
            print("\n".join(line for line in outcome.output.splitlines() if not QUIET.match(line)), flush=True)
        yield outcome


def write(outcomes: list[Outcome]) -> None:
    """Writes docs/reference/clients.md, if it can be complete."""
    broken = [outcome.client.name for outcome in outcomes if outcome.broke_off]
    if broken:
        print(f"{TABLE.relative_to(ROOT)} stays as it is: {', '.join(broken)} broke off")
        return
    TABLE.write_text(table.markdown(record for outcome in outcomes for record in outcome.records), "utf-8")
    print(f"{TABLE.relative_to(ROOT)} is written")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help="folder names; all by default")
    parser.add_argument("--replicated", action="store_true", help="on three servers behind a round-robin")
    parser.add_argument("--verbose", action="store_true", help="show every check, not only what failed")
    arguments = parser.parse_args()
    chosen = clients(arguments.clients)
    print(f"foreign: {len(chosen)} clients, environments in {CACHE.relative_to(ROOT)}/", flush=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(make, chosen))
    # Two at a time: each mostly waits. Replicas are there for all of them, and taken by one.
    with (
        standing(replicated=arguments.replicated) as serve,
        ThreadPoolExecutor(1 if arguments.replicated else 2) as pool,
    ):

        def tried(client: Client) -> list[Outcome]:
            return list(run(client, serve, verbose=arguments.verbose, replicated=arguments.replicated))

        outcomes = [outcome for some in pool.map(tried, chosen) for outcome in some]
    if not arguments.clients and not arguments.replicated:
        write(outcomes)
    passed, failed = (sum(getattr(one, name) for one in outcomes) for name in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
