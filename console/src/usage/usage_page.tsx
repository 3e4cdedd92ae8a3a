// Outcomes and usage of tasks, by day, agent, principal and scope.

import { useEffect, useState } from "preact/hooks";
import { agentName } from "../shared/agents";
import { BarChart, type Series } from "../shared/bar_chart";
import { ErrorMessage, Tabs, Zero } from "../shared/components";
import { formatNumber, formatCompact, formatCost, formatDuration, formatPercent, plural } from "../shared/format";
import { AccessError, EmptyState, isAccessError, Page, useKnownQuery } from "../shared/page";
import { usePolling } from "../shared/polling";
import { href, route, updateQuery } from "../shared/route";
import { caller, canViewAll } from "../shared/sign_in";
import { csvOf, dayOf, GROUPS, periodOf, RANGES, readUsage, totalOf, type Figures, type Group, type Period, type UsageTableRow } from "./usage_data";

/** Figures that name principals are read once: the server audits these calls. */
const POLL_INTERVAL_MS = 60_000;
/** Rows of the table before `Show all`. */
const INITIAL_ROWS = 50;

interface Measure {
  id: string;
  name: string;
  /** The number on the button, and the text below it. */
  formatTotal: (formatTotal: Figures) => string;
  formatDetail: (formatTotal: Figures) => string;
  /** The parts of a bar. */
  parts: readonly { name: string; tone: Series["tone"]; figure: (row: Figures) => number }[];
  unit: (value: number) => string;
}

const MEASURES: readonly Measure[] = [
  {
    id: "tasks",
    name: "Tasks",
    formatTotal: (total) => formatNumber(total.begun),
    formatDetail: (total) => `${formatNumber(total.completed)} completed`,
    parts: [{ name: "tasks", tone: "main", figure: (row) => row.begun }],
    unit: formatNumber,
  },
  {
    id: "failed",
    name: "Failed",
    formatTotal: (total) => formatNumber(total.failed),
    formatDetail: (total) => `${formatPercent(total.failed, endedTasks(total))} of all that ended`,
    parts: [{ name: "failed", tone: "bad", figure: (row) => row.failed }],
    unit: formatNumber,
  },
  {
    id: "time",
    name: "Time in turns",
    formatTotal: (total) => formatDuration(total.turnSeconds * 1000),
    formatDetail: (total) => `${formatNumber(total.turns)} turns`,
    parts: [{ name: "time", tone: "main", figure: (row) => row.turnSeconds }],
    unit: (seconds) => formatDuration(seconds * 1000),
  },
  {
    id: "tokens",
    name: "Tokens",
    formatTotal: (total) => formatCompact(total.tokens),
    formatDetail: (total) => `${formatCompact(total.tokens / Math.max(total.begun, 1))} a task`,
    parts: [{ name: "tokens", tone: "main", figure: (row) => row.tokens }],
    unit: formatCompact,
  },
  {
    id: "cost",
    name: "Cost",
    formatTotal: (total) => formatCost(total.cost),
    formatDetail: (total) => `${formatCost(total.cost / Math.max(total.begun, 1))} a task`,
    parts: [{ name: "cost", tone: "main", figure: (row) => row.cost }],
    unit: formatCost,
  },
];

const GROUP_NAMES: Record<Group, string> = { day: "Day", agent: "Agent", principal: "Principal", scope: "Scope" };

