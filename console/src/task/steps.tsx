// The durable steps of a task, by turn: state, attempt, start, duration, size of the result, error.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, call, encodeSegment } from "../shared/api";
import { ErrorMessage } from "../shared/components";
import { formatBytes, formatDuration, formatIsoTime, formatTimeOfDay, now, plural } from "../shared/format";
import { isTerminal, isWaiting, type Explanation, type TaskStep } from "../shared/messages";
import { usePolling } from "../shared/polling";
import { StepContents } from "./step_contents";

/** Milliseconds between two calls while the task works: short after a change, then longer. Each call is audited. */
const MIN_INTERVAL_MS = 3_000;
const MAX_INTERVAL_MS = 10_000;
const MAX_PAUSE_INTERVAL_MS = 60_000;

/** The number of steps that are shown at first, the newest. */
const INITIAL_STEPS = 200;

interface StepsProps {
  /** The explanation of the task, with its principal. */
  explanation: Explanation;
  /** When the explanation was received: the steps are read after it. */
  receivedAt: number;
  /** The number of the last event. Steps take none, but are often followed by one. */
  last: number;
}

/** The steps of a task, read again while it works. `of`: the explanation that was known when they were read. */
export function useSteps(explanation: Explanation, receivedAt: number, last: number) {
  const event = useThrottled(last, MIN_INTERVAL_MS, !isTerminal(explanation.state));
  const backoff = useRef({ seen: "", wait: MIN_INTERVAL_MS });
  return usePolling(
    (stop) => readSteps(explanation, stop),
    (result) => {
      if (!mayHaveTurn(explanation.state) || result?.steps.length === 0) return 0; // until the next event or explanation
      const stepsJson = JSON.stringify(result?.steps);
      const intervalMs = stepsJson === backoff.current.seen ? Math.min(backoff.current.wait * 2, MAX_INTERVAL_MS) : MIN_INTERVAL_MS;
      backoff.current = { seen: stepsJson, wait: intervalMs };
      return msUntilWake(result?.steps ?? []) ?? intervalMs;
    },
    [explanation.taskId, explanation.agent, explanation.scope, explanation.principal],
    [receivedAt, event],
  );
}

export function Steps({ explanation, receivedAt, last }: StepsProps) {
  const { value, error } = useSteps(explanation, receivedAt, last);
  const [showsAll, setShowsAll] = useState(false);
  // Only callers with the operator grant see an explanation, but the grant may end in between.
  const forbidden = error instanceof ApiError && [401, 403, 404].includes(error.status);
  const steps = value?.steps ?? [];
  if (!steps.length && (!error || forbidden)) return null;
  const shownSteps = showsAll ? steps : steps.slice(-INITIAL_STEPS);
  // The task as it was when the steps were read: a newer explanation would show running steps as interrupted.
  const { state, since } = value?.turnViews ?? explanation;
  const ended = isTerminal(state);
  const at = mayHaveTurn(state) && steps.some(isOpen) ? now.value : ended ? Number(since ?? 0) : Date.now();
  const views = shownSteps.map((step) => stepView(step, mayHaveTurn(state), at));
  const maxDurationMs = Math.max(1, ...views.map((each) => each.durationMs ?? 0));
  const turns = [...new Set(shownSteps.map((step) => step.turn ?? "0"))];
  return (
    <section class="steps" aria-label="Steps">
      <h3>Steps {steps.length > 0 && <span class="count">{steps.length}</span>}</h3>
      {error && !forbidden ? <ErrorMessage error={error} /> : null}
      {shownSteps.length < steps.length && (
        <p class="faint">
          The last {INITIAL_STEPS} steps.{" "}
          <button type="button" class="plain" onClick={() => setShowsAll(true)}>
            Show all
          </button>
        </p>
      )}
      {turns.map((turn) => {
        const turnViews = views.filter((each) => (each.step.turn ?? "0") === turn);
        const table = (
          <Table
            explanation={explanation}
            views={turnViews}
            maxDurationMs={maxDurationMs}
            label={turn === "0" ? "Steps of the turn" : `Steps of the turn to message ${turn}`}
          />
        );
        if (turns.length === 1 && turn === "0") return table;
        return (
          <details key={turn} open={turn === turns.at(-1)}>
            <summary>
              {turn !== "0" ? `Turn that ended with message ${turn}` : ended ? "Last turn" : "Current turn"}{" "}
              <span class="faint">{plural(turnViews.length, "step")}</span>
            </summary>
            {table}
          </details>
        );
      })}
    </section>
  );
}

/** Whether a task in this state may have a turn that goes on. */
function mayHaveTurn(state: string): boolean {
  return !isTerminal(state) && !isWaiting(state);
}

async function readSteps(explanation: Explanation, signal: AbortSignal): Promise<{ steps: TaskStep[]; turnViews: Explanation }> {
  const query = new URLSearchParams({ agent: explanation.agent ?? "", scope: explanation.scope ?? "", principal: explanation.principal ?? "" });
  const result = await call<{ steps?: TaskStep[] }>(`operations/tasks/${encodeSegment(explanation.taskId)}/steps?${query}`, { signal });
  return { steps: result.steps ?? [], turnViews: explanation };
}

