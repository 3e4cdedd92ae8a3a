// A task as a conversation: messages of user and agent, progress, artifacts; and the artifacts alone.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Fold, Line } from "./projection";
import { Parts } from "../shared/content/parts";
import { State } from "../shared/components";
import { offerOf } from "./compose/question";
import { refine } from "../shared/route";
import { clock, full, plural, short, took } from "../shared/format";
import { isTerminal, isWaiting, type Part } from "../shared/messages";

/** Pixels from the end within which the view follows new lines. */
const NEAR = 48;

interface Shown {
  fold: Fold;
  /** All events so far are shown; further ones are new. */
  current: boolean;
  /** The fold's version. The fold object stays the same, and components render only for changed values. */
  tick: number;
}

/** A finished task is shown from its top; a task that works is followed until the user scrolls up. */
export function Conversation({ fold, current }: Shown) {
  const end = useRef<HTMLDivElement>(null);
  const follows = useRef<boolean>(false);
  const [away, setAway] = useState(false);
  const live = current && !isTerminal(fold.state);
  useLayoutEffect(() => {
    const panel = end.current?.closest(".panel");
    if (!panel) return;
    const scrolled = () => {
      const near = panel.scrollHeight - panel.scrollTop - panel.clientHeight < NEAR;
      follows.current = near;
      setAway(!near);
    };
    panel.addEventListener("scroll", scrolled);
    return () => panel.removeEventListener("scroll", scrolled);
  }, []);
  useLayoutEffect(() => {
    if (live) follows.current = true;
  }, [live]);
  useLayoutEffect(() => {
    const panel = end.current?.closest(".panel");
    if (!panel) return;
    if (follows.current && current) panel.scrollTop = panel.scrollHeight;
    setAway(panel.scrollHeight - panel.scrollTop - panel.clientHeight >= NEAR);
  });
  const jump = () => {
    follows.current = true;
    end.current?.scrollIntoView({ block: "end" });
  };
  const groups = grouped(fold.lines);
  return (
    <>
      <div role="log" aria-label="Conversation">
        <ol class="conversation">
          {groups.map((group, index) => (
            <Entry key={index} tick={live && index === groups.length - 1 ? fold.last : group.line.last} group={group} before={groups[index - 1]?.line} live={live && index === groups.length - 1} />
          ))}
        </ol>
      </div>
      {away && (
        <button type="button" class="jump" onClick={jump}>
          Jump to end
        </button>
      )}
      <div ref={end} />
    </>
  );
}

interface Group {
  line: Line;
  /** Earlier reports of progress that the line replaces. */
  earlier: Line[];
}

/** Reports of progress in a row are one line, the last. A state that the next line tells too is not told. */
function grouped(lines: readonly Line[]): Group[] {
  const groups: Group[] = [];
  for (const [index, line] of lines.entries()) {
    const before = groups.at(-1);
    const next = lines[index + 1];
    if (line.kind === "status" && !line.message && !line.attempt && next?.kind === "status" && next.state === line.state) continue;
    if (before && isProgress(before.line) && isProgress(line)) {
      before.earlier.push(before.line);
      before.line = line;
    } else {
      groups.push({ line, earlier: [] });
    }
  }
  return groups;
}

function isProgress(line: Line): boolean {
  return line.kind === "status" && /_WORKING$/.test(line.state ?? "") && !!line.message && !line.attempt;
}

function Entry({ group: { line, earlier }, before, live }: { group: Group; before: Line | undefined; live: boolean; tick: number }) {
  const bare = line.kind === "created" || line.kind === "gap" || (line.kind === "status" && !line.message);
  return (
    <li data-kind={line.kind} class={bare ? "bare" : undefined}>
      <div class="what">
        <What line={line} live={live} />
        {earlier.length > 0 && <Earlier lines={earlier} />}
      </div>
      <span class="at">
        <Since line={line} before={before} />
        <time title={full(line.time)}>{clock(line.time)}</time>
        {line.kind !== "user" && line.first > 0 && (
          <button
            type="button"
            class="plain sequence"
            title="Show this event on the wire"
            aria-label={`Event ${line.first} on the wire`}
            onClick={() => refine({ tab: "wire", event: String(line.first) })}
          >
            #{line.first === line.last ? line.first : `${line.first}–${line.last}`}
          </button>
        )}
      </span>
    </li>
  );
}

