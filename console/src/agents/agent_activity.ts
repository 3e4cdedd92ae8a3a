// What each agent does now and did in the last hours, and what of it needs an operator.

import { largest, metrics, type Numbers } from "../shared/metrics";
import { href } from "../shared/route";
import { ago, amount, lasting, percent, plural, sum } from "../shared/format";
import { call, Failure } from "../shared/api";
import type { AgentOverview, AgentPause, HourlyFigures, OpenTasks, Overview as OverviewMessage, ServedAgent, WorkerAgent } from "../shared/messages";

export const HOURS = 24;

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** A task that waits longer for a turn is stuck. */
const STUCK = 10 * MINUTE;
/** An agent fails if at least so many tasks, and such a share, failed in the last hours. */
const FAILING_TASKS = 3;
const FAILING_SHARE = 0.1;
const FAILING_HOURS = 3;
/** Workers that restart are absent for less. */
const ABSENT = MINUTE;

/** Tasks now: their number, and since when the oldest is in this state, in milliseconds. */
export interface Tasks {
  count: number;
  /** There may be more. */
  isMinimum: boolean;
  oldest: number | undefined;
}

/** One hour: its begin in milliseconds, and what happened in it. */
export interface Hour {
  at: number;
  begun: number;
  completed: number;
  failed: number;
  canceled: number;
  rejected: number;
  turns: number;
  turnSeconds: number;
}

const FIGURES = ["begun", "completed", "failed", "canceled", "rejected", "turns", "turnSeconds"] as const;

export interface AgentNow {
  id: string;
  name: string;
  description: string;
  version: string;
  pause: AgentPause | undefined;
  queued: Tasks;
  running: Tasks;
  asking: Tasks;
  /** The oldest first. */
  hours: Hour[];
}

/** Something that an operator should see first. */
export interface Concern {
  kind: "bad" | "ask";
  title: string;
  text: string;
  link: string;
  /** The agent, if it is paused. */
  paused?: AgentNow;
}

export interface Overview {
  agents: AgentNow[];
  /** Absent without the grant, and where metrics have a port of their own. */
  numbers: Numbers | undefined;
  at: number;
}

export async function overview(signal: AbortSignal): Promise<Overview> {
  const [now, served, numbers] = await Promise.all([
    call<OverviewMessage>(`operations/overview?hours=${HOURS}`, { signal }),
    call<{ agents?: ServedAgent[] }>("operations/agents", { signal }),
    metrics(signal),
  ]);
  const figures = new Map((now.agents ?? []).map((one) => [one.agent, one]));
  const known = new Set((served.agents ?? []).map((one) => one.id));
  // Agents that are no longer served may have tasks left.
  const removed = [...figures.keys()].filter((id) => !known.has(id)).map((id) => ({ id, name: id }));
  const first = new Date(now.firstHour).getTime();
  const agents = [...(served.agents ?? []), ...removed].map((one) => agentNow(one, figures.get(one.id), first));
  return { agents, numbers, at: Date.now() };
}

/** The workers by agent; undefined without the grant. */
export async function workers(signal: AbortSignal): Promise<Map<string, WorkerAgent> | undefined> {
  try {
    const { agents = [] } = await call<{ agents?: WorkerAgent[] }>("operations/workers", { signal });
    return new Map(agents.map((one) => [one.agent, one]));
  } catch (error) {
    if (error instanceof Failure && [401, 403].includes(error.status)) return undefined;
    throw error;
  }
}

function agentNow(served: ServedAgent, figures: AgentOverview | undefined, first: number): AgentNow {
  const found = new Map((figures?.hours ?? []).map((one) => [new Date(one.hour).getTime(), one]));
  return {
    id: served.id,
    name: served.name,
    description: served.description ?? "",
    version: served.version ?? "",
    pause: served.pause,
    queued: tasks(figures?.queued),
    running: tasks(figures?.running),
    asking: tasks(figures?.waiting),
    hours: Array.from({ length: HOURS }, (_, index) => first + index * HOUR).map((at) => hour(at, found.get(at))),
  };
}

function tasks({ count = "0", isMinimum = false, oldest }: OpenTasks = {}): Tasks {
  return { count: Number(count), isMinimum, oldest: oldest ? new Date(oldest).getTime() : undefined };
}

function hour(at: number, one: Partial<HourlyFigures> = {}): Hour {
  return {
    at,
    begun: Number(one.begun ?? 0),
    completed: Number(one.completed ?? 0),
    failed: Number(one.failed ?? 0),
    canceled: Number(one.canceled ?? 0),
    rejected: Number(one.rejected ?? 0),
    turns: Number(one.turns ?? 0),
    turnSeconds: one.turnSeconds ?? 0,
  };
}

