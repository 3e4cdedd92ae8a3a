// The agents of the server, polled because workers connect and disconnect.

import { effect, signal } from "@preact/signals";
import { accessToken, call, errorText, signInRequest } from "./api";
import type { Agent } from "./messages";
import { agentOf } from "./tenant";

const POLL_INTERVAL_MS = 15_000;
const RETRY_INTERVAL_MS = 2_000;

export const agents = signal<readonly Agent[] | undefined>(undefined);
export const catalogError = signal("");

/** The display name of an agent, in whatever scope. */
export function agentName(tenant: string): string {
  const id = agentOf(tenant);
  return agents.value?.find((agent) => agent.id === id)?.name ?? id;
}

async function loadAgents(): Promise<void> {
  try {
    const loaded = (await call<{ agents: Agent[] }>("agents")).agents;
    if (JSON.stringify(loaded) !== JSON.stringify(agents.value)) agents.value = loaded;
    catalogError.value = "";
  } catch (error) {
    catalogError.value = errorText(error);
  }
}

/** Starts polling the catalogue. */
export function pollAgents(): void {
  effect(() => {
    void accessToken.value; // other credentials may see other agents
    void loadAgents();
  });
  let due = 0;
  setInterval(() => {
    if (document.hidden || signInRequest.value || Date.now() < due) return;
    void loadAgents().then(() => (due = Date.now() + (catalogError.value ? 0 : POLL_INTERVAL_MS)));
  }, RETRY_INTERVAL_MS);
}