/** The value, changed at most every `intervalMs`, and only if `enabled`. */
function useThrottled<T>(value: T, intervalMs: number, enabled: boolean): T {
  const [shownSteps, show] = useState(value);
  const changed = useRef(Date.now());
  useEffect(() => {
    if (value === shownSteps || !enabled) return;
    const timer = setTimeout(
      () => {
        changed.current = Date.now();
        show(value);
      },
      Math.max(0, changed.current + intervalMs - Date.now()),
    );
    return () => clearTimeout(timer);
  }, [value, shownSteps, enabled]);
  return shownSteps;
}

/** Whether a step of the current turn has not ended. */
function isOpen(step: TaskStep): boolean {
  return !step.turn && /RUNNING|SLEEPING/.test(step.state);
}

/** How long nothing can change, because all that is left is a pause; undefined if something may. */
function msUntilWake(steps: readonly TaskStep[]): number | undefined {
  const open = steps.filter(isOpen);
  const wakes = open.map((step) => (step.wakeAt ? Date.parse(step.wakeAt) - Date.now() : 0));
  const first = Math.min(...wakes);
  return open.length > 0 && first > MIN_INTERVAL_MS ? Math.min(first + 1_000, MAX_PAUSE_INTERVAL_MS) : undefined;
}

interface StepView {
  step: TaskStep;
  state: "running" | "done" | "failed" | "sleeping" | "slept" | "interrupted";
  /** Milliseconds from the start of the first attempt; undefined for pauses, and if the end is not known. */
  durationMs?: number;
}

/** How a step is shown at a time. The record of a step that is interrupted by the end of its turn stays as it was. */
function stepView(step: TaskStep, turnGoesOn: boolean, at: number): StepView {
  const current = turnGoesOn && !step.turn;
  if (step.wakeAt) {
    if (Date.parse(step.wakeAt) <= at) return { step, state: "slept" };
    return { step, state: current ? "sleeping" : "interrupted" };
  }
  const started = Date.parse(step.started);
  if (step.state === "TASK_STEP_STATE_RUNNING") {
    return current ? { step, state: "running", durationMs: Math.max(0, at - started) } : { step, state: "interrupted" };
  }
  const state = step.state === "TASK_STEP_STATE_DONE" ? "done" : "failed";
  return { step, state, durationMs: step.ended ? Date.parse(step.ended) - started : undefined };
}

// The roles are those of the elements. Some browsers forget them in the narrow layout, where rows are no table rows.
function Table({ explanation, views, maxDurationMs, label }: { explanation: Explanation; views: readonly StepView[]; maxDurationMs: number; label: string }) {
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
          <Row key={each.step.name} explanation={explanation} row={each} maxDurationMs={maxDurationMs} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ explanation, row: { step, state, durationMs }, maxDurationMs }: { explanation: Explanation; row: StepView; maxDurationMs: number }) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <tr role="row" class={step.error && "followed"}>
        <th scope="row" role="rowheader">
          {step.wakeAt ? (
            <code>{step.name}</code>
          ) : (
            <button type="button" class="plain opener" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
              <code>{step.name}</code>
            </button>
          )}
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
          <StartTime time={step.started} />
        </td>
        <td role="cell" class="lasted">
          {step.wakeAt && (
            <>
              until <StartTime time={step.wakeAt} />
            </>
          )}
          {durationMs !== undefined && (
            <div>
              <span>{formatDuration(durationMs)}</span>
              <DurationBar share={durationMs / maxDurationMs} state={state} />
            </div>
          )}
        </td>
        <td role="cell" class="size">
          {state === "done" && formatBytes(Number(step.resultBytes ?? 0))}
        </td>
      </tr>
      {step.error && (
        <tr role="row">
          <td role="cell" colSpan={6} class={state === "failed" ? "error" : "error faint"}>
            {state === "failed" ? step.error : `Earlier error: ${step.error}`}
          </td>
        </tr>
      )}
      {isOpen && (
        <tr role="row" class="contents">
          <td role="cell" colSpan={6}>
            <StepContents explanation={explanation} step={step} />
          </td>
        </tr>
      )}
    </>
  );
}

/** The time of day; with the date, if it is another day. */
function StartTime({ time }: { time: string }) {
  const at = new Date(time);
  const today = at.toDateString() === new Date().toDateString();
  return (
    <time dateTime={formatIsoTime(time)} title={formatIsoTime(time)}>
      {!today && `${at.toLocaleDateString("en", { day: "numeric", month: "short" })} `}
      {formatTimeOfDay(time)}
    </time>
  );
}

function DurationBar({ share, state }: { share: number; state: string }) {
  return (
    <svg viewBox="0 0 100 1" preserveAspectRatio="none" data-state={state} aria-hidden="true">
      <rect width={(100 * share).toFixed(2)} height="1" />
    </svg>
  );
}
