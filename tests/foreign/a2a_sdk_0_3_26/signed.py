"""a2a-sdk 0.3.26 on a server that signs its cards: the SDK's verifier, with its own canonical JSON."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from a2a.client import A2ACardResolver
from a2a.types import AgentCard
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from checks import Checks, arguments, finish
from jwt import PyJWKSet

signed = Checks()


async def fetched(http: str, agent: str, path: str) -> tuple[AgentCard, object]:
    """Returns a card, and the SDK's verifier with the server's published keys."""
    async with httpx.AsyncClient() as client:
        keys = PyJWKSet.from_dict((await client.get(f"{http}/.well-known/jwks.json")).json())
        card = await A2ACardResolver(client, f"{http}{agent}").get_agent_card(relative_card_path=path)
        return card, create_signature_verifier(lambda kid, jku: keys[kid], ["ES256", "EdDSA"])


@signed
async def the_card_of_every_agent_is_verified(http: str) -> None:
    for agent in ("", "/plain"):
        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
            card, verify = await fetched(http, agent, path)
            verify(card)


@signed
async def so_is_the_one_over_rest(http: str) -> None:
    # The SDK reads no schemes of ProtoJSON, so the agent is one without.
    card, verify = await fetched(http, "/plain", "/v1/card")
    verify(card)


@signed
async def a_changed_card_is_rejected(http: str) -> None:
    card, verify = await fetched(http, "", "/.well-known/agent-card.json")
    card.url = "https://mallory.example"
    try:
        verify(card)
    except InvalidSignaturesError:
        return
    raise AssertionError("it was verified")


finish(asyncio.run(signed.run("signed", arguments().http)))
