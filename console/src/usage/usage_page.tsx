// What tasks did and used, by day, agent, principal and scope.

import { useEffect, useState } from "preact/hooks";
import { useAsked } from "../shared/polling";
import { named } from "../shared/agents";
import { Bars, type Series } from "../shared/bar_chart";
import { Empty, isRefusal, Page, Refusal } from "../shared/page";
import { Problem, Tabs } from "../shared/components";
import { href, refine, route } from "../shared/route";
import { compact, cost, count, percent, took } from "../shared/format";
import { caller, seesAll } from "../shared/sign_in";
import { csvOf, dayOf, GROUPS, periodOf, RANGES, totalOf, usage, type Figures, type Group, type Period, type Row } from "./usage_data";

/** Figures that name principals are read once: the server audits these calls. */
const EVERY = 60_000;
/** Rows of the table before `Show all`. */
const FIRST = 50;

interface Measure {
  id: string;
  name: string;
  /** The number on the button, and what is said below it. */
  text: (total: Figures) => string;
  more: (total: Figures) => string;
  /** The parts of a bar. */
  parts: readonly { name: string; tone: Series["tone"]; of: (row: Figures) => number }[];
  unit: (value: number) => string;
}

const MEASURES: readonly Measure[] = [
  {
    id: "tasks",
    name: "Tasks",
    text: (total) => count(total.begun),
    more: (total) => `${count(total.completed)} completed`,
    parts: [{ name: "tasks", tone: "main", of: (row) => row.begun }],
    unit: count,
  },
  {
    id: "failed",
    name: "Failed",
    text: (total) => count(total.failed),
    more: (total) => `${percent(total.failed, ended(total))} of all that ended`,
    parts: [{ name: "failed", tone: "bad", of: (row) => row.failed }],
    unit: count,
  },
  {
    id: "time",
    name: "Time in turns",
    text: (total) => took(total.turnSeconds * 1000),
    more: (total) => `${count(total.turns)} turns`,
    parts: [{ name: "time", tone: "main", of: (row) => row.turnSeconds }],
    unit: (seconds) => took(seconds * 1000),
  },
  {
    id: "tokens",
    name: "Tokens",
    text: (total) => compact(total.tokens),
    more: (total) => `${compact(total.tokens / Math.max(total.begun, 1))} a task`,
    parts: [{ name: "tokens", tone: "main", of: (row) => row.tokens }],
    unit: compact,
  },
  {
    id: "cost",
    name: "Cost",
    text: (total) => cost(total.cost),
    more: (total) => `${cost(total.cost / Math.max(total.begun, 1))} a task`,
    parts: [{ name: "cost", tone: "main", of: (row) => row.cost }],
    unit: cost,
  },
];

const NAMES: Record<Group, string> = { day: "Day", agent: "Agent", principal: "Principal", scope: "Scope" };

export function UsagePage() {
  const query = route.value.query;
  const period = periodOf(query, Date.now());
  const filters = { agent: query.get("agent") ?? "", principal: query.get("principal") ?? "", scope: query.get("scope") ?? "" };
  const by = GROUPS.find((one) => one === query.get("by")) ?? "day";
  const measure = MEASURES.find((one) => one.id === query.get("measure")) ?? (MEASURES[0] as Measure);
  const about = [period.first, period.last, filters.agent, filters.principal, filters.scope, by];
  const { value, error } = useAsked((stop) => usage(period, filters, by, stop), by === "principal" || filters.principal ? 0 : EVERY, about);
  const total = totalOf(value?.days ?? []);
  const rows = value ? sorted(by, value.rows, measure) : [];
  return (
    <Page title="Usage" actions={<Controls period={period} csv={value && (() => csvOf(by, rows))} by={by} />}>
      {!seesAll.value && <p class="faint">The tasks of {caller.value?.principal}. Operators and viewers see those of all principals.</p>}
      <Selected filters={filters} />
      {isRefusal(error) ? <Refusal error={error} what="usage" /> : <Problem error={error} />}
      {value && (
        <>
          <div class="tiles" role="group" aria-label="Chart">
            {MEASURES.map((one) => (
              <button
                key={one.id}
                type="button"
                class="tile"
                aria-pressed={one === measure}
                onClick={() => refine({ measure: one.id === "tasks" ? "" : one.id })}
              >
                <span>{one.name}</span>
                <b>{one.text(total)}</b>
                <span class="faint">{one.more(total)}</span>
              </button>
            ))}
          </div>
          <Bars
            title={`${measure.name} a day`}
            labels={value.days.map((day) => day.name)}
            series={measure.parts.map(({ name, tone, of }) => ({ name, tone, values: value.days.map(of) }))}
            unit={measure.unit}
            whole={measure.unit === count}
          />
          <div class="bar">
            <Tabs
              label="Rows of the table"
              tabs={GROUPS.map((one) => ({ id: one, name: `By ${one}` }))}
              at={by}
              choose={(id) => refine({ by: id === "day" ? "" : id })}
            />
          </div>
          <div id="panel" role="tabpanel" aria-labelledby={`tab-${by}`}>
            <Table key={about.join()} by={by} rows={rows} total={total} measure={measure} filters={filters} />
            {value.cut && <p class="faint">There are more than {count(rows.length)} rows. The total is that of all.</p>}
          </div>
        </>
      )}
    </Page>
  );
}

