"""A server with TLS, and commands that connect to it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.certificates import Authority, write
from tests.cli.conftest import Run
from tests.cli.server import serving

pytestmark = pytest.mark.long


def test_commands_connect_with_a_ca(tmp_path: Path, dragoman: Run) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    certificate, key = write(tmp_path, authority.issue())
    with serving("--tls-cert", str(certificate), "--tls-key", str(key), cwd=tmp_path) as server:
        assert server.http.startswith("https://127.0.0.1:")
        assert server.startup_info["tls"] is True
        grpc = ("--server", f"grpcs://{server.grpc}")
        known = ("--ca", str(authority.ca))
        sent = dragoman("send", "echo hello", "--no-wait", *grpc, *known)
        assert sent.code == 0, sent
        task = sent.out.strip()
        for command in (("watch", task), ("get", task), ("explain", task), ("export", task), ("list",)):
            done = dragoman(*command, *grpc, *known)
            assert done.code == 0, done
        over_http = dragoman("send", "echo hello", "--binding", "rest", "--server", server.http, *known)
        assert (over_http.code, over_http.out) == (0, "hello\n")

        stranger = dragoman("get", task, *grpc)
        assert (stranger.code, stranger.out) == (3, "")
        assert "not signed by a trusted authority; pass the authority with --ca (DRAGOMAN_CA)" in stranger.err
        plain = dragoman("get", task, "--server", server.grpc)
        assert plain.code == 3
        assert "try grpcs://HOST:PORT" in plain.err
        absent = dragoman("get", task, *grpc, "--ca", str(tmp_path / "absent.pem"))
        assert absent.code == 3
        assert "absent.pem: No such file" in absent.err

        write(tmp_path, other.issue())
        server.signal(signal.SIGHUP)
        server.err.until("new connections use the new certificate")
        again = dragoman("get", task, *grpc, "--ca", str(other.ca))
        assert again.code == 0, again
        server.signal(signal.SIGTERM)
        assert server.ends() == 0


def test_the_banner_shows_tls_addresses(tmp_path: Path) -> None:
    certificate, key = write(tmp_path, Authority(tmp_path).issue())
    with serving("--tls-cert", str(certificate), "--tls-key", str(key), cwd=tmp_path, text=True) as server:
        printed = "\n".join(server.out.seen)
    assert "\n  HTTP     https://127.0.0.1:" in printed
    assert "\n  gRPC     grpcs://127.0.0.1:" in printed
    assert "\n  Console  https://127.0.0.1:" in printed
    assert "curl -sS https://127.0.0.1:" in printed
