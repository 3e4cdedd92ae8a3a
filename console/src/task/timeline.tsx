// The waterfall of a task: a table of what happened, when and for how long, with bars over a common time axis.

import { useState } from "preact/hooks";
import { useAsked } from "../shared/polling";
import type { Fold } from "./projection";
import { explained } from "../tasks/task_finder";
import { Problem } from "../shared/components";
import { configsOf, nextDelivery } from "./push_configs";
import { href, route } from "../shared/route";
import { full, now, plural, took } from "../shared/format";
import { Axis, ofDelegated, ofDeliveries, ofSteps, phases, withParts, type Bar, type Span } from "./spans";
import { useSteps } from "./steps";
import { tenantOf } from "../shared/tenant";
import { isTerminal, isWaiting, type Explanation } from "../shared/messages";

/** Milliseconds between two calls while the task works. Each call is audited. */
const EVERY = 10_000;

/** Rows that are shown at first. */
const MOST = 200;

const TICKS = 6;

/** The share of the axis that every bar has, so that it can be seen. */
const LEAST = 0.004;

interface Shown {
  id: string;
  tenant: string;
  fold: Fold;
  state: string;
  /** The number of the last event. */
  last: number;
}

export function Timeline({ id, tenant, fold, state, last }: Shown) {
  const works = !isTerminal(state) && !isWaiting(state);
  const { value, error } = useAsked(
    async (stop) => ({ one: (await explained(id, tenant, stop))?.[0], asked: Date.now() }),
    () => (works ? EVERY : 0),
    [id, tenant],
    [state],
  );
  if (value?.one) return <Whole one={value.one} asked={value.asked} {...{ id, tenant, fold, state, last }} />;
  if (!value && !error) return null;
  return (
    <>
      <Problem error={error} />
      <Waterfall spans={phases(fold.lines, now.value)} over={!works} />
      <p class="empty">Steps, deliveries and delegated tasks are shown to operators.</p>
    </>
  );
}

/** With what operators see. */
function Whole({ one, asked, id, tenant, fold, state, last }: Shown & { one: Explanation; asked: number }) {
  const steps = useSteps(one, asked, last);
  const pushes = useAsked((stop) => configsOf(id, tenant, stop), nextDelivery, [id, tenant], [state]);
  const works = !isTerminal(state) && !isWaiting(state);
  const at = works ? now.value : Date.now();
  const own = phases(fold.lines, isTerminal(state) ? Date.parse(fold.since) : at);
  const ofTurns = ofSteps(steps.value?.steps ?? [], works, own.at(-1)?.to ?? 0, at);
  const parts = [...ofTurns, ...ofDelegated(one.delegated ?? [], at)].sort((before, after) => before.from - after.from);
  const spans = [...withParts(own, parts), ...ofDeliveries(pushes.value?.configs ?? [])];
  return (
    <>
      <Waterfall spans={spans} over={!works} trace={one.traceUrl} />
      <Problem error={steps.error ?? pushes.error} />
    </>
  );
}

