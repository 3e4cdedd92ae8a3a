// The agents of the server. Workers come and go, so they are asked for again.

import { effect, signal } from "@preact/signals";
import { call, key, words } from "./server";
import type { Agent } from "./wire";

const EVERY = 15_000;

export const agents = signal<readonly Agent[] | undefined>(undefined);
export const unreachable = signal("");

export function named(id: string): string {
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

/** Keeps the catalogue as it is on the server, from now on. */
export function keepUp(): void {
  effect(() => {
    void key.value; // who shows other credentials may see others
    void look();
  });
  setInterval(() => {
    if (!document.hidden) void look();
  }, EVERY);
}
