// The tasks of the list, kept up to date by one stream. Operators and viewers search the tasks of all principals, page by
// page; others get their own. Where the server does not offer this list, which a remote browser without credentials does
// not get, it is merged from the lists of A2A in the default scope.

import { signal } from "@preact/signals";
import { accessToken, ApiError, call, encodeSegment } from "../shared/api";
import { openStream, type ConnectionState } from "../shared/event_stream";
import type { ListedTask, ListedTasks, Task } from "../shared/messages";
import { caller, type Caller } from "../shared/sign_in";
import { DEFAULT_SCOPE, tenantOf } from "../shared/tenant";
import { isOrderedByCreation, listRequest, TASK_ID, type Filters } from "./filters";

export interface TaskRow {
  tenant: string;
  task: Task;
  /** Milliseconds since 1970; 0 if unknown. */
  created: number;
  changed: number;
  summary: string;
  /** The following are empty in lists of a caller's own tasks. */
  principal: string;
  statusText: string;
  tokens: number;
  cost: number;
}

/** A number of tasks. */
export interface TaskCount {
  count: number;
  /** There may be more. */
  isMinimum: boolean;
}

export interface LoadedTasks {
  rows: TaskRow[];
  total: TaskCount;
  /** By state; undefined in lists of a caller's own tasks. */
  counts: Map<string, TaskCount> | undefined;
  /** The scopes in which there are tasks. */
  scopes: string[];
  /** Whether `more` would find tasks, or may. */
  more: boolean;
  /** Whether these are tasks of all principals. */
  allPrincipals: boolean;
}

/** The number of tasks in these states; in all of them if none is given. */
export function countInStates(counts: ReadonlyMap<string, TaskCount>, states: readonly string[]): TaskCount {
  const text = states.length ? states.map((state) => counts.get(`TASK_STATE_${state}`)) : [...counts.values()];
  return text.reduce<TaskCount>(
    (sum, count) => ({ count: sum.count + (count?.count ?? 0), isMinimum: sum.isMinimum || (count?.isMinimum ?? false) }),
    { count: 0, isMinimum: false },
  );
}

export const PAGE_SIZE = 50;
const MAX_ROWS = 1000;
const MAX_AGENT_PAGE_SIZE = 100;
const POLL_INTERVAL_MS = 2_000;
const AGE_REFRESH_MS = 60_000;
/** Milliseconds for the first event of a stream. Some proxies hold a stream back until it ends. */
const FIRST_EVENT_TIMEOUT_MS = 3_000;
/** Pages that are read at once for a text that few tasks have. */
const MAX_SEARCH_PAGES = 10;
const MIN_FOUND_ROWS = 20;

/** Incremented when a list without a stream should be read again. */
export const listVersion = signal(0);

/** The key for which the server refused the list of all scopes. */
let forbiddenToken: string | undefined;
/** Whether it lists only the caller's own tasks without a key. */
let ownTasksOnly = false;

/** One filtered list. */
export class TaskListing {
  readonly value = signal<LoadedTasks | undefined>(undefined);
  readonly error = signal<unknown>(undefined);
  readonly connection = signal<ConnectionState>("connecting");
  /** Whether more tasks are being read. */
  readonly loading = signal(false);
  private cleanups: (() => void)[] = [];
  private allPrincipals = true;
  private size = PAGE_SIZE;
  private request: Record<string, string | string[]> = {};
  private nextPageToken = "";
  /** Whether tasks beyond the first page are shown. */
  private extended = false;

  constructor(
    private readonly filters: Filters,
    private readonly agents: readonly string[],
  ) {}

  start(): void {
    const onVisibilityChange = () => (document.hidden ? this.disconnect() : this.cleanups.length === 0 && void this.connect());
    document.addEventListener("visibilitychange", onVisibilityChange);
    this.stopWatchingVisibility = () => document.removeEventListener("visibilitychange", onVisibilityChange);
    void this.connect();
  }

  stopWatchingVisibility: () => void = () => undefined;

  close(): void {
    this.stopWatchingVisibility();
    this.disconnect();
  }