/** The time since the line before, if both have one. */
function Since({ line, before }: { line: Line; before: Line | undefined }) {
  if (!line.time || !before?.time) return null;
  const passed = new Date(line.time).getTime() - new Date(before.time).getTime();
  return passed > 0 ? <span title="since the line before">+{took(passed)}</span> : null;
}

/** Earlier reports of progress; equal ones are joined. */
function Earlier({ lines }: { lines: readonly Line[] }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="earlier" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{plural(lines.length, "earlier report")}</summary>
      {open && (
        <ol>
          {joined(lines).map(({ text, count, time, first }) => (
            <li key={first}>
              <time class="at" title={full(time)}>
                {clock(time)}
              </time>
              <span>
                {text} {count > 1 && <span class="faint">({count} times)</span>}
              </span>
            </li>
          ))}
        </ol>
      )}
    </details>
  );
}

function joined(lines: readonly Line[]): { text: string; count: number; time?: string; first: number }[] {
  const found: { text: string; count: number; time?: string; first: number }[] = [];
  for (const line of lines) {
    const text = (line.message?.parts ?? []).map((part) => part.text ?? part.filename ?? JSON.stringify(part.data ?? "")).join(" ");
    const before = found.at(-1);
    if (before?.text === text) before.count++;
    else found.push({ text, count: 1, time: line.time, first: line.first });
  }
  return found;
}

function What({ line, live }: { line: Line; live: boolean }) {
  switch (line.kind) {
    case "user":
      return (
        <>
          <p class="who">user</p>
          <Parts parts={line.message?.parts ?? []} />
        </>
      );
    case "artifact":
      return (
        <>
          <p class="who">
            {line.replaces ? "artifact, replaced" : "artifact"} {line.artifact?.name ? <b>{line.artifact.name}</b> : <code>{short(line.artifact?.artifactId ?? "")}</code>}
            {line.last > line.first && <span class="faint"> {plural(line.last - line.first + 1, "chunk")}</span>}
            {line.complete && <span class="faint"> complete</span>}
          </p>
          <Parts parts={line.artifact?.parts ?? []} usual="markdown" live={live} />
        </>
      );
    case "gap":
      return <p class="faint">Earlier events are not shown. This is the task as of event {line.first}.</p>;
    default:
      return (
        <>
          <p class="who">
            <State state={line.state ?? ""} />
            {line.attempt && <span> attempt {line.attempt}</span>}
            {line.error && <span class="bad"> after {line.error}</span>}
          </p>
          {line.message && <Said parts={line.message.parts} state={line.state ?? ""} />}
        </>
      );
  }
}

/** The message of a status. What a question offers as answers is put into words. */
function Said({ parts, state }: { parts: readonly Part[]; state: string }) {
  const offers = isWaiting(state) ? parts.map(offerOf) : [];
  return (
    <>
      <Parts parts={parts.filter((_, index) => !offers[index])} usual="markdown" />
      {offers.map((offer) => offer && <p class="faint">{offer}</p>)}
    </>
  );
}

export function Results({ fold }: { fold: Fold }) {
  if (fold.artifacts.size === 0) return <p class="empty">No artifacts.</p>;
  return (
    <div class="results">
      {[...fold.artifacts.values()].map((artifact) => (
        <section key={artifact.artifactId} aria-label={artifact.name || artifact.artifactId}>
          <h3>
            {artifact.name || artifact.artifactId} {artifact.name && <code class="faint">{artifact.artifactId}</code>}
          </h3>
          {artifact.description && <p class="faint">{artifact.description}</p>}
          <Parts parts={artifact.parts ?? []} usual="markdown" />
        </section>
      ))}
    </div>
  );
}
