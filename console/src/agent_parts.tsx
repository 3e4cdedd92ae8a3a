// What the overview and the pages of agents share: figures of an agent and durations of turns.

import type { ComponentChildren } from "preact";
import { quantile, type Numbers } from "./numbers";
import { ended, HOURS, many, tasksOf, type AgentNow, type Hour, type Tasks } from "./overview_data";
import { percent, sum, took } from "./say";

/** The quantile of the durations of an agent's turns. */
export function Latency({ numbers, agent, share }: { numbers: Numbers | undefined; agent: string; share: number }) {
  const seconds = quantile(numbers, share, "dragoman_run_duration_seconds", (labels) => labels["agent"] === agent);
  return <>{seconds === undefined ? "–" : took(seconds * 1000)}</>;
}

/** The mean duration of the turns in these hours. */
export function TurnTime({ hours }: { hours: readonly Hour[] }) {
  const turns = sum(hours.map((one) => one.turns));
  return <>{turns ? took((sum(hours.map((one) => one.turnSeconds)) / turns) * 1000) : "–"}</>;
}

/** What the agent does now and did in the last hours, each with a link to the tasks. */
export function Figures({ now, numbers }: { now: AgentNow; numbers: Numbers | undefined }) {
  const [failed, all] = [sum(now.hours.map((one) => one.failed)), sum(now.hours.map(ended))];
  const link = (of: Tasks, state: string) => (of.count ? <a href={tasksOf(now.id, state)}>{many(of)}</a> : 0);
  const facts: readonly (readonly [string, ComponentChildren])[] = [
    ["in the queue", link(now.queued, "SUBMITTED")],
    ["running", link(now.running, "WORKING")],
    ["waiting for callers", link(now.asking, "INPUT_REQUIRED")],
    [`failed in ${HOURS} h`, failed ? <a href={tasksOf(now.id, "FAILED", "day")}>{percent(failed, all)}</a> : "0 %"],
    ["p50 of turns", numbers && <Latency numbers={numbers} agent={now.id} share={0.5} />],
    ["p95 of turns", numbers && <Latency numbers={numbers} agent={now.id} share={0.95} />],
  ];
  return (
    <dl class="figures-line">
      {facts
        .filter(([, value]) => value !== undefined)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** The local time at which an hour begins. */
export function hourText(at: number): string {
  return new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

export function outcomes(hours: readonly Hour[]) {
  return [
    { name: "completed", tone: "main", values: hours.map((one) => one.completed) },
    { name: "canceled or rejected", tone: "quiet", values: hours.map((one) => one.canceled + one.rejected) },
    { name: "failed", tone: "bad", values: hours.map((one) => one.failed) },
  ] as const;
}