  /** Reads the next tasks. */
  async more(): Promise<void> {
    const listed = this.value.value;
    if (!listed?.more || this.loading.value) return;
    if (!this.allPrincipals) {
      this.size = Math.min(this.size * 2, MAX_ROWS);
      this.disconnect();
      return this.connect();
    }
    this.loading.value = true;
    this.extended = true;
    try {
      for (let pages = 0; this.nextPageToken && pages < MAX_SEARCH_PAGES; pages++) {
        const page = await call<ListedTasks>(
          `operations/tasks?${query({ ...this.request, pageToken: this.nextPageToken, limit: String(PAGE_SIZE) })}`,
        );
        this.nextPageToken = page.nextPageToken ?? "";
        const before = this.value.value ?? listed;
        const known = new Set(before.rows.map(rowKey));
        const rows = [...before.rows, ...rowsOf(page).filter((row) => !known.has(rowKey(row)))];
        this.value.value = { ...before, rows, more: this.nextPageToken !== "" };
        if (rows.length - listed.rows.length >= MIN_FOUND_ROWS) break;
      }
      this.error.value = undefined;
    } catch (error) {
      this.error.value = error;
    } finally {
      this.loading.value = false;
    }
  }

  private disconnect(): void {
    for (const stop of this.cleanups.splice(0)) stop();
  }

  private async connect(): Promise<void> {
    const attempt = new AbortController();
    this.cleanups.push(() => attempt.abort());
    if (forbiddenToken === accessToken.value) return this.poll();
    try {
      this.allPrincipals = await mayListAllPrincipals();
    } catch (error) {
      if (error instanceof ApiError && error.status === 0) this.scheduleRetry();
      this.error.value = error;
      return;
    }
    if (attempt.signal.aborted) return;
    const now = Date.now();
    const request = listRequest(this.filters, this.allPrincipals, now);
    if (!this.extended) this.request = request;
    const page: Record<string, string> = this.allPrincipals ? { countStates: "true", limit: String(PAGE_SIZE) } : { limit: String(this.size) };
    let streams = false;
    const read = async () => {
      if (streams || attempt.signal.aborted) return;
      try {
        const list = await call<ListedTasks>(`operations/tasks?${query({ ...this.request, ...page })}`, { signal: attempt.signal });
        if (!streams && !attempt.signal.aborted) this.applyList(list);
      } catch {
        // the stream fails, too, and reports the error
      }
      firstEventTimer = setTimeout(() => void read(), FIRST_EVENT_TIMEOUT_MS);
    };
    let firstEventTimer = setTimeout(() => void read(), FIRST_EVENT_TIMEOUT_MS);
    const stop = openStream({
      path: `operations/tasks:watch?${query({ ...this.request, ...page }, "filter.")}`,
      onEvent: ({ list }: { list?: ListedTasks }) => {
        streams = true;
        this.applyList(list ?? {});
        return false;
      },
      connection: this.connection,
      onError: (error) => this.handleStreamError(error),
    });
    this.cleanups.push(
      stop,
      () => clearTimeout(firstEventTimer),
      this.connection.subscribe((connection) => connection === "live" && (this.error.value = undefined)),
    );
    if (request["changedBefore"]) this.scheduleAgeRefresh();
  }

  /** Tasks that have not changed become old enough while the list is shown. */
  private scheduleAgeRefresh(): void {
    const timer = setTimeout(() => {
      if (this.extended) return;
      this.disconnect();
      void this.connect();
    }, AGE_REFRESH_MS);
    this.cleanups.push(() => clearTimeout(timer));
  }

  private scheduleRetry(): void {
    const timer = setTimeout(() => {
      this.disconnect();
      void this.connect();
    }, POLL_INTERVAL_MS);
    this.cleanups.push(() => clearTimeout(timer));
  }

  private handleStreamError(error: unknown): void {
    if (error instanceof ApiError && [401, 403, 404].includes(error.status)) {
      forbiddenToken = accessToken.value;
      void this.poll();
    } else if (error instanceof ApiError && error.status === 400 && !accessToken.value && !ownTasksOnly) {
      ownTasksOnly = true;
      this.disconnect();
      void this.connect();
    } else this.error.value = error;
  }

