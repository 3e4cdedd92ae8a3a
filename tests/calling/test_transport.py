"""Headers and requests of a call, as the options of a transport define them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.calling.errors import ProtocolError, ResponseErrors
from dragoman.calling.transport import RemoteFiles, TransportOptions
from dragoman.core.agent_sources import FileForm
from dragoman.core.trace import TRACE_HEADER
from dragoman.wire.cards.remote_card import Interface
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ERRORS = ResponseErrors("http://server")


def test_only_headers_with_a_value_are_sent() -> None:
    options = TransportOptions(errors=ERRORS)
    assert options.call_headers("1.0", "Last-Event-ID") == {}
    headers = options.call_headers("1.0", "Last-Event-ID", after="7", key="k", extensions="urn:x")
    assert headers == {"Last-Event-ID": "7", "Idempotency-Key": "k", "A2A-Extensions": "urn:x"}


def test_the_name_of_the_extensions_header_depends_on_the_dialect() -> None:
    options = TransportOptions(errors=ERRORS)
    assert options.call_headers("0.3", "x", extensions="urn:x") == {"X-A2A-Extensions": "urn:x"}


def test_the_trace_context_of_the_options_is_the_default() -> None:
    options = TransportOptions(errors=ERRORS, trace_context=lambda: "00-default")
    assert options.call_headers("1.0", "x") == {TRACE_HEADER: "00-default"}
    assert options.call_headers("1.0", "x", parent="00-parent") == {TRACE_HEADER: "00-parent"}


def test_a_request_keeps_its_tenant_unless_the_interface_overrides_it() -> None:
    request = pb.GetTaskRequest(tenant="caller", id="t")
    assert TransportOptions(errors=ERRORS).with_tenant(request, "interface") is request
    sent = TransportOptions(errors=ERRORS, overrides_tenant=True).with_tenant(request, "interface")
    assert (sent.tenant, sent.id, request.tenant) == ("interface", "t", "caller")


# Files of 0.3 ---------------------------------------------------------------------------------------------------------

BINARY = bytes(range(256))
RESOURCE = "projects/p/locations/l/collections/c/engines/e/assistants/a/agents/lab"
contents = st.binary(max_size=40) | st.binary(max_size=40).map(b64encode)


def remote_files(form: FileForm | None, dialect: str = "0.3", tenant: str = "lab") -> RemoteFiles:
    return RemoteFiles(Interface("http://server", "GRPC", dialect, tenant, form), "http://server")


def send(content: bytes) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(message=pb.Message(parts=[pb.Part(raw=content)]))


def sent(files: RemoteFiles, content: bytes) -> bytes:
    """What a request with the file has."""
    written: Any = files.write(send(content))
    return bytes(written.message.parts[0].raw)


def received(files: RemoteFiles, *contents: bytes) -> list[bytes]:
    """The files of a response."""
    task: Any = files.read(pb.Task(artifacts=[pb.Artifact(parts=[pb.Part(raw=content) for content in contents])]))
    return [part.raw for part in task.artifacts[0].parts]


@given(content=contents)
def test_a_server_that_follows_the_proto_is_sent_and_read_exactly(content: bytes) -> None:
    files = remote_files("bytes")
    assert sent(files, content) == content
    assert received(files, b64encode(BINARY), content) == [b64encode(BINARY), content]
    assert sent(files, content) == content


def test_a_set_form_of_files_is_kept() -> None:
    files = remote_files("base64")
    request = send(BINARY)
    written: Any = files.write(request)
    assert (request.message.parts[0].raw, written.message.parts[0].raw) == (BINARY, b64encode(BINARY))
    assert received(files, b64encode(BINARY)) == [BINARY]
    with pytest.raises(ProtocolError, match=r"http://server: artifacts\[0\]\.parts\[0\]\.file.*must be base64 text"):
        received(files, b"hello")


def test_an_unknown_form_is_the_base64_text_of_most_servers_and_what_is_none_is_the_file() -> None:
    files = remote_files(None)
    assert sent(files, BINARY) == b64encode(BINARY)
    assert received(files, b64encode(BINARY), BINARY) == [BINARY, BINARY]


@pytest.mark.parametrize(("dialect", "tenant"), [("1.0", "lab"), ("0.3", RESOURCE)])
@pytest.mark.parametrize("form", ["base64", None])
def test_other_dialects_and_resource_paths_have_bytes(form: FileForm | None, dialect: str, tenant: str) -> None:
    files = remote_files(form, dialect, tenant)
    assert received(files, b"test") == [b"test"]
    assert sent(files, BINARY) == BINARY
