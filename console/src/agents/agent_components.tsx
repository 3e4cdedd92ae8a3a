// Components that the overview and the pages of agents share: figures of an agent, durations of turns, and pausing.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { call, encodeSegment } from "../shared/api";
import { ErrorMessage, TimeSince, Zero } from "../shared/components";
import { formatCount, formatDuration, formatNumber, formatPercent, sum } from "../shared/format";
import { canOperate } from "../shared/sign_in";
import { endedTasks, failuresHref, HOURS, pausedByText, taskListHref, type AgentActivity, type HourFigures, type OpenTaskCount } from "./agent_activity";

type TimeColumn = readonly [name: string, time: (activity: AgentActivity) => number | undefined];

/** The columns of times in the table of agents. */
export const AGENT_TIMES: readonly TimeColumn[] = [
  ["Turn, p50", ({ turns }) => turns?.p50],
  ["p95", ({ turns }) => turns?.p95],
];

/** The columns of times in the overview. */
export const OVERVIEW_TIMES: readonly TimeColumn[] = [
  ["Turn, mean", ({ turns }) => turns?.mean],
  ...AGENT_TIMES,
  ["Wait, p50", ({ queue }) => queue?.p50],
  ["p95", ({ queue }) => queue?.p95],
];

/** The period of the figures in tables of agents. */
export function PeriodNote() {
  return <p class="faint">Failures and times of turns are of the last {HOURS} hours; tasks in the queue, running and waiting are of now.</p>;
}

/** The cells of columns of times. */
export function TimeCells({ activity, columns }: { activity: AgentActivity | undefined; columns: readonly TimeColumn[] }) {
  return (
    <>
      {columns.map(([title, time], index) => (
        <td key={index} data-label={title}>{formatTime(activity && time(activity))}</td>
      ))}
    </>
  );
}

function formatTime(time: number | undefined) {
  return time === undefined ? <Zero>–</Zero> : formatDuration(time);
}

interface PauseSwitchProps {
  agent: AgentActivity;
  /** Called after a change. */
  refresh: () => void;
}

/** Pauses or resumes the agent; nothing for users without the grant. */
export function PauseSwitch({ agent, refresh }: PauseSwitchProps) {
  if (!canOperate.value) return null;
  return agent.pause ? <ResumeButton agent={agent} refresh={refresh} /> : <PauseButton agent={agent} refresh={refresh} />;
}

function ResumeButton({ agent, refresh }: PauseSwitchProps) {
  const failure = useSignal<unknown>(undefined);
  const resume = async () => {
    failure.value = undefined;
    try {
      await call(`operations/agents/${encodeSegment(agent.id)}:resume`, { body: {} });
    } catch (error) {
      failure.value = error;
    }
    refresh();
  };
  return (
    <>
      <button type="button" class="primary" onClick={() => void resume()}>
        Resume
      </button>
      <ErrorMessage error={failure.value} />
    </>
  );
}

/** Asks for a reason, which others see, and pauses the agent. */
function PauseButton({ agent, refresh }: PauseSwitchProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const reason = useSignal("");
  const failure = useSignal<unknown>(undefined);
  const pause = async (event: SubmitEvent) => {
    event.preventDefault();
    failure.value = undefined;
    try {
      await call(`operations/agents/${encodeSegment(agent.id)}:pause`, { body: { reason: reason.value.trim() } });
      dialog.current?.close();
      refresh();
    } catch (error) {
      failure.value = error;
    }
  };
  return (
    <>
      <button type="button" onClick={() => dialog.current?.showModal()}>
        Pause
      </button>
      <dialog ref={dialog} aria-labelledby="pause-title" onClose={() => (failure.value = undefined)}>
        <h2 id="pause-title">Pause {agent.name}?</h2>
        <p>Running turns go on. New tasks and messages wait in the queue until the agent is resumed.</p>
        <form onSubmit={(event) => void pause(event)}>
          <label>
            Reason, for other operators
            <input value={reason.value} maxLength={200} onInput={(event) => (reason.value = event.currentTarget.value)} />
          </label>
          <ErrorMessage error={failure.value} />
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

export function PauseNote({ activity }: { activity: AgentActivity }) {
  if (!activity.pause) return null;
  const { since, reason } = activity.pause;
  return (
    <p class="notice">
      Paused <TimeSince time={since} suffix=" ago" />
      {pausedByText(activity.pause)}
      {reason ? `: ${reason}` : "."}
    </p>
  );
}

/** A number of tasks that links to them, and how long the oldest has been in this state. */
export function TaskCountLink({ tasks, link }: { tasks: OpenTaskCount; link: string }) {
  if (!tasks.count) return <Zero />;
  return (
    <>
      <a href={link}>{formatCount(tasks)}</a>{" "}
      {tasks.oldest !== undefined && (
        <small>
          <TimeSince time={tasks.oldest} />
        </small>
      )}
    </>
  );
}

/** The failed tasks of the last hours, with their share of those that ended. */
export function FailedCount({ agent, failed, all }: { agent: string; failed: number; all: number }) {
  if (!failed) return <Zero />;
  return (
    <>
      <a href={failuresHref(agent)}>{formatNumber(failed)}</a> <small>{formatPercent(failed, all)}</small>
    </>
  );
}

/** The agent's open tasks and its outcomes of the last hours, each with a link to the tasks. */
export function ActivityFigures({ activity }: { activity: AgentActivity }) {
  const { turns, queue } = activity;
  const [failure, all] = [sum(activity.hours.map((hour) => hour.failed)), sum(activity.hours.map(endedTasks))];
  const taskLink = (tasks: OpenTaskCount, state: string) => (tasks.count ? <a href={taskListHref(activity.id, state)}>{formatCount(tasks)}</a> : <Zero />);
  const facts: readonly (readonly [string, ComponentChildren])[] = [
    ["in the queue", taskLink(activity.queued, "SUBMITTED")],
    ["running", taskLink(activity.running, "WORKING")],
    ["waiting for callers", taskLink(activity.waiting, "INPUT_REQUIRED")],
    [`failed in ${HOURS} h`, failure ? <a href={failuresHref(activity.id)}>{formatPercent(failure, all)}</a> : <Zero>0 %</Zero>],
    [`turn in ${HOURS} h, mean`, turns && formatDuration(turns.mean)],
    ["p50", turns && formatDuration(turns.p50)],
    ["p95", turns && formatDuration(turns.p95)],
    [`wait for a turn in ${HOURS} h, p95`, queue && formatDuration(queue.p95)],
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
export function formatHour(at: number): string {
  return new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

export function outcomeSeries(hours: readonly HourFigures[]) {
  return [
    { name: "completed", tone: "main", values: hours.map((hour) => hour.completed) },
    { name: "canceled or rejected", tone: "quiet", values: hours.map((hour) => hour.canceled + hour.rejected) },
    { name: "failed", tone: "bad", values: hours.map((hour) => hour.failed) },
  ] as const;
}