  /** Takes the first page, or all of a caller's own tasks. */
  private applyList(list: ListedTasks): void {
    const firstPage = rowsOf(list);
    const before = this.value.value;
    let rows = firstPage;
    if (this.allPrincipals && list.nextPageToken) {
      if (!this.extended) this.nextPageToken = list.nextPageToken;
      else if (before) rows = [...firstPage, ...rowsAfter(before.rows, firstPage, isOrderedByCreation(this.filters))];
    } else this.nextPageToken = "";
    const total = { count: Number(list.total ?? 0), isMinimum: list.totalIsMinimum ?? false };
    const more = this.allPrincipals ? this.nextPageToken !== "" : total.count > rows.length && rows.length < MAX_ROWS;
    const counts =
      list.stateCounts &&
      new Map(list.stateCounts.map(({ state, count, isMinimum }) => [state, { count: Number(count ?? 0), isMinimum: isMinimum ?? false }]));
    this.value.value = {
      rows,
      total,
      counts: this.allPrincipals ? (counts ?? new Map()) : undefined,
      scopes: list.scopes ?? [],
      more,
      allPrincipals: this.allPrincipals,
    };
    if (more && this.allPrincipals && !this.extended && rows.length < MIN_FOUND_ROWS) void this.more();
  }

  /** Reads the lists of A2A, again and again. */
  private async poll(): Promise<void> {
    this.allPrincipals = false;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const pollOnce = async () => {
      clearTimeout(timer);
      try {
        this.value.value = await readDefaultScope(this.agents, this.filters, this.size, stop.signal);
        this.error.value = undefined;
        this.connection.value = "live";
      } catch (error) {
        if (stop.signal.aborted) return;
        this.error.value = error;
      }
      if (!stop.signal.aborted) timer = setTimeout(() => void pollOnce(), POLL_INTERVAL_MS);
    };
    const unsubscribe = listVersion.subscribe((value) => value && void pollOnce());
    this.cleanups.push(() => (stop.abort(), clearTimeout(timer), unsubscribe()));
    await pollOnce();
  }
}

/** Whether the user is an operator or viewer, or the server does not authenticate callers. Throws ApiError. */
async function mayListAllPrincipals(): Promise<boolean> {
  if (!accessToken.value) return !ownTasksOnly;
  const identity = caller.value ?? (await call<Caller>("console/caller"));
  return identity.grants.some((grant) => grant === "operator" || grant === "viewer");
}

/** The rows that follow the first page in the list. */
function rowsAfter(before: readonly TaskRow[], firstPage: readonly TaskRow[], created: boolean): TaskRow[] {
  const known = new Set(firstPage.map(rowKey));
  const time = (row: TaskRow) => (created ? row.created : row.changed);
  const last = firstPage.at(-1);
  return before.filter((row) => !known.has(rowKey(row)) && (!last || time(row) <= time(last)));
}

export function rowKey({ tenant, task }: TaskRow): string {
  return `${tenant}/${task.id}`;
}

function query(request: Record<string, string | string[]>, prefix = ""): URLSearchParams {
  return new URLSearchParams(Object.entries(request).flatMap(([name, value]) => [value].flat().map((one) => [prefix + name, one])));
}

function rowsOf(list: ListedTasks): TaskRow[] {
  return (list.tasks ?? []).map(rowOf);
}

export function rowOf({ scope, agent, task, principal, created, summary, statusText, failureText, tokens, cost }: ListedTask): TaskRow {
  return {
    tenant: tenantOf(scope, agent),
    task,
    created: created ? new Date(created).getTime() : creationTime(task.id),
    changed: new Date(task.status.timestamp ?? 0).getTime(),
    principal: principal ?? "",
    summary: summary ?? "",
    statusText: failureText || (statusText ?? ""),
    tokens: Number(tokens ?? 0),
    cost: cost ?? 0,
  };
}