export function UsagePage() {
  const query = route.value.query;
  const period = periodOf(query, Date.now());
  const filters = { agent: query.get("agent") ?? "", principal: query.get("principal") ?? "", scope: query.get("scope") ?? "" };
  const by = GROUPS.find((one) => one === query.get("by")) ?? "day";
  const measure = MEASURES.find((measure) => measure.id === query.get("measure")) ?? (MEASURES[0] as Measure);
  useKnownQuery("by", GROUPS);
  useKnownQuery(
    "measure",
    MEASURES.map((measure) => measure.id),
  );
  useKnownQuery("range", RANGES.map(String));
  const dependencies = [period.first, period.last, filters.agent, filters.principal, filters.scope, by];
  const { value, error } = usePolling(
    (stop) => readUsage(period, filters, by, stop),
    by === "principal" || filters.principal ? 0 : POLL_INTERVAL_MS,
    dependencies,
  );
  const total = totalOf(value?.days ?? []);
  const rows = value ? sortRows(by, value.rows, measure) : [];
  return (
    <Page title="Usage" actions={<Controls period={period} csv={value && (() => csvOf(by, rows))} by={by} />}>
      {!canViewAll.value && <p class="faint">The tasks of {caller.value?.principal}. Operators and viewers see those of all principals.</p>}
      <ActiveFilters filters={filters} />
      {isAccessError(error) ? <AccessError error={error} subject="usage" /> : <ErrorMessage error={error} />}
      {value && (
        <>
          <div class="tiles" role="group" aria-label="Chart">
            {MEASURES.map((option) => (
              <button
                key={option.id}
                type="button"
                class="tile"
                aria-pressed={option === measure}
                onClick={() => updateQuery({ measure: option.id === "tasks" ? "" : option.id })}
              >
                <span>{option.name}</span>
                <b class={option.formatTotal(total) === "0" ? "zero" : undefined}>{option.formatTotal(total)}</b>
                <span class="faint">{option.formatDetail(total)}</span>
              </button>
            ))}
          </div>
          <BarChart
            title={`${measure.name} a day`}
            labels={value.days.map((day) => day.name)}
            series={measure.parts.map(({ name, tone, figure }) => ({ name, tone, values: value.days.map(figure) }))}
            unit={measure.unit}
            isInteger={measure.unit === formatNumber}
            links={canViewAll.value ? value.days.map((day) => tasksOfDay(day.name, filters)) : []}
          />
          <div class="bar">
            <Tabs
              label="Rows of the table"
              tabs={GROUPS.map((one) => ({ id: one, name: `By ${one}` }))}
              selected={by}
              onSelect={(id) => updateQuery({ by: id === "day" ? "" : id })}
            />
          </div>
          <div id="panel" role="tabpanel" aria-labelledby={`tab-${by}`}>
            <Table key={dependencies.join()} by={by} rows={rows} total={total} measure={measure} filters={filters} />
            {value.truncated && <p class="faint">There are more than {formatNumber(rows.length)} rows. The total is that of all.</p>}
          </div>
        </>
      )}
    </Page>
  );
}

/** The newest day first; names by the figure that the chart shows, those without tasks left out. */
function sortRows(by: Group, rows: readonly UsageTableRow[], measure: Measure): UsageTableRow[] {
  if (by === "day") return [...rows].reverse();
  const figure = measure.parts[0]?.figure ?? ((row: Figures) => row.begun);
  return [...rows].sort((one, other) => figure(other) - figure(one));
}

const endedTasks = (row: Figures) => row.completed + row.failed + row.canceled + row.rejected;

function Controls({ period, csv, by }: { period: Period; csv: (() => string) | undefined; by: Group }) {
  const [custom, setCustom] = useState(period.range === 0);
  useEffect(() => setCustom(period.range === 0), [period.range]);
  const choose = (value: string) => {
    setCustom(!value);
    if (value) updateQuery({ range: value === "30" ? "" : value, from: "", to: "" });
    else updateQuery({ range: "", from: period.first, to: period.last });
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
            onChange={(event) => updateQuery({ from: event.currentTarget.value, to: period.last })}
          />
          <input
            type="date"
            aria-label="Last day (UTC)"
            value={period.last}
            min={period.first}
            max={dayOf(Date.now())}
            onChange={(event) => updateQuery({ from: period.first, to: event.currentTarget.value })}
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
      <button type="button" disabled={!csv} onClick={() => csv && saveFile(`usage-by-${by}-${period.first}-${period.last}.csv`, csv())}>
        Download CSV
      </button>
    </div>
  );
}