/** The newest day first; names by the figure that the chart shows, those without tasks left out. */
function sorted(by: Group, rows: readonly Row[], measure: Measure): Row[] {
  if (by === "day") return [...rows].reverse();
  const of = measure.parts[0]?.of ?? ((row: Figures) => row.begun);
  return [...rows].sort((one, other) => of(other) - of(one));
}

const ended = (row: Figures) => row.completed + row.failed + row.canceled + row.rejected;

function Controls({ period, csv, by }: { period: Period; csv: (() => string) | undefined; by: Group }) {
  const [custom, setCustom] = useState(period.range === 0);
  useEffect(() => setCustom(period.range === 0), [period.range]);
  const choose = (value: string) => {
    setCustom(!value);
    if (value) refine({ range: value === "30" ? "" : value, from: "", to: "" });
    else refine({ range: "", from: period.first, to: period.last });
  };
  return (
    <div class="buttons">
      {custom && (
        <>
          <input
            type="date"
            aria-label="First day (UTC)"
            value={period.first}
            max={period.last}
            onChange={(event) => refine({ from: event.currentTarget.value, to: period.last })}
          />
          <input
            type="date"
            aria-label="Last day (UTC)"
            value={period.last}
            min={period.first}
            max={dayOf(Date.now())}
            onChange={(event) => refine({ from: period.first, to: event.currentTarget.value })}
          />
        </>
      )}
      <select aria-label="Period" value={custom ? "" : String(period.range)} onChange={(event) => choose(event.currentTarget.value)}>
        {RANGES.map((days) => (
          <option key={days} value={days}>
            Last {days} days
          </option>
        ))}
        <option value="">Chosen days</option>
      </select>
      <button type="button" disabled={!csv} onClick={() => csv && save(`usage-by-${by}-${period.first}-${period.last}.csv`, csv())}>
        Download CSV
      </button>
    </div>
  );
}

/** Saves a text as a file. */
function save(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** The filters, each with a button that removes it. */
function Selected({ filters }: { filters: Record<string, string> }) {
  const given = Object.entries(filters).filter(([, value]) => value);
  if (given.length === 0) return null;
  return (
    <ul class="chips" aria-label="Filters">
      {given.map(([name, value]) => (
        <li key={name}>
          <span class="faint">{name}</span> {name === "agent" ? named(value) : value}
          <button type="button" class="plain" aria-label={`Remove the filter ${name}`} onClick={() => refine({ [name]: "" })}>
            ×
          </button>
        </li>
      ))}
    </ul>
  );
}

interface Rows {
  by: Group;
  rows: readonly Row[];
  total: Figures;
  measure: Measure;
  filters: Record<string, string>;
}

function Table({ by, rows, total, measure, filters }: Rows) {
  const [all, setAll] = useState(false);
  const shown = all ? rows : rows.slice(0, FIRST);
  if (!total.begun && !ended(total) && !total.turns) {
    return (
      <Empty title="No tasks in this period.">
        <p>
          Choose a longer period, or <a href="#/new">begin a task</a>.
        </p>
      </Empty>
    );
  }
  const of = measure.parts[0]?.of ?? ((row: Figures) => row.begun);
  const most = Math.max(...rows.map(of), 1e-9);
  return (
    <>
      <div class="wide-table" tabIndex={0} role="region" aria-label={`Usage by ${by}`}>
        <table class="figures">
          <thead>
            <tr>
              <th scope="col">{NAMES[by]}</th>
              <th scope="col" class="share">
                <span class="hidden">{measure.name}, as a bar</span>
              </th>
              {["Tasks", "Completed", "Failed", "Canceled", "Rejected", "Turns", "Time in turns", "Tokens", "Cost"].map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={row.name}>
                <th scope="row">
                  <Name by={by} name={row.name} filters={filters} />
                </th>
                <td class="share">
                  <svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                    <rect height="4" width={(of(row) / most) * 100} data-tone={measure.parts[0]?.tone} />
                  </svg>
                </td>
                <Cells row={row} />
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">Total</th>
              <td class="share" />
              <Cells row={total} />
            </tr>
          </tfoot>
        </table>
      </div>
      {shown.length < rows.length && (
        <p>
          <button type="button" onClick={() => setAll(true)}>
            Show all {count(rows.length)} rows
          </button>
        </p>
      )}
    </>
  );
}

function Cells({ row }: { row: Figures }) {
  return (
    <>
      <td>{count(row.begun)}</td>
      <td>{count(row.completed)}</td>
      <td class={row.failed ? "failed" : undefined}>
        {count(row.failed)} {row.failed > 0 && <small>{percent(row.failed, ended(row))}</small>}
      </td>
      <td>{count(row.canceled)}</td>
      <td>{count(row.rejected)}</td>
      <td>{count(row.turns)}</td>
      <td>{took(row.turnSeconds * 1000)}</td>
      <td title={count(row.tokens)}>{compact(row.tokens)}</td>
      <td>{cost(row.cost)}</td>
    </>
  );
}

/** A name, which filters by it. Erased principals have none, and neither do those beyond the server's limit. */
function Name({ by, name, filters }: { by: Group; name: string; filters: Record<string, string> }) {
  if (!name) return <span class="faint">without a name</span>;
  if (by === "day") return <>{name}</>;
  const query = Object.fromEntries(route.value.query);
  if (filters[by]) return <>{by === "agent" ? named(name) : name}</>;
  return (
    <a href={href(["usage"], { ...query, by: "", [by]: name })} title={`Only ${name}`}>
      {by === "agent" ? named(name) : name}
    </a>
  );
}
