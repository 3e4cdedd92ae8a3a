// The waterfall of a task: a table of what happened, when and for how long, with bars over a common time axis.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ErrorMessage } from "../shared/components";
import { formatDuration, formatIsoTime, now, plural } from "../shared/format";
import { isTerminal, isWaiting, type Explanation } from "../shared/messages";
import { usePolling } from "../shared/polling";
import { href, route } from "../shared/route";
import { tenantOf } from "../shared/tenant";
import { explainTask } from "../tasks/task_finder";
import type { TaskProjection } from "./projection";
import { pollIntervalMs, readPushConfigs } from "./push_configs";
import { Axis, delegatedSpans, deliverySpans, nestInTurns, phaseSpans, stepSpans, type Interval, type Span } from "./spans";
import { StepContents } from "./step_contents";
import { useSteps } from "./steps";

/** Milliseconds between two calls while the task works. Each call is audited. */
const POLL_INTERVAL_MS = 10_000;

/** Rows that are shown at first. */
const INITIAL_ROWS = 200;

const MAX_TICKS = 6;

/** The share of the axis that every bar has, so that it can be seen. */
const MIN_BAR_SHARE = 0.004;

interface TimelineProps {
  id: string;
  tenant: string;
  projection: TaskProjection;
  state: string;
  /** The number of the last event. */
  last: number;
}

export function Timeline({ id, tenant, projection, state, last }: TimelineProps) {
  const isRunning = !isTerminal(state) && !isWaiting(state);
  const { value, error } = usePolling(
    async (stop) => ({ explanation: (await explainTask(id, tenant, stop))?.[0], receivedAt: Date.now() }),
    () => (isRunning ? POLL_INTERVAL_MS : 0),
    [id, tenant],
    [state],
  );
  if (value?.explanation) return <OperatorTimeline explanation={value.explanation} receivedAt={value.receivedAt} {...{ id, tenant, projection, state, last }} />;
  if (!value && !error) return null;
  return (
    <>
      <ErrorMessage error={error} />
      <Waterfall spans={phaseSpans(projection.lines, now.value)} ended={!isRunning} />
      <p class="empty">Steps, deliveries and delegated tasks are shown to operators.</p>
    </>
  );
}

/** The waterfall with steps, deliveries and delegated tasks, which only operators see. */
function OperatorTimeline({
  explanation,
  receivedAt,
  id,
  tenant,
  projection,
  state,
  last,
}: TimelineProps & { explanation: Explanation; receivedAt: number }) {
  const steps = useSteps(explanation, receivedAt, last);
  const pushes = usePolling((stop) => readPushConfigs(id, tenant, stop), pollIntervalMs, [id, tenant], [state]);
  const isRunning = !isTerminal(state) && !isWaiting(state);
  const at = isRunning ? now.value : Date.now();
  const claimedAt = explanation.ready ? 0 : Number(explanation.turnAt ?? 0);
  const ownSpans = phaseSpans(projection.lines, isTerminal(state) ? Date.parse(projection.stateSince) : at, claimedAt);
  const turnParts = stepSpans(steps.value?.steps ?? [], isRunning, ownSpans.at(-1)?.to ?? 0, at);
  const parts = [...turnParts, ...delegatedSpans(explanation.delegated ?? [], at)].sort((before, after) => before.from - after.from);
  const spans = [...nestInTurns(ownSpans, parts), ...deliverySpans(pushes.value?.configs ?? [])];
  return (
    <>
      <Waterfall spans={spans} ended={!isRunning} explanation={explanation} />
      <ErrorMessage error={steps.error ?? pushes.error} />
    </>
  );
}

/** The rows and bars. `explanation`: for operators, who may open steps. */
function Waterfall({ spans, ended, explanation }: { spans: readonly Span[]; ended: boolean; explanation?: Explanation }) {
  const trace = explanation?.traceUrl;
  const [showsAll, setShowsAll] = useState(false);
  const waitingSpans = spans.filter((span) => span.kind === "waiting");
  const [from, to] = [Math.min(...spans.map((span) => span.from)), Math.max(...spans.map((span) => span.to))];
  const waitedMs = totalDuration(waitingSpans);
  const [choice, setChoice] = useState<boolean>();
  const omitsWaiting = choice ?? waitedMs > (to - from) / 2;
  if (spans.length === 0) return <p class="empty">Nothing has happened yet.</p>;
  const axis = new Axis(from, to, omitsWaiting ? waitingSpans : []);
  const shown = showsAll ? spans : spans.slice(0, INITIAL_ROWS);
  return (
    <section class="timeline" aria-label="Timeline">
      <p class="totals">
        {formatDuration(to - from)} {ended ? "in all" : "so far"}: {totalsText(spans)}.
        {trace && (
          <a href={trace} target="_blank" rel="noopener noreferrer">
            Open the trace
          </a>
        )}
        {waitedMs > 0 && waitedMs < to - from && (
          <label>
            <input type="checkbox" checked={omitsWaiting} onChange={(event) => setChoice(event.currentTarget.checked)} /> Leave out waiting for the
            caller
          </label>
        )}
      </p>
      <table role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th scope="col" role="columnheader">
              What
            </th>
            <th scope="col" role="columnheader" class="number">
              After
            </th>
            <th scope="col" role="columnheader" class="number">
              Duration
            </th>
            <th scope="col" role="columnheader" class="lane">
              <span class="hidden">Bar</span>
              <svg aria-hidden="true">
                {axis.ticks(MAX_TICKS).map((tick) => {
                  const share = tick / axis.length;
                  const anchor = tick === 0 ? "start" : share > 0.92 ? "end" : "middle";
                  return (
                    <text key={tick} x={svgPercent(share)} y="12" text-anchor={anchor}>
                      {tick === 0 ? "0" : formatTick(tick)}
                    </text>
                  );
                })}
              </svg>
            </th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {shown.map((span, index) => (
            <Row key={span.step ? `${span.step.turn ?? ""}/${span.name}` : index} span={span} axis={axis} explanation={explanation} />
          ))}
        </tbody>
      </table>
      {shown.length < spans.length && (
        <p>
          <button type="button" class="plain" onClick={() => setShowsAll(true)}>
            Show all {spans.length} rows
          </button>
        </p>
      )}
    </section>
  );
}

