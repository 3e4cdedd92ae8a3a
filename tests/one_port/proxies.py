"""A proxy started from its file in deploy/one-port, with this machine's ports in place of those that the file names."""

from __future__ import annotations

import os
import re
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
from tests.one_port import programs
from tests.postgres import free_port

FILES: Final = Path(__file__).parents[2] / "deploy" / "one-port"
PROXY_START_TIMEOUT: Final = 60.0


@dataclass(frozen=True)
class Port:
    """The one port, and the authority that signed its certificate."""

    port: int
    ca: Path


def configured(name: str, folder: Path, *, port: int, grpc: str, http: str) -> Path:
    """The file of a proxy as it stands in the repository, but for addresses and the folder of the certificate."""
    file = {"caddy": "Caddyfile", "nginx": "nginx.conf", "haproxy": "haproxy.cfg", "envoy": "envoy.yaml"}[name]
    text = (FILES / file).read_text("utf-8")
    for old, new in (
        (r"127\.0\.0\.1:50051\b", grpc),
        (r"127\.0\.0\.1:8080\b", http),
        (r"/etc/dragoman/", f"{folder}/"),
        (r"(?m)^:443 \{", f":{port} {{"),  # Caddy
        (r"listen 443 ", f"listen 127.0.0.1:{port} "),
        (r"(?m)^http \{", f"http {{ {_temporary(folder)}"),
        (r"bind :443 ", f"bind 127.0.0.1:{port} "),
        (r"port_value: 443\b", f"port_value: {port}"),
        (r"address: 127\.0\.0\.1, port_value: 50051", _envoy(grpc)),
        (r"address: 127\.0\.0\.1, port_value: 8080", _envoy(http)),
    ):
        # comments say how the server is started, and stay
        lines = [line if line.startswith("#") else re.sub(old, new, line) for line in text.split("\n")]
        text = "\n".join(lines)
    path = folder / file
    path.write_text(text)
    return path


def _temporary(folder: Path) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)


def _envoy(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"address: {host}, port_value: {port}"


def command(name: str, program: Path, file: Path, folder: Path) -> list[str]:
    """What starts a proxy in the foreground."""
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
    """A proxy in front of a server, for as long as the block runs. Raises NotMade where there is none to be had."""
    program, more = programs.find(name)
    authority = Authority(folder)
    chain, key = authority.issue()
    cert_path, key_path = write(folder, (chain, key))
    cert_path.rename(folder / "tls.crt")
    key_path.rename(folder / "tls.key")
    (folder / "tls.pem").write_bytes(chain + key)
    port = free_port()
    file = configured(name, folder, port=port, grpc=grpc, http=http)
    environment = {**os.environ, **more, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    environment["CADDY_ADMIN"] = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command(name, program, file, folder), cwd=folder, env=environment, stdout=log, stderr=log
        )
        try:
            _await(port, authority.ca, process, folder / "log")
            yield Port(port, authority.ca)
        finally:
            process.terminate()
            try:
                process.wait(PROXY_START_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(port: int, ca: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until the port encrypts as it should."""
    context = ssl.create_default_context(cafile=str(ca))
    until = time.monotonic() + PROXY_START_TIMEOUT
    while True:
        try:
            plain = socket.create_connection(("127.0.0.1", port), 5)
            with plain, context.wrap_socket(plain, server_hostname="localhost"):
                return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the proxy does not serve ({error}):\n{log.read_text('utf-8')}") from None
            time.sleep(0.05)
