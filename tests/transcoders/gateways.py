"""Runs grpc-gateway and Envoy's transcoder before a recording gRPC server, and sends cases to both."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.api import annotations_pb2
from google.protobuf import descriptor_pb2
from tests.one_port.proxies import find_program
from tests.postgres import free_port
from tests.transcoders.cases import Case
from tests.transcoders.services import NAMES

START_TIMEOUT: Final = 60.0
Answers = list[dict[str, Any]]
"""The answers to one case as `judge send` prints them, one for each gateway."""

GATEWAYS: Final = ("grpc-gateway", "Envoy")


@dataclass(frozen=True)
class Running:
    """The ports of each gateway, by service, and the program that sends to them."""

    program: Path
    ports: list[list[int]]

    def send(self, cases: Sequence[Case]) -> list[Answers]:
        """Returns the answers of all gateways to each case, in order."""
        lines = b"".join(case.line().encode() + b"\n" for case in cases)
        command = [str(self.program), "send", json.dumps(self.ports)]
        sent = subprocess.run(command, input=lines, stdout=subprocess.PIPE, check=True)
        return [json.loads(line) for line in sent.stdout.splitlines()]


@contextmanager
def running(built: Path, log: Path) -> Iterator[Running]:
    """Runs both gateways while the block runs. `built`: the folder of build.py. Raises NotCreated without Envoy."""
    envoy, _ = find_program("envoy")
    program = built / "judge"
    with ExitStack() as stack:
        output = stack.enter_context(log.open("wb"))
        gateway = stack.enter_context(
            subprocess.Popen([str(program), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output)
        )
        stack.callback(gateway.kill)
        assert gateway.stdout is not None
        line = gateway.stdout.readline()
        if not line:
            raise RuntimeError(f"grpc-gateway does not start:\n{log.read_text('utf-8')}")
        recorder, *ports = json.loads(line)
        envoy_ports = [free_port() for _ in NAMES]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        image, config = folder / "image.binpb", folder / "envoy.json"
        image.write_bytes(without_response_bodies((built / "image.binpb").read_bytes()))
        config.write_text(json.dumps(envoy_config(image, recorder, envoy_ports)), "utf-8")
        command = [str(envoy), "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", "-l", "error"]
        process = stack.enter_context(subprocess.Popen(command, stdout=output, stderr=output))
        stack.callback(process.kill)
        _wait(envoy_ports, process, log)
        yield Running(program, [ports, envoy_ports])


def without_response_bodies(image: bytes) -> bytes:
    """A FileDescriptorSet that Envoy loads: it rejects services with `response_body`."""
    files = descriptor_pb2.FileDescriptorSet.FromString(image)
    for file in files.file:
        for method in (method for service in file.service for method in service.method):
            if method.options.HasExtension(annotations_pb2.http):
                method.options.Extensions[annotations_pb2.http].response_body = ""
    return files.SerializeToString()


def envoy_config(image: Path, grpc_port: int, ports: Sequence[int]) -> dict[str, Any]:
    """One listener for each service, because rules of two services may have equal paths."""

    def address(port: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    def typed(name: str, **values: Any) -> dict[str, Any]:
        return {"@type": f"type.googleapis.com/envoy.extensions.{name}", **values}

    def listener(port: int, service: str) -> dict[str, Any]:
        transcoder = typed(
            "filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder",
            proto_descriptor=str(image),
            services=[service],
            convert_grpc_status=True,
            ignore_unknown_query_parameters=True,
            # As google/api/http.proto has it; the defaults are other ones.
            url_unescape_spec="ALL_CHARACTERS_EXCEPT_SLASH",
            request_validation_options={"reject_unknown_method": True},
        )
        manager = typed(
            "filters.network.http_connection_manager.v3.HttpConnectionManager",
            stat_prefix=service,
            route_config={
                "virtual_hosts": [
                    {
                        "name": "all",
                        "domains": ["*"],
                        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "recorder", "timeout": "60s"}}],
                    }
                ]
            },
            http_filters=[
                {"name": "transcoder", "typed_config": transcoder},
                {"name": "router", "typed_config": typed("filters.http.router.v3.Router")},
            ],
        )
        return {"address": address(port), "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}

    http2 = typed("upstreams.http.v3.HttpProtocolOptions", explicit_http_config={"http2_protocol_options": {}})
    endpoint = {"endpoint": {"address": address(grpc_port)}}
    cluster = {
        "name": "recorder",
        "connect_timeout": "5s",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {"cluster_name": "recorder", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listeners = [listener(port, service) for port, service in zip(ports, NAMES, strict=True)]
    return {"static_resources": {"listeners": listeners, "clusters": [cluster]}}


def _wait(ports: Sequence[int], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                break
            except OSError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Envoy does not serve ({error}):\n{log.read_text('utf-8')}") from None
                time.sleep(0.05)