export const ended = (one: Hour) => one.completed + one.failed + one.canceled + one.rejected;

/** The sums of the hours of all agents, the oldest hour first. */
export function hoursOf(agents: readonly AgentNow[]): Hour[] {
  const all = (agents[0]?.hours ?? []).map(({ at }) => hour(at));
  for (const { hours } of agents) {
    for (const [index, total] of all.entries()) {
      const one = hours[index];
      for (const name of FIGURES) total[name] += one?.[name] ?? 0;
    }
  }
  return all;
}

/** The sum of these tasks, and the oldest of them. */
export function together(all: readonly Tasks[]): Tasks {
  const oldest = all.flatMap((one) => (one.oldest === undefined ? [] : [one.oldest]));
  const isMinimum = all.some((one) => one.isMinimum);
  return { count: sum(all.map((one) => one.count)), isMinimum, oldest: oldest.length ? Math.min(...oldest) : undefined };
}

/** `7 tasks in the queue.` */
function queue(agent: AgentNow): string {
  if (!agent.queued.count) return "Nothing is in its queue.";
  return `${amount(agent.queued)} ${agent.queued.count === 1 ? "task" : "tasks"} in the queue.`;
}

/** What needs an operator, the most urgent first. */
export function concerns({ agents, numbers, at }: Overview): Concern[] {
  return [
    ...agents.flatMap((one) => stuck(one, at)),
    ...absent(agents, numbers),
    ...agents.flatMap(failing),
    ...webhooks(numbers),
    ...agents.flatMap(paused),
  ];
}

function stuck(one: AgentNow, at: number): Concern[] {
  const { id, name, queued, pause } = one;
  const waits = queued.oldest === undefined ? 0 : at - queued.oldest;
  if (waits < STUCK || pause) return [];
  const text = `The oldest has waited for ${lasting(waits)}. ${queue(one)}`;
  return [{ kind: "bad", title: `Tasks of ${name} are stuck`, text, link: tasksOf(id, "SUBMITTED", "still-10m") }];
}

function failing({ id, name, hours, pause }: AgentNow): Concern[] {
  if (pause) return [];
  const last = hours.slice(-FAILING_HOURS);
  const [failed, all] = [sum(last.map((one) => one.failed)), sum(last.map(ended))];
  if (failed < FAILING_TASKS || failed < all * FAILING_SHARE) return [];
  const text = `${percent(failed, all)} of ${plural(all, "task")} that ended in the last ${FAILING_HOURS} hours failed.`;
  return [{ kind: "bad", title: `${name} is failing`, text, link: tasksOf(id, "FAILED", "day") }];
}

function paused(one: AgentNow): Concern[] {
  if (!one.pause) return [];
  const { reason, since } = one.pause;
  const text = `For ${ago(since)}${pausedBy(one.pause)}${reason ? `: ${reason}` : ""}. ${queue(one)}`;
  return [{ kind: "ask", title: `${one.name} is paused`, text, link: href(["agents", one.id]), paused: one }];
}

/** ` by ann`; empty where callers have no names. */
export function pausedBy({ principal }: AgentPause): string {
  return principal && principal !== "anonymous" ? ` by ${principal}` : "";
}

function absent(agents: readonly AgentNow[], numbers: Numbers | undefined): Concern[] {
  return (numbers?.get("dragoman_workers_absence_seconds") ?? []).flatMap(({ labels, value }) => {
    const agent = agents.find((one) => one.id === labels["agent"]);
    if (!agent || value * 1000 < ABSENT) return [];
    const text = `None has been connected for ${lasting(value * 1000)}. ${queue(agent)}`;
    return [{ kind: "bad", title: `${agent.name} has no worker`, text, link: href(["agents", agent.id]) } as const];
  });
}

function webhooks(numbers: Numbers | undefined): Concern[] {
  const [dead, since] = [largest(numbers, "dragoman_pushes_dead"), largest(numbers, "dragoman_push_failing_seconds") * 1000];
  if (!dead && since < MINUTE) return [];
  const parts = [dead && `${plural(dead, "receiver")} given up`, since && `one receiver has failed for ${lasting(since)}`];
  const text = `${parts.filter(Boolean).join(", ")}.`;
  return [{ kind: "bad", title: "Webhooks fail", text: text.charAt(0).toUpperCase() + text.slice(1), link: "#/webhooks" }];
}

/** The list of an agent's tasks, or of all agents, in a state; `age`: of `filters.ts`. */
export function tasksOf(agent: string, state: string, age = ""): string {
  return href(["tasks"], { agent, state, age });
}
