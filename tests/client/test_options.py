"""The settings of calls: the headers of each, and what they mean for a transport."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.calling.errors import ClientError
from dragoman.client import connect
from dragoman.client.options import CallOptions


def test_a_token_is_a_header_of_each_call_and_never_shown() -> None:
    options = CallOptions(token="secret-key", headers={"X-Team": "blue"})
    assert options.request_headers == {"Authorization": "Bearer secret-key", "X-Team": "blue"}
    assert "secret-key" not in repr(options)
    assert CallOptions().request_headers == {}
    assert CallOptions(token="one", headers={"Authorization": "Basic two"}).request_headers == {
        "Authorization": "Basic two"
    }


def test_what_no_header_can_carry_is_refused_before_any_call() -> None:
    with pytest.raises(ValueError, match=r"^token: must be printable ASCII on one line"):
        CallOptions(token="a\nb")
    with pytest.raises(ValueError, match=r"^headers\.X-Team: must be printable ASCII"):
        CallOptions(headers={"X-Team": "bl\u00fce"})
    with pytest.raises(ValueError, match=r"^token: must be printable ASCII on one line"):
        connect("http://127.0.0.1:1", token="a\nb")


def test_a_transport_has_the_limits_and_the_prefix_of_its_calls() -> None:
    options = CallOptions(idle_timeout=7.0)
    transport = options.for_transport("http://there", {"A2A-Version": "0.3"}, prefix="desk")
    assert (transport.limits.response_timeout, transport.limits.idle_timeout) == (7.0, 7.0)
    assert (transport.headers, transport.rest_prefix) == ({"A2A-Version": "0.3"}, "desk")
    assert transport.errors.address == "http://there"


async def test_a_channel_with_invalid_certificates_is_a_client_error(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="no-such-file"):
        await CallOptions(ca=tmp_path / "no-such-file.pem").grpc_channel("there:443")
