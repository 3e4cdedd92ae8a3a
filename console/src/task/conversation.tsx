// A task as a conversation: messages of user and agent, progress, artifacts; and the artifacts alone.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { StateLabel } from "../shared/components";
import { Parts } from "../shared/content/parts";
import { formatDuration, formatIsoTime, formatTimeOfDay, plural } from "../shared/format";
import { isTerminal, isWaiting, type Artifact, type Message, type Part } from "../shared/messages";
import { updateQuery } from "../shared/route";
import { offeredAnswers } from "./compose/question";
import type { Line, TaskProjection } from "./projection";

/** Pixels from the end within which the view follows new lines. */
const FOLLOW_DISTANCE_PX = 48;

interface ConversationProps {
  projection: TaskProjection;
  /** All events so far are shown; further ones are new. */
  isCaughtUp: boolean;
  /** The projection's version. The object stays the same, and components render only for changed values. */
  version: number;
  /** The current question or error. An error is shown above all tabs, and not again here. */
  notice: Message | undefined;
  /** The question with its form, which takes the place of its message; undefined for an error. */
  question: ComponentChildren;
}

/** A finished task is shown from its top; a task that works is followed until the user scrolls up. */
export function Conversation({ projection, isCaughtUp, notice, question }: ConversationProps) {
  const end = useRef<HTMLDivElement>(null);
  const followsEnd = useRef<boolean>(false);
  const [isScrolledAway, setIsScrolledAway] = useState(false);
  const live = isCaughtUp && !isTerminal(projection.state);
  useLayoutEffect(() => {
    const panel = end.current?.closest(".panel");
    if (!panel) return;
    const onScroll = () => {
      const isNearEnd = panel.scrollHeight - panel.scrollTop - panel.clientHeight < FOLLOW_DISTANCE_PX;
      followsEnd.current = isNearEnd;
      setIsScrolledAway(!isNearEnd);
    };
    panel.addEventListener("scroll", onScroll);
    return () => panel.removeEventListener("scroll", onScroll);
  }, []);
  useLayoutEffect(() => {
    if (live) followsEnd.current = true;
  }, [live]);
  useLayoutEffect(() => {
    const panel = end.current?.closest(".panel");
    if (!panel) return;
    if (followsEnd.current && isCaughtUp) panel.scrollTop = panel.scrollHeight;
    setIsScrolledAway(panel.scrollHeight - panel.scrollTop - panel.clientHeight >= FOLLOW_DISTANCE_PX);
  });
  const scrollToEnd = () => {
    followsEnd.current = true;
    end.current?.scrollIntoView({ block: "end" });
  };
  const groups = groupLines(projection.lines);
  return (
    <>
      <div role="log" aria-label="Conversation">
        <ol class="conversation">
          {groups.map((group, index) => (
            <ConversationEntry
              key={index}
              version={live && index === groups.length - 1 ? projection.last : group.line.last}
              group={group}
              before={groups[index - 1]?.line}
              live={live && index === groups.length - 1}
              isNotice={notice !== undefined && group.line.message === notice}
              question={notice !== undefined && group.line.message === notice ? question : undefined}
            />
          ))}
        </ol>
      </div>
      {isScrolledAway && (
        <button type="button" class="jump" onClick={scrollToEnd}>
          Jump to end
        </button>
      )}
      <div ref={end} />
    </>
  );
}

/** The number of messages and artifacts: reports of progress in a row are one, and so are the chunks of an artifact. */
export function countMessages(projection: TaskProjection): number {
  return groupLines(projection.lines).filter(({ line }) => !hasNoContent(line)).length;
}

function hasNoContent(line: Line): boolean {
  return line.kind === "created" || line.kind === "gap" || (line.kind === "status" && !line.message);
}

interface Group {
  line: Line;
  /** Earlier reports of progress that the line replaces. */
  earlier: Line[];
}

