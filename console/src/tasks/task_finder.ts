// Finds a task by its id alone; the protocol requires its agent as well.

import { ApiError, call, encodeSegment } from "../shared/api";
import type { Explanation } from "../shared/messages";
import { tenantOf, tenantQuery } from "../shared/tenant";
import { findOwnTask } from "./listing";

/** The explanations of tasks with this id, of a tenant or of all; undefined for callers without the operator grant. */
export async function explainTask(id: string, tenant = "", signal?: AbortSignal): Promise<Explanation[] | undefined> {
  const query = tenant ? `?${new URLSearchParams(tenantQuery(tenant))}` : "";
  try {
    return (await call<{ tasks: Explanation[] }>(`operations/tasks/${encodeSegment(id)}:explain${query}`, { signal })).tasks;
  } catch (error) {
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return undefined;
    throw error;
  }
}

/** The task's tenant; empty if no visible task has this id. */
export async function findTenant(id: string, agents: readonly string[]): Promise<string> {
  if (!id) return "";
  const own = await findOwnTask(id, agents);
  if (own) return own;
  try {
    const explanation = (await explainTask(id))?.[0];
    return explanation ? tenantOf(explanation.scope, explanation.agent) : "";
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return "";
    throw error;
  }
}
