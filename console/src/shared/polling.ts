// Polls the server while the page is visible.

import { useEffect, useRef, useState } from "preact/hooks";
import { accessToken } from "./api";

const CALL_TIMEOUT_MS = 5_000; // a call that takes longer is aborted by `refresh`
const noop = () => {};

export interface PollResult<T> {
  value: T | undefined;
  error: unknown;
  /** Polls at once. A call that has just begun ends first, so that many clicks do not keep its result away. */
  refresh: () => void;
}

/**
 * Returns the latest result of `load`, repeated every `intervalMs` while the page is visible (0: once); `intervalMs`
 * may depend on the result. A change in `resetOn` clears the result and loads again. A change in `refreshOn` loads again but
 * keeps the result until the next one; so does a failed call.
 */
export function usePolling<T>(
  load: (signal: AbortSignal) => Promise<T>,
  intervalMs: number | ((value: T | undefined) => number),
  resetOn: readonly unknown[],
  refreshOn: readonly unknown[] = [],
): PollResult<T> {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<unknown>();
  const pollNow = useRef(noop);
  const credential = accessToken.value;
  useEffect(() => setValue(undefined), [...resetOn, credential]);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let running: { stop: AbortController; began: number } | undefined;
    let [waitsUntilVisible, pollsAgain] = [false, false];
    const poll = async (): Promise<void> => {
      if (running && Date.now() - running.began < CALL_TIMEOUT_MS) {
        pollsAgain = true;
        return;
      }
      running?.stop.abort();
      running = undefined;
      clearTimeout(timer);
      waitsUntilVisible = document.hidden;
      if (waitsUntilVisible) return; // until the page is visible
      const { stop } = (running = { stop: new AbortController(), began: Date.now() });
      pollsAgain = false;
      let result: T | undefined;
      try {
        result = await load(stop.signal);
        if (stop.signal.aborted) return;
        setValue(result);
        setError(undefined);
      } catch (failed) {
        if (stop.signal.aborted) return;
        setError(failed);
      }
      running = undefined;
      if (pollsAgain) return poll();
      const next = typeof intervalMs === "number" ? intervalMs : intervalMs(result);
      if (next) timer = setTimeout(() => void poll(), next);
    };
    const onVisibilityChange = () => {
      if (waitsUntilVisible && !document.hidden) void poll();
    };
    document.addEventListener("visibilitychange", onVisibilityChange);
    pollNow.current = () => void poll();
    void poll();
    return () => {
      pollNow.current = noop;
      running?.stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibilityChange);
    };
  }, [...resetOn, ...refreshOn, credential]);
  return { value, error, refresh: () => pollNow.current() };
}
