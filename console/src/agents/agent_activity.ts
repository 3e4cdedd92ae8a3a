// The activity of the agents: open tasks now, outcomes of the last hours, connected workers.

import { ApiError, call } from "../shared/api";
import { sum } from "../shared/format";
import type { AgentOverview, AgentPause, HourlyFigures, OpenTasks, Overview as OverviewMessage, ServedAgent, TurnTimes, WorkerAgent } from "../shared/messages";
import { fetchMetrics, type Metrics } from "../shared/metrics";
import { href } from "../shared/route";
import { canOperate } from "../shared/sign_in";

export const HOURS = 24;

const HOUR_MS = 3_600_000;

/** Open tasks in one state: their number, and since when the oldest is in it, in milliseconds. */
export interface OpenTaskCount {
  count: number;
  /** There may be more. */
  isMinimum: boolean;
  oldest: number | undefined;
}

/** One hour: its start in milliseconds, and its figures. */
export interface HourFigures {
  start: number;
  begun: number;
  completed: number;
  failed: number;
  canceled: number;
  rejected: number;
  turns: number;
  turnSeconds: number;
}

const FIGURES = ["begun", "completed", "failed", "canceled", "rejected", "turns", "turnSeconds"] as const;

export interface AgentActivity {
  id: string;
  name: string;
  description: string;
  version: string;
  pause: AgentPause | undefined;
  queued: OpenTaskCount;
  running: OpenTaskCount;
  waiting: OpenTaskCount;
  /** The oldest first. */
  hours: HourFigures[];
  /** Of the turns that ended in these hours; undefined without any. */
  turns: Times | undefined;
  /** In the queue, of the turns that began in these hours. */
  queue: Times | undefined;
}

/** Milliseconds of turns. */
export interface Times {
  mean: number;
  p50: number;
  p95: number;
}

export interface Overview {
  agents: AgentActivity[];
  /** Absent without the grant, and where metrics have a port of their own. */
  metrics: Metrics | undefined;
  receivedAt: number;
}

export async function readOverview(signal: AbortSignal): Promise<Overview> {
  const [now, served, metrics] = await Promise.all([
    call<OverviewMessage>(`operations/overview?hours=${HOURS}`, { signal }),
    call<{ agents?: ServedAgent[] }>("operations/agents", { signal }),
    fetchMetrics(signal),
  ]);
  const overviews = new Map((now.agents ?? []).map((overview) => [overview.agent, overview]));
  const known = new Set((served.agents ?? []).map((agent) => agent.id));
  // Agents that are no longer served may have tasks left.
  const removed = [...overviews.keys()].filter((id) => !known.has(id)).map((id) => ({ id, name: id }));
  const firstHour = new Date(now.firstHour).getTime();
  const agents = [...(served.agents ?? []), ...removed].map((one) => agentActivity(one, overviews.get(one.id), firstHour));
  return { agents, metrics, receivedAt: Date.now() };
}

/** The workers by agent; undefined without the grant. */
export async function readWorkers(signal: AbortSignal): Promise<Map<string, WorkerAgent> | undefined> {
  try {
    const { agents = [] } = await call<{ agents?: WorkerAgent[] }>("operations/workers", { signal });
    return new Map(agents.map((agent) => [agent.agent, agent]));
  } catch (error) {
    if (error instanceof ApiError && [401, 403].includes(error.status)) return undefined;
    throw error;
  }
}

function agentActivity(served: ServedAgent, overviews: AgentOverview | undefined, firstHour: number): AgentActivity {
  const found = new Map((overviews?.hours ?? []).map((hour) => [new Date(hour.hour).getTime(), hour]));
  return {
    id: served.id,
    name: served.name,
    description: served.description ?? "",
    version: served.version ?? "",
    pause: served.pause,
    queued: openTaskCount(overviews?.queued),
    running: openTaskCount(overviews?.running),
    waiting: openTaskCount(overviews?.waiting),
    hours: Array.from({ length: HOURS }, (_, index) => firstHour + index * HOUR_MS).map((at) => hourFigures(at, found.get(at))),
    turns: times(overviews?.turns),
    queue: times(overviews?.queue),
  };
}

function times({ count = "0", meanSeconds = 0, p50Seconds = 0, p95Seconds = 0 }: TurnTimes = {}): Times | undefined {
  return count === "0" ? undefined : { mean: meanSeconds * 1000, p50: p50Seconds * 1000, p95: p95Seconds * 1000 };
}

function openTaskCount({ count = "0", isMinimum = false, oldest }: OpenTasks = {}): OpenTaskCount {
  return { count: Number(count), isMinimum, oldest: oldest ? new Date(oldest).getTime() : undefined };
}

function hourFigures(start: number, figures: Partial<HourlyFigures> = {}): HourFigures {
  return {
    start,
    begun: Number(figures.begun ?? 0),
    completed: Number(figures.completed ?? 0),
    failed: Number(figures.failed ?? 0),
    canceled: Number(figures.canceled ?? 0),
    rejected: Number(figures.rejected ?? 0),
    turns: Number(figures.turns ?? 0),
    turnSeconds: figures.turnSeconds ?? 0,
  };
}

export const endedTasks = (hour: HourFigures) => hour.completed + hour.failed + hour.canceled + hour.rejected;

/** The sums of the hours of all agents, the oldest hour first. */
export function sumHours(agents: readonly AgentActivity[]): HourFigures[] {
  const all = (agents[0]?.hours ?? []).map(({ start }) => hourFigures(start));
  for (const { hours } of agents) {
    for (const [index, total] of all.entries()) {
      const hour = hours[index];
      for (const name of FIGURES) total[name] += hour?.[name] ?? 0;
    }
  }
  return all;
}

/** The sum of these tasks, and the oldest of them. */
export function sumOpenTasks(all: readonly OpenTaskCount[]): OpenTaskCount {
  const oldest = all.flatMap((count) => (count.oldest === undefined ? [] : [count.oldest]));
  const isMinimum = all.some((count) => count.isMinimum);
  return { count: sum(all.map((count) => count.count)), isMinimum, oldest: oldest.length ? Math.min(...oldest) : undefined };
}

/** ` by ann`; empty where callers have no names. */
export function pausedByText({ principal }: AgentPause): string {
  return principal && principal !== "anonymous" ? ` by ${principal}` : "";
}

/** The list of tasks that changed in this hour. */
export function hourHref({ start }: HourFigures, agent = ""): string {
  return taskListHref(agent, "", new Date(start).toISOString().slice(0, 13));
}

/** The list of an agent's tasks, or of all agents, in a state; `age`: an id of `AGES` in `tasks/filters.ts`. */
export function taskListHref(agent: string, state: string, age = ""): string {
  return href(["tasks"], { agent, state, age });
}

/** The failures of the last day, of an agent or of all: operators see the causes, viewers the tasks. */
export function failuresHref(agent: string): string {
  return canOperate.value ? href(["failures"], { agent, age: "day" }) : taskListHref(agent, "FAILED", "day");
}
