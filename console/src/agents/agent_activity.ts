// What each agent does now and did in the last hours, and what of it needs an operator.

import { maxValue, fetchMetrics, type Metrics } from "../shared/metrics";
import { href } from "../shared/route";
import { formatTimeSince, formatCount, formatCoarseDuration, formatPercent, plural, sum } from "../shared/format";
import { call, ApiError } from "../shared/api";
import type { AgentOverview, AgentPause, HourlyFigures, OpenTasks, Overview as OverviewMessage, ServedAgent, WorkerAgent } from "../shared/messages";

export const HOURS = 24;

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** A task that waits longer for a turn is stuck. */
const STUCK_AFTER_MS = 10 * MINUTE_MS;
/** An agent fails if at least so many tasks, and such a share, failed in the last hours. */
const FAILING_TASKS = 3;
const FAILING_SHARE = 0.1;
const FAILING_HOURS = 3;
/** Workers that restart are absent for less. */
const ABSENT_AFTER_MS = MINUTE_MS;

/** Tasks now: their number, and since when the oldest is in this state, in milliseconds. */
export interface OpenTaskCount {
  count: number;
  /** There may be more. */
  isMinimum: boolean;
  oldest: number | undefined;
}

/** One hour: its begin in milliseconds, and what happened in it. */
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
}

/** Something that an operator should see first. */
export interface Concern {
  kind: "bad" | "ask";
  title: string;
  text: string;
  link: string;
  /** The agent, if it is paused. */
  paused?: AgentActivity;
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
  };
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

/** `7 tasks in the queue.` */
function queueText(agent: AgentActivity): string {
  if (!agent.queued.count) return "Nothing is in its queue.";
  return `${formatCount(agent.queued)} ${agent.queued.count === 1 ? "task" : "tasks"} in the queue.`;
}

/** What needs an operator, the most urgent first. */
export function concerns({ agents, metrics, receivedAt }: Overview): Concern[] {
  return [
    ...agents.flatMap((agent) => stuckConcerns(agent, receivedAt)),
    ...absentWorkerConcerns(agents, metrics),
    ...agents.flatMap(failingConcerns),
    ...webhookConcerns(metrics),
    ...agents.flatMap(pausedConcerns),
  ];
}

function stuckConcerns(agent: AgentActivity, at: number): Concern[] {
  const { id, name, queued, pause } = agent;
  const waitedMs = queued.oldest === undefined ? 0 : at - queued.oldest;
  if (waitedMs < STUCK_AFTER_MS || pause) return [];
  const text = `The oldest has waited for ${formatCoarseDuration(waitedMs)}. ${queueText(agent)}`;
  return [{ kind: "bad", title: `Tasks of ${name} are stuck`, text, link: taskListHref(id, "SUBMITTED", "still-10m") }];
}

function failingConcerns({ id, name, hours, pause }: AgentActivity): Concern[] {
  if (pause) return [];
  const last = hours.slice(-FAILING_HOURS);
  const [failed, all] = [sum(last.map((hour) => hour.failed)), sum(last.map(endedTasks))];
  if (failed < FAILING_TASKS || failed < all * FAILING_SHARE) return [];
  const text = `${formatPercent(failed, all)} of ${plural(all, "task")} that ended in the last ${FAILING_HOURS} hours failed.`;
  return [{ kind: "bad", title: `${name} is failing`, text, link: taskListHref(id, "FAILED", "day") }];
}

function pausedConcerns(agent: AgentActivity): Concern[] {
  if (!agent.pause) return [];
  const { reason, since } = agent.pause;
  const text = `For ${formatTimeSince(since)}${pausedByText(agent.pause)}${reason ? `: ${reason}` : ""}. ${queueText(agent)}`;
  return [{ kind: "ask", title: `${agent.name} is paused`, text, link: href(["agents", agent.id]), paused: agent }];
}

/** ` by ann`; empty where callers have no names. */
export function pausedByText({ principal }: AgentPause): string {
  return principal && principal !== "anonymous" ? ` by ${principal}` : "";
}

function absentWorkerConcerns(agents: readonly AgentActivity[], metrics: Metrics | undefined): Concern[] {
  return (metrics?.get("dragoman_workers_absence_seconds") ?? []).flatMap(({ labels, value }) => {
    const agent = agents.find((agent) => agent.id === labels["agent"]);
    if (!agent || value * 1000 < ABSENT_AFTER_MS) return [];
    const text = `None has been connected for ${formatCoarseDuration(value * 1000)}. ${queueText(agent)}`;
    return [{ kind: "bad", title: `${agent.name} has no worker`, text, link: href(["agents", agent.id]) } as const];
  });
}

function webhookConcerns(metrics: Metrics | undefined): Concern[] {
  const [givenUp, since] = [maxValue(metrics, "dragoman_pushes_dead"), maxValue(metrics, "dragoman_push_failing_seconds") * 1000];
  if (!givenUp && since < MINUTE_MS) return [];
  const parts = [givenUp && `${plural(givenUp, "receiver")} given up`, since && `one receiver has failed for ${formatCoarseDuration(since)}`];
  const text = `${parts.filter(Boolean).join(", ")}.`;
  return [{ kind: "bad", title: "Webhooks fail", text: text.charAt(0).toUpperCase() + text.slice(1), link: "#/webhooks" }];
}

/** The list of an agent's tasks, or of all agents, in a state; `age`: of `filters.ts`. */
export function taskListHref(agent: string, state: string, age = ""): string {
  return href(["tasks"], { agent, state, age });
}
