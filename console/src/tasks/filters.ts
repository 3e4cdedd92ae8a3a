// The filters of the task list. They are query parameters of its URL, so that a link or a bookmark is a saved filter.

import { agentName } from "../shared/agents";
import { STATES, stateText } from "../shared/messages";
import { route, section, selectedTask } from "../shared/route";

export interface Filters {
  /** A text of the request, the error or the question; or a task id. */
  text: string;
  /** The id of a tab of `STATE_TABS`. */
  state: string;
  agent: string;
  principal: string;
  scope: string;
  context: string;
  /** The id of one of `AGES`. */
  age: string;
  /** Entries of the metadata: `KEY=VALUE, KEY=VALUE`. */
  metadata: string;
  /** The cause of failed tasks, as the page of failures names it. */
  cause: string;
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
  cause: "cause",
  order: "order",
};

export const FILTER_NAMES = Object.keys(PARAMETERS) as FilterName[];

/** The tabs: all tasks, those that have not ended, and those in each state. */
export const STATE_TABS: readonly { id: string; name: string; states: readonly string[] }[] = [
  { id: "", name: "All", states: [] },
  { id: "OPEN", name: "Open", states: STATES.slice(0, 4) },
  ...STATES.map((state) => ({ id: state, name: capitalize(stateText(state)), states: [state] })),
];

/** Characters of a failure in a filter. */
const MAX_CAUSE_LENGTH = 80;

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

interface Age {
  id: string;
  name: string;
  /** The beginning or the end of the time of the last change. */
  since?: (now: number) => number;
  before?: (now: number) => number;
}

export const AGES: readonly Age[] = [
  { id: "hour", name: "in the last hour", since: (now) => now - HOUR_MS },
  { id: "today", name: "today", since: (now) => new Date(now).setHours(0, 0, 0, 0) },
  { id: "day", name: "in the last 24 hours", since: (now) => now - DAY_MS },
  { id: "week", name: "in the last 7 days", since: (now) => now - 7 * DAY_MS },
  { id: "still-10m", name: "not for 10 minutes", before: (now) => now - 10 * MINUTE_MS },
  { id: "still-1h", name: "not for an hour", before: (now) => now - HOUR_MS },
  { id: "still-1d", name: "not for a day", before: (now) => now - DAY_MS },
];

/** The age of an id: one of `AGES`, or a day or an hour in UTC (`2026-11-24`, `2026-11-24T13`), to which charts link. */
export function ageOf(id: string): Age | undefined {
  const time = /^(\d{4}-\d\d-\d\d)(?:T(\d\d))?$/.exec(id);
  if (!time) return AGES.find((age) => age.id === id);
  const start = Date.parse(`${time[1]}T${time[2] ?? "00"}:00:00Z`);
  if (Number.isNaN(start)) return undefined;
  const name = time[2] ? `on ${time[1]} in the hour from ${time[2]}:00 UTC` : `on ${time[1]} (UTC)`;
  return { id, name, since: () => start, before: () => start + (time[2] ? HOUR_MS : DAY_MS) };
}

export const ORDERS = [
  { id: "changed", name: "Last changed first" },
  { id: "created", name: "Newest first" },
] as const;

/** The filters that have one of some values: others would select tasks that the author of the link did not mean. */
const CHOICES: readonly { name: FilterName; ids: readonly string[] }[] = [
  { name: "state", ids: STATE_TABS.map((tab) => tab.id) },
  { name: "age", ids: AGES.map((age) => age.id) },
  { name: "order", ids: ORDERS.map((order) => order.id) },
];

/** The filters of a query. Values in another spelling, such as `failed` or `TASK_STATE_FAILED`, are corrected. */
export function filtersOf(query: URLSearchParams): Filters {
  const filters = Object.fromEntries(FILTER_NAMES.map((name) => [name, query.get(PARAMETERS[name]) ?? ""])) as unknown as Filters;
  const normalize = (text: string) => text.toUpperCase().replace(/^TASK_STATE_/, "").replaceAll(/[- ]/g, "_");
  for (const { name, ids } of CHOICES) filters[name] = ids.find((id) => normalize(id) === normalize(filters[name])) ?? filters[name];
  return filters;
}

/** What no filter of a query can mean, as a sentence; empty if all is known. */
export function filterProblem(filters: Filters): string {
  for (const { name, ids } of CHOICES) {
    if (!filters[name] || ids.includes(filters[name]) || (name === "age" && ageOf(filters.age))) continue;
    return `“${filters[name]}” is no value of ${PARAMETERS[name]}. Use one of ${ids.filter(Boolean).join(", ")}.`;
  }
  return "";
}

