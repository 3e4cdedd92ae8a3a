// The figures of the Usage page: the selected period and filters, the calls for them, and their CSV.

import Papa from "papaparse";
import { call } from "../shared/api";
import type { UsageRow } from "../shared/messages";

export const GROUPS = ["day", "agent", "principal", "scope"] as const;

export type Group = (typeof GROUPS)[number];

export const RANGES = [7, 30, 90, 365] as const;
const DEFAULT_RANGE = 30;
const DAY_MS = 86_400_000;

/** The server keeps figures for 400 days. */
const MAX_DAYS = 400;

/** Both days are UTC days, such as `2026-11-24`, and included. `range`: days until today; 0 for chosen days. */
export interface Period {
  range: number;
  first: string;
  last: string;
}

export interface Filters {
  agent: string;
  principal: string;
  scope: string;
}

export interface Figures {
  begun: number;
  completed: number;
  failed: number;
  canceled: number;
  rejected: number;
  turns: number;
  turnSeconds: number;
  tokens: number;
  cost: number;
}

export interface UsageTableRow extends Figures {
  name: string;
}

export interface Usage {
  /** One for each day of the period, the oldest first. */
  days: UsageTableRow[];
  /** One for each value of the group; the days too, without those before the first figures. */
  rows: UsageTableRow[];
  /** Whether there are more values than `rows`. */
  truncated: boolean;
}

const PAGE_SIZE = 1000;
const MAX_PAGES = 5;

export function dayOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}

/** The period in a query: `range=90`, or `from` and `to`. Days that are none are those of the default period. */
export function periodOf(query: URLSearchParams, now: number): Period {
  const today = dayOf(now);
  const [first, last] = [query.get("from") ?? "", query.get("to") ?? ""];
  if (first || last) {
    const end = isDay(last) && last <= today ? last : today;
    const begin = isDay(first) && first <= end ? first : firstDay(end, DEFAULT_RANGE);
    return { range: 0, first: begin < firstDay(end, MAX_DAYS) ? firstDay(end, MAX_DAYS) : begin, last: end };
  }
  const range = RANGES.find((days) => String(days) === query.get("range")) ?? DEFAULT_RANGE;
  return { range, first: firstDay(today, range), last: today };
}

function isDay(text: string): boolean {
  return /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text));
}

/** The first of `days` days until `last`. */
function firstDay(last: string, days: number): string {
  return dayOf(Date.parse(last) - (days - 1) * DAY_MS);
}

/** All days of a period. */
function daysOf({ first, last }: Period): string[] {
  const found: string[] = [];
  for (let at = Date.parse(first); at <= Date.parse(last); at += DAY_MS) found.push(dayOf(at));
  return found;
}

export async function readUsage(period: Period, filters: Filters, groupBy: Group, stop: AbortSignal): Promise<Usage> {
  const [each, groups] = await Promise.all([
    readRows("day", period, filters, stop),
    groupBy === "day" ? undefined : readRows(groupBy, period, filters, stop),
  ]);
  const found = new Map(each.rows.map((row) => [row.name, row]));
  const days = daysOf(period).map((day) => found.get(day) ?? { name: day, ...NO_USAGE });
  return { days, rows: groups?.rows ?? days, truncated: groups?.truncated ?? false };
}

async function readRows(
  groupBy: Group,
  { first, last }: Period,
  filters: Filters,
  signal: AbortSignal,
): Promise<{ rows: UsageTableRow[]; truncated: boolean }> {
  const selected = Object.fromEntries(Object.entries(filters).filter(([, value]) => value));
  const query = new URLSearchParams({ firstDay: first, lastDay: last, ...selected, limit: String(PAGE_SIZE) });
  query.set("groupBy", `USAGE_GROUP_${groupBy.toUpperCase()}`);
  const rows: UsageTableRow[] = [];
  for (let page = 0; page < MAX_PAGES; page++) {
    const { rows: more = [], nextPageToken = "" } = await call<{ rows?: UsageRow[]; nextPageToken?: string }>(`operations/usage?${query}`, {
      signal,
    });
    rows.push(...more.map((row) => ({ name: row[groupBy] ?? "", ...parseFigures(row) })));
    if (!nextPageToken) return { rows, truncated: false };
    query.set("pageToken", nextPageToken);
  }
  return { rows, truncated: true };
}

function parseFigures(row: UsageRow): Figures {
  const number = (value: string | number | undefined) => Number(value ?? 0);
  return {
    begun: number(row.begun),
    completed: number(row.completed),
    failed: number(row.failed),
    canceled: number(row.canceled),
    rejected: number(row.rejected),
    turns: number(row.turns),
    turnSeconds: number(row.turnSeconds),
    tokens: number(row.tokens),
    cost: number(row.cost),
  };
}

const NO_USAGE: Figures = parseFigures({});
const FIGURE_NAMES = Object.keys(NO_USAGE) as (keyof Figures)[];

export function totalOf(rows: readonly Figures[]): Figures {
  const total = { ...NO_USAGE };
  for (const row of rows) for (const name of FIGURE_NAMES) total[name] += row[name];
  return total;
}

/** The rows as CSV (RFC 4180). Callers choose names: those that a spreadsheet would take for a formula are escaped. */
export function csvOf(groupBy: Group, rows: readonly UsageTableRow[]): string {
  const values = rows.map((row) => [row.name, ...FIGURE_NAMES.map((name) => row[name])]);
  const header = [groupBy, "tasks", ...FIGURE_NAMES.slice(1).map((name) => (name === "turnSeconds" ? "turn_seconds" : name))];
  return Papa.unparse([header, ...values], { escapeFormulae: true });
}