/** Reports of progress in a row are one line, the last. A state that the next line repeats is left out. */
function groupLines(lines: readonly Line[]): Group[] {
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

interface ConversationEntryProps {
  group: Group;
  before: Line | undefined;
  live: boolean;
  version: number;
  isNotice: boolean;
  question: ComponentChildren;
}

function ConversationEntry({ group: { line, earlier }, before, live, isNotice, question }: ConversationEntryProps) {
  const isBare = hasNoContent(line) || (isNotice && !question);
  return (
    <li data-kind={line.kind} class={isBare ? "bare" : undefined}>
      <div class="what">
        <LineContent line={line} live={live} isNotice={isNotice} />
        {question}
        {earlier.length > 0 && <EarlierReports lines={earlier} />}
      </div>
      <span class="at">
        <TimeSinceLineBefore line={line} before={before} />
        <time title={formatIsoTime(line.time)}>{formatTimeOfDay(line.time)}</time>
        {line.kind !== "user" && line.first > 0 && (
          <button
            type="button"
            class="plain sequence"
            title="Show this event on the wire"
            aria-label={`Event ${line.first} on the wire`}
            onClick={() => updateQuery({ tab: "wire", event: String(line.first) })}
          >
            #{line.first === line.last ? line.first : `${line.first}–${line.last}`}
          </button>
        )}
      </span>
    </li>
  );
}

/** The time since the line before, if both have one. */
function TimeSinceLineBefore({ line, before }: { line: Line; before: Line | undefined }) {
  if (!line.time || !before?.time) return null;
  const passed = new Date(line.time).getTime() - new Date(before.time).getTime();
  return passed > 0 ? <span title="since the line before">+{formatDuration(passed)}</span> : null;
}

/** Earlier reports of progress; equal ones are joined. */
function EarlierReports({ lines }: { lines: readonly Line[] }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="earlier" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{plural(lines.length, "earlier report")}</summary>
      {open && (
        <ol>
          {joinEqualReports(lines).map(({ text, count, time, first }) => (
            <li key={first}>
              <time class="at" title={formatIsoTime(time)}>
                {formatTimeOfDay(time)}
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

function joinEqualReports(lines: readonly Line[]): { text: string; count: number; time?: string; first: number }[] {
  const reports: { text: string; count: number; time?: string; first: number }[] = [];
  for (const line of lines) {
    const text = (line.message?.parts ?? []).map((part) => part.text ?? part.filename ?? JSON.stringify(part.data ?? "")).join(" ");
    const before = reports.at(-1);
    if (before?.text === text) before.count++;
    else reports.push({ text, count: 1, time: line.time, first: line.first });
  }
  return reports;
}

function LineContent({ line, live, isNotice }: { line: Line; live: boolean; isNotice: boolean }) {
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
            {line.replaces ? "artifact, replaced" : "artifact"}{" "}
            {line.artifact && <b title={line.artifact.artifactId}>{artifactTitle(line.artifact)}</b>}
            {line.last > line.first && <span class="faint"> {plural(line.last - line.first + 1, "chunk")}</span>}
            {line.complete && <span class="faint"> complete</span>}
          </p>
          <Parts parts={line.artifact?.parts ?? []} defaultFormat="markdown" live={live} isWhole />
        </>
      );
    case "gap":
      return <p class="faint">Earlier events are not shown. This is the task as of event {line.first}.</p>;
    default:
      return (
        <>
          <p class="who">
            <StateLabel state={line.state ?? ""} />
            {line.attempt && <span> attempt {line.attempt}</span>}
            {line.error && (
              <span class="bad">
                {" "}
                because the one before failed: {line.error}
              </span>
            )}
          </p>
          {line.message && !isNotice && <StatusMessage parts={line.message.parts} state={line.state ?? ""} />}
        </>
      );
  }
}

/** The message of a status. The answers that a question offers are shown as text. */
function StatusMessage({ parts, state }: { parts: readonly Part[]; state: string }) {
  const offers = isWaiting(state) ? parts.map(offeredAnswers) : [];
  return (
    <>
      <Parts parts={parts.filter((_, index) => !offers[index])} defaultFormat="markdown" />
      {offers.map((offer) => offer && <p class="faint">{offer}</p>)}
    </>
  );
}

/** An agent that returns a text gives its artifact no name. */
function artifactTitle({ name }: Artifact): string {
  return name || "Answer";
}

export function Artifacts({ projection }: { projection: TaskProjection }) {
  if (projection.artifacts.size === 0) return <p class="empty">No artifacts.</p>;
  return (
    <div class="results">
      {[...projection.artifacts.values()].map((artifact) => (
        <section key={artifact.artifactId} aria-label={artifactTitle(artifact)}>
          <h3 title={artifact.artifactId}>{artifactTitle(artifact)}</h3>
          {artifact.description && <p class="faint">{artifact.description}</p>}
          <Parts parts={artifact.parts ?? []} defaultFormat="markdown" isWhole />
        </section>
      ))}
    </div>
  );
}