/** Filters as query parameters. */
export function parameters(filters: Partial<Filters>): Record<string, string> {
  return Object.fromEntries(Object.entries(filters).map(([name, value]) => [PARAMETERS[name as FilterName], value]));
}

/** The filters of the list as query parameters, for the next view. */
export function filterQuery(): Record<string, string> {
  return section.value === "tasks" ? parameters(filtersOf(route.value.query)) : {};
}

/** Whether there is a filter; the order is none. */
export function isFiltered(filters: Filters): boolean {
  return FILTER_NAMES.some((name) => name !== "order" && filters[name]);
}

/** The states that a list shows; empty for all. */
export function statesOf(filters: Filters): readonly string[] {
  return STATE_TABS.find((tab) => tab.id === filters.state)?.states ?? [];
}

export const TASK_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * ListTasksRequest in JSON. `allPrincipals`: for the tasks of all principals, which operators and viewers may search. Times
 * are relative to `now`.
 */
export function listRequest(filters: Filters, allPrincipals: boolean, now: number): Record<string, string | string[]> {
  const { text, agent, scope, context, principal, metadata, cause } = filters;
  const states = statesOf(filters).map((state) => `TASK_STATE_${state}`);
  const request: Record<string, string | string[]> = {};
  const set = (name: string, value: string | string[] | undefined) => {
    if (value?.length) request[name] = value;
  };
  set("scope", scope);
  set("agent", agent);
  set("contextId", context);
  if (TASK_ID.test(text.trim())) set("taskId", text.trim());
  if (!allPrincipals) {
    if (states.length === 1) set("state", states[0]);
    return { ...request, own: "true" };
  }
  if (!request["taskId"]) set("text", text.trim().slice(0, 200));
  const age = ageOf(filters.age);
  set("states", states);
  set("principal", principal);
  set("metadata", metadataEntries(metadata));
  set("cause", cause);
  set("changedSince", age?.since && new Date(age.since(now)).toISOString());
  set("changedBefore", age?.before && new Date(age.before(now)).toISOString());
  set("order", `TASK_ORDER_${isOrderedByCreation(filters) ? "CREATED" : "CHANGED"}`);
  return request;
}

/** Whether the list has the newest tasks first, not the last changed: much faster in searches for a text alone. */
export function isOrderedByCreation({ order, text, state, principal, age, cause }: Filters): boolean {
  if (order) return order === "created";
  return text !== "" && !TASK_ID.test(text.trim()) && !state && !principal && !age && !cause;
}

/** `a=1, b=2` as entries; a comma is part of a value unless another key follows. */
export function metadataEntries(text: string): string[] {
  return text
    .split(/,\s*(?=[^,=]+=)/)
    .map((entry) => entry.trim())
    .filter((entry) => /^[^=]+=/.test(entry));
}

/** The active filters as texts, except for the state, which the tabs show. `failure`: that of the cause, if it is known. */
export function filterTexts(filters: Filters, failure = ""): { name: FilterName; text: string }[] {
  const texts: Partial<Record<FilterName, string>> = {
    agent: `Agent: ${agentName(filters.agent)}`,
    principal: `Principal: ${filters.principal}`,
    scope: `Scope: ${filters.scope}`,
    context: `Context: ${filters.context}`,
    age: `Changed ${ageOf(filters.age)?.name ?? filters.age}`,
    metadata: `Metadata: ${filters.metadata}`,
    cause: `Cause: ${shorten(failure || filters.cause)}`,
  };
  return FILTER_NAMES.flatMap((name) => (filters[name] && texts[name] ? [{ name, text: texts[name] }] : []));
}

/** The heading of the list: `Failed tasks`. */
export function listHeading(filters: Filters): string {
  const tab = STATE_TABS.find((tab) => tab.id === filters.state && tab.id);
  return tab ? `${tab.name} tasks` : "Tasks";
}

/** The title of the browser's tab; undefined if another component sets it. */
export function listTitle(): string | undefined {
  if (selectedTask.value || section.value !== "tasks") return undefined;
  const filters = filtersOf(route.value.query);
  const ofAgent = filters.agent ? ` of ${agentName(filters.agent)}` : "";
  return `${listHeading(filters)}${ofAgent}${filters.text ? ` with “${filters.text}”` : ""}`;
}

function shorten(text: string): string {
  return text.length > MAX_CAUSE_LENGTH ? `${text.slice(0, MAX_CAUSE_LENGTH).trimEnd()}…` : text;
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
