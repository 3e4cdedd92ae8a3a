// Finds a task by its id alone; the protocol requires its agent as well.

import { call, Failure, segment } from "./server";
import type { Explanation, Task } from "./wire";

/** The explanations of tasks with this id; undefined for callers without the operator grant. */
export async function explained(id: string, signal?: AbortSignal): Promise<Explanation[] | undefined> {
  try {
    return (await call<{ tasks: Explanation[] }>(`operations/tasks/${segment(id)}:explain`, { signal })).tasks;
  } catch (error) {
    if (error instanceof Failure && (error.status === 401 || error.status === 403)) return undefined;
    throw error;
  }
}

/** The task's agent; empty if no visible task has this id. */
export async function lookUp(id: string, agents: readonly string[]): Promise<string> {
  if (!id) return "";
  for (const agent of agents) {
    try {
      await call<Task>(`${segment(agent)}/tasks/${segment(id)}?historyLength=0`);
      return agent;
    } catch (error) {
      if (!(error instanceof Failure) || ![400, 403, 404].includes(error.status)) throw error;
    }
  }
  try {
    return (await explained(id))?.[0]?.agent ?? "";
  } catch (error) {
    if (error instanceof Failure && error.status === 404) return "";
    throw error;
  }
}
