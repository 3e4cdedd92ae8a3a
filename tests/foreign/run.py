"""`make foreign`: runs published clients, each in its own environment, against one real server.

With `--replicated`: against three servers on one PostgreSQL, behind a TCP round-robin (replicated.py).

Every folder beside this file with a `requirements.txt` (Python), a `package.json` (Node), a `go.mod` (Go), a
`Cargo.toml` (Rust) or a `pom.xml` (Java) is a client. Its `check.py` or `check.mjs`, or the binary `check` that a
program in Go, Rust or Java is built to, is called with `--http URL --grpc HOST:PORT --project FOLDER`, in the folder
of its environment. It prints `ok SENTENCE` or `FAIL SENTENCE: why` for each check and the `op` lines of table.py, then
`end`, and exits with 0 if all checks passed. A `check.py` of a Node client runs in the project's environment, and one
of an MCP client has `--servers COUNT`. Other scripts:

- `bare.py`, `bare.mjs` or the binary `check` with `--bare` runs against a server without any capability
  (bare_agents.py), `immediate.py` against one with `--blocking-default return`, and `executor_check.py` against a
  server that runs the `executor.py` beside it in the client's environment;
- `upstream.py` has a Dragoman in front of the binary `agent` of a program (programs.py).

Programs in Go, Rust and Java send one message (`--short`) unless `--all` or their names are given. They are left out
where their toolchain is missing, and where they cannot be built unless NATIVE_CLIENTS is `required`. Environments are
kept in `.foreign/` under the hash of their requirements. Arguments select clients by name.

A run of all clients on one server with `--all` writes docs/reference/clients.md, unless a client broke off.
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
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.foreign import table
from tests.foreign.checks import free_port
from tests.foreign.kinds import Serve, every_kind
from tests.foreign.replicated import SERVERS, replicas

from tools.environments import ROOT, TOOLCHAINS, Environment, NotCreated

HERE = Path(__file__).resolve().parent
TABLE = ROOT / "docs" / "reference" / "clients.md"
BARE = (str(HERE / "bare_agents.py"), "--no-push")
"""Arguments of a server whose cards declare no capability."""
SIGNED = (str(HERE / "signed_agents.py"), "--sign-cards", "--public-url", "https://agents.localhost")
"""Arguments of a server that signs its cards."""
START_LIMIT = 180
CLIENT_LIMIT = 600
CHECK = re.compile(r"^(ok|FAIL)\s+(.*)$")
QUIET = re.compile(r"^(op\t.*|end|)$")

PROGRAM = "check"
"""The binary of a client in Go, Rust or Java that runs its checks."""
BARE_PROGRAM = "bare"
"""The script that is the same binary, called with `--bare`."""
PROGRAM_FILES = (".go", ".mod", ".sum", ".rs", ".toml", ".lock", ".java", ".xml", ".properties")
"""How the names of the files end that a program in Go, Rust or Java is built from."""

MCP_CLIENTS = ("mcp_sdk", "mcp_ts", "fastmcp")
"""How the folders of clients of MCP begin."""
FRONT = "upstream_a2a_sdk_1_3_0"
"""The client in whose environment the scripts `upstream.py` run: they need httpx."""
EXECUTOR = "a2a_sdk_1_3_0"
"""The client in whose environment the executor runs that MCP clients call."""


@dataclass(frozen=True)
class Client:
    """One foreign client: a folder with its requirements and scripts."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_node(self) -> bool:
        return (self.folder / "package.json").exists()

    @property
    def manifest(self) -> Path | None:
        """The manifest of a program in Go, Rust or Java; None for the other clients."""
        return next((path for name in TOOLCHAINS if (path := self.folder / name).exists()), None)

    @property
    def toolchain(self) -> str:
        """The command that builds a program; empty for the other clients."""
        return TOOLCHAINS[self.manifest.name] if self.manifest else ""

    @property
    def environment(self) -> Environment:
        if self.manifest:
            shared = HERE / f"{self.toolchain}_checks"
            files = sorted(path for folder in (self.folder, shared) for path in folder.rglob("*"))
            sources = [path for path in files if path.suffix in PROGRAM_FILES and path != self.manifest]
            return Environment(self.name, (self.manifest, *sources))
        names = ("package.json", "package-lock.json") if self.is_node else ("requirements.txt",)
        return Environment(self.name, tuple(path for name in names if (path := self.folder / name).exists()))

    @property
    def scripts(self) -> list[str]:
        """Its scripts: `check`; `bare` for a server without capabilities, `signed` for signatures of cards,
        `immediate` for sends that do not wait, and `executor_check` for an executor of its SDK, where they exist."""
        names = ("check", "bare", "signed", "immediate", "executor_check")
        if self.manifest:
            return [PROGRAM, BARE_PROGRAM, *(file for file in ("upstream.py",) if (self.folder / file).exists())]
        files = [f"{name}.{ending}" for name in names for ending in ("py", "mjs")]
        return [file for file in files if (self.folder / file).exists()]

    @property
    def speaks_mcp(self) -> bool:
        return self.name.startswith(MCP_CLIENTS)

    def options(self, script: str) -> list[str]:
        """Arguments of the server for a script of a client of A2A."""
        if script.startswith("bare"):
            return list(BARE)
        if script.startswith("signed"):
            return list(SIGNED)
        if script.startswith("immediate"):
            return ["dragoman.playground", "--blocking-default", "return"]
        if not script.startswith("executor_check"):
            return []
        kind = "Worker" if self.name.startswith("fasta2a") else "AgentExecutor"
        target = f"{self.folder / 'executor.py'}:Scripted{kind}"
        return ["--executor", target, "--executor-python", str(self.environment.python)]


