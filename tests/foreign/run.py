"""`make foreign`: real clients against one real server, each in an environment of its own.

Every folder beside this file with a `requirements.txt` (Python) or a `package.json` (Node) is a client. Its
`check.py` or `check.mjs` is given `--http URL --grpc HOST:PORT --project FOLDER`, prints `ok  SENTENCE` or
`FAIL  SENTENCE: why` for each check and the `op` lines of table.py, then `end`, and exits with 0 only if all were
ok. Environments are kept in `.foreign/` under the hash of what they were made from. Names as arguments run only
those clients.

A run of all clients writes docs/clients.md, unless one of them broke off: its rows would be incomplete.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".foreign"
TABLE = ROOT / "docs" / "clients.md"
START_LIMIT = 30
CLIENT_LIMIT = 180
CHECK = re.compile(r"^(ok|FAIL)\s+(.*)$")
QUIET = re.compile(r"^(op\t.*|end|)$")


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
    def sources(self) -> list[Path]:
        names = ("package.json", "package-lock.json") if self.is_node else ("requirements.txt",)
        return [path for name in names if (path := self.folder / name).exists()]

    @property
    def environment(self) -> Path:
        made_from = b"".join(path.read_bytes() for path in self.sources) + sys.version.encode()
        return CACHE / f"{self.name}-{hashlib.sha256(made_from).hexdigest()[:12]}"


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
    """Makes a client's environment unless it is there. An unfinished one never counts as made."""
    done = client.environment / ".made"
    if done.exists():
        return
    shutil.rmtree(client.environment, ignore_errors=True)
    client.environment.mkdir(parents=True)
    if client.is_node:
        for path in client.sources:
            shutil.copy(path, client.environment)
        # Not `ci`: it wants a lock with the optional packages of every platform, which no one platform can write.
        run(["npm", "install", "--no-audit", "--no-fund", "--silent"], client.environment)
    else:
        python = client.environment / "bin" / "python"
        requirements = client.folder / "requirements.txt"
        uv = ROOT / ".tools" / "uv" / "bin" / "uv"
        made = uv.exists() and not subprocess.call(
            [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, client.environment]
        )
        if made and not subprocess.call([uv, "pip", "install", "--quiet", "--python", python, "-r", requirements]):
            done.touch()
            return
        run([sys.executable, "-m", "venv", str(client.environment)], ROOT)
        run([str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)], ROOT)
    done.touch()


def run(command: list[str], folder: Path) -> None:
    """Runs a step of making an environment. Exits with what it said when it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """The playground on free ports, with a store of its own. Gives its addresses."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "dragoman", "serve", "--log-format", "json"),
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


def check(client: Client, told: dict[str, str]) -> Outcome:
    """Runs one client against the server."""
    if client.is_node:
        # Where its node_modules are.
        shutil.copy(HERE / "checks.mjs", client.environment)
        script = shutil.copy(client.folder / "check.mjs", client.environment)
        command = ["node", script]
    else:
        command = [str(client.environment / "bin" / "python"), str(client.folder / "check.py")]
    command += ["--http", told["http"], "--grpc", told["grpc"], "--project", str(ROOT)]
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=CLIENT_LIMIT, check=False,
            cwd=client.environment, env=environment,
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


def write(outcomes: list[Outcome]) -> None:
    """Writes docs/clients.md, if it can be complete."""
    broken = [outcome.client.name for outcome in outcomes if outcome.broke_off]
    if broken:
        print(f"{TABLE.relative_to(ROOT)} stays as it is: {', '.join(broken)} broke off")
        return
    TABLE.write_text(table.markdown(record for outcome in outcomes for record in outcome.records), "utf-8")
    print(f"{TABLE.relative_to(ROOT)} is written")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help="folder names; all by default")
    parser.add_argument("--verbose", action="store_true", help="show every check, not only what failed")
    arguments = parser.parse_args()
    chosen = clients(arguments.clients)
    print(f"foreign: {len(chosen)} clients, environments in {CACHE.relative_to(ROOT)}/", flush=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(make, chosen))
    outcomes = []
    for client in chosen:
        with server() as told:
            outcome = check(client, told)
        outcomes.append(outcome)
        line = f"{client.name:24} {outcome.passed:4} passed {outcome.failed:4} failed {outcome.seconds:7.1f} s"
        print(line, flush=True)
        if outcome.failed or arguments.verbose:
            print("\n".join(line for line in outcome.output.splitlines() if not QUIET.match(line)), flush=True)
    if not arguments.clients:
        write(outcomes)
    passed, failed = (sum(getattr(one, name) for one in outcomes) for name in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
