// Finds a task by its id alone; the protocol requires its agent as well.

import { find } from "./listing";
import { call, Failure, segment } from "../shared/api";
import { selection, tenantOf } from "../shared/tenant";
import type { Explanation } from "../shared/messages";

/** The explanations of tasks with this id, of a tenant or of all; undefined for callers without the operator grant. */
export async function explained(id: string, tenant = "", signal?: AbortSignal): Promise<Explanation[] | undefined> {
  const query = tenant ? `?${new URLSearchParams(selection(tenant))}` : "";
  try {
    return (await call<{ tasks: Explanation[] }>(`operations/tasks/${segment(id)}:explain${query}`, { signal })).tasks;
  } catch (error) {
    if (error instanceof Failure && (error.status === 401 || error.status === 403)) return undefined;
    throw error;
  }
}

/** The task's tenant; empty if no visible task has this id. */
export async function lookUp(id: string, agents: readonly string[]): Promise<string> {
  if (!id) return "";
  const own = await find(id, agents);
  if (own) return own;
  try {
    const found = (await explained(id))?.[0];
    return found ? tenantOf(found.scope, found.agent) : "";
  } catch (error) {
    if (error instanceof Failure && error.status === 404) return "";
    throw error;
  }
}
