// The spans of a task's waterfall, from its events, steps, deliveries and delegated tasks.

import { plural } from "../shared/format";
import { isTerminal, isWaiting, type DelegatedTask, type PushConfig, type TaskStep } from "../shared/messages";
import type { Line } from "./projection";

export type Kind = "queued" | "turn" | "attempt" | "waiting" | "step" | "pause" | "delivery" | "delegated";

export interface Interval {
  from: number;
  to: number;
  failed?: boolean;
}

/** One row of the waterfall. Times are in milliseconds since the epoch. */
export interface Span extends Interval {
  kind: Kind;
  name: string;
  /** How deep it is in the hierarchy: 1 is a part of a turn. */
  depth: number;
  /** It goes on: `to` is now. */
  open?: boolean;
  /** The bars to draw, if not one from start to end. */
  bars?: Interval[];
  /** Times of reports within it. */
  marks?: number[];
  note?: string;
  /** The event with which it began. */
  event?: number;
  delegated?: DelegatedTask;
  step?: TaskStep;
}

interface StatusEvent {
  at: number;
  state: string;
  sequence: number;
  attempt?: number;
  error?: string;
  hasMessage: boolean;
}

/**
 * Phases of the task itself: in the queue, in a turn with its attempts, waiting for its caller. `claimedAt`: when the last
 * turn was claimed, if that is known; the event that shows it is later.
 */
export function phaseSpans(lines: readonly Line[], now: number, claimedAt = 0): Span[] {
  const spans: Span[] = [];
  let open: Span | undefined;
  let attempt: Span | undefined;
  let turns = 0;
  let isSilent = false;
  const end = (at: number) => {
    if (open) open.to = at;
    if (attempt) attempt.to = at;
    open = attempt = undefined;
  };
  const begin = (span: Span) => {
    spans.push(span);
    return span;
  };
  const defaults = { depth: 0, marks: [] };
  for (const status of statuses(lines)) {
    const { at, state, sequence } = status;
    const position = { from: at, to: at, event: sequence };
    // A turn that reports nothing has no event of its own: it began somewhere in the time until its end.
    if (open?.kind === "queued" && (isWaiting(state) || /(COMPLETED|FAILED|REJECTED)$/.test(state))) {
      Object.assign(open, { kind: "turn", name: `Turn ${++turns}` });
      isSilent = true;
    }
    if (isTerminal(state)) {
      end(at);
    } else if (isWaiting(state)) {
      end(at);
      const name = /AUTH/.test(state) ? "Waiting for a sign-in" : "Waiting for an answer";
      open = begin({ ...defaults, ...position, kind: "waiting", name });
    } else if (/SUBMITTED$/.test(state)) {
      end(at);
      open = begin({ ...defaults, ...position, kind: "queued", name: "In the queue" });
    } else if (open?.kind !== "turn") {
      end(at);
      open = begin({ ...defaults, ...position, marks: [], kind: "turn", name: `Turn ${++turns}` });
    }
    if (open?.kind !== "turn" || !/WORKING$/.test(state)) continue;
    if (status.attempt) {
      const before = `Attempt ${status.attempt - 1}`;
      attempt ??= begin({ ...defaults, kind: "attempt", depth: 1, name: before, from: open.from, to: at });
      attempt.to = at;
      attempt.failed = true;
      attempt.note = status.error;
      attempt = begin({ ...defaults, ...position, kind: "attempt", depth: 1, name: `Attempt ${status.attempt}` });
    } else if (status.hasMessage) {
      open.marks?.push(at);
    }
  }
  for (const span of [open, attempt]) {
    if (span) Object.assign(span, { to: Math.max(now, span.from), open: true });
  }
  const last = lines.at(-1);
  const failed = /(FAILED|REJECTED)$/.test(last?.state ?? "");
  const turn = spans.findLast((span) => span.kind === "turn" || span.kind === "attempt");
  if (failed && turn) turn.failed = true;
  const first = turns === 1 ? spans.find((span) => span.kind === "turn") : undefined;
  if (first && claimedAt && claimedAt < (isSilent ? first.to + 1 : first.from)) beginTurn(spans, first, claimedAt);
  return spans.filter((span) => span.kind !== "queued" || span.open || span.to > span.from);
}

/** Begins a turn at another time, which ends the time in the queue before it. */
function beginTurn(spans: Span[], turn: Span, at: number) {
  const index = spans.indexOf(turn);
  const before = spans[index - 1];
  const attempt = spans[index + 1];
  if (before?.kind === "queued") before.to = at;
  else if (at > turn.from) spans.splice(index, 0, { kind: "queued", name: "In the queue", depth: 0, from: turn.from, to: at });
  if (attempt?.kind === "attempt") attempt.from = at;
  turn.from = at;
}

function statuses(lines: readonly Line[]): StatusEvent[] {
  return lines
    .filter((line) => line.time && line.state && (line.kind === "created" || line.kind === "status"))
    .map((line) => ({
      at: Date.parse(line.time as string),
      state: line.state as string,
      sequence: line.first,
      attempt: line.attempt,
      error: line.error,
      hasMessage: !!line.message,
    }));
}

