// A task of another principal, as operators and viewers may read it: its events and messages, polled.

import type { Signal } from "@preact/signals";
import { ApiError, call, encodeSegment } from "../shared/api";
import type { ConnectionState } from "../shared/event_stream";
import { isTerminal, isWaiting, type EncodedEvent, type ListedTasks, type Message, type StreamResponse } from "../shared/messages";
import { tenantQuery } from "../shared/tenant";
import { explainTask } from "../tasks/task_finder";
import type { TaskProjection } from "./projection";

/** Milliseconds between two calls: short after a new event, then longer. Each call is audited. */
const MIN_INTERVAL_MS = 3_000;
const MAX_INTERVAL_MS = 15_000;

const PAGE_SIZE = 100;

/** Events of longer logs are not all read: the task as it is stands for them. */
const MAX_EVENTS = 1_000;

interface EventPage {
  events?: EncodedEvent[];
  oldest?: number;
  last?: number;
  history?: Message[];
}

interface OperatorPolling {
  tenant: string;
  id: string;
  signal: AbortSignal;
  connection: Signal<ConnectionState>;
  projection: () => TaskProjection;
  /** Receives the task's principal. */
  onPrincipal: (principal: string) => void;
  /** Called after new events. */
  onEvents: () => void;
  /** Receives the error of a call; nothing if the caller may not read tasks of others. */
  onError: (error?: unknown) => void;
}

/** Reads the task to its end, or until the caller is refused. */
export async function pollAsOperator({ tenant, id, signal, connection, projection, onPrincipal, onEvents, onError }: OperatorPolling): Promise<void> {
  let intervalMs = MIN_INTERVAL_MS;
  let principal = "";
  while (!signal.aborted) {
    try {
      if (!principal) {
        principal = (await explainTask(id, tenant, signal))?.[0]?.principal ?? "";
        if (!principal) return stopWith();
        onPrincipal(principal);
      }
      const before = projection().last;
      await readNewEvents({ tenant, id, signal }, projection());
      connection.value = isTerminal(projection().state) ? "ended" : "live";
      onEvents();
      if (isTerminal(projection().state)) return;
      intervalMs = projection().last > before ? MIN_INTERVAL_MS : Math.min(intervalMs * 2, MAX_INTERVAL_MS);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && [401, 403, 404].includes(error.status)) return stopWith();
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) return stopWith(error);
      connection.value = "lost";
    }
    await new Promise((resolve) => setTimeout(resolve, isWaiting(projection().state) ? MAX_INTERVAL_MS : intervalMs));
  }

  function stopWith(error?: unknown): void {
    connection.value = "failed";
    onError(error);
  }
}

/** Folds the events that are not known yet. */
async function readNewEvents({ tenant, id, signal }: Pick<OperatorPolling, "tenant" | "id" | "signal">, projection: TaskProjection): Promise<void> {
  const lastKnown = projection.last; // later events are new
  for (;;) {
    const range = { after: String(projection.last), limit: String(PAGE_SIZE), includeHistory: "true" };
    const query = new URLSearchParams({ ...tenantQuery(tenant), ...range });
    const page = await call<EventPage>(`operations/tasks/${encodeSegment(id)}/events?${query}`, { signal });
    const { events = [], oldest = 1, last = 0, history = [] } = page;
    if (oldest > projection.last + 1 || last - projection.last > MAX_EVENTS) {
      const taskQuery = new URLSearchParams({ ...tenantQuery(tenant), taskId: id, includeArtifacts: "true" });
      const listed = await call<ListedTasks>(`operations/tasks?${taskQuery}`, { signal });
      const task = listed.tasks?.[0]?.task;
      if (task) projection.apply({ task: { ...task, metadata: { ...task.metadata, "urn:dragoman:resume:v1": {} } } }, last);
    }
    for (const { sequence, v1Json } of events) {
      projection.apply(JSON.parse(v1Json) as StreamResponse, sequence, lastKnown ? Date.now() : 0);
    }
    projection.addUserMessages(history);
    if (projection.last >= last || events.length === 0) return;
  }
}
