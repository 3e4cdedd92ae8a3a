// The tasks of the list, kept up to date by one stream. Operators and viewers search the tasks of all principals, page by
// page; others get their own. Where the server does not offer this list, which a remote browser without credentials does
// not get, it is merged from the lists of A2A in the default scope.

import { signal } from "@preact/signals";
import { byCreation, requestOf, WHOLE_ID, type Filters } from "./filters";
import { call, Failure, key, segment } from "../shared/api";
import { caller, type Caller } from "../shared/sign_in";
import { keepOpen, type Link } from "../shared/event_stream";
import { DEFAULT_SCOPE, tenantOf } from "../shared/tenant";
import type { ListedTask, ListedTasks, Task } from "../shared/messages";

export interface Row {
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
export interface Count {
  count: number;
  /** There may be more. */
  isMinimum: boolean;
}

export interface Listed {
  rows: Row[];
  total: Count;
  /** By state; undefined in lists of a caller's own tasks. */
  counts: Map<string, Count> | undefined;
  /** The scopes in which there are tasks. */
  scopes: string[];
  /** Whether `more` would find tasks, or may. */
  more: boolean;
  /** Whether these are tasks of all principals. */
  everyone: boolean;
}

/** The number of tasks in these states; in all of them if none is given. */
export function numberOf(counts: ReadonlyMap<string, Count>, states: readonly string[]): Count {
  const wanted = states.length ? states.map((state) => counts.get(`TASK_STATE_${state}`)) : [...counts.values()];
  return wanted.reduce<Count>(
    (sum, one) => ({ count: sum.count + (one?.count ?? 0), isMinimum: sum.isMinimum || (one?.isMinimum ?? false) }),
    { count: 0, isMinimum: false },
  );
}

export const PAGE = 50;
const LARGEST = 1000;
const LARGEST_OF_AGENT = 100;
const POLL = 2_000;
const AGING = 60_000;
/** Milliseconds for the first event of a stream. Some proxies hold a stream back until it ends. */
const LATE = 3_000;
/** Pages that are read at once for a text that few tasks have. */
const SEARCHED_PAGES = 10;
const ENOUGH = 20;

/** Incremented when a list without a stream should be read again. */
export const news = signal(0);

/** The key for which the server refused the list of all scopes. */
let refused: string | undefined;
/** Whether it lists only the caller's own tasks without a key. */
let onlyOwn = false;

/** One filtered list. */
export class Listing {
  readonly value = signal<Listed | undefined>(undefined);
  readonly error = signal<unknown>(undefined);
  readonly link = signal<Link>("connecting");
  /** Whether more tasks are being read. */
  readonly reading = signal(false);
  private stop: (() => void)[] = [];
  private everyone = true;
  private size = PAGE;
  private request: Record<string, string | string[]> = {};
  private token = "";
  /** Whether tasks beyond the first page are shown. */
  private extended = false;

  constructor(
    private readonly filters: Filters,
    private readonly agents: readonly string[],
  ) {}

  start(): void {
    const sleep = () => (document.hidden ? this.disconnect() : this.stop.length === 0 && void this.connect());
    document.addEventListener("visibilitychange", sleep);
    this.end = () => document.removeEventListener("visibilitychange", sleep);
    void this.connect();
  }

  end: () => void = () => undefined;

  close(): void {
    this.end();
    this.disconnect();
  }

  /** Reads the next tasks. */
  async more(): Promise<void> {
    const listed = this.value.value;
    if (!listed?.more || this.reading.value) return;
    if (!this.everyone) {
      this.size = Math.min(this.size * 2, LARGEST);
      this.disconnect();
      return this.connect();
    }
    this.reading.value = true;
    this.extended = true;
    try {
      for (let pages = 0; this.token && pages < SEARCHED_PAGES; pages++) {
        const page = await call<ListedTasks>(`operations/tasks?${query({ ...this.request, pageToken: this.token, limit: String(PAGE) })}`);
        this.token = page.nextPageToken ?? "";
        const before = this.value.value ?? listed;
        const known = new Set(before.rows.map(nameOf));
        const rows = [...before.rows, ...rowsOf(page).filter((row) => !known.has(nameOf(row)))];
        this.value.value = { ...before, rows, more: this.token !== "" };
        if (rows.length - listed.rows.length >= ENOUGH) break;
      }
      this.error.value = undefined;
    } catch (error) {
      this.error.value = error;
    } finally {
      this.reading.value = false;
    }
  }

  private disconnect(): void {
    for (const stop of this.stop.splice(0)) stop();
  }

