// Asking the server again and again while somebody looks.

import { useEffect, useState } from "preact/hooks";
import { key } from "./server";

export interface Asked<T> {
  value: T | undefined;
  error: unknown;
  /** Asks at once. */
  again: () => void;
}

/**
 * What `ask` gives, and again after `every` milliseconds while the page is seen (0: not again), which what was given may
 * decide. It is asked anew when one of `about` changes, and then there is nothing until it comes; and when one of `since`
 * changes, and then what was there stays until something newer comes, as it does when asking fails.
 */
export function useAsked<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  every: number | ((value: T | undefined) => number),
  about: readonly unknown[],
  since: readonly unknown[] = [],
): Asked<T> {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<unknown>();
  const [round, setRound] = useState(0);
  const who = key.value;
  useEffect(() => setValue(undefined), [...about, who]);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let waits = false;
    const turn = async () => {
      clearTimeout(timer);
      waits = document.hidden;
      if (waits) return; // until it is seen
      let found: T | undefined;
      try {
        found = await ask(stop.signal);
        if (stop.signal.aborted) return;
        setValue(found);
        setError(undefined);
      } catch (failed) {
        if (stop.signal.aborted) return;
        setError(failed);
      }
      const next = typeof every === "number" ? every : every(found);
      if (next) timer = setTimeout(() => void turn(), next);
    };
    const seen = () => {
      if (waits && !document.hidden) void turn();
    };
    document.addEventListener("visibilitychange", seen);
    void turn();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [...about, ...since, who, round]);
  return { value, error, again: () => setRound((before) => before + 1) };
}
