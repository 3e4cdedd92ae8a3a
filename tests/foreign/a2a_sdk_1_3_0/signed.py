"""a2a-sdk 1.3.0 on a server that signs its cards: the SDK's verifier, during a key rotation with both algorithms."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from a2a.client import A2ACardResolver
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from checks import Checks, arguments, command, finish, serving
from jwt import PyJWK, PyJWKSet

signed = Checks()


class Reader:
    """Fetches cards and keys of one server."""

    def __init__(self, http: str, client: httpx.AsyncClient) -> None:
        self.http = http
        self.client = client

    async def verifier(self, *algorithms: str):
        """The SDK's verifier with the currently published keys."""
        keys = PyJWKSet.from_dict((await self.client.get(f"{self.http}/.well-known/jwks.json")).json())

        def key(kid: str | None, jku: str | None) -> PyJWK:
            assert jku == "https://agents.localhost/.well-known/jwks.json", jku
            return keys[kid]

        return create_signature_verifier(key, list(algorithms or ("ES256", "EdDSA")))

    async def card(self, agent: str = "", **headers: str) -> pb.AgentCard:
        """Fetches the card and verifies its signature."""
        resolver = A2ACardResolver(self.client, f"{self.http}{agent}")
        return await resolver.get_agent_card(http_kwargs={"headers": headers}, signature_verifier=await self.verifier())


@signed
async def the_card_of_every_agent_is_verified(reader: Reader) -> None:
    assert (await reader.card()).name == "Echo"
    assert (await reader.card("/plain")).name == "Plain"


@signed
async def so_is_the_one_of_1_0(reader: Reader) -> None:
    assert (await reader.card(**{"A2A-Version": "1.0"})).signatures


@signed
async def a_changed_card_is_rejected(reader: Reader) -> None:
    card, verify = await reader.card(), await reader.verifier()
    verify(card)
    card.supported_interfaces[0].url = "https://mallory.example"
    try:
        verify(card)
    except InvalidSignaturesError:
        return
    raise AssertionError("it was verified")


async def signed_with(reader: Reader, algorithm: str) -> None:
    """Waits for a card signed with an algorithm: some of several servers use a new key slightly later. All publish it
    immediately, so a signature of one server is valid with the keys of any other."""
    verify = await reader.verifier(algorithm)
    while True:
        card = await reader.card()
        try:
            return verify(card)
        except InvalidSignaturesError:
            await asyncio.sleep(0.1)


@signed
async def it_stays_good_through_changes_of_keys(reader: Reader) -> None:
    options = arguments()
    before = await reader.card()
    for algorithm in ("EdDSA", "ES256"):
        words = ("--algorithm", algorithm, "--lead", "0", "--server", options.grpc)
        command(options.project, "signing", "rotate", *words)
        async with asyncio.timeout(60):
            await signed_with(reader, algorithm)
        (await reader.verifier())(before)


@signed
async def the_card_of_a_server_that_asks_who_calls_is_verified(_: Reader) -> None:
    project = arguments().project
    agents = f"{project}/tests/foreign/signed_agents.py"
    options = ("--sign-cards", "--public-url", "https://agents.localhost", "--api-keys")
    with serving(project, agents, *options, "--store", "sqlite:///t.db") as addresses:
        async with httpx.AsyncClient() as client:
            card = await Reader(addresses["http"], client).card()
            assert card.security_requirements


async def main() -> None:
    async with httpx.AsyncClient() as client:
        finish(await signed.run("signed", Reader(arguments().http, client)))


asyncio.run(main())
