// The shown task, updated by its events.

import { signal, type Signal } from "@preact/signals";
import { ApiError, call, encodeSegment } from "../shared/api";
import { followTask, type ConnectionState } from "../shared/event_stream";
import type { Card, Message, Task } from "../shared/messages";
import { tenantPath } from "../shared/tenant";
import { listVersion } from "../tasks/listing";
import { pollAsOperator } from "./operator_polling";
import { TaskProjection } from "./projection";

const POLL_INTERVAL_MS = 2_000;
const HISTORY_LENGTH = 200;

/** Milliseconds without an event after which the earlier events are known, and at most. */
const QUIET_MS = 150;
const MAX_CATCH_UP_MS = 1_500;

export class TaskFollower {
  projection = new TaskProjection();
  /** Incremented when there is something new to render. */
  readonly version = signal(0);
  readonly connection: Signal<ConnectionState> = signal("connecting");
  readonly error: Signal<unknown> = signal(undefined);
  /** The principal of a task that is not the caller's, and which an operator reads; empty for the caller's own. */
  readonly principal = signal("");
  /** Whether all events so far are known; further ones are new. */
  readonly isCaughtUp = signal(false);
  private catchUpStart = 0;
  private catchUpTimer: ReturnType<typeof setTimeout> | undefined;
  private frame = 0;
  private listTimer: ReturnType<typeof setTimeout> | undefined;
  private readonly cleanups: (() => void)[] = [];

  constructor(
    readonly tenant: string,
    readonly id: string,
  ) {}

  start(): void {
    const stop = followTask({
      tenant: this.tenant,
      id: this.id,
      connection: this.connection,
      onEvent: (event, sequence) => {
        const stateBefore = this.projection.state;
        const ended = this.projection.apply(event, sequence, this.isCaughtUp.value ? Date.now() : 0);
        this.restartCatchUpTimer(ended);
        if (this.projection.state !== stateBefore) this.scheduleListRefresh();
        if (this.projection.historyIsStale) void this.readHistory();
        this.scheduleRender();
        return ended;
      },
      onError: (error) => void this.handleStreamError(error),
    });
    this.cleanups.push(stop);
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.catchUpTimer);
    for (const end of this.cleanups) end();
  }

  private restartCatchUpTimer(ended: boolean): void {
    if (this.isCaughtUp.value) return;
    clearTimeout(this.catchUpTimer);
    this.catchUpStart ||= Date.now();
    const remainingMs = ended ? 0 : Math.min(QUIET_MS, this.catchUpStart + MAX_CATCH_UP_MS - Date.now());
    this.catchUpTimer = setTimeout(() => (this.isCaughtUp.value = true), Math.max(0, remainingMs));
  }

  /** Renders at most once per frame, because many events may arrive between two frames. */
  private scheduleRender(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.version.value++;
    });
  }

  /** Delayed, because a task read from its first event changes its state many times at once. */
  private scheduleListRefresh(): void {
    clearTimeout(this.listTimer);
    this.listTimer = setTimeout(() => listVersion.value++, 50);
  }

  /** User messages are in the task's history, not in events. */
  private async readHistory(): Promise<void> {
    this.projection.historyIsStale = false;
    try {
      const task = await call<Task>(`${this.path}?historyLength=${HISTORY_LENGTH}`);
      const history: Message[] = task.history ?? [];
      this.projection.addUserMessages(history);
      this.scheduleRender();
    } catch {
      // the next event retries, or the stream reports the error
    }
  }

  /** A task of another principal, read as operators may. Without the grant, the refusal is shown. */
  private async followAsOperator(error: unknown): Promise<void> {
    const stop = new AbortController();
    this.cleanups.push(() => stop.abort());
    await pollAsOperator({
      tenant: this.tenant,
      id: this.id,
      signal: stop.signal,
      connection: this.connection,
      projection: () => this.projection,
      onPrincipal: (principal) => (this.principal.value = principal),
      onEvents: () => {
        this.isCaughtUp.value = true;
        this.scheduleRender();
      },
      onError: (pollError) => (this.error.value = pollError ?? error),
    });
  }

  /** Polls agents without streaming. */
  private async handleStreamError(error: unknown): Promise<void> {
    if (error instanceof ApiError && error.status === 404) return this.followAsOperator(error);
    if (!(error instanceof ApiError && error.reason === "UNSUPPORTED_OPERATION")) {
      this.error.value = error;
      return;
    }
    const card = await call<Card>(`${tenantPath(this.tenant)}/.well-known/agent-card.json`).catch(() => undefined);
    if (card?.capabilities?.streaming) {
      this.error.value = error;
      return;
    }
    const poll = async () => {
      try {
        const task = await call<Task>(`${this.path}?historyLength=${HISTORY_LENGTH}`);
        const polled = new TaskProjection();
        const ended = polled.apply({ task }, 0);
        this.projection = polled;
        this.connection.value = ended ? "ended" : "live";
        this.isCaughtUp.value = true;
        this.scheduleRender();
        if (ended) clearInterval(timer);
      } catch (cause) {
        this.error.value = cause;
      }
    };
    const timer = setInterval(() => void poll(), POLL_INTERVAL_MS);
    this.cleanups.push(() => clearInterval(timer));
    await poll();
  }

  private get path(): string {
    return `${tenantPath(this.tenant)}/tasks/${encodeSegment(this.id)}`;
  }
}
