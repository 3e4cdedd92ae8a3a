// The caller's tasks with all agents and in all scopes, newest status first. Where the server does not offer this list,
// which a remote browser without credentials does not get, those of the default scope, merged from the lists of A2A.

import { signal } from "@preact/signals";
import { call, Failure, key, segment } from "./server";
import { DEFAULT_SCOPE, tenantOf } from "./tenant";
import type { ListedTasks, Task } from "./wire";

/** Incremented for changes that this page made or saw, so that the list is polled at once. */
export const news = signal(0);

export interface Row {
  tenant: string;
  task: Task;
}

export interface Filters {
  scope: string;
  agent: string;
  state: string;
  context: string;
}

export interface Listed {
  rows: Row[];
  /** Number of tasks that match the filters, of all agents. */
  total: number;
  /** The scopes in which the caller has tasks. */
  scopes: string[];
  /** Whether there are more tasks. */
  more: boolean;
}

interface Page {
  tasks: Task[];
  nextPageToken: string;
  totalSize: number;
}

const LARGEST = 100;
const LARGEST_EVERYWHERE = 1000;

/** The credentials for which the list of all scopes was refused. */
let refused: string | undefined;

/** The first `count` tasks. `agents`: the ids of the server's agents. */
export async function list(agents: readonly string[], filters: Filters, count: number, stop: AbortSignal): Promise<Listed> {
  const query = {
    ...(filters.scope && { scope: filters.scope }),
    ...(filters.agent && { agent: filters.agent }),
    ...(filters.context && { contextId: filters.context }),
    ...(filters.state && { state: `TASK_STATE_${filters.state}` }),
    limit: String(Math.min(count, LARGEST_EVERYWHERE)),
  };
  const all = await everywhere(query, stop);
  if (!all) return ofDefault(agents, filters, count, stop);
  const rows = rowsOf(all);
  const total = Number(all.total ?? 0);
  return { rows, total, scopes: all.scopes ?? [], more: total > rows.length && rows.length < LARGEST_EVERYWHERE };
}

/** The tenant of a task of the caller; empty if there is none with this id. */
export async function find(id: string, agents: readonly string[]): Promise<string> {
  const all = await everywhere({ taskId: id });
  if (all) return rowsOf(all)[0]?.tenant ?? "";
  for (const agent of agents) {
    try {
      await call<Task>(`${segment(agent)}/tasks/${segment(id)}?historyLength=0`);
      return agent;
    } catch (error) {
      if (!(error instanceof Failure) || ![400, 403, 404].includes(error.status)) throw error;
    }
  }
  return "";
}

async function everywhere(query: Record<string, string>, signal?: AbortSignal): Promise<ListedTasks | undefined> {
  if (refused === key.value) return undefined;
  try {
    return await call<ListedTasks>(`operations/tasks?${new URLSearchParams({ ...query, own: "true" })}`, { signal });
  } catch (error) {
    if (!(error instanceof Failure && [401, 403, 404].includes(error.status))) throw error;
    refused = key.value;
    return undefined;
  }
}

function rowsOf(listed: ListedTasks): Row[] {
  return (listed.tasks ?? []).map(({ scope, agent, task }) => ({ tenant: tenantOf(scope, agent), task }));
}

async function ofDefault(agents: readonly string[], filters: Filters, count: number, stop: AbortSignal): Promise<Listed> {
  const scopes = [DEFAULT_SCOPE];
  if (filters.scope && filters.scope !== DEFAULT_SCOPE) return { rows: [], total: 0, scopes, more: false };
  const asked = filters.agent ? agents.filter((id) => id === filters.agent) : agents;
  const each = await Promise.all(
    asked.map((agent) =>
      first(agent, filters, count, stop).catch((error: unknown) => {
        // One of several agents is not accessible with these credentials, or its worker has just disconnected.
        if (asked.length > 1 && error instanceof Failure && [403, 404].includes(error.status)) return { rows: [], total: 0 };
        throw error;
      }),
    ),
  );
  const rows = each.flatMap((one) => one.rows).sort((one, other) => later(other.task) - later(one.task));
  const total = each.reduce((sum, one) => sum + one.total, 0);
  return { rows: rows.slice(0, count), total, scopes, more: total > count };
}

async function first(agent: string, filters: Filters, count: number, stop: AbortSignal): Promise<{ rows: Row[]; total: number }> {
  const rows: Row[] = [];
  let token = "";
  for (;;) {
    const query = new URLSearchParams({ pageSize: String(Math.min(count - rows.length, LARGEST)), historyLength: "0" });
    if (filters.state) query.set("status", `TASK_STATE_${filters.state}`);
    if (filters.context) query.set("contextId", filters.context);
    if (token) query.set("pageToken", token);
    const page = await call<Page>(`${segment(agent)}/tasks?${query}`, { signal: stop });
    rows.push(...page.tasks.map((task) => ({ tenant: agent, task })));
    token = page.nextPageToken;
    if (!token || rows.length >= count) return { rows, total: page.totalSize };
  }
}

function later(task: Task): number {
  return new Date(task.status.timestamp ?? 0).getTime();
}

/** Creation time in milliseconds, from the task id (RFC 9562, version 7); 0 if a client chose the id. */
export function made(id: string): number {
  const found = /^([0-9a-f]{8})-([0-9a-f]{4})-7/.exec(id);
  return found ? parseInt(`${found[1]}${found[2]}`, 16) : 0;
}
