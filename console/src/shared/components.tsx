// Components shared by the views: states, times, errors, tabs, values to copy.

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { ago, full } from "./format";
import { words } from "./api";
import { shown } from "./messages";

export function State({ state }: { state: string }) {
  const word = shown(state);
  return (
    <span class="state" data-state={word}>
      {word}
    </span>
  );
}

/** Elapsed time, with the exact time as a tooltip. */
export function Ago({ time, after = "" }: { time: string | number | undefined; after?: string }) {
  if (!time) return <span class="faint">–</span>;
  return (
    <time dateTime={full(time)} title={full(time)}>
      {ago(time)}
      {after}
    </time>
  );
}

export function Problem({ error }: { error: unknown }) {
  if (!error) return null;
  return (
    <p class="problem" role="alert">
      {words(error)}
    </p>
  );
}

/** A value with a button that copies it. */
export function Copy({ value, name, children }: { value: string; name: string; children?: ComponentChildren }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(value);
    setDone(true);
    setTimeout(() => setDone(false), 1200);
  };
  return (
    <span class="copy">
      {children ?? <code>{value}</code>}
      {/* only secure contexts may write to the clipboard */}
      {isSecureContext && (
        <button type="button" class="plain" onClick={() => void copy()} aria-label={`Copy ${name}`}>
          {done ? "copied" : "copy"}
        </button>
      )}
    </span>
  );
}

/** Pairs of name and value. Pairs without a value are omitted. */
export function Facts({ of }: { of: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {of
        .filter(([, value]) => value !== undefined && value !== null && value !== false && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

export interface Tab {
  id: string;
  name: string;
  count?: number;
}

/** Tabs as in the ARIA practices: one stop for the Tab key, arrow keys between tabs. */
export function Tabs({ tabs, at, label, choose }: { tabs: readonly Tab[]; at: string; label: string; choose: (id: string) => void }) {
  const list = useRef<HTMLDivElement>(null);
  const onKey = (event: KeyboardEvent) => {
    const here = tabs.findIndex((tab) => tab.id === at);
    const steps: Record<string, number> = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tabs.length - 1 };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const tab = tabs[(to + tabs.length) % tabs.length];
    if (!tab) return;
    choose(tab.id);
    list.current?.querySelector<HTMLElement>(`[data-tab="${tab.id}"]`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={onKey}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          id={`tab-${tab.id}`}
          data-tab={tab.id}
          aria-selected={tab.id === at}
          aria-controls="panel"
          tabIndex={tab.id === at ? 0 : -1}
          onClick={() => choose(tab.id)}
        >
          {tab.name}
          {tab.count !== undefined && <span class="count"> {tab.count}</span>}
        </button>
      ))}
    </div>
  );
}
