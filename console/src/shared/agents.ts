// The agents of the server, polled because workers connect and disconnect.

import { effect, signal } from "@preact/signals";
import { call, key, words } from "./api";
import { agentOf } from "./tenant";
import type { Agent } from "./messages";

const EVERY = 15_000;
const UNREACHABLE = 2_000;

export const agents = signal<readonly Agent[] | undefined>(undefined);
export const unreachable = signal("");

/** The display name of an agent, in whatever scope. */
export function named(tenant: string): string {
  const id = agentOf(tenant);
  return agents.value?.find((agent) => agent.id === id)?.name ?? id;
}

async function look(): Promise<void> {
  try {
    const found = (await call<{ agents: Agent[] }>("agents")).agents;
    if (JSON.stringify(found) !== JSON.stringify(agents.value)) agents.value = found;
    unreachable.value = "";
  } catch (error) {
    unreachable.value = words(error);
  }
}

/** Starts polling the catalogue. */
export function keepUp(): void {
  effect(() => {
    void key.value; // other credentials may see other agents
    void look();
  });
  let due = 0;
  setInterval(() => {
    if (document.hidden || Date.now() < due) return;
    void look().then(() => (due = Date.now() + (unreachable.value ? 0 : EVERY)));
  }, UNREACHABLE);
}
