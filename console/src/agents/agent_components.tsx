// What the overview and the pages of agents share: figures of an agent, durations of turns, and pausing.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { quantile, type Numbers } from "../shared/metrics";
import { ended, HOURS, pausedBy, tasksOf, type AgentNow, type Hour, type Tasks } from "./agent_activity";
import { Ago, Problem } from "../shared/components";
import { amount, percent, sum, took } from "../shared/format";
import { call, segment } from "../shared/api";
import { operates } from "../shared/sign_in";

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

interface Switch {
  agent: AgentNow;
  /** Called after a change. */
  again: () => void;
}

/** Pauses or resumes the agent, for those who may. */
export function PauseSwitch({ agent, again }: Switch) {
  if (!operates.value) return null;
  return agent.pause ? <Resume agent={agent} again={again} /> : <Pause agent={agent} again={again} />;
}

function Resume({ agent, again }: Switch) {
  const failed = useSignal<unknown>(undefined);
  const resume = async () => {
    failed.value = undefined;
    try {
      await call(`operations/agents/${segment(agent.id)}:resume`, { body: {} });
    } catch (error) {
      failed.value = error;
    }
    again();
  };
  return (
    <>
      <button type="button" class="primary" onClick={() => void resume()}>
        Resume
      </button>
      <Problem error={failed.value} />
    </>
  );
}

/** Asks for a reason, which others see, and pauses the agent. */
function Pause({ agent, again }: Switch) {
  const dialog = useRef<HTMLDialogElement>(null);
  const reason = useSignal("");
  const failed = useSignal<unknown>(undefined);
  const pause = async (event: SubmitEvent) => {
    event.preventDefault();
    failed.value = undefined;
    try {
      await call(`operations/agents/${segment(agent.id)}:pause`, { body: { reason: reason.value.trim() } });
      dialog.current?.close();
      again();
    } catch (error) {
      failed.value = error;
    }
  };
  return (
    <>
      <button type="button" onClick={() => dialog.current?.showModal()}>
        Pause
      </button>
      <dialog ref={dialog} aria-labelledby="pause-title" onClose={() => (failed.value = undefined)}>
        <h2 id="pause-title">Pause {agent.name}?</h2>
        <p>Running turns go on. New tasks and messages wait in the queue until the agent is resumed.</p>
        <form onSubmit={(event) => void pause(event)}>
          <label>
            Reason, for other operators
            <input value={reason.value} maxLength={200} onInput={(event) => (reason.value = event.currentTarget.value)} />
          </label>
          <Problem error={failed.value} />
          <div class="buttons">
            <button type="submit" class="primary">
              Pause
            </button>
            <button type="button" onClick={() => dialog.current?.close()}>
              Close
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}

export function PauseNote({ now }: { now: AgentNow }) {
  if (!now.pause) return null;
  const { since, reason } = now.pause;
  return (
    <p class="notice">
      Paused <Ago time={since} after=" ago" />
      {pausedBy(now.pause)}
      {reason ? `: ${reason}` : "."}
    </p>
  );
}

/** What the agent does now and did in the last hours, each with a link to the tasks. */
export function Figures({ now, numbers }: { now: AgentNow; numbers: Numbers | undefined }) {
  const [failed, all] = [sum(now.hours.map((one) => one.failed)), sum(now.hours.map(ended))];
  const link = (of: Tasks, state: string) => (of.count ? <a href={tasksOf(now.id, state)}>{amount(of)}</a> : 0);
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