/** The phases with the steps and delegated tasks of each turn below it. */
export function nestInTurns(phases: readonly Span[], parts: readonly Span[]): Span[] {
  const phaseSpans = phases.map((span) => ({ ...span }));
  for (const [index, turn] of phaseSpans.entries()) {
    const queued = phaseSpans[index - 1];
    if (turn.kind !== "turn" || queued?.kind !== "queued") continue;
    // The event of a turn's begin is written after the begin: a step that began before it belongs to the turn, too.
    const first = parts.find((part) => part.from >= queued.from && part.from < turn.from);
    if (first) turn.from = queued.to = first.from;
  }
  const turns = phaseSpans.filter((span) => span.kind === "turn");
  const all: Span[] = [];
  // A step may begin in the millisecond before the status of its turn.
  const turnAround = (part: Span) => turns.findLast((turn) => turn.from <= part.from + 5) ?? turns[0];
  const [begun, queued] = [Math.min(...parts.map((part) => part.from)), phaseSpans[0]];
  const first = turns[0];
  if (first && begun < first.from && queued) {
    // The event of a turn is later than its first step.
    if (queued.kind === "queued") queued.to = Math.max(begun, queued.from);
    first.from = Math.max(begun, queued.from);
  }
  for (const [index, span] of phaseSpans.entries()) {
    all.push(span);
    const turn = turns.findLast((turn) => turn.from <= span.from);
    if (turn && (span.kind === "turn" || span.kind === "attempt") && phaseSpans[index + 1]?.kind !== "attempt")
      all.push(...parts.filter((part) => turnAround(part) === turn));
  }
  return turns.length ? all : [...all, ...parts];
}

export function stepSpans(steps: readonly TaskStep[], isRunning: boolean, ended: number, now: number): Span[] {
  return steps.map((step) => {
    const from = Date.parse(step.started);
    const isOpen = isRunning && !step.turn && /RUNNING|SLEEPING/.test(step.state);
    const until = step.wakeAt ? Math.min(Date.parse(step.wakeAt), isOpen ? now : ended || now) : 0;
    const to = until || (step.ended ? Date.parse(step.ended) : isOpen ? now : from);
    return {
      kind: step.wakeAt ? "pause" : "step",
      name: step.name,
      depth: 1,
      from,
      to: Math.max(from, to),
      open: isOpen && !(until && until < now),
      failed: /FAILED/.test(step.state),
      step: step.wakeAt ? undefined : step,
      note: [(step.attempt ?? 1) > 1 ? `attempt ${step.attempt}` : "", step.error ?? ""].filter(Boolean).join(": "),
    };
  });
}

export function delegatedSpans(tasks: readonly DelegatedTask[], now: number): Span[] {
  return tasks.map((task) => {
    const ended = isTerminal(task.state);
    return {
      kind: "delegated",
      name: task.agent,
      depth: 1,
      from: Number(task.created),
      to: Math.max(Number(task.created), ended ? Number(task.since) : now),
      open: !ended,
      failed: /(FAILED|REJECTED)$/.test(task.state),
      delegated: task,
    };
  });
}

/** One row for each receiver, with a bar for each of its last attempts. */
export function deliverySpans(configs: readonly PushConfig[]): Span[] {
  return configs.flatMap((config) => {
    const bars = (config.attempts ?? [])
      .map(({ time, milliseconds = 0, status = 0 }) => {
        const to = Date.parse(time);
        return { from: to - milliseconds, to, failed: status < 200 || status > 299 };
      })
      .reverse();
    const [first] = bars;
    if (!first) return [];
    const tries = plural(config.attemptCount ?? bars.length, "attempt");
    const note = `${config.delivered ?? 0} of ${config.last ?? 0} events delivered, ${tries}`;
    const name = URL.canParse(config.url) ? new URL(config.url).host : config.url;
    const to = Math.max(...bars.map((bar) => bar.to));
    return { kind: "delivery", name, depth: 0, from: first.from, to, bars, note, failed: bars.at(-1)?.failed };
  });
}

/** A time axis, which may leave out intervals: positions are shares of its length. */
export class Axis {
  readonly length: number;

  constructor(
    readonly from: number,
    to: number,
    private readonly omitted: readonly Interval[] = [],
  ) {
    this.length = Math.max(1, to - from - omitted.reduce((sum, { from: begun, to: ended }) => sum + ended - begun, 0));
  }

  /** The share of the axis that lies before a time. */
  at(time: number): number {
    const before = this.omitted.reduce((sum, { from, to }) => sum + Math.max(0, Math.min(time, to) - from), 0);
    return Math.min(1, Math.max(0, (time - this.from - before) / this.length));
  }

  /** At most `maxCount` round numbers of milliseconds from the start. */
  ticks(maxCount: number): number[] {
    const raw = this.length / maxCount;
    const step = TICK_STEPS_MS.find((one) => one >= raw) ?? Math.ceil(raw / DAY_MS) * DAY_MS;
    return Array.from({ length: Math.floor(this.length / step) + 1 }, (_, index) => index * step);
  }
}

const [SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS] = [1_000, 60_000, 3_600_000, 86_400_000];

/** Milliseconds between ticks. */
const TICK_STEPS_MS: readonly number[] = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((each) => each * SECOND_MS),
  ...[1, 2, 5, 10, 15, 30].map((each) => each * MINUTE_MS),
  ...[1, 2, 4, 8, 12].map((each) => each * HOUR_MS),
  DAY_MS,
];
