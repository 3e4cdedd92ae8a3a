// The figures of the Usage page: the selected period and filters, the calls for them, and their CSV.

import Papa from "papaparse";
import { call } from "../shared/api";
import type { UsageRow } from "../shared/messages";

export const GROUPS = ["day", "agent", "principal", "scope"] as const;

export type Group = (typeof GROUPS)[number];

export const RANGES = [7, 30, 90, 365] as const;
const DEFAULT_RANGE = 30;
const DAY = 86_400_000;

/** The server keeps figures for 400 days. */
const LONGEST = 400;

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

export interface Row extends Figures {
  name: string;
}

export interface Usage {
  /** One for each day of the period, the oldest first. */
  days: Row[];
  /** One for each value of the group; the days too, without those before the first figures. */
  rows: Row[];
  /** Whether there are more values than `rows`. */
  cut: boolean;
}

const LARGEST = 1000;
const PAGES = 5;

export function dayOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}

/** The period in a query: `range=90`, or `from` and `to`. Days that are none are those of the default period. */
export function periodOf(query: URLSearchParams, now: number): Period {
  const today = dayOf(now);
  const [first, last] = [query.get("from") ?? "", query.get("to") ?? ""];
  if (first || last) {
    const end = isDay(last) && last <= today ? last : today;
    const begin = isDay(first) && first <= end ? first : back(end, DEFAULT_RANGE);
    return { range: 0, first: begin < back(end, LONGEST) ? back(end, LONGEST) : begin, last: end };
  }
  const range = RANGES.find((days) => String(days) === query.get("range")) ?? DEFAULT_RANGE;
  return { range, first: back(today, range), last: today };
}

function isDay(text: string): boolean {
  return /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text));
}

/** The first of `days` days until `last`. */
function back(last: string, days: number): string {
  return dayOf(Date.parse(last) - (days - 1) * DAY);
}

/** All days of a period. */
function daysOf({ first, last }: Period): string[] {
  const found: string[] = [];
  for (let at = Date.parse(first); at <= Date.parse(last); at += DAY) found.push(dayOf(at));
  return found;
}

export async function usage(period: Period, filters: Filters, by: Group, stop: AbortSignal): Promise<Usage> {
  const [each, groups] = await Promise.all([
    rowsBy("day", period, filters, stop),
    by === "day" ? undefined : rowsBy(by, period, filters, stop),
  ]);
  const found = new Map(each.rows.map((row) => [row.name, row]));
  const days = daysOf(period).map((day) => found.get(day) ?? { name: day, ...NONE });
  return { days, rows: groups?.rows ?? days, cut: groups?.cut ?? false };
}

async function rowsBy(by: Group, { first, last }: Period, filters: Filters, signal: AbortSignal): Promise<{ rows: Row[]; cut: boolean }> {
  const given = Object.fromEntries(Object.entries(filters).filter(([, value]) => value));
  const query = new URLSearchParams({ firstDay: first, lastDay: last, ...given, limit: String(LARGEST) });
  query.set("groupBy", `USAGE_GROUP_${by.toUpperCase()}`);
  const rows: Row[] = [];
  for (let page = 0; page < PAGES; page++) {
    const { rows: more = [], nextPageToken = "" } = await call<{ rows?: UsageRow[]; nextPageToken?: string }>(
      `operations/usage?${query}`,
      { signal },
    );
    rows.push(...more.map((row) => ({ name: row[by] ?? "", ...figures(row) })));
    if (!nextPageToken) return { rows, cut: false };
    query.set("pageToken", nextPageToken);
  }
  return { rows, cut: true };
}

function figures(row: UsageRow): Figures {
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

const NONE: Figures = figures({});
const NAMES = Object.keys(NONE) as (keyof Figures)[];

export function totalOf(rows: readonly Figures[]): Figures {
  const total = { ...NONE };
  for (const row of rows) for (const name of NAMES) total[name] += row[name];
  return total;
}

/** The rows as CSV (RFC 4180). Callers choose names: those that a spreadsheet would take for a formula are escaped. */
export function csvOf(by: Group, rows: readonly Row[]): string {
  const values = rows.map((row) => [row.name, ...NAMES.map((name) => row[name])]);
  const header = [by, "tasks", ...NAMES.slice(1).map((name) => (name === "turnSeconds" ? "turn_seconds" : name))];
  return Papa.unparse([header, ...values], { escapeFormulae: true });
}