@dataclass
class Outcome:
    """The result of one script."""

    client: Client
    passed: int
    failed: int
    seconds: float
    output: str
    broke_off: bool = False
    records: list[table.Record] = field(default_factory=list)


def clients(names: list[str]) -> list[Client]:
    """The clients with these names; all if none is given."""
    found = [
        Client(folder)
        for folder in sorted(HERE.iterdir())
        if not folder.name.endswith("_checks")  # what clients in one language share
        and any((folder / name).exists() for name in ("requirements.txt", "package.json", *TOOLCHAINS))
    ]
    unknown = set(names) - {client.name for client in found}
    if unknown:
        sys.exit(f"no client {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in found)}")
    return [client for client in found if not names or client.name in names]


def others(chosen: list[Client]) -> list[Client]:
    """Clients whose environments the chosen ones need beside their own."""
    needed = {EXECUTOR} if any(client.speaks_mcp for client in chosen) else set()
    needed |= {FRONT} if any(client.manifest for client in chosen) else set()
    return [client for name in sorted(needed) if (client := Client(HERE / name)) not in chosen]


def make(client: Client) -> bool:
    """Creates a client's environment unless it exists. False: a program that cannot be built on this machine.

    Exits with the output of a failed step.
    """
    if client.toolchain and not shutil.which(client.toolchain):
        print(f"{client.name}: left out, {client.toolchain} is not on this machine")
        return False
    try:
        client.environment.make()
    except NotCreated as failed:
        if not client.toolchain or os.environ.get("NATIVE_CLIENTS") == "required":
            sys.exit(str(failed))
        print(f"{client.name}: left out\n{failed}")
        return False
    return True


@contextmanager
def server(*arguments: str) -> Iterator[dict[str, str]]:
    """Starts a server on free ports with a new store; without arguments the playground. Yields its addresses."""
    grpc = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "dragoman", "serve", *arguments, "--log-format", "json"),
            *("--http", "127.0.0.1:0", "--grpc", grpc, "--store", f"sqlite:///{folder}/tasks.db"),
            *(() if "--public-url" in arguments else ("--public-grpc", grpc)),  # else cards do not list gRPC
        ]
        log = Path(folder, "log")
        with log.open("wb") as sink, subprocess.Popen(command, cwd=folder, stdout=sink, stderr=sink) as process:
            try:
                yield addresses(log, process)
            finally:
                process.terminate()


