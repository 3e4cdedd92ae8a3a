// Merges the task lists of several agents, newest status first.

import { signal } from "@preact/signals";
import { call, Failure, segment } from "./server";
import type { Task } from "./wire";

/** Incremented for changes that this page made or saw, so that the list is polled at once. */
export const news = signal(0);

export interface Row {
  agent: string;
  task: Task;
}

export interface Filters {
  agent: string;
  state: string;
  context: string;
}

export interface Listed {
  rows: Row[];
  /** Number of tasks that match the filters, of all agents. */
  total: number;
  /** Whether there are more tasks. */
  more: boolean;
}

interface Page {
  tasks: Task[];
  nextPageToken: string;
  totalSize: number;
}

const LARGEST = 100;

/** The first `count` tasks of these agents. */
export async function list(agents: readonly string[], filters: Filters, count: number, stop: AbortSignal): Promise<Listed> {
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
  return { rows: rows.slice(0, count), total, more: total > count };
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
    rows.push(...page.tasks.map((task) => ({ agent, task })));
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