  private async connect(): Promise<void> {
    const attempt = new AbortController();
    this.stop.push(() => attempt.abort());
    if (refused === key.value) return this.poll();
    try {
      this.everyone = await seesAll();
    } catch (error) {
      if (error instanceof Failure && error.status === 0) this.retry();
      this.error.value = error;
      return;
    }
    if (attempt.signal.aborted) return;
    const now = Date.now();
    const request = requestOf(this.filters, this.everyone, now);
    if (!this.extended) this.request = request;
    const page: Record<string, string> = this.everyone ? { countStates: "true", limit: String(PAGE) } : { limit: String(this.size) };
    let streams = false;
    const read = async () => {
      if (streams || attempt.signal.aborted) return;
      try {
        const list = await call<ListedTasks>(`operations/tasks?${query({ ...this.request, ...page })}`, { signal: attempt.signal });
        if (!streams && !attempt.signal.aborted) this.take(list);
      } catch {
        // the stream fails, too, and tells
      }
      late = setTimeout(() => void read(), LATE);
    };
    let late = setTimeout(() => void read(), LATE);
    const stop = keepOpen({
      path: `operations/tasks:watch?${query({ ...this.request, ...page }, "filter.")}`,
      take: ({ list }: { list?: ListedTasks }) => {
        streams = true;
        this.take(list ?? {});
        return false;
      },
      link: this.link,
      fail: (error) => this.fail(error),
    });
    this.stop.push(stop, () => clearTimeout(late), this.link.subscribe((link) => link === "live" && (this.error.value = undefined)));
    if (request["changedBefore"]) this.age();
  }

  /** Tasks that have not changed become old enough while the list is shown. */
  private age(): void {
    const timer = setTimeout(() => {
      if (this.extended) return;
      this.disconnect();
      void this.connect();
    }, AGING);
    this.stop.push(() => clearTimeout(timer));
  }

  private retry(): void {
    const timer = setTimeout(() => {
      this.disconnect();
      void this.connect();
    }, POLL);
    this.stop.push(() => clearTimeout(timer));
  }

  private fail(error: unknown): void {
    if (error instanceof Failure && [401, 403, 404].includes(error.status)) {
      refused = key.value;
      void this.poll();
    } else if (error instanceof Failure && error.status === 400 && !key.value && !onlyOwn) {
      onlyOwn = true;
      this.disconnect();
      void this.connect();
    } else this.error.value = error;
  }

  /** Takes the first page, or all of a caller's own tasks. */
  private take(list: ListedTasks): void {
    const first = rowsOf(list);
    const before = this.value.value;
    let rows = first;
    if (this.everyone && list.nextPageToken) {
      if (!this.extended) this.token = list.nextPageToken;
      else if (before) rows = [...first, ...below(before.rows, first, byCreation(this.filters))];
    } else this.token = "";
    const total = { count: Number(list.total ?? 0), isMinimum: list.totalIsMinimum ?? false };
    const more = this.everyone ? this.token !== "" : total.count > rows.length && rows.length < LARGEST;
    const counts =
      list.stateCounts &&
      new Map(list.stateCounts.map(({ state, count, isMinimum }) => [state, { count: Number(count ?? 0), isMinimum: isMinimum ?? false }]));
    this.value.value = { rows, total, counts: this.everyone ? (counts ?? new Map()) : undefined, scopes: list.scopes ?? [], more, everyone: this.everyone };
    if (more && this.everyone && !this.extended && rows.length < ENOUGH) void this.more();
  }

