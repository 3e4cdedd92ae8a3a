"""Headers and requests of a call, as the options of a transport define them."""

from __future__ import annotations

from dragoman.calling.errors import ResponseErrors
from dragoman.calling.transport import TransportOptions
from dragoman.core.trace import TRACE_HEADER
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ERRORS = ResponseErrors("http://server")


def test_only_headers_with_a_value_are_sent() -> None:
    options = TransportOptions(errors=ERRORS)
    assert options.call_headers("1.0", after_header="Last-Event-ID") == {}
    headers = options.call_headers("1.0", after_header="Last-Event-ID", after="7", key="k", extensions="urn:x")
    assert headers == {"Last-Event-ID": "7", "Idempotency-Key": "k", "A2A-Extensions": "urn:x"}


def test_the_name_of_the_extensions_header_depends_on_the_dialect() -> None:
    options = TransportOptions(errors=ERRORS)
    assert options.call_headers("0.3", after_header="x", extensions="urn:x") == {"X-A2A-Extensions": "urn:x"}


def test_the_trace_context_of_the_options_is_the_default() -> None:
    options = TransportOptions(errors=ERRORS, trace_context=lambda: "00-default")
    assert options.call_headers("1.0", after_header="x") == {TRACE_HEADER: "00-default"}
    assert options.call_headers("1.0", after_header="x", parent="00-parent") == {TRACE_HEADER: "00-parent"}


def test_a_request_keeps_its_tenant_unless_the_interface_overrides_it() -> None:
    request = pb.GetTaskRequest(tenant="caller", id="t")
    assert TransportOptions(errors=ERRORS).with_tenant(request, "interface") is request
    sent = TransportOptions(errors=ERRORS, overrides_tenant=True).with_tenant(request, "interface")
    assert (sent.tenant, sent.id, request.tenant) == ("interface", "t", "caller")
