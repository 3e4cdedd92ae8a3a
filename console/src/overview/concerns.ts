// The conditions that need an operator: stuck tasks, failing or paused agents, absent workers, failing webhooks.

import { endedTasks, failuresHref, pausedByText, taskListHref, type AgentActivity, type Overview } from "../agents/agent_activity";
import { call } from "../shared/api";
import { formatCoarseDuration, formatCount, formatPercent, formatTimeSince, plural, sum } from "../shared/format";
import { maxValue, type Metrics } from "../shared/metrics";
import type { ListedTasks } from "../shared/messages";
import { href } from "../shared/route";

const MINUTE_MS = 60_000;

/** A task that waits longer for a turn is stuck. */
const STUCK_AFTER_MS = 10 * MINUTE_MS;
/** An agent fails if at least so many tasks, and such a share, failed in the last hours. */
export const FAILING_TASKS = 3;
const FAILING_SHARE = 0.1;
export const FAILING_HOURS = 3;
/** Workers that restart are absent for less. */
const ABSENT_AFTER_MS = MINUTE_MS;

/** Something that an operator should see first. */
export interface Concern {
  kind: "bad" | "notice";
  title: string;
  text: string;
  link: string;
  /** The agent, if it is paused. */
  paused?: AgentActivity;
}

/** `7 tasks in the queue.` */
function queueText(agent: AgentActivity): string {
  if (!agent.queued.count) return "Nothing is in its queue.";
  return `${formatCount(agent.queued)} ${agent.queued.count === 1 ? "task" : "tasks"} in the queue.`;
}

/** The concerns of an overview, the most urgent first. */
export async function findConcerns({ agents, metrics, receivedAt }: Overview, signal: AbortSignal): Promise<Concern[]> {
  const failing = await Promise.all(agents.map((agent) => failingConcerns(agent, signal)));
  return [
    ...agents.flatMap((agent) => stuckConcerns(agent, receivedAt)),
    ...absentWorkerConcerns(agents, metrics),
    ...failing.flat(),
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

async function failingConcerns({ id, name, hours, pause }: AgentActivity, signal: AbortSignal): Promise<Concern[]> {
  if (pause) return [];
  const last = hours.slice(-FAILING_HOURS);
  const [counted, all] = [sum(last.map((hour) => hour.failed)), sum(last.map(endedTasks))];
  const isFailing = (failed: number) => failed >= FAILING_TASKS && failed >= all * FAILING_SHARE;
  if (!isFailing(counted)) return [];
  // Figures outlive their tasks: those that were erased need nobody.
  const since = new Date(last[0]?.start ?? 0).toISOString();
  const query = new URLSearchParams({ agent: id, state: "TASK_STATE_FAILED", changedSince: since, limit: "1" });
  const { total = "0", totalIsMinimum, tasks } = await call<ListedTasks>(`operations/tasks?${query}`, { signal });
  const failed = totalIsMinimum ? counted : Math.min(counted, Number(total));
  if (!isFailing(failed)) return [];
  const reason = tasks?.[0]?.failureText; // for operators
  const share = `${formatPercent(failed, all)} of ${plural(all, "task")} that ended in the last ${FAILING_HOURS} hours failed`;
  const text = reason ? `${share}, the last one with ${reason}` : `${share}.`;
  return [{ kind: "bad", title: `${name} is failing`, text, link: failuresHref(id) }];
}

function pausedConcerns(agent: AgentActivity): Concern[] {
  if (!agent.pause) return [];
  const { reason, since } = agent.pause;
  const text = `For ${formatTimeSince(since)}${pausedByText(agent.pause)}${reason ? `: ${reason}` : ""}. ${queueText(agent)}`;
  return [{ kind: "notice", title: `${agent.name} is paused`, text, link: href(["agents", agent.id]), paused: agent }];
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
