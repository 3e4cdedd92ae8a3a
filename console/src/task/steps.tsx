// The durable steps of a task, by turn: state, attempt, start, duration, size of the result, error.

import { useEffect, useRef, useState } from "preact/hooks";
import { useAsked } from "../shared/polling";
import { Problem } from "../shared/components";
import { bytes, clock, full, now, plural, took } from "../shared/format";
import { call, Failure, segment } from "../shared/api";
import { isTerminal, isWaiting, type Explanation, type TaskStep } from "../shared/messages";

/** Milliseconds between two calls while the task works: short after a change, then longer. Each call is audited. */
const SOON = 3_000;
const LATE = 10_000;
const ASLEEP = 60_000;

/** The number of steps that are shown at first, the newest. */
const MOST = 200;

interface Shown {
  /** The explanation of the task, which says whose task it is. */
  one: Explanation;
  /** When the explanation was received: the steps are read after it. */
  asked: number;
  /** The number of the last event. Steps take none, but are often followed by one. */
  last: number;
}

/** The steps of a task, read again while it works. `of`: the explanation that was known when they were read. */
export function useSteps(one: Explanation, asked: number, last: number) {
  const event = useThrottled(last, SOON, !isTerminal(one.state));
  const pace = useRef({ seen: "", wait: SOON });
  return useAsked(
    (stop) => read(one, stop),
    (found) => {
      if (!works(one.state) || found?.steps.length === 0) return 0; // until the next event or explanation
      const seen = JSON.stringify(found?.steps);
      const wait = seen === pace.current.seen ? Math.min(pace.current.wait * 2, LATE) : SOON;
      pace.current = { seen, wait };
      return pause(found?.steps ?? []) ?? wait;
    },
    [one.taskId, one.agent, one.scope, one.principal],
    [asked, event],
  );
}

export function Steps({ one, asked, last }: Shown) {
  const { value, error } = useSteps(one, asked, last);
  const [all, setAll] = useState(false);
  // Only callers with the operator grant see an explanation, but the grant may end in between.
  const hidden = error instanceof Failure && [401, 403, 404].includes(error.status);
  const steps = value?.steps ?? [];
  if (!steps.length && (!error || hidden)) return null;
  const shown = all ? steps : steps.slice(-MOST);
  // The task as it was when the steps were read: a newer explanation would show running steps as interrupted.
  const { state, since } = value?.of ?? one;
  const over = isTerminal(state);
  const at = works(state) && steps.some(isOpen) ? now.value : over ? Number(since ?? 0) : Date.now();
  const views = shown.map((step) => view(step, works(state), at));
  const longest = Math.max(1, ...views.map((each) => each.took ?? 0));
  const turns = [...new Set(shown.map((step) => step.turn ?? "0"))];
  return (
    <section class="steps" aria-label="Steps">
      <h3>
        Steps {steps.length > 0 && <span class="count">{steps.length}</span>}
      </h3>
      {error && !hidden ? <Problem error={error} /> : null}
      {shown.length < steps.length && (
        <p class="faint">
          The last {MOST} steps.{" "}
          <button type="button" class="plain" onClick={() => setAll(true)}>
            Show all
          </button>
        </p>
      )}
      {turns.map((turn) => {
        const of = views.filter((each) => (each.step.turn ?? "0") === turn);
        const table = <Table views={of} longest={longest} label={turn === "0" ? "Steps of the turn" : `Steps of the turn to message ${turn}`} />;
        if (turns.length === 1 && turn === "0") return table;
        return (
          <details key={turn} open={turn === turns.at(-1)}>
            <summary>
              {turn !== "0" ? `Turn that ended with message ${turn}` : over ? "Last turn" : "Current turn"}{" "}
              <span class="faint">{plural(of.length, "step")}</span>
            </summary>
            {table}
          </details>
        );
      })}
    </section>
  );
}

/** Whether a task in this state may have a turn that goes on. */
function works(state: string): boolean {
  return !isTerminal(state) && !isWaiting(state);
}

async function read(one: Explanation, signal: AbortSignal): Promise<{ steps: TaskStep[]; of: Explanation }> {
  const query = new URLSearchParams({ agent: one.agent ?? "", scope: one.scope ?? "", principal: one.principal ?? "" });
  const found = await call<{ steps?: TaskStep[] }>(`operations/tasks/${segment(one.taskId)}/steps?${query}`, { signal });
  return { steps: found.steps ?? [], of: one };
}

