// @a2a-js/sdk 1.x on a server that signs its cards: its own verifier, with the keys that the server shows (jose).

import assert from "node:assert/strict";
import { AgentCard, verifyAgentCardSignature } from "@a2a-js/sdk";
import { importJWK } from "jose";
import { Checks, finish, where } from "./checks.mjs";

const signed = new Checks();

async function fetched(path, headers = {}) {
  const answer = await fetch(`${where.http}${path}`, { headers });
  return await answer.json();
}

async function verifier() {
  const { keys } = await fetched("/.well-known/jwks.json");
  return verifyAgentCardSignature(async (kid, jku) => {
    assert.equal(jku, "https://agents.localhost/.well-known/jwks.json");
    return await importJWK(keys.find((key) => key.kid === kid));
  });
}

// Not the root agent's: of a card with security schemes the SDK checks what it has made of it twice, and loses them.
for (const headers of [{}, { "A2A-Version": "1.0" }])
  signed.add(`a card is verified, asked for with ${JSON.stringify(headers)}`, [], async () => {
    const card = AgentCard.fromJSON(await fetched("/plain/.well-known/agent-card.json", headers));
    await (await verifier())(card);
  });

signed.add("a card that somebody changed is refused", [], async () => {
  const card = AgentCard.fromJSON(await fetched("/plain/.well-known/agent-card.json"));
  card.supportedInterfaces[0].url = "https://mallory.example";
  await assert.rejects((await verifier())(card));
});

finish(await signed.run("signed"));
