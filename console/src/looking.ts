// Finding a task by its id alone: the protocol asks for its agent, too.

import { call, Failure, segment } from "./server";
import type { Explanation, Task } from "./wire";

/** What operators are told of tasks of this id; undefined for who is no operator. */
export async function explained(id: string, signal?: AbortSignal): Promise<Explanation[] | undefined> {
  try {
    return (await call<{ tasks: Explanation[] }>(`operations/tasks/${segment(id)}:explain`, { signal })).tasks;
  } catch (error) {
    if (error instanceof Failure && (error.status === 401 || error.status === 403)) return undefined;
    throw error;
  }
}

/** The agent whose task it is; empty when there is none to see. */
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
