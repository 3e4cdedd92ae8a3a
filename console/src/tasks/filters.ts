// The filters of the task list. They are query parameters of its URL, so that a link or a bookmark is a saved filter.

import { named } from "../shared/agents";
import { chosen, place, route } from "../shared/route";
import { shown, STATES } from "../shared/messages";

export interface Filters {
  /** A text of the request, the error or the question; or a task id. */
  text: string;
  /** The id of a tab of `TABS`. */
  state: string;
  agent: string;
  principal: string;
  scope: string;
  context: string;
  /** The id of one of `AGES`. */
  age: string;
  /** Entries of the metadata: `KEY=VALUE, KEY=VALUE`. */
  metadata: string;
  order: string;
}

export type FilterName = keyof Filters;

/** The query parameter of each filter. */
const PARAMETERS: Record<FilterName, string> = {
  text: "q",
  state: "state",
  agent: "agent",
  principal: "principal",
  scope: "scope",
  context: "context",
  age: "age",
  metadata: "meta",
  order: "order",
};

export const NAMES = Object.keys(PARAMETERS) as FilterName[];

/** Filters that only searches of operators and viewers have. */
export const FOR_ALL: readonly FilterName[] = ["principal", "age", "metadata", "order"];

/** The tabs: all tasks, those that have not ended, and those in each state. */
export const TABS: readonly { id: string; name: string; states: readonly string[] }[] = [
  { id: "", name: "All", states: [] },
  { id: "OPEN", name: "Open", states: STATES.slice(0, 4) },
  ...STATES.map((state) => ({ id: state, name: capital(shown(state)), states: [state] })),
];

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

interface Age {
  id: string;
  name: string;
  /** The beginning or the end of the time of the last change. */
  since?: (now: number) => number;
  before?: (now: number) => number;
}

export const AGES: readonly Age[] = [
  { id: "hour", name: "in the last hour", since: (now) => now - HOUR },
  { id: "today", name: "today", since: (now) => new Date(now).setHours(0, 0, 0, 0) },
  { id: "day", name: "in the last 24 hours", since: (now) => now - DAY },
  { id: "week", name: "in the last 7 days", since: (now) => now - 7 * DAY },
  { id: "still-10m", name: "not for 10 minutes", before: (now) => now - 10 * MINUTE },
  { id: "still-1h", name: "not for an hour", before: (now) => now - HOUR },
  { id: "still-1d", name: "not for a day", before: (now) => now - DAY },
];

export function filtersOf(query: URLSearchParams): Filters {
  return Object.fromEntries(NAMES.map((name) => [name, query.get(PARAMETERS[name]) ?? ""])) as unknown as Filters;
}

/** Filters as query parameters. */
export function parameters(filters: Partial<Filters>): Record<string, string> {
  return Object.fromEntries(Object.entries(filters).map(([name, value]) => [PARAMETERS[name as FilterName], value]));
}

/** The filters of the list as query parameters, for the next view. */
export function kept(): Record<string, string> {
  return place.value === "tasks" || place.value === "new" ? parameters(filtersOf(route.value.query)) : {};
}

/** Whether there is a filter; the order is none. */
export function isFiltered(filters: Filters): boolean {
  return NAMES.some((name) => name !== "order" && filters[name]);
}

/** The states that a list shows; empty for all. */
export function statesOf(filters: Filters): readonly string[] {
  return TABS.find((tab) => tab.id === filters.state)?.states ?? [];
}

export const WHOLE_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * ListTasksRequest in JSON. `everyone`: for the tasks of all principals, which operators and viewers may search. Times
 * are relative to `now`.
 */
export function requestOf(filters: Filters, everyone: boolean, now: number): Record<string, string | string[]> {
  const { text, agent, scope, context, principal, metadata } = filters;
  const states = statesOf(filters).map((state) => `TASK_STATE_${state}`);
  const found: Record<string, string | string[]> = {};
  const set = (name: string, value: string | string[] | undefined) => {
    if (value?.length) found[name] = value;
  };
  set("scope", scope);
  set("agent", agent);
  set("contextId", context);
  if (WHOLE_ID.test(text.trim())) set("taskId", text.trim());
  if (!everyone) {
    if (states.length === 1) set("state", states[0]);
    return { ...found, own: "true" };
  }
  if (!found["taskId"]) set("text", text.trim().slice(0, 200));
  const age = AGES.find((one) => one.id === filters.age);
  set("states", states);
  set("principal", principal);
  set("metadata", entriesOf(metadata));
  set("changedSince", age?.since && new Date(age.since(now)).toISOString());
  set("changedBefore", age?.before && new Date(age.before(now)).toISOString());
  set("order", `TASK_ORDER_${byCreation(filters) ? "CREATED" : "CHANGED"}`);
  return found;
}

/** Whether the list has the newest tasks first, not the last changed: much faster in searches for a text alone. */
export function byCreation({ order, text, state, principal, age }: Filters): boolean {
  if (order) return order === "created";
  return text !== "" && !WHOLE_ID.test(text.trim()) && !state && !principal && !age;
}

/** `a=1, b=2` as entries; a comma is part of a value unless another key follows. */
export function entriesOf(text: string): string[] {
  return text
    .split(/,\s*(?=[^,=]+=)/)
    .map((entry) => entry.trim())
    .filter((entry) => /^[^=]+=/.test(entry));
}

/** The active filters as texts, except for the state, which the tabs show. */
export function chips(filters: Filters): { name: FilterName; text: string }[] {
  const texts: Partial<Record<FilterName, string>> = {
    agent: `Agent: ${named(filters.agent)}`,
    principal: `Principal: ${filters.principal}`,
    scope: `Scope: ${filters.scope}`,
    context: `Context: ${filters.context}`,
    age: `Changed ${AGES.find((one) => one.id === filters.age)?.name ?? filters.age}`,
    metadata: `Metadata: ${filters.metadata}`,
  };
  return NAMES.flatMap((name) => (filters[name] && texts[name] ? [{ name, text: texts[name] }] : []));
}

/** What the list shows: `Failed tasks`. */
export function heading(filters: Filters): string {
  const tab = TABS.find((one) => one.id === filters.state && one.id);
  return tab ? `${tab.name} tasks` : "Tasks";
}

/** The title of the browser's tab; undefined if another component sets it. */
export function listTitle(): string | undefined {
  if (chosen.value || place.value !== "tasks") return undefined;
  const filters = filtersOf(route.value.query);
  const of = filters.agent ? ` of ${named(filters.agent)}` : "";
  return `${heading(filters)}${of}${filters.text ? ` with “${filters.text}”` : ""}`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