/** The totals in words: in turns, in the queue, waiting for the caller. */
function totalsText(spans: readonly Span[]): string {
  const spansOf = (kind: Span["kind"]) => spans.filter((span) => span.kind === kind);
  const turns = spansOf("turn");
  return [
    turns.length && `${formatDuration(totalDuration(turns))} in ${plural(turns.length, "turn")}`,
    spansOf("queued").length && `${formatDuration(totalDuration(spansOf("queued")))} in the queue`,
    spansOf("waiting").length && `${formatDuration(totalDuration(spansOf("waiting")))} waiting for the caller`,
  ]
    .filter(Boolean)
    .join(", ");
}

function totalDuration(bars: readonly Interval[]): number {
  return bars.reduce((total, { from, to }) => total + to - from, 0);
}

const svgPercent = (share: number) => `${(100 * share).toFixed(3)}%`;

/** A tick without needless digits: `2 s`, `1 min 30 s`. */
function formatTick(milliseconds: number): string {
  return formatDuration(milliseconds)
    .replace(/\.0 s$/, " s")
    .replace(/ 0 (s|min)$/, "");
}

const KIND_PREFIXES: Record<Span["kind"], string> = {
  queued: "",
  turn: "",
  attempt: "",
  waiting: "",
  step: "step",
  pause: "pause",
  delivery: "webhook",
  delegated: "task of",
};

function Row({ span, axis, explanation }: { span: Span; axis: Axis; explanation?: Explanation }) {
  const { step } = span;
  const [isOpen, setIsOpen] = useState(false);
  if (!step || !explanation) return <SpanRow span={span} axis={axis} />;
  const toggle = (
    <button type="button" class="plain opener" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
      <span class="faint">step</span> {span.name}
    </button>
  );
  return (
    <>
      <SpanRow span={span} axis={axis} toggle={toggle} />
      {isOpen && (
        <tr role="row" class="contents">
          <td role="cell" colSpan={4}>
            <StepContents explanation={explanation} step={step} />
          </td>
        </tr>
      )}
    </>
  );
}

/** `toggle`: the button that opens what the row is about, in place of a link. */
function SpanRow({ span, axis, toggle }: { span: Span; axis: Axis; toggle?: ComponentChildren }) {
  const { kind, name, depth, from, to, open, failed, note } = span;
  const link = linkOf(span);
  const prefix = KIND_PREFIXES[kind];
  return (
    <tr role="row" data-kind={kind} data-depth={depth}>
      <th scope="row" role="rowheader">
        {prefix && !toggle && <span class="faint">{prefix} </span>}
        {toggle ?? (link ? <a href={link}>{name}</a> : name)}
        {failed && <span class="bad"> failed</span>}
        {note && <small class={failed ? "bad" : "faint"}>{note}</small>}
      </th>
      <td role="cell" class="number faint" title={formatIsoTime(from)}>
        {formatDuration(Math.max(0, from - axis.from))}
      </td>
      <td role="cell" class="number">
        {formatDuration(to - from)}
        {open && <span class="hidden"> so far</span>}
      </td>
      <td role="cell" class="lane">
        <Bars span={span} axis={axis} />
      </td>
    </tr>
  );
}

/** The bar of a row. The numbers beside it say the same, so it is hidden from screen readers. */
function Bars({ span, axis }: { span: Span; axis: Axis }) {
  return (
    <svg aria-hidden="true">
      {axis.ticks(MAX_TICKS).map((tick) => (
        <line key={tick} x1={svgPercent(tick / axis.length)} x2={svgPercent(tick / axis.length)} y1="0" y2="100%" />
      ))}
      {(span.bars ?? [span]).map(({ from, to, failed }, index) => {
        const x = svgPercent(Math.min(axis.at(from), 1 - MIN_BAR_SHARE));
        const width = svgPercent(Math.max(axis.at(to) - axis.at(from), MIN_BAR_SHARE));
        return <rect key={index} class={failed ? "failed" : undefined} x={x} width={width} y="5" height="10" rx="2" />;
      })}
      {span.marks?.map((mark) => (
        <circle key={mark} cx={svgPercent(axis.at(mark))} cy="10" r="2" />
      ))}
    </svg>
  );
}

/** Where more is to be seen of a row. */
function linkOf(span: Span): string {
  const { path, query } = route.value;
  const to = (tab: string, event = "") => href(path, { ...Object.fromEntries(query), tab, event });
  if (span.delegated) return href(["tasks", tenantOf(span.delegated.scope, span.delegated.agent), span.delegated.taskId]);
  if (span.kind === "pause") return to("execution");
  if (span.kind === "delivery") return to("pushes");
  return span.event ? to("wire", String(span.event)) : "";
}