/** Saves a text as a file. */
function saveFile(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** The filters, each with a button that removes it. */
function ActiveFilters({ filters }: { filters: Record<string, string> }) {
  const given = Object.entries(filters).filter(([, value]) => value);
  if (given.length === 0) return null;
  return (
    <ul class="chips" aria-label="Filters">
      {given.map(([name, value]) => (
        <li key={name}>
          <span class="faint">{name}</span> {name === "agent" ? agentName(value) : value}
          <button type="button" class="plain" aria-label={`Remove the filter ${name}`} onClick={() => updateQuery({ [name]: "" })}>
            ×
          </button>
        </li>
      ))}
    </ul>
  );
}

interface TableProps {
  by: Group;
  rows: readonly UsageTableRow[];
  total: Figures;
  measure: Measure;
  filters: Record<string, string>;
}

function Table({ by, rows, total, measure, filters }: TableProps) {
  const [showsAll, setShowsAll] = useState(false);
  const used = rows.filter((row) => row.begun || endedTasks(row) || row.turns || row.tokens || row.cost);
  const shownRows = showsAll ? used : used.slice(0, INITIAL_ROWS);
  if (!total.begun && !endedTasks(total) && !total.turns) {
    return (
      <EmptyState title="No tasks in this period.">
        <p>
          Choose a longer period, or <a href="#/new">begin a task</a>.
        </p>
      </EmptyState>
    );
  }
  const figure = measure.parts[0]?.figure ?? ((row: Figures) => row.begun);
  const max = Math.max(...rows.map(figure), 1e-9);
  return (
    <>
      <div class="wide-table" tabIndex={0} role="region" aria-label={`Usage by ${by}`}>
        <table class="figures">
          <thead>
            <tr>
              <th scope="col">{GROUP_NAMES[by]}</th>
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
            {shownRows.map((row) => (
              <tr key={row.name}>
                <th scope="row">
                  <Name by={by} name={row.name} filters={filters} />
                </th>
                <td class="share">
                  <svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                    <rect height="4" width={(figure(row) / max) * 100} data-tone={measure.parts[0]?.tone} />
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
      {used.length < rows.length && by === "day" && <p class="faint">{plural(rows.length - used.length, "day")} without tasks are not listed.</p>}
      {shownRows.length < used.length && (
        <p>
          <button type="button" onClick={() => setShowsAll(true)}>
            Show all {formatNumber(used.length)} rows
          </button>
        </p>
      )}
    </>
  );
}

function Cells({ row }: { row: Figures }) {
  const figure = (value: number, text: string) => (value ? text : <Zero />);
  return (
    <>
      <td>{figure(row.begun, formatNumber(row.begun))}</td>
      <td>{figure(row.completed, formatNumber(row.completed))}</td>
      <td class={row.failed ? "failed" : undefined}>
        {figure(row.failed, formatNumber(row.failed))} {row.failed > 0 && <small>{formatPercent(row.failed, endedTasks(row))}</small>}
      </td>
      <td>{figure(row.canceled, formatNumber(row.canceled))}</td>
      <td>{figure(row.rejected, formatNumber(row.rejected))}</td>
      <td>{figure(row.turns, formatNumber(row.turns))}</td>
      <td>{figure(row.turnSeconds, formatDuration(row.turnSeconds * 1000))}</td>
      <td title={formatNumber(row.tokens)}>{figure(row.tokens, formatCompact(row.tokens))}</td>
      <td>{figure(row.cost, formatCost(row.cost))}</td>
    </>
  );
}

/** The list of the tasks that changed on this day. */
function tasksOfDay(day: string, { agent = "", principal = "", scope = "" }: Record<string, string>): string {
  return href(["tasks"], { age: day, agent, principal, scope });
}

/** A name, which filters by it. Erased principals have none, and neither do those beyond the server's limit. */
function Name({ by, name, filters }: { by: Group; name: string; filters: Record<string, string> }) {
  if (!name) return <span class="faint">without a name</span>;
  if (by === "day" && !canViewAll.value) return <>{name}</>;
  if (by === "day") return <a href={tasksOfDay(name, filters)}>{name}</a>;
  const query = Object.fromEntries(route.value.query);
  if (filters[by]) return <>{by === "agent" ? agentName(name) : name}</>;
  return (
    <a href={href(["usage"], { ...query, by: "", [by]: name })} title={`Only ${name}`}>
      {by === "agent" ? agentName(name) : name}
    </a>
  );
}