  /** Reads the lists of A2A, again and again. */
  private async poll(): Promise<void> {
    this.everyone = false;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const turn = async () => {
      clearTimeout(timer);
      try {
        this.value.value = await ofDefault(this.agents, this.filters, this.size, stop.signal);
        this.error.value = undefined;
        this.link.value = "live";
      } catch (error) {
        if (stop.signal.aborted) return;
        this.error.value = error;
      }
      if (!stop.signal.aborted) timer = setTimeout(() => void turn(), POLL);
    };
    const unsubscribe = news.subscribe((value) => value && void turn());
    this.stop.push(() => (stop.abort(), clearTimeout(timer), unsubscribe()));
    await turn();
  }
}

/** Whether the user is an operator or viewer, or the server asks nobody who they are. Throws Failure. */
async function seesAll(): Promise<boolean> {
  if (!key.value) return !onlyOwn;
  const who = caller.value ?? (await call<Caller>("console/caller"));
  return who.grants.some((grant) => grant === "operator" || grant === "viewer");
}

/** The rows that follow the first page in the list. */
function below(before: readonly Row[], first: readonly Row[], created: boolean): Row[] {
  const known = new Set(first.map(nameOf));
  const time = (row: Row) => (created ? row.created : row.changed);
  const last = first.at(-1);
  return before.filter((row) => !known.has(nameOf(row)) && (!last || time(row) <= time(last)));
}

export function nameOf({ tenant, task }: Row): string {
  return `${tenant}/${task.id}`;
}

function query(request: Record<string, string | string[]>, prefix = ""): URLSearchParams {
  return new URLSearchParams(Object.entries(request).flatMap(([name, value]) => [value].flat().map((one) => [prefix + name, one])));
}

function rowsOf(list: ListedTasks): Row[] {
  return (list.tasks ?? []).map(rowOf);
}

export function rowOf({ scope, agent, task, principal, created, summary, statusText, tokens, cost }: ListedTask): Row {
  return {
    tenant: tenantOf(scope, agent),
    task,
    created: created ? new Date(created).getTime() : made(task.id),
    changed: new Date(task.status.timestamp ?? 0).getTime(),
    principal: principal ?? "",
    summary: summary ?? "",
    statusText: statusText ?? "",
    tokens: Number(tokens ?? 0),
    cost: cost ?? 0,
  };
}

/** The tenant of a task of the caller; empty if there is none with this id. */
export async function find(id: string, agents: readonly string[]): Promise<string> {
  if (refused !== key.value) {
    try {
      const found = await call<ListedTasks>(`operations/tasks?${query({ taskId: id, own: "true" })}`);
      return rowsOf(found)[0]?.tenant ?? "";
    } catch (error) {
      if (!(error instanceof Failure && [401, 403, 404].includes(error.status))) throw error;
      refused = key.value;
    }
  }
  for (const agent of agents) {
    try {
      await call<Task>(`${segment(agent)}/tasks/${segment(id)}?historyLength=0`);
      return agent;
    } catch (error) {
      if (!(error instanceof Failure) || ![400, 403, 404].includes(error.status)) throw error;
    }
  }
  return "";
}

interface Page {
  tasks: Task[];
  nextPageToken: string;
  totalSize: number;
}

async function ofDefault(agents: readonly string[], filters: Filters, count: number, stop: AbortSignal): Promise<Listed> {
  const scopes = [DEFAULT_SCOPE];
  const none = { rows: [], total: { count: 0, isMinimum: false }, counts: undefined, scopes, more: false, everyone: false };
  if (filters.scope && filters.scope !== DEFAULT_SCOPE) return none;
  const asked = filters.agent ? agents.filter((id) => id === filters.agent) : agents;
  const each = await Promise.all(
    asked.map((agent) =>
      first(agent, filters, count, stop).catch((error: unknown) => {
        // One of several agents is not accessible with these credentials, or its worker has just disconnected.
        if (asked.length > 1 && error instanceof Failure && [403, 404].includes(error.status)) return { rows: [], total: 0 };
        throw error;
      }),
    ),
  );
  const rows = each.flatMap((one) => one.rows).sort((one, other) => other.changed - one.changed);
  const total = each.reduce((sum, one) => sum + one.total, 0);
  return { ...none, rows: rows.slice(0, count), total: { count: total, isMinimum: false }, more: total > count };
}

async function first(agent: string, filters: Filters, count: number, stop: AbortSignal): Promise<{ rows: Row[]; total: number }> {
  const rows: Row[] = [];
  let token = "";
  for (;;) {
    const asked = new URLSearchParams({ pageSize: String(Math.min(count - rows.length, LARGEST_OF_AGENT)), historyLength: "0" });
    const { state, contextId } = requestOf(filters, false, 0);
    if (state) asked.set("status", String(state));
    if (contextId) asked.set("contextId", String(contextId));
    if (token) asked.set("pageToken", token);
    const page = await call<Page>(`${segment(agent)}/tasks?${asked}`, { signal: stop });
    rows.push(...page.tasks.map((task) => rowOf({ scope: DEFAULT_SCOPE, agent, task })));
    token = page.nextPageToken;
    if (!token || rows.length >= count) return { rows, total: page.totalSize };
  }
}

/** Creation time in milliseconds, from the task id (RFC 9562, version 7); 0 if a client chose the id. */
export function made(id: string): number {
  const found = /^([0-9a-f]{8})-([0-9a-f]{4})-7/.exec(id);
  return found ? parseInt(`${found[1]}${found[2]}`, 16) : 0;
}

/** The loaded tasks that have this text in their id or in what is known of them; for lists that no server searched. */
export function matching(rows: readonly Row[], text: string): Row[] {
  const wanted = text.trim().toLowerCase();
  if (WHOLE_ID.test(wanted)) return [...rows];
  return rows.filter((row) => [row.task.id, row.summary, row.statusText, noteOf(row)].some((one) => one.toLowerCase().includes(wanted)));
}

/** The text of the status: an error, a question, or what the agent reported. */
export function noteOf({ statusText, task }: Row): string {
  if (statusText) return statusText;
  return (task.status.message?.parts ?? []).map((part) => part.text ?? "").join(" ").trim();
}