function Waterfall({ spans, over, trace }: { spans: readonly Span[]; over: boolean; trace?: string }) {
  const [all, setAll] = useState(false);
  const waits = spans.filter((span) => span.kind === "waiting");
  const [from, to] = [Math.min(...spans.map((span) => span.from)), Math.max(...spans.map((span) => span.to))];
  const waited = sum(waits);
  const [chosen, setChosen] = useState<boolean>();
  const omits = chosen ?? waited > (to - from) / 2;
  if (spans.length === 0) return <p class="empty">Nothing has happened yet.</p>;
  const axis = new Axis(from, to, omits ? waits : []);
  const shown = all ? spans : spans.slice(0, MOST);
  return (
    <section class="timeline" aria-label="Timeline">
      <p class="totals">
        {took(to - from)} {over ? "in all" : "so far"}: {told(spans)}.
        {trace && (
          <a href={trace} target="_blank" rel="noopener noreferrer">
            Open the trace
          </a>
        )}
        {waited > 0 && waited < to - from && (
          <label>
            <input type="checkbox" checked={omits} onChange={(event) => setChosen(event.currentTarget.checked)} />{" "}
            Leave out waiting for the caller
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
                {axis.ticks(TICKS).map((tick) => {
                  const share = tick / axis.length;
                  const anchor = tick === 0 ? "start" : share > 0.92 ? "end" : "middle";
                  return (
                    <text key={tick} x={percent(share)} y="12" text-anchor={anchor}>
                      {tick === 0 ? "0" : round(tick)}
                    </text>
                  );
                })}
              </svg>
            </th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {shown.map((span, index) => (
            <Row key={index} span={span} axis={axis} />
          ))}
        </tbody>
      </table>
      {shown.length < spans.length && (
        <p>
          <button type="button" class="plain" onClick={() => setAll(true)}>
            Show all {spans.length} rows
          </button>
        </p>
      )}
    </section>
  );
}

/** The totals in words: in turns, in the queue, waiting for the caller. */
function told(spans: readonly Span[]): string {
  const of = (kind: Span["kind"]) => spans.filter((span) => span.kind === kind);
  const turns = of("turn");
  return [
    turns.length && `${took(sum(turns))} in ${plural(turns.length, "turn")}`,
    of("queued").length && `${took(sum(of("queued")))} in the queue`,
    of("waiting").length && `${took(sum(of("waiting")))} waiting for the caller`,
  ]
    .filter(Boolean)
    .join(", ");
}

function sum(bars: readonly Bar[]): number {
  return bars.reduce((total, { from, to }) => total + to - from, 0);
}

const percent = (share: number) => `${(100 * share).toFixed(3)}%`;

/** A tick without needless digits: `2 s`, `1 min 30 s`. */
function round(milliseconds: number): string {
  return took(milliseconds).replace(/\.0 s$/, " s").replace(/ 0 (s|min)$/, "");
}

const NAMES: Record<Span["kind"], string> = {
  queued: "",
  turn: "",
  attempt: "",
  waiting: "",
  step: "step",
  pause: "pause",
  delivery: "webhook",
  delegated: "task of",
};

function Row({ span, axis }: { span: Span; axis: Axis }) {
  const { kind, name, depth, from, to, open, failed, note } = span;
  const link = linkOf(span);
  const prefix = NAMES[kind];
  return (
    <tr role="row" data-kind={kind} data-depth={depth}>
      <th scope="row" role="rowheader">
        {prefix && <span class="faint">{prefix} </span>}
        {link ? <a href={link}>{name}</a> : name}
        {failed && <span class="bad"> failed</span>}
        {note && <small class={failed ? "bad" : "faint"}>{note}</small>}
      </th>
      <td role="cell" class="number faint" title={full(from)}>
        {took(Math.max(0, from - axis.from))}
      </td>
      <td role="cell" class="number">
        {took(to - from)}
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
      {axis.ticks(TICKS).map((tick) => (
        <line key={tick} x1={percent(tick / axis.length)} x2={percent(tick / axis.length)} y1="0" y2="100%" />
      ))}
      {(span.bars ?? [span]).map(({ from, to, failed }, index) => {
        const x = percent(Math.min(axis.at(from), 1 - LEAST));
        const width = percent(Math.max(axis.at(to) - axis.at(from), LEAST));
        return <rect key={index} class={failed ? "failed" : undefined} x={x} width={width} y="5" height="10" rx="2" />;
      })}
      {span.marks?.map((mark) => (
        <circle key={mark} cx={percent(axis.at(mark))} cy="10" r="2" />
      ))}
    </svg>
  );
}

/** Where more is to be seen of a row. */
function linkOf(span: Span): string {
  const { path, query } = route.value;
  const to = (tab: string, event = "") => href(path, { ...Object.fromEntries(query), tab, event });
  if (span.delegated) return href(["tasks", tenantOf(span.delegated.scope, span.delegated.agent), span.delegated.taskId]);
  if (span.kind === "step" || span.kind === "pause") return to("execution");
  if (span.kind === "delivery") return to("pushes");
  return span.event ? to("wire", String(span.event)) : "";
}
