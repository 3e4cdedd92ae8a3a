"""OpenAPI as a server serves it: its URL, its credentials, and responses that match the document."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.bindings.fake_service import FakeService, over_http

from dragoman.bindings.pages import openapi_files, served_document
from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy
from dragoman.core.cards.security_schemes import NO_SECURITY, ServerSecurity, server_security

pytestmark = pytest.mark.long

URL = "https://agents.example"
KEYS = server_security(token=False, keys=True, issuers=())


def document(security: ServerSecurity = NO_SECURITY, access_policy: AccessPolicy = OPEN_ACCESS) -> Any:
    served = orjson.loads(served_document(URL, security, access_policy))
    assert [str(error) for error in OpenAPIV31SpecValidator(served).iter_errors()] == []
    assert served["servers"] == [{"url": URL}]
    return served


def test_the_documents_of_protos_and_server_are_found() -> None:
    assert set(openapi_files()) == {
        "a2a/v1/a2a.swagger.json",
        "dragoman.openapi.json",
        "dragoman/ops/v1/ops.swagger.json",
        "lf/a2a/v1/a2a.swagger.json",
    }


def test_a_server_without_authentication_declares_no_credentials() -> None:
    served = document()
    assert served["security"] == []
    assert served["components"]["securitySchemes"] == {}


def test_a_server_declares_the_credentials_that_it_accepts() -> None:
    served = document(KEYS, AccessPolicy(credentials_required=True))
    assert served["security"] == [{"bearer": []}, {"apiKey": []}]
    assert served["components"]["securitySchemes"].keys() == {"bearer", "apiKey"}
    certificates = document(server_security(token=False, keys=False, issuers=(), certificates=True))
    assert certificates["security"] == [{"mtls": []}]
    assert certificates["components"]["securitySchemes"] == {"mtls": {"type": "mutualTLS"}}


def test_with_public_agents_credentials_are_optional() -> None:
    policy = AccessPolicy(credentials_required=True, public_agents=frozenset(("echo",)))
    assert document(KEYS, policy)["security"] == [{"bearer": []}, {"apiKey": []}, {}]
    assert document(NO_SECURITY, policy)["security"] == []


def test_one_server_leaves_the_document_of_the_next_as_it_is() -> None:
    before = document()
    document(KEYS, AccessPolicy(credentials_required=True, public_agents=frozenset(("echo",))))
    assert document() == before


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/.well-known/agent-card.json", "/v1/card"])
async def test_responses_match_the_document(path: str) -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/openapi.json") as answer:
            assert answer.headers["Content-Type"] == "application/json"
            served = await answer.json()
            assert served["servers"] == [{"url": str(client._base_url).rstrip("/")}]
        async with client.get(path) as answer:
            body = await answer.json()
    described = served["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
    validator = OAS31Validator({**described["schema"], "components": served["components"]})
    assert [error.message for error in validator.iter_errors(body)] == []
