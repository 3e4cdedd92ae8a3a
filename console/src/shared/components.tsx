// Components shared by the views: states, times, errors, failures, tabs, values to copy.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { errorText } from "./api";
import { formatIsoTime, formatTimeOfDay, formatTimeSince } from "./format";
import { stateText, type Failure } from "./messages";

export function StateLabel({ state }: { state: string }) {
  const text = stateText(state);
  return (
    <span class="state" data-state={text}>
      {text}
    </span>
  );
}

/** Elapsed time, with the exact time as a tooltip. */
export function TimeSince({ time, suffix = "" }: { time: string | number | undefined; suffix?: string }) {
  if (!time) return <span class="faint">–</span>;
  return (
    <time dateTime={formatIsoTime(time)} title={formatIsoTime(time)}>
      {formatTimeSince(time)}
      {suffix}
    </time>
  );
}

/** A figure that is zero: dimmed, so that the others are seen. */
export function Zero({ children = "0" }: { children?: ComponentChildren }) {
  return <span class="zero">{children}</span>;
}

export function ErrorMessage({ error }: { error: unknown }) {
  if (!error) return null;
  return (
    <p class="problem" role="alert">
      {errorText(error)}
    </p>
  );
}

/** In narrower windows the frames are folded: the task has to stay in reach. */
const WIDE_PX = 700;

/** What is known of a failed attempt, of a turn or a step, besides its title. */
export function FailureText({ failure: { step, attempt, ended, frames = [], causes = [] } }: { failure: Failure }) {
  return (
    <>
      <p class="faint">
        {step && (
          <>
            in step <b>{step}</b>,{" "}
          </>
        )}
        attempt {attempt ?? 1}
        {ended && `, ${formatTimeOfDay(ended)}`}
      </p>
      {frames.length > 0 && (
        <details open={innerWidth >= WIDE_PX}>
          <summary>Where it was raised</summary>
          <ol class="frames" aria-label="Where it was raised, innermost first">
            {frames.toReversed().map((frame, index) => (
              <li key={index}>
                <span class="faint" title={frame.file}>
                  {frame.file.split("/").slice(-2).join("/")}:{frame.line} in <b>{frame.function}</b>
                </span>
                <pre>{frame.code}</pre>
              </li>
            ))}
          </ol>
        </details>
      )}
      {causes.map((cause) => (
        <p key={cause} class="faint">
          after {cause}
        </p>
      ))}
    </>
  );
}

/** A value with a button that copies it. */
export function CopyableValue({ value, name, children }: { value: string; name: string; children?: ComponentChildren }) {
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
export function FactList({ items }: { items: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {items
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
export function Tabs({ tabs, selected, label, onSelect }: { tabs: readonly Tab[]; selected: string; label: string; onSelect: (id: string) => void }) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const show = () => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    const observer = new ResizeObserver(show); // also at first
    // Numbers in tabs appear later, as does what is beside them.
    for (const element of list.current ? [list.current, ...list.current.children] : []) observer.observe(element);
    return () => observer.disconnect();
  }, [selected]);
  const onKey = (event: KeyboardEvent) => {
    const index = tabs.findIndex((tab) => tab.id === selected);
    const steps: Record<string, number> = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: tabs.length - 1 };
    const next = steps[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const tab = tabs[(next + tabs.length) % tabs.length];
    if (!tab) return;
    onSelect(tab.id);
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
          aria-selected={tab.id === selected}
          aria-controls="panel"
          tabIndex={tab.id === selected ? 0 : -1}
          onClick={() => onSelect(tab.id)}
        >
          {tab.name}
          {tab.count !== undefined && <span class="count"> {tab.count}</span>}
        </button>
      ))}
    </div>
  );
}