def addresses(log: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Reads the addresses from the server's log."""
    deadline = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text("utf-8").splitlines():
            if '"serving"' in line:
                server_addresses = json.loads(line)
                return {"http": server_addresses["http"], "grpc": server_addresses["grpc"]}
        time.sleep(0.02)
    sys.exit(f"the server did not start:\n{log.read_text('utf-8')}")


def check(client: Client, server_addresses: dict[str, str], script: str, options: Sequence[str]) -> Outcome:
    """Runs one script of a client, with more options, against the server or several behind one address."""
    folder = client.environment.folder
    if client.is_node:
        # Node resolves modules from the folder with node_modules.
        for file in (*HERE.glob("*.mjs"), *client.folder.glob("*.mjs")):
            shutil.copy(file, folder)
    if script.endswith(".mjs"):
        command = ["node", str(folder / script)]
    elif script in (PROGRAM, BARE_PROGRAM):
        command = [str(folder / PROGRAM), *(["--bare"] if script == BARE_PROGRAM else [])]
    else:
        scripted = Client(HERE / FRONT) if client.manifest else client
        python = sys.executable if client.is_node else scripted.environment.python
        command = [str(python), str(client.folder / script)]
    command += ["--http", server_addresses["http"], "--grpc", server_addresses["grpc"], "--project", str(ROOT)]
    command += options
    started_at = time.monotonic()
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
    results = [found[1] for line in lines if (found := CHECK.match(line))]
    passed, failed = results.count("ok"), results.count("FAIL")
    broke_off = "end" not in lines
    if not failed and (code or not passed or broke_off):
        failed = 1
        output += f"\nFAIL  it ends well: exit status {code}, {passed} checks"
    records = [record for line in lines if (record := table.read(line))]
    return Outcome(client, passed, failed, time.monotonic() - started_at, output, broke_off, records)


@contextmanager
def standing(*, replicated: bool) -> Iterator[Serve]:
    """Yields a function that starts servers: a new one per call, or shared replicas with `replicated`."""
    if not replicated:
        yield server
        return
    with ExitStack() as stack:
        there: dict[Sequence[str], dict[str, str]] = {}
        starting = threading.Lock()

        def serve(*arguments: str) -> AbstractContextManager[dict[str, str]]:
            with starting:
                if arguments not in there:
                    there[arguments] = stack.enter_context(replicas(*arguments))
            return nullcontext(there[arguments])

        yield serve


def serving(client: Client, script: str, serve: Serve, *, replicated: bool) -> AbstractContextManager[dict[str, str]]:
    """The server for a script of a client."""
    if not client.speaks_mcp:
        return serve(*client.options(script))
    return every_kind(serve, None if replicated else Client(HERE / EXECUTOR).environment.python)


def run(client: Client, serve: Serve, *, verbose: bool, replicated: bool, short: bool) -> Iterator[Outcome]:
    """Runs all scripts of a client and prints each result. Skips executors with `replicated`: they need one process.

    `short`: a program in Go, Rust or Java sends one message only.
    """
    short = short and client.manifest is not None
    options = ["--short"] if short else []
    if client.speaks_mcp:
        options += ["--servers", str(SERVERS if replicated else 1)]
    for script in [PROGRAM] if short else client.scripts:
        if replicated and script.startswith("executor_check"):
            continue
        with serving(client, script, serve, replicated=replicated) as server_addresses:
            outcome = check(client, server_addresses, script, options)
        name = f"{client.name} {script.partition('.')[0].removeprefix('check')}".rstrip()
        line = f"{name:24} {outcome.passed:4} passed {outcome.failed:4} failed {outcome.seconds:7.1f} s"
        print(line, flush=True)
        if outcome.failed or verbose:
            print("\n".join(line for line in outcome.output.splitlines() if not QUIET.match(line)), flush=True)
        yield outcome


def write(outcomes: list[Outcome]) -> None:
    """Writes docs/reference/clients.md, unless a client broke off."""
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
    parser.add_argument("--all", action="store_true", help="also every check of the programs in Go, Rust and Java")
    parser.add_argument("--verbose", action="store_true", help="show every check, not only what failed")
    arguments = parser.parse_args()
    chosen = clients(arguments.clients)
    print(f"foreign: {len(chosen)} clients, environments in .foreign/", flush=True)
    with ThreadPoolExecutor(2) as pool:
        needed = chosen if arguments.replicated else [*chosen, *others(chosen)]
        created = dict(zip(needed, pool.map(make, needed), strict=True))
    chosen = [client for client in chosen if created[client]]
    # Two at a time: each mostly waits. Replicas serve one client of A2A at a time, beside two of MCP.
    with (
        standing(replicated=arguments.replicated) as serve,
        ThreadPoolExecutor(1 if arguments.replicated else 2) as pool,
        ThreadPoolExecutor(2) as mcp_pool,
    ):

        def tried(client: Client) -> list[Outcome]:
            short = not (arguments.all or arguments.clients)
            return list(run(client, serve, verbose=arguments.verbose, replicated=arguments.replicated, short=short))

        chosen_pools = [mcp_pool if arguments.replicated and client.speaks_mcp else pool for client in chosen]
        running = [pool.submit(tried, client) for pool, client in zip(chosen_pools, chosen, strict=True)]
        outcomes = [outcome for future in running for outcome in future.result()]
    if arguments.all and not arguments.clients and not arguments.replicated:
        write(outcomes)
    passed, failed = (sum(getattr(one, name) for one in outcomes) for name in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
