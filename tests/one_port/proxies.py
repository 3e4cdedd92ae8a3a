"""Starts a proxy with its file from deploy/one-port, changed to free ports.

Uses the programs of this machine, else Debian's, unpacked for the tests only, and Envoy from its wheel.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.certificates import Authority, write
from tests.debian import unpacked
from tests.postgres import free_port

from tools.environments import Environment, NotCreated

FILES: Final = Path(__file__).parents[2] / "deploy" / "one-port"
PROXY_START_TIMEOUT: Final = 60.0


def find_program(name: str) -> tuple[Path, dict[str, str]]:
    """Returns the program and additional environment variables. Raises NotCreated with the reason."""
    if installed := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"):
        return Path(installed), {}
    if name == "envoy":
        environment = Environment("envoy", (Path(__file__).with_name("envoy.txt"),))
        environment.make()
        return environment.folder / "bin" / "envoy", {}
    root = unpacked(name)
    for folder in ("usr/sbin", "usr/bin"):
        if (program := root / folder / name).exists():
            libraries = ":".join(str(path) for path in root.glob("usr/lib/*-linux-gnu"))
            return program, {"LD_LIBRARY_PATH": libraries} if libraries else {}
    raise NotCreated(f"Debian's package {name} has no program of that name")


@dataclass(frozen=True)
class Port:
    """The port of a proxy, and the authority that signed its certificate."""

    port: int
    ca: Path


def configured(name: str, folder: Path, *, port: int, grpc: str, http: str) -> Path:
    """Writes a proxy's file from the repository, with other addresses and certificate folder. Returns its path."""
    file = {"caddy": "Caddyfile", "nginx": "nginx.conf", "haproxy": "haproxy.cfg", "envoy": "envoy.yaml"}[name]
    text = (FILES / file).read_text("utf-8")
    for old, new in (
        (r"127\.0\.0\.1:50051\b", grpc),
        (r"127\.0\.0\.1:8080\b", http),
        (r"/etc/dragoman/", f"{folder}/"),
        (r"(?m)^:443 \{", f":{port} {{"),  # Caddy
        (r"listen 443 ", f"listen 127.0.0.1:{port} "),
        (r"(?m)^http \{", f"http {{ {_nginx_temp_paths(folder)}"),
        (r"bind :443 ", f"bind 127.0.0.1:{port} "),
        (r"port_value: 443\b", f"port_value: {port}"),
        (r"address: 127\.0\.0\.1, port_value: 50051", _envoy_address(grpc)),
        (r"address: 127\.0\.0\.1, port_value: 8080", _envoy_address(http)),
    ):
        # Comments are not changed: they describe how to start the server.
        lines = [line if line.startswith("#") else re.sub(old, new, line) for line in text.split("\n")]
        text = "\n".join(lines)
    path = folder / file
    path.write_text(text)
    return path


def _nginx_temp_paths(folder: Path) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)


def _envoy_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"address: {host}, port_value: {port}"


def command(name: str, program: Path, file: Path, folder: Path) -> list[str]:
    """Returns the command that runs a proxy in the foreground."""
    return [
        str(program),
        *{
            "caddy": ["run", "--config", str(file), "--adapter", "caddyfile"],
            "nginx": ["-p", str(folder), "-e", "stderr", "-c", str(file), "-g", "daemon off;"],
            "haproxy": ["-db", "-f", str(file)],
            "envoy": ["-c", str(file), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"],
        }[name],
    ]


@contextmanager
def proxy(name: str, folder: Path, *, grpc: str, http: str) -> Iterator[Port]:
    """Runs a proxy in front of a server while the block runs. Raises NotCreated if its program is not available."""
    program, variables = find_program(name)
    authority = Authority(folder)
    chain, key = authority.issue()
    cert_path, key_path = write(folder, (chain, key))
    cert_path.rename(folder / "tls.crt")
    key_path.rename(folder / "tls.key")
    (folder / "tls.pem").write_bytes(chain + key)
    port = free_port()
    file = configured(name, folder, port=port, grpc=grpc, http=http)
    environment = {**os.environ, **variables, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    environment["CADDY_ADMIN"] = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command(name, program, file, folder), cwd=folder, env=environment, stdout=log, stderr=log
        )
        try:
            _wait_for_tls(port, authority.ca, process, folder / "log")
            yield Port(port, authority.ca)
        finally:
            process.terminate()
            try:
                process.wait(PROXY_START_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for_tls(port: int, ca: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until the port accepts TLS with the certificate."""
    context = ssl.create_default_context(cafile=str(ca))
    deadline = time.monotonic() + PROXY_START_TIMEOUT
    while True:
        try:
            plain = socket.create_connection(("127.0.0.1", port), 5)
            with plain, context.wrap_socket(plain, server_hostname="localhost"):
                return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the proxy does not serve ({error}):\n{log.read_text('utf-8')}") from None
            time.sleep(0.05)
