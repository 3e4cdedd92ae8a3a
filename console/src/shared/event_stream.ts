// Server-sent events over fetch (an EventSource cannot send credentials). A stream is requested again when the connection
// is lost; that of a task resumes after the last received event.

import type { Signal } from "@preact/signals";
import { ApiError, encodeSegment, request } from "./api";
import type { StreamResponse } from "./messages";
import { tenantPath } from "./tenant";

interface Frame {
  id: string;
  event: string;
  data: string;
}

const INITIAL_BACKOFF_MS = 250;
const MAX_BACKOFF_MS = 5_000;
const IDLE_TIMEOUT_MS = 45_000; // the server sends a keep-alive every 15 s by default

export type ConnectionState = "connecting" | "live" | "lost" | "ended" | "failed";

async function* frames(body: ReadableStream<Uint8Array>, onData: () => void): AsyncGenerator<Frame> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onData();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const frame: Frame = { id: "", event: "", data: "" };
        for (const line of block.split("\n")) {
          const colon = line.indexOf(": ");
          const name = line.slice(0, colon);
          if (name === "data" || name === "id" || name === "event") frame[name] += line.slice(colon + 2);
        }
        if (frame.data) yield frame;
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

export interface StreamOptions {
  path: string;
  /** Headers of the next request. */
  headers?: () => Record<string, string>;
  /** Receives an event with its id. Returns whether it was the last. */
  onEvent: (event: never, id: string) => boolean;
  connection: Signal<ConnectionState>;
  /** Receives an error that cannot be retried. */
  onError: (error: unknown) => void;
}

/** Keeps a stream open: requests it again when the connection is lost. Returns a function that stops. */
export function openStream({ path, headers, onEvent, connection, onError }: StreamOptions): () => void {
  const signal = new AbortController();
  let backoffMs = INITIAL_BACKOFF_MS;

  async function readOnce(): Promise<boolean> {
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    signal.signal.addEventListener("abort", abort);
    addEventListener("offline", abort);
    let idleTimer = setTimeout(abort, IDLE_TIMEOUT_MS);
    const restartIdleTimer = () => {
      clearTimeout(idleTimer);
      idleTimer = setTimeout(abort, IDLE_TIMEOUT_MS);
    };
    try {
      const response = await request(path, { headers: { Accept: "text/event-stream", ...headers?.() }, signal: attempt.signal });
      connection.value = "live";
      let isLast = false;
      for await (const frame of frames(response.body as ReadableStream<Uint8Array>, restartIdleTimer)) {
        backoffMs = INITIAL_BACKOFF_MS;
        const payload = JSON.parse(frame.data);
        if (frame.event === "error") throw new ApiError(payload.error?.code ?? 500, payload.error?.message ?? "The stream failed.");
        isLast = onEvent(payload as never, frame.id);
      }
      return isLast;
    } finally {
      clearTimeout(idleTimer);
      signal.signal.removeEventListener("abort", abort);
      removeEventListener("offline", abort);
    }
  }

  async function readUntilLast(): Promise<void> {
    connection.value = "connecting";
    while (!signal.signal.aborted) {
      try {
        if (await readOnce()) {
          connection.value = "ended";
          return;
        }
      } catch (error) {
        if (signal.signal.aborted) return;
        const isPermanent = error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
        if (isPermanent) {
          connection.value = "failed";
          onError(error);
          return;
        }
      }
      if (signal.signal.aborted) return;
      connection.value = "lost";
      await waitUntilOnline(backoffMs, signal.signal);
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS);
    }
  }

  void readUntilLast();
  return () => signal.abort();
}

export interface TaskStreamOptions {
  tenant: string;
  id: string;
  /** Receives an event with its number. Returns whether it ends the task. */
  onEvent: (event: StreamResponse, sequence: number) => boolean;
  connection: Signal<ConnectionState>;
  /** Receives an error that cannot be retried. */
  onError: (error: unknown) => void;
}

/** Follows a task from its first event. Returns a function that stops. */
export function followTask({ tenant, id, onEvent, connection, onError }: TaskStreamOptions): () => void {
  let cursor = "0";
  return openStream({
    path: `${tenantPath(tenant)}/tasks/${encodeSegment(id)}:subscribe`,
    headers: () => ({ "Last-Event-ID": cursor }),
    onEvent: (event: StreamResponse, position: string) => {
      const isLast = onEvent(event, Number(position.slice(position.lastIndexOf(".") + 1)));
      cursor = position || cursor;
      return isLast;
    },
    connection,
    onError,
  });
}

/** Waits this number of milliseconds, or until the browser is online or the wait is aborted. */
function waitUntilOnline(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    addEventListener("online", end);
    signal.addEventListener("abort", end);
  });
}