/** The value, changed at most every `every` milliseconds, and only if `follows`. */
function useThrottled<T>(value: T, every: number, follows: boolean): T {
  const [shown, show] = useState(value);
  const changed = useRef(Date.now());
  useEffect(() => {
    if (value === shown || !follows) return;
    const timer = setTimeout(() => {
      changed.current = Date.now();
      show(value);
    }, Math.max(0, changed.current + every - Date.now()));
    return () => clearTimeout(timer);
  }, [value, shown, follows]);
  return shown;
}

/** Whether a step of the current turn has not ended. */
function isOpen(step: TaskStep): boolean {
  return !step.turn && /RUNNING|SLEEPING/.test(step.state);
}

/** How long nothing can change, because all that is left is a pause; undefined if something may. */
function pause(steps: readonly TaskStep[]): number | undefined {
  const open = steps.filter(isOpen);
  const wakes = open.map((step) => (step.wakeAt ? Date.parse(step.wakeAt) - Date.now() : 0));
  const first = Math.min(...wakes);
  return open.length > 0 && first > SOON ? Math.min(first + 1_000, ASLEEP) : undefined;
}

interface View {
  step: TaskStep;
  state: "running" | "done" | "failed" | "sleeping" | "slept" | "interrupted";
  /** Milliseconds from the start of the first attempt; undefined for pauses, and if the end is not known. */
  took?: number;
}

/** How a step is shown at a time. The record of a step that is interrupted by the end of its turn stays as it was. */
function view(step: TaskStep, goesOn: boolean, at: number): View {
  const current = goesOn && !step.turn;
  if (step.wakeAt) {
    if (Date.parse(step.wakeAt) <= at) return { step, state: "slept" };
    return { step, state: current ? "sleeping" : "interrupted" };
  }
  const started = Date.parse(step.started);
  if (step.state === "TASK_STEP_STATE_RUNNING") {
    return current ? { step, state: "running", took: Math.max(0, at - started) } : { step, state: "interrupted" };
  }
  const state = step.state === "TASK_STEP_STATE_DONE" ? "done" : "failed";
  return { step, state, took: step.ended ? Date.parse(step.ended) - started : undefined };
}

// The roles are those of the elements. Some browsers forget them in the narrow layout, where rows are no table rows.
function Table({ views, longest, label }: { views: readonly View[]; longest: number; label: string }) {
  return (
    <table role="table" aria-label={label}>
      <thead role="rowgroup">
        <tr role="row">
          {["Step", "State", "Attempt", "Started", "Duration", "Result"].map((name) => (
            <th key={name} scope="col" role="columnheader">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {views.map((each) => (
          <Row key={each.step.name} of={each} longest={longest} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ of: { step, state, took: lasted }, longest }: { of: View; longest: number }) {
  return (
    <>
      <tr role="row" class={step.error && "followed"}>
        <th scope="row" role="rowheader">
          <code>{step.name}</code>
        </th>
        <td role="cell">
          <span class="state" data-state={state}>
            {state}
          </span>
        </td>
        <td role="cell" class="attempt">
          {step.attempt ?? 1}
        </td>
        <td role="cell">
          <Moment time={step.started} />
        </td>
        <td role="cell" class="lasted">
          {step.wakeAt && (
            <>
              until <Moment time={step.wakeAt} />
            </>
          )}
          {lasted !== undefined && (
            <div>
              <span>{took(lasted)}</span>
              <Bar share={lasted / longest} state={state} />
            </div>
          )}
        </td>
        <td role="cell" class="size">
          {state === "done" && bytes(Number(step.resultBytes ?? 0))}
        </td>
      </tr>
      {step.error && (
        <tr role="row">
          <td role="cell" colSpan={6} class={state === "failed" ? "error" : "error faint"}>
            {state === "failed" ? step.error : `Earlier error: ${step.error}`}
          </td>
        </tr>
      )}
    </>
  );
}

/** The time of day; with the date, if it is another day. */
function Moment({ time }: { time: string }) {
  const at = new Date(time);
  const today = at.toDateString() === new Date().toDateString();
  return (
    <time dateTime={full(time)} title={full(time)}>
      {!today && `${at.toLocaleDateString("en", { day: "numeric", month: "short" })} `}
      {clock(time)}
    </time>
  );
}

function Bar({ share, state }: { share: number; state: string }) {
  return (
    <svg viewBox="0 0 100 1" preserveAspectRatio="none" data-state={state} aria-hidden="true">
      <rect width={(100 * share).toFixed(2)} height="1" />
    </svg>
  );
}