/** The tenant of a task of the caller; empty if there is none with this id. */
export async function findOwnTask(id: string, agents: readonly string[]): Promise<string> {
  if (forbiddenToken !== accessToken.value) {
    try {
      const result = await call<ListedTasks>(`operations/tasks?${query({ taskId: id, own: "true" })}`);
      return rowsOf(result)[0]?.tenant ?? "";
    } catch (error) {
      if (!(error instanceof ApiError && [401, 403, 404].includes(error.status))) throw error;
      forbiddenToken = accessToken.value;
    }
  }
  for (const agent of agents) {
    try {
      await call<Task>(`${encodeSegment(agent)}/tasks/${encodeSegment(id)}?historyLength=0`);
      return agent;
    } catch (error) {
      if (!(error instanceof ApiError) || ![400, 403, 404].includes(error.status)) throw error;
    }
  }
  return "";
}

interface Page {
  tasks: Task[];
  nextPageToken: string;
  totalSize: number;
}

async function readDefaultScope(agents: readonly string[], filters: Filters, count: number, stop: AbortSignal): Promise<LoadedTasks> {
  const scopes = [DEFAULT_SCOPE];
  const none = { rows: [], total: { count: 0, isMinimum: false }, counts: undefined, scopes, more: false, allPrincipals: false };
  if (filters.scope && filters.scope !== DEFAULT_SCOPE) return none;
  const selectedAgents = filters.agent ? agents.filter((id) => id === filters.agent) : agents;
  const each = await Promise.all(
    selectedAgents.map((agent) =>
      readOfAgent(agent, filters, count, stop).catch((error: unknown) => {
        // One of several agents is not accessible with these credentials, or its worker has just disconnected.
        if (selectedAgents.length > 1 && error instanceof ApiError && [403, 404].includes(error.status)) return { rows: [], total: 0 };
        throw error;
      }),
    ),
  );
  const rows = each.flatMap((one) => one.rows).sort((one, other) => other.changed - one.changed);
  const total = each.reduce((sum, one) => sum + one.total, 0);
  return { ...none, rows: rows.slice(0, count), total: { count: total, isMinimum: false }, more: total > count };
}

async function readOfAgent(agent: string, filters: Filters, count: number, stop: AbortSignal): Promise<{ rows: TaskRow[]; total: number }> {
  const rows: TaskRow[] = [];
  let nextPageToken = "";
  for (;;) {
    const query = new URLSearchParams({ pageSize: String(Math.min(count - rows.length, MAX_AGENT_PAGE_SIZE)), historyLength: "0" });
    const { state, contextId } = listRequest(filters, false, 0);
    if (state) query.set("status", String(state));
    if (contextId) query.set("contextId", String(contextId));
    if (nextPageToken) query.set("pageToken", nextPageToken);
    const page = await call<Page>(`${encodeSegment(agent)}/tasks?${query}`, { signal: stop });
    rows.push(...page.tasks.map((task) => rowOf({ scope: DEFAULT_SCOPE, agent, task })));
    nextPageToken = page.nextPageToken;
    if (!nextPageToken || rows.length >= count) return { rows, total: page.totalSize };
  }
}

/** Creation time in milliseconds, from the task id (RFC 9562, version 7); 0 if a client chose the id. */
export function creationTime(id: string): number {
  const result = /^([0-9a-f]{8})-([0-9a-f]{4})-7/.exec(id);
  return result ? parseInt(`${result[1]}${result[2]}`, 16) : 0;
}

/** The loaded tasks with this text in their id, summary or status; for lists that the server did not search. */
export function rowsWithText(rows: readonly TaskRow[], text: string): TaskRow[] {
  const wanted = text.trim().toLowerCase();
  if (TASK_ID.test(wanted)) return [...rows];
  return rows.filter((row) => [row.task.id, row.summary, row.statusText, statusTextOf(row)].some((one) => one.toLowerCase().includes(wanted)));
}

/** The text of the status: an error, a question, or what the agent reported. */
export function statusTextOf({ statusText, task }: TaskRow): string {
  if (statusText) return statusText;
  return (task.status.message?.parts ?? [])
    .map((part) => part.text ?? "")
    .join(" ")
    .trim();
}
