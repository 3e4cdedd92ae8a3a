"""Builds and runs images without a container engine: a root file system for each stage, and `unshare` with `chroot`.

The base image is made from this machine: the files of Debian's required packages and of the libraries that Python
loads, as its package database lists them, and a Python of the version that the Dockerfile names, or this one. All
instructions of the Dockerfile are executed as they stand. Needs root and Debian.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.deploy.dockerfile import Config, Instruction, environment_words, in_context, parse_stages
from tests.eventually import eventually_blocking

ROOT: Final = Path(__file__).parents[2]
TOOLS: Final = ("unshare", "chroot", "nsenter", "setpriv", "mount", "ip", "dpkg-query", "ldd", "tar", "git")
_SYSTEM_PACKAGES: Final = ("ca-certificates", "netbase", "tzdata")
"""Packages of the image `python:*-slim` besides the required ones and the libraries of Python."""

_UNUSED: Final = re.compile(r"/usr/share/(doc|info|locale|man)/")

_FROM_OUTSIDE: Final = re.compile(r"(https?|no|all)_proxy|(SSL|PIP|UV)_\w*(CERT|INDEX|TIMEOUT)\w*", re.I)
"""Variables by which a build reaches package indexes on this machine."""

_RUN_SCRIPT: Final = """
mount -t proc proc "$ROOT/proc" && mount --rbind /dev "$ROOT/dev" && mount --bind "$CACHE" "$ROOT/root/.cache/uv" &&
exec chroot "$ROOT" "$@"
"""

_START_SCRIPT: Final = """
set -e
mount --bind "$ROOT" "$ROOT"
mount -t tmpfs tmpfs "$ROOT/dev"
for name in null zero full random urandom; do : > "$ROOT/dev/$name"; mount --bind "/dev/$name" "$ROOT/dev/$name"; done
mkdir "$ROOT/dev/shm" && mount -t tmpfs tmpfs "$ROOT/dev/shm"
mount -t tmpfs tmpfs "$ROOT/tmp" && chmod 1777 "$ROOT/tmp"
mount -t proc proc "$ROOT/proc"
mount --bind "$DATA" "$ROOT/data"
mount --bind "$AGENTS" "$ROOT/agents" && mount -o remount,bind,ro "$ROOT/agents"
mount -o remount,bind,ro "$ROOT"
ip link set lo up
exec chroot "$ROOT" "$@"
"""


class BuildFailed(Exception):
    """A step of the build failed. The text has its output."""


def missing() -> str:
    """Why images cannot be built here, or empty."""
    if os.geteuid():
        return "building a root file system needs root"
    if absent := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"building a root file system needs {', '.join(absent)}"
    return "" if (ROOT / ".git").exists() else "the build context is made from a clone"


@dataclass(frozen=True, slots=True)
class RootImage:
    """A built image: its root file system and its configuration."""

    root: Path
    config: Config

    @contextmanager
    def run(
        self, *words: str, data: Path, agents: Path, env: Mapping[str, str], log: Path
    ) -> Iterator[NamespaceContainer]:
        """Runs the image with a read-only root, without capabilities, in a network of its own, until the block ends.

        words: replace CMD. data, agents: folders in place of /data and /agents.
        """
        owner = (self.root / "data").stat()
        os.chown(data, owner.st_uid, owner.st_gid)  # as an engine does with a new volume
        variables = {**self.config.env, **env}
        command = [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"),
            *("sh", "-c", _START_SCRIPT, "start"),
            *_as_user(self.config.user, variables, self.config.workdir),
            *self.config.entrypoint,
            *(words or self.config.cmd),
        ]
        folders = {"ROOT": str(self.root), "DATA": str(data), "AGENTS": str(agents)}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env={**os.environ, **folders}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        container = NamespaceContainer(process, self.config, variables, log)
        try:
            yield container
        finally:
            container.kill()


class NamespaceContainer:
    """A running container: process 1 of its own namespaces."""

    def __init__(self, process: subprocess.Popen[bytes], config: Config, env: Mapping[str, str], log: Path) -> None:
        self._process = process
        self._config = config
        self._env = env
        self._log = log

    @property
    def logs(self) -> str:
        """What it has written so far."""
        return self._log.read_text("utf-8", "replace")

    def exec(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the container, as its user."""
        user = _as_user(self._config.user, self._env, self._config.workdir)
        namespaces = ("--mount", "--pid", "--net", "--ipc", "--uts", "--root")
        command = ["nsenter", "--target", str(self._first()), *namespaces, *user, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def terminate(self) -> None:
        """Sends SIGTERM to its first process."""
        os.kill(self._first(), signal.SIGTERM)

    def kill(self) -> None:
        """Ends all of its processes. They end with the first, which `--kill-child` misses after a change of user."""
        if self.is_running():
            os.kill(self._first(), signal.SIGKILL)
        self._process.wait(60)

    def wait(self) -> int:
        """Waits for its end. Returns the exit code."""
        return self._process.wait(120)

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def _first(self) -> int:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(eventually_blocking(lambda: children.read_text().split())[0])


def build(dockerfile: Path, folder: Path) -> RootImage:
    """Executes a Dockerfile of this project. Raises BuildFailed."""
    context = _build_context(folder / "context")
    roots: dict[str, Path] = {}
    image = None
    for number, stage in enumerate(parse_stages(dockerfile.read_text("utf-8"))):
        root, config = folder / f"stage-{number}", Config()
        _make_base(root, stage.base)
        for instruction in stage.instructions:
            if instruction.name == "RUN":
                _run_in(root, config, instruction.text)
            elif instruction.name == "COPY":
                _copy(root, config, instruction, context, roots)
            elif not config.apply(instruction):
                raise BuildFailed(f"{instruction.name}: this instruction is not known here")
        roots[stage.name] = root
        image = RootImage(root, config)
    assert image is not None
    return image


def _build_context(folder: Path) -> Path:
    ignore_file = (ROOT / ".dockerignore").read_text("utf-8")
    for name in _output("git", "-C", str(ROOT), "ls-files").splitlines():
        if in_context(name, ignore_file) and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def _make_base(root: Path, base: str) -> None:
    """Makes the stand-in for an image of the form `python:VERSION-slim-RELEASE`."""
    match = re.fullmatch(r"python:(\d+\.\d+)(?:\.\d+)?-slim-\w+(?:@sha256:[0-9a-f]{64})?", base)
    if match is None:
        raise BuildFailed(f"FROM {base}: only python:VERSION-slim-RELEASE is known here")
    python = _find_python(match[1])
    for name in ("usr", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "proc", "dev", "tmp", "root/.cache/uv"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    files = "\n".join(sorted(set(_debian_files(python))))
    tar = ["tar", "--create", "--no-recursion", "--directory=/", "--files-from=-"]
    archive = subprocess.run(tar, input=files.encode(), capture_output=True, check=False).stdout
    _output("tar", "--extract", "--keep-directory-symlink", f"--directory={root}", given=archive)
    for name in ("passwd", "group"):  # as base-passwd's own script does
        shutil.copy(root / f"usr/share/base-passwd/{name}.master", root / "etc" / name)
    shutil.copytree("/etc/ssl/certs", root / "etc/ssl/certs", dirs_exist_ok=True)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    _copy_python(python, root / "usr/local")
    _run_in(root, Config(), "ldconfig && python3 -m ensurepip --default-pip && ln -s python3 /usr/local/bin/python")


def _find_python(version: str) -> Path:
    """The prefix of an interpreter of a version, or of the one that runs this."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    same = version == f"{sys.version_info.major}.{sys.version_info.minor}"
    found = [Path(sys.base_prefix)] if same else sorted(pyenv.glob(f"{version}.*"))
    return found[-1] if found else Path(sys.base_prefix)


def _copy_python(prefix: Path, destination: Path) -> None:
    (library,) = prefix.glob("lib/python3.*")
    unused = shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__", "config-*")
    shutil.copytree(library, destination / "lib" / library.name, symlinks=True, ignore=unused, dirs_exist_ok=True)
    (destination / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(prefix / "bin" / library.name, destination / "bin" / library.name)
    (destination / "bin/python3").symlink_to(library.name)
    for shared in prefix.glob("lib/libpython3*.so*"):
        shutil.copy(shared, destination / "lib", follow_symlinks=False)


def _debian_files(python: Path) -> Iterator[str]:
    """The files of Debian's required packages, of those that have the libraries of a Python, and of their
    dependencies; relative to the root."""
    shown = _output(
        "dpkg-query", "--show", "--showformat=${Package}|${Essential}|${Priority}|${Pre-Depends},${Depends}\n"
    )
    packages = [line.split("|", 3) for line in shown.splitlines()]
    dependencies = {name: re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9.+-]+)", text) for name, _, _, text in packages}
    wanted = [name for name, essential, priority, _ in packages if essential == "yes" or priority == "required"]
    wanted += [*_SYSTEM_PACKAGES, *_packages_of(_libraries(python))]
    included: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in dependencies and name not in included:
            included.add(name)
            wanted += dependencies[name]
    for name in included:
        files = _output("dpkg-query", "--listfiles", name).splitlines()
        yield from (file[1:] for file in files if re.match(r"/\w", file) and not _UNUSED.match(file))


def _libraries(python: Path) -> set[str]:
    """The names of the libraries that a Python and its modules load, as `python:slim` looks for them, too."""
    programs = [*python.glob("bin/python3.*[0-9]"), *python.glob("lib/python3.*/lib-dynload/*.so")]
    loaded = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    return {Path(name).name for name in re.findall(r"=> (/\S+) \(0x", loaded) if "/libpython" not in name}


def _packages_of(libraries: Iterable[str]) -> set[str]:
    found = _output("dpkg-query", "--search", *(f"*/{name}" for name in libraries))
    return {re.split("[:,]", line)[0] for line in found.splitlines()}


def _run_in(root: Path, config: Config, command: str) -> None:
    """Executes a RUN instruction. The files that uv has downloaded before are in its cache."""
    cache = Path.home() / ".cache/uv"
    cache.mkdir(parents=True, exist_ok=True)
    outside = {name: value for name, value in os.environ.items() if _FROM_OUTSIDE.fullmatch(name)}
    env = environment_words({"HOME": "/root", **outside, **config.env})
    (root / config.workdir.lstrip("/")).mkdir(parents=True, exist_ok=True)
    _output(
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _RUN_SCRIPT, "run"),
        *("env", "-i", *env, "sh", "-c", f"cd {config.workdir} && {command}"),
        ROOT=str(root),
        CACHE=str(cache),
    )


def _copy(root: Path, config: Config, instruction: Instruction, context: Path, roots: Mapping[str, Path]) -> None:
    *sources, target = instruction.text.split()
    source_root = context
    copy: Callable[[str, str], object] = shutil.copy2
    if sources[0].startswith("--from="):
        source_root, copy = roots[sources.pop(0).removeprefix("--from=")], os.link  # a finished stage never changes
    destination = root / os.path.join(config.workdir, target).lstrip("/")
    for source in sources:
        path = source_root / source.lstrip("/")
        if path.is_dir():
            shutil.copytree(path, destination, symlinks=True, copy_function=copy, dirs_exist_ok=True)
        else:
            (destination if target.endswith("/") else destination.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, destination)


def _as_user(user: str, env: Mapping[str, str], workdir: str) -> list[str]:
    """The start of a command line that runs the rest as a user without any capability."""
    uid, _, gid = user.partition(":")
    return [
        *("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"),
        *("env", "-i", f"--chdir={workdir}", *environment_words(env)),
    ]


def _output(*command: str, given: bytes | None = None, **environment: str) -> str:
    done = subprocess.run(
        command, input=given, env={**os.environ, **environment}, capture_output=True, check=False, timeout=600
    )
    if done.returncode:
        raise BuildFailed(f"{' '.join(command)[:2000]}\n{(done.stdout + done.stderr).decode(errors='replace')}")
    return done.stdout.decode()
